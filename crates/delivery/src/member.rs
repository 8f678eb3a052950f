use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::hash::NumberMap;
use crate::input::MemberOptions;
use crate::lane_table::LaneRef;
use crate::place::{LaneId, MemberId};

/// One connected consumer.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: MemberId,
    pub(crate) options: MemberOptions,
    pub(crate) credits: Option<u32>,
    pub(crate) in_flight: u32,
    pub(crate) bytes: u64,
    pub(crate) paused: bool,
    /// When it was last heard of.
    pub(crate) seen: u64,
    /// Lanes that wait for this member alone to have room.
    pub(crate) blocked: Vec<LaneRef>,
    /// What it can take now, as counted in the sum.
    room: u32,
    queued: bool,
}

impl Member {
    /// Whether it wants events of the lane.
    pub(crate) fn wants(&self, lane: LaneId) -> bool {
        match &self.options.lanes {
            None => true,
            Some(lanes) => lanes.contains(&lane),
        }
    }

    pub(crate) const fn room(&self) -> u32 {
        self.room
    }

    fn current_room(&self) -> u32 {
        if self.paused || self.bytes >= self.options.max_bytes_in_flight.max(1) {
            return 0;
        }
        let free = self.options.max_in_flight.saturating_sub(self.in_flight);
        self.credits.map_or(free, |credits| free.min(credits))
    }
}

/// The members of a group. A seat is used again once its member has left and holds nothing.
#[derive(Debug, Default)]
pub(crate) struct MemberTable {
    seats: Vec<Option<Member>>,
    free: Vec<u32>,
    by_id: NumberMap<u32>,
    /// Seats with room, in turn.
    open: VecDeque<u32>,
    /// Members that do not want every lane.
    pub(crate) choosy: u32,
    /// Room of all.
    pub(crate) room: u64,
    /// Lanes that somebody's new room may help.
    pub(crate) woken: Vec<LaneRef>,
    /// Lanes that wait for any member that wants them to have room.
    pub(crate) blocked: Vec<LaneRef>,
}

impl MemberTable {
    pub(crate) fn join(&mut self, now: u64, id: MemberId, options: MemberOptions) -> u32 {
        self.choosy += u32::from(options.lanes.is_some());
        let member = Member {
            id,
            credits: options.credits,
            options,
            in_flight: 0,
            bytes: 0,
            paused: false,
            seen: now,
            blocked: Vec::new(),
            room: 0,
            queued: false,
        };
        let seat = self.free.pop().unwrap_or_else(|| {
            self.seats.push(None);
            (self.seats.len() - 1) as u32
        });
        if let Some(place) = self.seats.get_mut(seat as usize) {
            *place = Some(member);
        }
        self.by_id.insert(id.get(), seat);
        self.refresh(seat);
        seat
    }

    pub(crate) fn leave(&mut self, seat: u32) -> Option<Member> {
        let member = self.seats.get_mut(seat as usize)?.take()?;
        self.by_id.remove(&member.id.get());
        self.room -= u64::from(member.room);
        self.choosy -= u32::from(member.options.lanes.is_some());
        self.open.retain(|open| *open != seat);
        self.free.push(seat);
        Some(member)
    }

    pub(crate) fn seat(&self, id: MemberId) -> Option<u32> {
        self.by_id.get(&id.get()).copied()
    }

    pub(crate) fn get(&self, seat: u32) -> Option<&Member> {
        self.seats.get(seat as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, seat: u32) -> Option<&mut Member> {
        self.seats.get_mut(seat as usize)?.as_mut()
    }

    /// Taken seats with their members, in the order of the seats.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Member)> {
        let all = self.seats.iter().enumerate();
        all.filter_map(|(seat, member)| Some((seat as u32, member.as_ref()?)))
    }

    /// Counts a member's room again after anything about it changed.
    pub(crate) fn refresh(&mut self, seat: u32) {
        let Some(member) = self.seats.get_mut(seat as usize).and_then(Option::as_mut) else {
            return;
        };
        let room = member.current_room();
        self.room = self.room - u64::from(member.room) + u64::from(room);
        let opened = member.room == 0 && room > 0;
        member.room = room;
        if opened {
            self.woken.append(&mut member.blocked);
            self.woken.append(&mut self.blocked);
            if !member.queued {
                member.queued = true;
                self.open.push_back(seat);
            }
        }
    }

    /// Whose turn it is to get events of `lane`.
    pub(crate) fn take_turn(&mut self, lane: LaneId) -> Option<u32> {
        for _ in 0..self.open.len() {
            let seat = self.open.pop_front()?;
            let Some(member) = self.get_mut(seat) else {
                continue;
            };
            if member.room == 0 {
                member.queued = false;
                continue;
            }
            let wants = member.wants(lane);
            self.open.push_back(seat);
            if wants {
                return Some(seat);
            }
        }
        None
    }

    /// Events went out to a member.
    pub(crate) fn lend(&mut self, seat: u32, events: u32, bytes: u64) {
        if let Some(member) = self.get_mut(seat) {
            member.in_flight += events;
            member.bytes += bytes;
            member.credits = member.credits.map(|credits| credits.saturating_sub(events));
        }
        self.refresh(seat);
    }

    /// A lease ended. Call [`MemberTable::refresh`] once for all of them.
    pub(crate) fn give_back(&mut self, seat: u32, bytes: u32) {
        self.give_back_many(seat, 1, u64::from(bytes));
    }

    /// The same for several.
    pub(crate) fn give_back_many(&mut self, seat: u32, events: u32, bytes: u64) {
        if let Some(member) = self.get_mut(seat) {
            member.in_flight = member.in_flight.saturating_sub(events);
            member.bytes = member.bytes.saturating_sub(bytes);
        }
    }
}
