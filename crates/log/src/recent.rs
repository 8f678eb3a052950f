//! Which lanes grew lately, so that one who waits for growth need not look at all of them.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use promethean_event::Offset;

use crate::catalog::Catalog;
use crate::limits::RECENT_LANES_MAX;
use crate::log::Log;
use crate::topic::Lane;

/// What has grown since a mark.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Growth {
    /// Stands for now: what grows later has grown since.
    pub mark: u64,
    /// The lanes that grew, each once, with their ends; `None` if too much has happened to tell.
    pub lanes: Option<Vec<(Lane, Offset)>>,
    /// The log is closed: nothing will grow any more.
    pub closed: bool,
}

/// The lanes of the newest frames. Topics of the system's are left out: nobody waits for them, and
/// those who do wait would be woken by every change of state.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Frames so far.
    mark: u64,
    lanes: VecDeque<(u64, Lane)>,
    /// Of frames up to this one the lanes are not known any more.
    forgotten: u64,
}

impl Recent {
    /// After opening: of what was there before, nothing is known.
    pub(crate) fn after(next_seq: u64) -> Self {
        let mark = u64::from(next_seq > 0);
        Self { mark, lanes: VecDeque::new(), forgotten: mark }
    }

    /// Takes note of the lanes of a frame.
    pub(crate) fn note(&mut self, catalog: &Catalog, lanes: impl Iterator<Item = Lane>) {
        let mark = self.mark + 1;
        let mut last = None;
        for lane in lanes {
            // Events of a lane mostly follow each other; what this lets through is sorted out by
            // those who ask.
            if last == Some(lane) {
                continue;
            }
            last = Some(lane);
            let users = |topic: &crate::catalog::TopicState| !topic.definition.topic.is_system();
            if catalog.live(lane.topic).is_some_and(users) {
                self.mark = mark;
                self.lanes.push_back((mark, lane));
            }
        }
        while self.lanes.len() > RECENT_LANES_MAX
            && let Some((mark, _)) = self.lanes.pop_front()
        {
            self.forgotten = mark;
        }
    }

    /// The lanes of the frames after a mark; `None` if they are not known any more.
    fn since(&self, mark: u64) -> Option<Vec<Lane>> {
        if mark < self.forgotten {
            return None;
        }
        let after = self.lanes.partition_point(|(at, _)| *at <= mark);
        let mut lanes: Vec<Lane> = self.lanes.range(after..).map(|(_, lane)| *lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        Some(lanes)
    }
}

impl Log {
    /// What has grown since a mark (0: since ever), if anything has; else the task is woken when
    /// something does, or when the log is closed. Topics of the system's do not count.
    pub fn poll_growth(&self, mark: u64, context: &mut Context<'_>) -> Poll<Growth> {
        if let Some(growth) = self.growth_since(mark) {
            return Poll::Ready(growth);
        }
        self.engine.waiting.add(context.waker());
        // It may have grown between the look and the word.
        self.growth_since(mark).map_or(Poll::Pending, Poll::Ready)
    }

    fn growth_since(&self, mark: u64) -> Option<Growth> {
        let closed = self.engine.site.upkeep.stopping();
        let state = self.engine.read();
        let recent = &state.recent;
        if recent.mark <= mark && !closed {
            return None;
        }
        let ends = |lanes: Vec<Lane>| {
            let end = |lane| state.catalog.lane(lane).map(|known| (lane, known.next));
            lanes.into_iter().filter_map(end).collect()
        };
        let lanes = recent.since(mark).map(ends);
        Some(Growth { mark: recent.mark.max(mark), lanes, closed })
    }

    /// Whether the event at an offset of a lane, or the end of the lane, can be read from memory.
    pub fn in_tail(&self, lane: Lane, from: Offset) -> bool {
        let state = self.engine.read();
        if state.catalog.lane(lane).is_none_or(|known| from >= known.next) {
            return true;
        }
        if state.active.index.lane_range(lane).is_none_or(|(first, _)| from.get() < first) {
            return false;
        }
        let position = state.active.index.positions(lane, from.get(), 1);
        let name = state.active.name;
        position.first().is_some_and(|&(_, position)| state.tail.get(name, position).is_some())
    }
}

#[cfg(test)]
mod tests {
    use promethean_event::{EventId, Partition, Topic};

    use super::*;
    use crate::catalog::CatalogEntry;
    use crate::topic::{TopicDefinition, TopicId};

    fn catalog() -> Catalog {
        let mut catalog = Catalog::default();
        let names = [Topic::new("a").unwrap(), Topic::new("b").unwrap()];
        let system = Topic::system("$deltas").unwrap();
        for (id, topic) in names.into_iter().chain([system]).enumerate() {
            let (id, definition) = (TopicId(id as u32), TopicDefinition::new(topic));
            let greatest_id = EventId::from_bytes([0; 16]);
            catalog.apply(&CatalogEntry::Topic { id, definition, greatest_id });
        }
        catalog
    }

    const fn lane(topic: u32) -> Lane {
        Lane { topic: TopicId(topic), partition: Partition::ZERO }
    }

    #[test]
    fn tells_the_lanes_of_newer_frames_and_leaves_the_systems_out() {
        let (catalog, mut recent) = (catalog(), Recent::default());
        recent.note(&catalog, [lane(1), lane(1), lane(0), lane(1)].into_iter());
        assert_eq!((recent.mark, recent.since(0)), (1, Some(vec![lane(0), lane(1)])));
        recent.note(&catalog, [lane(2)].into_iter());
        assert_eq!((recent.mark, recent.since(1)), (1, Some(vec![])));
        recent.note(&catalog, [lane(2), lane(1)].into_iter());
        assert_eq!((recent.mark, recent.since(1)), (2, Some(vec![lane(1)])));
    }

    #[test]
    fn says_when_it_cannot_tell() {
        let (catalog, mut recent) = (catalog(), Recent::after(7));
        assert_eq!((recent.mark, recent.since(0)), (1, None));
        for _ in 0..=RECENT_LANES_MAX {
            recent.note(&catalog, [lane(0)].into_iter());
        }
        assert_eq!(recent.since(1), None);
        assert_eq!(recent.since(2), Some(vec![lane(0)]));
        assert_eq!(recent.lanes.len(), RECENT_LANES_MAX);
    }
}
