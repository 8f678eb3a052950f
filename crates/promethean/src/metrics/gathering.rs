//! A scrape: asks the groups and the store how they stand.

use std::collections::BTreeMap;
use std::sync::Arc;

use promethean_delivery::Counters;
use promethean_event::{GroupName, Offset, Timestamp, Topic};

use super::catalogue::OTHER;
use super::exposition::Family;
use super::families;
use super::meters::Meters;
use super::pairs::Series;
use crate::bus::BusInner;
use crate::changefeed::{Feeds, Phase, Status};
use crate::dispatch::{ActiveGroup, LaneStanding};
use crate::store::{Lane, PageLimit, Read, ReadError, TopicTable};

/// Topic and group, as they are shown.
pub(super) type PairLabel = (String, String);

/// What is shown for a group's reading of a topic, its partitions together.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct PairFigures {
    pub(super) counters: Counters,
    pub(super) inflight: u64,
    pub(super) holes: u64,
    pub(super) lag_events: u64,
    /// Of the partition that is most behind.
    pub(super) lag_ms: u64,
    pub(super) oldest_age_ms: u64,
}

/// What is shown for a group.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct GroupFigures {
    pub(super) members: u64,
    pub(super) failed: bool,
}

/// What is shown for a changefeed.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct FeedFigures {
    pub(super) headroom_seconds: Option<u64>,
    pub(super) stopped: bool,
}

/// What a scrape puts together.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) pairs: BTreeMap<PairLabel, PairFigures>,
    pub(super) groups: BTreeMap<String, GroupFigures>,
    pub(super) feeds: BTreeMap<String, FeedFigures>,
}

impl BusInner {
    /// Everything that is shown, as it is now.
    pub(super) async fn gather(&self) -> Vec<Family> {
        let meters = &self.groups.site().meters;
        let candidates = meters.group_names();
        let stored = match self.store.groups().await {
            Ok(stored) => {
                let gone = candidates.into_iter().filter(|name| !stored.contains(name)).collect();
                meters.prune(&gone, || self.store.topics());
                stored
            }
            Err(error) => {
                tracing::debug!(%error, "groups could not be listed for a scrape");
                meters.scrape_failed();
                Vec::new()
            }
        };
        let mut figures = Figures::default();
        let live = self.groups.live();
        for group in &live {
            self.add_group(group, &mut figures).await;
        }
        for name in stored.iter().filter(|name| !live.iter().any(|group| group.name == **name)) {
            self.add_idle(name, &mut figures).await;
        }
        figures.add_others(meters);
        self.add_feeds(&mut figures).await;
        families::of(self, &figures)
    }

    /// Changefeeds, whoever runs them: their records are in the store.
    async fn add_feeds(&self, figures: &mut Figures) {
        let feeds = match Feeds::new(&self.store).list().await {
            Ok(feeds) => feeds,
            Err(error) => {
                tracing::debug!(%error, "changefeeds could not be listed for a scrape");
                return self.groups.site().meters.scrape_failed();
            }
        };
        for feed in feeds {
            let stopped = |status: &Status| {
                matches!(status.phase, Phase::Lost { .. } | Phase::Stopped { .. })
            };
            let shown = FeedFigures {
                headroom_seconds: feed.status.as_ref().and_then(|s| s.oplog_headroom_seconds),
                stopped: feed.status.as_ref().is_some_and(stopped),
            };
            figures.feeds.insert(feed.name, shown);
        }
    }

    /// A group that is at work.
    async fn add_group(&self, group: &ActiveGroup, figures: &mut Figures) {
        let meters = &self.groups.site().meters;
        let label = group.meters.label().to_owned();
        let (lanes, carried) = group.standing();
        let topics = self.store.topics();
        for (topic, counters) in carried.iter() {
            if let Some(entry) = topics.by_id(topic) {
                let topic = entry.definition.topic.as_str();
                figures.pair((topic, group.name.as_str())).counters += counters;
            }
        }
        for lane in lanes {
            let figures = match lane.series {
                // Removed, which the group has not heard yet.
                Series::Own if topics.by_id(lane.lane.topic).is_none() => continue,
                Series::Own => figures.pair((lane.topic.as_str(), group.name.as_str())),
                Series::Other => figures.pair((OTHER, OTHER)),
            };
            figures.counters += lane.counters;
            self.add_lane(&lane, figures, meters).await;
        }
        let of_group = figures.groups.entry(label).or_default();
        of_group.members += group.member_count() as u64;
        of_group.failed |= group.failure().is_some();
    }

    /// A group that nobody has asked for since the bus was opened: what its record says. It is
    /// not taken up for it, for that may have consequences (attempts that a crash used up).
    async fn add_idle(&self, name: &GroupName, figures: &mut Figures) {
        let meters = &self.groups.site().meters;
        let record = match self.store.group(name.clone()).await {
            Ok(Some(record)) => record,
            // Removed since.
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(group = %name, %error, "a group could not be read for a scrape");
                return meters.scrape_failed();
            }
        };
        let label = meters.group(name).label().to_owned();
        figures.groups.entry(label).or_default();
        let topics = self.store.topics();
        for (lane, state) in record.lanes {
            let Some(topic) = topic_of(&topics, lane) else {
                continue;
            };
            let series = meters.admit(name, lane.topic, &topic);
            let standing = LaneStanding {
                lane,
                series,
                floor: state.floor,
                out: 0,
                holes: state.acked.spans().iter().map(|span| span.count()).sum(),
                released: state.released.len() as u64,
                counters: Counters::default(),
                topic,
            };
            let figures = match series {
                Series::Own => figures.pair((standing.topic.as_str(), name.as_str())),
                Series::Other => figures.pair((OTHER, OTHER)),
            };
            self.add_lane(&standing, figures, meters).await;
        }
    }

    async fn add_lane(&self, lane: &LaneStanding, figures: &mut PairFigures, meters: &Meters) {
        figures.inflight += lane.out;
        figures.holes += lane.holes;
        match self.behind(lane).await {
            Ok(behind) => {
                figures.lag_events += behind.events;
                figures.lag_ms = figures.lag_ms.max(behind.ms);
                figures.oldest_age_ms = figures.oldest_age_ms.max(behind.oldest_age_ms);
            }
            // Its topic was removed a moment ago.
            Err(ReadError::UnknownLane) => {}
            Err(error) => {
                tracing::debug!(lane = ?lane.lane, %error, "unread for a scrape");
                meters.scrape_failed();
            }
        }
    }

    /// How far a group is behind in one lane.
    async fn behind(&self, standing: &LaneStanding) -> Result<Behind, ReadError> {
        let lane = standing.lane;
        let bounds = self.store.bounds(lane).await?;
        let floor = Offset::new(standing.floor).max(bounds.start);
        let unfinished = bounds.next.get().saturating_sub(floor.get());
        let events = unfinished.saturating_sub(standing.holes) + standing.released;
        if unfinished == 0 {
            return Ok(Behind { events, ..Behind::default() });
        }
        let limit = PageLimit { events: 1, bytes: 1 };
        let oldest = self.taken_at(Read::From { lane, from: floor, limit }).await?;
        let newest = self.taken_at(Read::Before { lane, before: bounds.next, limit }).await?;
        let now = self.groups.site().clock.now();
        let since = |later: Timestamp| oldest.map_or(0, |oldest| later.millis_since(oldest));
        Ok(Behind { events, ms: newest.map_or(0, since), oldest_age_ms: since(now) })
    }

    async fn taken_at(&self, read: Read) -> Result<Option<Timestamp>, ReadError> {
        let page = self.store.read(read).await?;
        Ok(page.events.first().map(|stored| stored.appended_at))
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Behind {
    events: u64,
    ms: u64,
    oldest_age_ms: u64,
}

impl Figures {
    fn pair(&mut self, (topic, group): (&str, &str)) -> &mut PairFigures {
        self.pairs.entry((topic.to_owned(), group.to_owned())).or_default()
    }

    /// What is left of lanes without a series that were let go.
    fn add_others(&mut self, meters: &Meters) {
        let left = meters.carried_as_other();
        if left != Counters::default() {
            self.pair((OTHER, OTHER)).counters += left;
        }
    }
}

fn topic_of(topics: &Arc<TopicTable>, lane: Lane) -> Option<Topic> {
    topics.by_id(lane.topic).map(|entry| entry.definition.topic.clone())
}
