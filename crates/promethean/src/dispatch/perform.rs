use std::sync::Arc;

use promethean_delivery::{Deliver, Delivery, LaneId, MemberId, Output, Run, Span};
use promethean_event::{Offset, Timestamp};

use super::active::{ActiveGroup, Chore, Inner};
use super::join::MemberMessage;
use super::out_batch::OutBatch;
use super::registry::Site;
use crate::limits::FETCH_BYTES_MAX;
use crate::metrics::{GroupMeters, Tally};
use crate::store::{EventPage, Lane, PageLimit, ReadError};

/// A delivery of events that have to be read again.
pub(super) struct Redelivery {
    batch: OutBatch,
    member: MemberId,
    again: Vec<Delivery>,
}

/// How long the events of one batch were in the store before they went out for the first time.
struct Waited {
    now: Option<Timestamp>,
    tally: Tally,
}

impl Waited {
    fn until(site: &Site) -> Self {
        let now = site.meters.is_on().then(|| site.clock.now());
        Self { now, tally: Tally::default() }
    }

    fn note(&mut self, page: &EventPage, index: usize, run: Run) {
        if let Some(now) = self.now
            && (run.attempt, run.round) == (1, 0)
        {
            for (appended_at, count) in page.appended(index, run.count() as usize) {
                let nanos = now.millis_since(appended_at).saturating_mul(1_000_000);
                self.tally.record_times(nanos, count as u32);
            }
        }
    }

    fn end(mut self, meters: &GroupMeters) {
        meters.latency.add(&mut self.tally);
    }
}

impl ActiveGroup {
    /// Does what the state machine said. Never waits: the lock is held.
    pub(super) fn perform(self: &Arc<Self>, inner: &mut Inner, output: Output) {
        match output {
            Output::Fetch(fetch) => {
                if let Some(view) = inner.lanes.get_mut(&fetch.lane) {
                    view.fetch = Some(fetch.fetch);
                }
                inner.chores.push_back(Chore::Fetch(fetch));
            }
            Output::Deliver(deliver) => self.deliver(inner, &deliver),
            Output::Save(save) => self.begin_save(inner, save),
            Output::Reply(reply) => match inner.replies.remove(&reply.request) {
                // Whoever asked may have gone since.
                Some(waiting) => drop(waiting.sender.send(reply)),
                None if !reply.refused.is_empty() => {
                    let refused = reply.refused.len();
                    tracing::debug!(group = %self.name, refused, "late acks changed nothing");
                }
                None => {}
            },
            Output::Assign(of) => {
                if let Some(view) = inner.lanes.get_mut(&of.lane) {
                    view.owner = Some(of.member);
                }
                inner.tell(of.member, MemberMessage::Assigned(Lane::of(of.lane)));
            }
            Output::Revoke { of, .. } => {
                inner.tell(of.member, MemberMessage::Revoked(Lane::of(of.lane)));
            }
            Output::Expired { member } | Output::Rejoin { member } => {
                // The closed queue tells it.
                inner.members.remove(&member);
            }
            Output::Broken { lane, offset } => {
                let lane = Lane::of(lane);
                tracing::error!(group = %self.name, ?lane, offset, "a read left out events");
            }
            Output::SetTimer { at } => self.set_timer(inner, at),
            // Whatever else delivery may come to say, it says to a newer version of this.
            _ => {}
        }
    }

    fn deliver(&self, inner: &mut Inner, deliver: &Deliver) {
        let Some(view) = inner.lanes.get_mut(&deliver.lane) else {
            return;
        };
        let mut batch = OutBatch::new(view.name.lane, deliver);
        let mut waited = Waited::until(&self.site);
        let mut again = Vec::new();
        for &run in &deliver.runs {
            let mut next = run.from;
            let push = |page: &Arc<EventPage>, index, count| {
                let part = Run { from: next, to: next + count as u64, ..run };
                next = part.to;
                waited.note(page, index, part);
                batch.push(page, index, part);
            };
            if let Some(from) = view.stash.take((run.from, run.to), push) {
                again.extend(Run { from, ..run }.events());
            }
        }
        waited.end(&self.meters);
        if !again.is_empty() {
            let batch = batch.emptied();
            let member = deliver.member;
            inner.chores.push_back(Chore::Redeliver(Redelivery { batch, member, again }));
        }
        if batch.len() > 0 {
            let topic = view.name.topic.clone();
            inner.tell(deliver.member, MemberMessage::Events(batch, topic));
        }
    }

    /// Reads events that were delivered before, and hands them over.
    pub(super) async fn redeliver(self: Arc<Self>, redelivery: Redelivery) {
        let Redelivery { mut batch, member, mut again } = redelivery;
        again.sort_unstable_by_key(|delivery| delivery.offset);
        let lane = batch.lane;
        let mut rest = again.as_slice();
        while let (Some(first), Some(last)) = (rest.first(), rest.last()) {
            let (from, to) = (first.offset, last.offset + 1);
            match self.read_again(lane, (from, to), rest, &mut batch).await {
                Ok(passed) => {
                    let after = rest.partition_point(|delivery| delivery.offset < passed);
                    rest = rest.get(after..).unwrap_or_default();
                }
                // Their leases run out, and they are tried again.
                Err(error) => {
                    tracing::warn!(group = %self.name, %error, "reading for a redelivery failed");
                    break;
                }
            }
        }
        let mut inner = self.lock();
        let topic = inner.lanes.get(&lane.id()).map(|view| view.name.topic.clone());
        if let Some(topic) = topic.filter(|_| batch.len() > 0) {
            inner.tell(member, MemberMessage::Events(batch, topic));
        }
    }
}

impl ActiveGroup {
    /// Reads from `from` towards `to` and adds what was wanted; gives the offset it came to.
    async fn read_again(
        self: &Arc<Self>,
        lane: Lane,
        (from, to): (u64, u64),
        wanted: &[Delivery],
        batch: &mut OutBatch,
    ) -> Result<u64, ReadError> {
        let events = usize::try_from(to - from).unwrap_or(usize::MAX).min(1_024);
        let limit = PageLimit { events, bytes: FETCH_BYTES_MAX };
        let page = self.site.store.fetch(lane, Offset::new(from), limit).await?;
        let page = Arc::new(page);
        let passed = page.next.get().max(from + 1);
        for delivery in wanted.iter().take_while(|delivery| delivery.offset < passed) {
            match page.find(delivery.offset) {
                Some(index) => {
                    let Delivery { offset: from, attempt, round } = *delivery;
                    batch.push(&page, index, Run { from, to: from + 1, attempt, round });
                }
                None => {
                    let span = Span { from: delivery.offset, to: delivery.offset + 1 };
                    self.skip_missing(lane.id(), span);
                }
            }
        }
        Ok(passed)
    }

    fn set_timer(self: &Arc<Self>, inner: &mut Inner, at: u64) {
        let group = Arc::downgrade(self);
        let until = self.site.clock.instant_of(at);
        let task = self.site.runtime.spawn(async move {
            tokio::time::sleep_until(until).await;
            if let Some(group) = group.upgrade() {
                group.step(promethean_delivery::Input::Tick);
            }
        });
        if let Some(earlier) = inner.timer.replace(task.abort_handle()) {
            earlier.abort();
        }
    }

    pub(super) fn forget_stash(inner: &mut Inner, lane: LaneId) {
        if let Some(view) = inner.lanes.get_mut(&lane) {
            view.stash.clear();
            view.fetch = None;
        }
    }
}

impl Inner {
    /// Hands something to a member. If its queue is full or closed it is a member no more, and its
    /// leases come back.
    pub(super) fn tell(&mut self, member: MemberId, message: MemberMessage) {
        if let Some(queue) = self.members.get(&member)
            && !queue.send(self.lanes.len(), message)
        {
            self.members.remove(&member);
            self.chores.push_back(Chore::Expel(member));
        }
    }
}
