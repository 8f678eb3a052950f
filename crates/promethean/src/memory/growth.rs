use std::collections::{BTreeSet, VecDeque};

use promethean_event::Offset;

use crate::store::limits::RECENT_LANES_MAX;
use crate::store::{Growth, Lane};

/// Which lanes grew lately.
#[derive(Debug, Default)]
pub(super) struct Recent {
    mark: u64,
    lanes: VecDeque<(u64, Lane)>,
    /// Growth up to this mark is not told lane by lane any more.
    forgotten: u64,
    topics_changed: u64,
    hubs_changed: u64,
}

impl Recent {
    pub(super) fn note_lanes(&mut self, lanes: impl Iterator<Item = Lane>) {
        let lanes: BTreeSet<Lane> = lanes.collect();
        if lanes.is_empty() {
            return;
        }
        self.mark += 1;
        self.lanes.extend(lanes.into_iter().map(|lane| (self.mark, lane)));
        while self.lanes.len() > RECENT_LANES_MAX
            && let Some((mark, _)) = self.lanes.pop_front()
        {
            self.forgotten = mark;
        }
    }

    pub(super) const fn note_topics(&mut self) {
        self.mark += 1;
        self.topics_changed = self.mark;
    }

    pub(super) const fn note_hubs(&mut self) {
        self.mark += 1;
        self.hubs_changed = self.mark;
    }

    /// What has grown; `None` if nothing has. Where the lanes end is for the caller to fill in.
    pub(super) fn since(&self, mark: u64, closed: bool) -> Option<Growth> {
        if self.mark <= mark && !closed {
            return None;
        }
        let since: BTreeSet<Lane> =
            self.lanes.iter().filter(|(at, _)| *at > mark).map(|(_, lane)| *lane).collect();
        let lanes = since.into_iter().map(|lane| (lane, Offset::ZERO)).collect();
        Some(Growth {
            mark: self.mark.max(mark),
            lanes: (mark >= self.forgotten).then_some(lanes),
            topics_changed: self.topics_changed > mark,
            hubs_changed: self.hubs_changed > mark,
            closed,
        })
    }
}
