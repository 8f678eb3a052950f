use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use crate::lane_table::LaneRef;
use crate::place::MemberId;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// Leases of these offsets may be over; their slots say which.
    Leases { lane: LaneRef, from: u64, to: u64 },
    /// The next attempt of an event.
    Retry { lane: LaneRef, offset: u64 },
    /// A lane that could not be read is tried again.
    Read { lane: LaneRef },
    /// A revoked lane is taken away.
    Drain { lane: LaneRef },
    /// A member may have been silent too long.
    Silence { member: MemberId },
}

/// All deadlines of a group, the earliest first. Entries are never searched for and taken out:
/// what is due is compared with the truth when its time comes, and swept when most are stale.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(u64, Due)>>,
    /// Earliest time the caller was told.
    told: Option<u64>,
    swept: usize,
}

impl Timers {
    pub(crate) fn add(&mut self, at: u64, due: Due) {
        self.heap.push(Reverse((at, due)));
    }

    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Due> {
        match self.heap.peek() {
            Some(Reverse((at, _))) if *at <= now => self.heap.pop().map(|Reverse((_, due))| due),
            _ => None,
        }
    }

    /// Drops entries that `stale` says nobody needs, now and then: so often that they are never
    /// more than half, so seldom that it costs a constant per entry.
    pub(crate) fn sweep(&mut self, stale: impl Fn(&Due) -> bool) {
        if self.heap.len() > 2 * self.swept + 64 {
            self.heap.retain(|Reverse((_, due))| !stale(due));
            self.heap.shrink_to(64);
            self.swept = self.heap.len();
        }
        while let Some(Reverse((_, due))) = self.heap.peek()
            && stale(due)
        {
            self.heap.pop();
        }
    }

    /// The time to tell the caller, if it has to know of an earlier one than it does.
    pub(crate) fn earlier_than_told(&mut self, now: u64) -> Option<u64> {
        if self.told.is_some_and(|told| told <= now) {
            self.told = None;
        }
        let Reverse((at, _)) = self.heap.peek()?;
        let at = *at;
        if self.told.is_none_or(|told| at < told) {
            self.told = Some(at);
            return Some(at);
        }
        None
    }
}
