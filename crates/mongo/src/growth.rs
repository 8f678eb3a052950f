//! What has grown lately, by this hub and by others, and who waits for it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mongodb::bson::raw::RawDocumentBuf;
use promethean::store::{Growth, Lane};
use promethean_event::Offset;
use tokio::sync::Notify;

use crate::clock::Stopwatch;
use crate::limits::{RECENT_LANES_MAX, TAIL_TIME, TAILS_MAX};
use crate::plan::Head;
use crate::tail::Tail;

#[derive(Debug, Default)]
pub(crate) struct Growing {
    recent: Mutex<Recent>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Recent {
    mark: u64,
    lanes: VecDeque<(u64, Lane)>,
    /// Growth up to this mark is not told lane by lane any more.
    forgotten: u64,
    topics_changed: u64,
    hubs_changed: u64,
    closed: bool,
    /// Where lanes end, as far as it is known here: what is below can be read.
    ends: BTreeMap<Lane, u64>,
    /// The same with all that whoever appends has to know, where it was told.
    heads: BTreeMap<Lane, Head>,
    /// The events of the last commit to a lane, where they were told.
    tails: HashMap<Lane, Tail>,
    /// When events were deleted here last.
    tails_lost: Option<Stopwatch>,
}

impl Growing {
    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lanes reach to here at least. Told once: what is known already is no growth.
    pub(crate) fn note_ends(&self, ends: impl IntoIterator<Item = (Lane, u64)>) {
        let grew = self.lock().note_ends(ends);
        if grew {
            self.changed.notify_waiters();
        }
    }

    /// Hubs have appended to lanes, and may have told what. All that one commit has changed is noted at
    /// once: whoever waits for it would otherwise try to write with half of it, in vain.
    pub(crate) fn note_heads(&self, heard: Vec<(Lane, Head, Option<Tail>)>) {
        let mut recent = self.lock();
        let ends: Vec<(Lane, u64)> =
            heard.iter().map(|(lane, head, _)| (*lane, head.next)).collect();
        for (lane, head, tail) in heard {
            let known = recent.heads.entry(lane).or_insert(head);
            if head.next > known.next {
                *known = head;
            }
            if let Some(tail) = tail {
                if recent.tails.len() >= TAILS_MAX {
                    recent.tails.clear();
                }
                recent.tails.insert(lane, tail);
            }
        }
        let grew = recent.note_ends(ends);
        drop(recent);
        if grew {
            self.changed.notify_waiters();
        }
    }

    /// The last events of a lane, if they begin there, were told a moment ago, and nothing is known to
    /// stand behind them: a page of them would be short for no reason.
    pub(crate) fn tail(&self, lane: Lane, from: u64) -> Option<Vec<RawDocumentBuf>> {
        let recent = self.lock();
        if recent.tails_lost.is_some_and(|lost| lost.elapsed() < TAIL_TIME) {
            return None;
        }
        let documents = recent.tails.get(&lane).filter(|tail| tail.from == from)?.fresh()?;
        let end = recent.ends.get(&lane).copied().unwrap_or(0);
        (from + documents.len() as u64 >= end).then_some(documents)
    }

    /// Events were deleted here: none is taken from what was told for as long as that may be of before.
    pub(crate) fn lose_tails(&self) {
        let mut recent = self.lock();
        recent.tails.clear();
        recent.tails_lost = Some(Stopwatch::start());
    }

    /// Where a lane ends, as it was heard of last.
    pub(crate) fn head(&self, lane: Lane) -> Option<Head> {
        self.lock().heads.get(&lane).copied()
    }

    /// What was heard of heads may be old: of a commit whose answer was lost, nothing was heard.
    pub(crate) fn forget_heads(&self) {
        self.lock().heads.clear();
    }

    /// Waits until one of these lanes reaches further than that.
    pub(crate) async fn beyond(&self, ends: &[(Lane, u64)]) {
        loop {
            let mut notified = pin!(self.changed.notified());
            notified.as_mut().enable();
            if self.is_beyond(ends) {
                return;
            }
            notified.await;
        }
    }

    /// Whether one of these lanes is known to reach further than that.
    pub(crate) fn is_beyond(&self, ends: &[(Lane, u64)]) -> bool {
        let recent = self.lock();
        ends.iter().any(|(lane, end)| recent.ends.get(lane).is_some_and(|known| known > end))
    }

    /// Topics came, changed or went; lanes of those that went are forgotten. In one step: otherwise
    /// somebody who looks in between would be woken without a word of what for.
    pub(crate) fn note_topics(&self, is_gone: impl Fn(Lane) -> bool) {
        let mut recent = self.lock();
        recent.mark += 1;
        recent.topics_changed = recent.mark;
        recent.ends.retain(|lane, _| !is_gone(*lane));
        recent.heads.retain(|lane, _| !is_gone(*lane));
        recent.tails.retain(|lane, _| !is_gone(*lane));
        recent.lanes.retain(|(_, lane)| !is_gone(*lane));
        drop(recent);
        self.changed.notify_waiters();
    }

    /// Hubs came, went or let go of something, or want something of each other.
    pub(crate) fn note_hubs(&self) {
        let mut recent = self.lock();
        recent.mark += 1;
        recent.hubs_changed = recent.mark;
        drop(recent);
        self.changed.notify_waiters();
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_waiters();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Where a lane ends at least.
    pub(crate) fn end(&self, lane: Lane) -> Option<u64> {
        self.lock().ends.get(&lane).copied()
    }

    pub(crate) async fn since(&self, mark: u64) -> Growth {
        loop {
            let mut notified = pin!(self.changed.notified());
            // Listening before looking: what happens in between is heard.
            notified.as_mut().enable();
            if let Some(growth) = self.lock().since(mark) {
                return growth;
            }
            notified.await;
        }
    }
}

impl Recent {
    fn note_ends(&mut self, ends: impl IntoIterator<Item = (Lane, u64)>) -> bool {
        let mut grew = Vec::new();
        for (lane, end) in ends {
            let known = self.ends.entry(lane).or_default();
            if end > *known {
                *known = end;
                grew.push(lane);
            }
        }
        if grew.is_empty() {
            return false;
        }
        self.mark += 1;
        self.lanes.extend(grew.into_iter().map(|lane| (self.mark, lane)));
        while self.lanes.len() > RECENT_LANES_MAX
            && let Some((mark, _)) = self.lanes.pop_front()
        {
            self.forgotten = mark;
        }
        true
    }

    fn since(&self, mark: u64) -> Option<Growth> {
        if self.mark <= mark && !self.closed {
            return None;
        }
        let lanes: BTreeSet<Lane> =
            self.lanes.iter().filter(|(at, _)| *at > mark).map(|(_, lane)| *lane).collect();
        let end = |lane| Some((lane, Offset::new(*self.ends.get(&lane)?)));
        let lanes = lanes.into_iter().filter_map(end).collect();
        Some(Growth {
            mark: self.mark.max(mark),
            lanes: (mark >= self.forgotten).then_some(lanes),
            topics_changed: self.topics_changed > mark,
            hubs_changed: self.hubs_changed > mark,
            closed: self.closed,
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use promethean::store::TopicId;
    use promethean_event::Partition;

    use super::*;

    const fn lane(topic: u32) -> Lane {
        Lane { topic: TopicId::new(topic), partition: Partition::ZERO }
    }

    /// Growth of a topic that goes before it is heard of is told as a change of topics, and nothing
    /// is told of it afterwards.
    #[test]
    fn a_topic_that_goes_takes_its_growth_with_it() {
        let growing = Growing::default();
        growing.note_ends([(lane(1), 5), (lane(2), 7)]);
        growing.note_topics(|of| of == lane(1));
        let growth = growing.since(0).now_or_never().unwrap();
        assert_eq!(growth.lanes, Some(vec![(lane(2), Offset::new(7))]));
        assert!(growth.topics_changed);
        assert!(growing.since(growth.mark).now_or_never().is_none());
        // One who has heard of the growth is told of the topics alone.
        let growth = growing.since(1).now_or_never().unwrap();
        assert_eq!((growth.lanes, growth.topics_changed), (Some(Vec::new()), true));
    }

    /// Word of a small commit comes, and then this hub appends more: a reader who begins at the first
    /// one must not be handed that one alone.
    #[test]
    fn what_was_told_is_not_handed_out_as_the_end_when_it_is_not() {
        let growing = Growing::default();
        let mut event = RawDocumentBuf::new();
        event.append(mongodb::bson::cstr!("offset"), 0_i64);
        let head = Head {
            next: 1,
            bytes: 0,
            appended_at: promethean_event::Timestamp::from_millis(0),
            exists: true,
        };
        growing.note_heads(vec![(lane(1), head, Tail::heard(event.as_bytes()))]);
        assert_eq!(growing.tail(lane(1), 0).map(|told| told.len()), Some(1));
        growing.note_ends([(lane(1), 300)]);
        assert_eq!(growing.tail(lane(1), 0), None);
    }

    /// A lane that is noted again after it was forgotten has grown.
    #[test]
    fn a_lane_that_comes_back_is_told() {
        let growing = Growing::default();
        growing.note_ends([(lane(1), 5)]);
        growing.note_topics(|of| of == lane(1));
        let mark = growing.since(0).now_or_never().unwrap().mark;
        growing.note_ends([(lane(1), 5)]);
        let growth = growing.since(mark).now_or_never().unwrap();
        assert_eq!(growth.lanes, Some(vec![(lane(1), Offset::new(5))]));
    }
}
