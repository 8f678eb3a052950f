use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::acknowledgement::Question;
use crate::input::{Input, LaneStart, StartFrom};
use crate::lane::{Horizon, Lane};
use crate::lane_table::{LaneRef, LaneTable};
use crate::limits::{OFFSET_MAX, TIME_MS_MAX};
use crate::member::MemberTable;
use crate::options::{GroupOptions, OptionsError};
use crate::output::Output;
use crate::place::LaneId;
use crate::save::Ledger;
use crate::state::Change;
use crate::timer::{Due, Timers};

/// What a group, or one lane of it, has done since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Deliveries, all attempts.
    pub delivered: u64,
    /// Deliveries after the first of an event.
    pub redelivered: u64,
    /// Events acked.
    pub acked: u64,
    /// Deliveries refused by their consumer.
    pub nacked: u64,
    /// Leases that ran out.
    pub expired: u64,
    /// Events given up on.
    pub dead_lettered: u64,
}

impl core::ops::AddAssign for Counters {
    fn add_assign(&mut self, more: Self) {
        self.delivered += more.delivered;
        self.redelivered += more.redelivered;
        self.acked += more.acked;
        self.nacked += more.nacked;
        self.expired += more.expired;
        self.dead_lettered += more.dead_lettered;
    }
}

/// How a lane stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneStatus {
    /// The cursor: the lowest offset that is not finished.
    pub floor: u64,
    /// The fetch position.
    pub next: u64,
    /// The offset after the last event.
    pub tail: u64,
    /// Leases.
    pub out: u32,
    /// Events that could go out if somebody took them.
    pub ready: u32,
    /// Finished events beyond the cursor, which an unfinished one before them holds back.
    pub holes: u32,
    /// Parked keys.
    pub parked: u32,
    /// Released dead letters that are not finished.
    pub released: u32,
    /// The epoch.
    pub epoch: u32,
    /// The generation of the owner.
    pub generation: u32,
    /// What was done in the lane since it was added.
    pub counters: Counters,
}

/// One durable consumer group over all the lanes it reads. See the crate's documentation.
#[derive(Debug)]
pub struct Group {
    pub(crate) options: GroupOptions,
    pub(crate) seed: u64,
    pub(crate) now: u64,
    pub(crate) paused: bool,
    pub(crate) lanes: LaneTable,
    pub(crate) members: MemberTable,
    /// Lanes with something to deliver, in turn.
    pub(crate) active: VecDeque<LaneRef>,
    /// Lanes with something to read, in turn.
    pub(crate) hungry: VecDeque<LaneRef>,
    /// Lanes that are being taken away from their owner.
    pub(crate) draining: Vec<LaneRef>,
    /// Events read and ready, in all lanes.
    pub(crate) backlog: u64,
    pub(crate) fetches: u64,
    /// Horizons asked for.
    pub(crate) horizons: u64,
    pub(crate) timers: Timers,
    pub(crate) ledger: Ledger,
    pub(crate) counters: Counters,
    #[cfg(feature = "planted-bugs")]
    pub(crate) planted: Option<crate::PlantedBug>,
}

impl Group {
    /// A group without lanes and members. The seed spreads retries; any number will do.
    pub fn new(options: GroupOptions, seed: u64) -> Result<Self, OptionsError> {
        options.check()?;
        Ok(Self {
            options,
            seed,
            now: 0,
            paused: false,
            lanes: LaneTable::default(),
            members: MemberTable::default(),
            active: VecDeque::new(),
            hungry: VecDeque::new(),
            draining: Vec::new(),
            backlog: 0,
            fetches: 0,
            horizons: 0,
            timers: Timers::default(),
            ledger: Ledger::default(),
            counters: Counters::default(),
            #[cfg(feature = "planted-bugs")]
            planted: None,
        })
    }

    /// Applies one input at `now` and appends what the caller must do to `outputs`.
    ///
    /// `now` is in milliseconds and does not go back while the group lives; a smaller one counts
    /// as the largest so far. Times are saved with attempts and come back after a restart, so
    /// count from the epoch, once at the start, and go on with a monotonic clock.
    pub fn step(&mut self, now: u64, input: Input<'_>, outputs: &mut Vec<Output>) {
        self.now = self.now.max(now.min(TIME_MS_MAX));
        // What is over is over before anybody's answer counts.
        while let Some(due) = self.timers.pop_due(self.now) {
            self.is_due(due, outputs);
        }
        self.finish_drains();
        self.apply(input, outputs);
        self.finish_drains();
        self.distribute(outputs);
        self.emit_save(outputs);
        let lanes = &self.lanes;
        self.timers.sweep(|due| is_stale(lanes, due));
        if let Some(at) = self.timers.earlier_than_told(self.now) {
            outputs.push(Output::SetTimer { at });
        }
    }

    fn is_due(&mut self, due: Due, outputs: &mut Vec<Output>) {
        match due {
            Due::Leases { lane, from, to } => self.expire_leases(lane, from, to),
            Due::Retry { lane, offset } => self.retry_due(lane, offset),
            Due::Read { lane } => self.read_again(lane),
            // The lane is among the draining ones, which are looked at in every step.
            Due::Drain { .. } => {}
            Due::Silence { member } => self.check_silence(member, outputs),
        }
    }

    fn apply(&mut self, input: Input<'_>, outputs: &mut Vec<Output>) {
        match input {
            Input::LaneAdded(start) => self.add_lane(start, outputs),
            Input::LaneRemoved { lane } => self.remove_lane(lane, outputs),
            Input::LaneClosing { lane } => self.close_lane(lane),
            Input::LaneLost { lane } => self.lose_lane(lane, outputs),
            Input::Appended { lane, tail } => self.appended(lane, tail),
            Input::Fetched(page) => self.fetched(page, outputs),
            Input::FetchFailed { lane, fetch } => self.fetch_failed(lane, fetch),
            Input::Joined { member, options } => self.join(member, options, outputs),
            Input::Left { member } => self.leave(member, outputs),
            Input::Heartbeat { member } => self.heard_of(member, outputs),
            Input::Credit { member, events } => self.add_credit(member, events),
            Input::MemberPaused { member } => self.set_member_paused(member, true),
            Input::MemberResumed { member } => self.set_member_paused(member, false),
            Input::LaneReleased { member, lane, generation } => {
                self.released_by(member, lane, generation)
            }
            Input::Ack { member, request, items } => {
                self.ack(Question { member, request }, items, outputs)
            }
            Input::Nack { member, request, target, verdict } => {
                self.nack(Question { member, request }, (target, verdict), outputs)
            }
            Input::Extend { member, request, target, lease_ms } => {
                self.extend(Question { member, request }, (target, lease_ms), outputs)
            }
            Input::Saved { number } => self.saved(number, outputs),
            Input::Tick => {}
            Input::Skip { request, lane, span } => self.skip(request, (lane, span), outputs),
            Input::Seek { request, lane, to } => self.seek(request, (lane, to), outputs),
            Input::Paused => self.paused = true,
            Input::Resumed => self.paused = false,
            Input::Release { request, lane, event } => {
                self.release(request, (lane, event), outputs)
            }
            Input::Discard { request, lane, event } => {
                self.discard(request, (lane, event), outputs)
            }
        }
    }

    fn add_lane(&mut self, start: LaneStart, outputs: &mut Vec<Output>) {
        if self.lanes.find(start.lane).is_some() {
            return self.appended(start.lane, start.tail);
        }
        let tail = start.tail.min(OFFSET_MAX);
        let mut lane = Lane::new(start.lane, tail, &self.options);
        match start.from {
            StartFrom::Offset(offset) => {
                lane.floor = offset.min(tail);
                lane.walk = lane.floor;
                lane.horizon = Horizon::at(lane.floor);
                // The start itself must last, or what comes between now and a crash is lost.
                lane.unsaved.begin(0, lane.floor);
                lane.unsaved.push(Change::Floor(lane.floor));
            }
            StartFrom::State(state) => lane.recover(*state),
        }
        #[cfg(feature = "planted-bugs")]
        if self.planted == Some(crate::PlantedBug::AttemptsInMemory) {
            lane.implied_below = 0;
        }
        let at = self.lanes.add(lane);
        self.settle(at);
        self.rebalance(outputs);
    }

    fn remove_lane(&mut self, id: LaneId, outputs: &mut Vec<Output>) {
        if let Some(mut lane) = self.take_out(id) {
            if let Some(delta) = lane.take_delta() {
                self.ledger.add_orphan(id, delta);
            }
            self.rebalance(outputs);
        }
    }

    fn close_lane(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.find(id).and_then(|at| self.lanes.get_mut(at)) {
            lane.closing = true;
        }
    }

    fn lose_lane(&mut self, id: LaneId, outputs: &mut Vec<Output>) {
        // Also of one that was removed a moment ago, and has not had its last word yet.
        self.ledger.forget(id);
        if self.take_out(id).is_some() {
            self.rebalance(outputs);
        }
    }

    /// Takes a lane out of the table, and what is out of it from the members.
    fn take_out(&mut self, id: LaneId) -> Option<Box<Lane>> {
        let lane = self.lanes.remove(id)?;
        self.backlog -= u64::from(lane.counted);
        for offset in lane.leases_all() {
            if let Some(slot) = lane.slot(offset) {
                self.members.give_back(slot.member, slot.bytes);
                self.members.refresh(slot.member);
            }
        }
        Some(lane)
    }

    /// Whether the last word about a lane that was removed is still to be saved.
    pub fn has_last_word(&self, lane: LaneId) -> bool {
        self.ledger.has_orphan(lane)
    }

    fn appended(&mut self, id: LaneId, tail: u64) {
        let tail = tail.min(OFFSET_MAX);
        let Some(at) = self.lanes.find(id) else {
            return;
        };
        if let Some(lane) = self.lanes.get_mut(at)
            && tail > lane.tail
        {
            lane.tail = tail;
            self.settle(at);
        }
    }

    /// How a lane stands.
    pub fn status(&self, id: LaneId) -> Option<LaneStatus> {
        let lane = self.lanes.get(self.lanes.find(id)?)?;
        Some(LaneStatus {
            floor: lane.floor,
            next: lane.next(),
            tail: lane.tail,
            out: lane.out,
            ready: lane.backlog(),
            holes: lane.slots.len() as u32 - lane.open_slots(),
            parked: lane.parked.len() as u32,
            released: lane.released.len() as u32,
            epoch: lane.epoch,
            generation: lane.owner.generation,
            counters: lane.counters,
        })
    }

    /// What the group has done.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// How often first deliveries were to be let further ahead, which the next save does. Where it
    /// has changed, that save should not wait for company: those who are fast wait for it.
    pub const fn horizons(&self) -> u64 {
        self.horizons
    }

    /// The options it was made with.
    pub const fn options(&self) -> &GroupOptions {
        &self.options
    }
}

/// Leases of events that are all done need no looking after.
fn is_stale(lanes: &LaneTable, due: &Due) -> bool {
    match due {
        Due::Leases { lane, to, .. } => match lanes.get(*lane) {
            None => true,
            Some(lane) => lane.released.is_empty() && (*to <= lane.floor || lane.out == 0),
        },
        Due::Retry { lane, .. } | Due::Read { lane } | Due::Drain { lane } => {
            lanes.get(*lane).is_none()
        }
        Due::Silence { .. } => false,
    }
}
