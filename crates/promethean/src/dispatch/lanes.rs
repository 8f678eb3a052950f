use std::sync::Arc;

use promethean_delivery::{
    Input, LaneDelta, LaneId, LaneStart, LaneState, MemberId, Span, StartFrom,
};
use promethean_event::{Offset, Partition, Topic};

use super::active::ActiveGroup;
use super::stash::Stash;
use crate::metrics::Series;
use crate::store::{Lane, ReadError, TopicEntry};

/// A lane as people call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaneName {
    pub(crate) lane: Lane,
    pub(crate) topic: Topic,
}

impl LaneName {
    pub(crate) const fn partition(&self) -> Partition {
        self.lane.partition
    }
}

/// What a group has of a lane.
#[derive(Debug)]
pub(super) struct LaneView {
    pub(super) name: LaneName,
    pub(super) stash: Stash,
    /// The read that is under way.
    pub(super) fetch: Option<u64>,
    /// The member that was told last that the lane is its own.
    pub(super) owner: Option<MemberId>,
    /// Whether it is counted by name.
    pub(super) series: Series,
}

/// The delta that a lane begins with.
pub(super) fn first_delta(floor: Offset) -> LaneDelta {
    use promethean_delivery::Change;
    LaneDelta { version: 1, changes: vec![Change::Floor(floor.get())] }
}

impl ActiveGroup {
    /// Takes up the lanes of a topic that are not read yet. States come from the store; a lane
    /// without one is new, and read from its beginning.
    pub(super) async fn add_topic(
        self: &Arc<Self>,
        entry: &TopicEntry,
        mut state_of: impl FnMut(Lane) -> Option<LaneState>,
    ) -> Result<(), ReadError> {
        for lane in entry.lanes() {
            if !self.has(lane) {
                self.add_lane(entry, lane, state_of(lane), None).await?;
            }
        }
        Ok(())
    }

    /// Takes up a lane, by a claim where there are several hubs.
    pub(super) async fn add_lane(
        self: &Arc<Self>,
        entry: &TopicEntry,
        lane: Lane,
        state: Option<LaneState>,
        epoch: Option<u64>,
    ) -> Result<(), ReadError> {
        // First the router, then the end of the lane: what comes between is told twice, not never.
        self.site.router.add(lane, self);
        let bounds = self.site.store.bounds(lane).await?;
        let from = match state {
            Some(state) => StartFrom::State(Box::new(state)),
            None => StartFrom::Offset(bounds.start.get()),
        };
        let name = LaneName { lane, topic: entry.definition.topic.clone() };
        let series = self.site.meters.admit(&self.name, lane.topic, &name.topic);
        let start = LaneStart { lane: lane.id(), tail: bounds.next.get(), from };
        let chores = {
            let mut inner = self.lock();
            if inner.lanes.contains_key(&lane.id()) {
                // Somebody else noticed the topic at the same time.
                return Ok(());
            }
            let (stash, fetch, owner) = (Stash::default(), None, None);
            inner.lanes.insert(lane.id(), LaneView { name, stash, fetch, owner, series });
            inner.claims.extend(epoch.map(|epoch| (lane.id(), epoch)));
            self.step_locked(&mut inner, Input::LaneAdded(start));
            std::mem::take(&mut inner.chores)
        };
        self.work(chores);
        Ok(())
    }

    /// Takes up topics that were defined since, and lets go of those that were removed.
    pub(crate) async fn follow_topics(self: &Arc<Self>) -> Result<(), ReadError> {
        let topics = self.site.store.topics();
        let gone: Vec<LaneId> = {
            let inner = self.lock();
            let is_gone = |id: &&LaneId| topics.by_id(Lane::of(**id).topic).is_none();
            inner.lanes.keys().filter(is_gone).copied().collect()
        };
        for lane in gone {
            self.remove_lane(lane, Input::LaneRemoved { lane });
        }
        if let Some(hub) = &self.site.hub {
            // Which of the new ones are this hub's is settled with the others.
            if self.has_other_lanes() {
                hub.ring();
            }
            return Ok(());
        }
        let settings = self.settings();
        for entry in topics.users().filter(|entry| settings.reads(&entry.definition.topic)) {
            self.add_topic(entry, |_| None).await?;
        }
        Ok(())
    }

    /// A lane has grown.
    pub(crate) fn appended(self: &Arc<Self>, lane: Lane, next: Offset) {
        self.step(Input::Appended { lane: lane.id(), tail: next.get() });
    }

    /// Takes offsets out of the flow that are not there any more.
    pub(super) fn skip_missing(self: &Arc<Self>, lane: LaneId, span: Span) {
        // Nobody waits for the answer: what was not taken out comes again and is missed again.
        drop(self.ask(|request| Input::Skip { request, lane, span }));
    }
}
