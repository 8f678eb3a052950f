//! Acks, nacks, extensions: what a consumer says of a delivery, and whether it may.

use alloc::vec::Vec;

use crate::failure::Failure;
use crate::group::Group;
use crate::input::{Ack, Verdict};
use crate::lane::Lane;
use crate::lane_table::LaneRef;
use crate::output::{Output, Reason, Refusal, Refused, Reply};
use crate::place::{LaneId, MemberId, RequestId, Token};
use crate::slot::{Slot, Standing};
use crate::timer::Due;
use crate::watermark::Span;

/// Who asks for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question {
    pub(crate) member: MemberId,
    pub(crate) request: RequestId,
}

/// The delivery that a question is about.
#[derive(Debug, Clone, Copy)]
struct Claim {
    offset: u64,
    /// Which attempt of which round, if the member names it.
    attempt: Option<(u16, u16)>,
    seat: Option<u32>,
}

/// The first attempt, before any release.
const FIRST: (u16, u16) = (1, 0);

const fn attempt_of(token: Token) -> (u16, u16) {
    (token.attempt, token.round)
}

impl Lane {
    /// Whether the claim is to a live lease of the member, the right one if it names one.
    fn check(&self, claim: Claim) -> Result<(), Refusal> {
        let Some(slot) = self.slot(claim.offset) else {
            return Err(if claim.offset < self.floor {
                Refusal::AlreadyDone
            } else {
                Refusal::Unknown
            });
        };
        slot.check(claim.seat, claim.attempt)
    }
}

impl Slot {
    /// Whether it is on a live lease of the member, the right one if one is named.
    fn check(&self, seat: Option<u32>, attempt: Option<(u16, u16)>) -> Result<(), Refusal> {
        match self.standing {
            Standing::Done => return Err(Refusal::AlreadyDone),
            Standing::Out => {}
            _ if self.attempt == 0 => return Err(Refusal::Unknown),
            _ => return Err(Refusal::LeaseLost),
        }
        if attempt.is_some_and(|named| named != (self.attempt, self.round)) {
            return Err(Refusal::StaleToken);
        }
        if seat != Some(self.member) {
            return Err(Refusal::LeaseLost);
        }
        Ok(())
    }
}

impl Group {
    /// Events are done.
    pub(crate) fn ack(&mut self, asked: Question, items: &[Ack], outputs: &mut Vec<Output>) {
        let seat = self.members.seat(asked.member);
        let mut reply = Reply { request: asked.request, accepted: 0, refused: Vec::new() };
        let mut last: Option<(LaneId, LaneRef)> = None;
        for (number, item) in (0u32..).zip(items) {
            let (id, epoch) = match *item {
                Ack::Token(token) => (token.lane, Some(token.epoch)),
                Ack::Offset { lane, .. } => (lane, None),
                Ack::Range { lane, epoch, .. } | Ack::FirstAttempts { lane, epoch, .. } => {
                    (lane, Some(epoch))
                }
            };
            let at = match last {
                Some((known, at)) if known == id => Some(at),
                _ => self.lanes.find(id),
            };
            if let Some(at) = at {
                if let Some((_, before)) = last.filter(|(_, before)| *before != at) {
                    self.settle(before);
                }
                last = Some((id, at));
            }
            match self.lane_of(at, epoch) {
                Err(why) => reply.refused.push(refused(number, *item, why)),
                Ok(at) => self.ack_item(at, seat, (number, *item, &mut reply)),
            }
        }
        if let Some((_, at)) = last {
            self.settle(at);
        }
        if let Some(seat) = seat {
            self.members.refresh(seat);
        }
        self.counters.acked += reply.accepted;
        self.reply(reply, outputs);
    }

    /// The lane, if it is there and in the epoch that was meant.
    fn lane_of(&self, at: Option<LaneRef>, epoch: Option<u32>) -> Result<LaneRef, Refusal> {
        let found = at.and_then(|at| Some((at, self.lanes.get(at)?)));
        match found {
            None => Err(Refusal::Unknown),
            Some((_, lane)) if epoch.is_some_and(|epoch| epoch < lane.epoch) => {
                Err(Refusal::Fenced)
            }
            Some((_, lane)) if epoch.is_some_and(|epoch| epoch > lane.epoch) => {
                Err(Refusal::Unknown)
            }
            Some((at, _)) => Ok(at),
        }
    }

    fn ack_item(&mut self, at: LaneRef, seat: Option<u32>, asked: (u32, Ack, &mut Reply)) {
        let (item, ack, reply) = asked;
        let (offset, attempt) = match ack {
            Ack::Token(token) => (token.offset, Some(attempt_of(token))),
            Ack::Offset { offset, .. } => (offset, None),
            Ack::Range { span, .. } => {
                return self.ack_span(at, (seat, None), (item, span, reply));
            }
            Ack::FirstAttempts { span, .. } => {
                return self.ack_span(at, (seat, Some(FIRST)), (item, span, reply));
            }
        };
        let claim = Claim { offset, attempt, seat };
        match self.ack_one(at, claim) {
            Ok(()) => reply.accepted += 1,
            Err(why) => reply.refused.push(Refused { item, offset, why }),
        }
    }

    /// Acks what the member holds of a span. One refusal speaks for all of them, and nothing
    /// outside of the window is looked at, however absurd the span.
    fn ack_span(
        &mut self,
        at: LaneRef,
        (seat, attempt): (Option<u32>, Option<(u16, u16)>),
        (item, span, reply): (u32, Span, &mut Reply),
    ) {
        #[cfg(feature = "planted-bugs")]
        let as_one = self.takes_spans_whole();
        #[cfg(not(feature = "planted-bugs"))]
        let as_one = true;
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        let window = span.from.max(lane.floor)..span.to.min(lane.next());
        let released = lane.released.keys().copied();
        let beside: Vec<u64> = released
            .filter(|offset| (span.from..span.to).contains(offset) && !window.contains(offset))
            .collect();
        let mut refused = (span.from < window.start).then_some(Refused {
            item,
            offset: span.from,
            why: Refusal::AlreadyDone,
        });
        if span.to > lane.next() {
            let offset = span.from.max(lane.next());
            refused = refused.or(Some(Refused { item, offset, why: Refusal::Unknown }));
        }
        if lane.released.is_empty() && as_one {
            let finished = lane.finish_leases(window, |slot| slot.check(seat, attempt));
            reply.accepted += u64::from(finished.count);
            if let Some(seat) = seat {
                self.members.give_back_many(seat, finished.count, finished.bytes);
            }
            let why = finished.refused.map(|(offset, why)| Refused { item, offset, why });
            reply.refused.extend(refused.or(why));
            return;
        }
        for offset in beside.into_iter().chain(window) {
            let claim = Claim { offset, attempt, seat };
            match self.ack_one(at, claim) {
                Ok(()) => reply.accepted += 1,
                Err(why) => refused = refused.or(Some(Refused { item, offset, why })),
            }
        }
        reply.refused.extend(refused);
    }

    /// Whether acks of spans are decided in one go. Not where mistakes are planted into single acks.
    #[cfg(feature = "planted-bugs")]
    const fn takes_spans_whole(&self) -> bool {
        self.planted.is_none()
    }

    fn ack_one(&mut self, at: LaneRef, claim: Claim) -> Result<(), Refusal> {
        self.check(at, claim)?;
        let lane = self.lanes.get_mut(at).ok_or(Refusal::Unknown)?;
        let slot = lane.slot(claim.offset).ok_or(Refusal::Unknown)?;
        let (out, seat, bytes) = (slot.standing == Standing::Out, slot.member, slot.bytes);
        lane.finish(claim.offset);
        lane.counters.acked += 1;
        if out {
            self.members.give_back(seat, bytes);
        }
        #[cfg(feature = "planted-bugs")]
        if self.is_planted(crate::PlantedBug::CursorIsLastAck) {
            self.finish_below(at, claim.offset);
        }
        Ok(())
    }

    fn check(&self, at: LaneRef, claim: Claim) -> Result<(), Refusal> {
        let lane = self.lanes.get(at).ok_or(Refusal::Unknown)?;
        #[cfg(feature = "planted-bugs")]
        if self.is_planted(crate::PlantedBug::FenceInClient)
            && lane
                .slot(claim.offset)
                .is_some_and(|slot| slot.standing != Standing::Done && slot.attempt > 0)
        {
            return Ok(());
        }
        lane.check(claim)
    }

    /// Finds the one delivery that `target` means, with the lane settled or not.
    fn claim(&self, asked: Question, target: Ack) -> Result<(LaneRef, u64), Refusal> {
        let (id, epoch, offset, attempt) = match target {
            Ack::Token(token) => {
                (token.lane, Some(token.epoch), token.offset, Some(attempt_of(token)))
            }
            Ack::Offset { lane, offset } => (lane, None, offset, None),
            Ack::Range { lane, epoch, span } if span.count() == 1 => {
                (lane, Some(epoch), span.from, None)
            }
            Ack::FirstAttempts { lane, epoch, span } if span.count() == 1 => {
                (lane, Some(epoch), span.from, Some(FIRST))
            }
            Ack::Range { .. } | Ack::FirstAttempts { .. } => return Err(Refusal::Unknown),
        };
        let at = self.lane_of(self.lanes.find(id), epoch)?;
        let seat = self.members.seat(asked.member);
        self.lanes.get(at).ok_or(Refusal::Unknown)?.check(Claim { offset, attempt, seat })?;
        Ok((at, offset))
    }

    /// A delivery did not succeed.
    pub(crate) fn nack(
        &mut self,
        asked: Question,
        (target, verdict): (Ack, Verdict<'_>),
        outputs: &mut Vec<Output>,
    ) {
        let result = self.claim(asked, target).map(|(at, offset)| {
            if let Some(lane) = self.lanes.get_mut(at) {
                lane.counters.nacked += 1;
            }
            self.pass_verdict(at, offset, verdict);
            self.settle(at);
        });
        self.counters.nacked += u64::from(result.is_ok());
        self.reply(reply_to(asked, target, result), outputs);
    }

    fn pass_verdict(&mut self, at: LaneRef, offset: u64, verdict: Verdict<'_>) {
        let failure = match verdict {
            Verdict::Retry { delay_ms, error, fingerprint } => {
                Failure { reason: Reason::Refused, delay_ms, error: Some((error, fingerprint)) }
            }
            Verdict::Park { error, fingerprint } => Failure {
                reason: Reason::Permanent,
                delay_ms: None,
                error: Some((error, fingerprint)),
            },
            Verdict::Skip => return self.finish_any(at, offset),
        };
        self.fail(at, offset, failure);
    }

    /// Ends whatever is going on with an event, as done.
    pub(crate) fn finish_any(&mut self, at: LaneRef, offset: u64) {
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        let Some(slot) = lane.slot(offset).copied() else {
            return;
        };
        lane.finish(offset);
        if slot.standing == Standing::Out {
            self.members.give_back(slot.member, slot.bytes);
            self.members.refresh(slot.member);
        }
    }

    /// A lease is to end later than it would.
    pub(crate) fn extend(
        &mut self,
        asked: Question,
        (target, lease_ms): (Ack, u32),
        outputs: &mut Vec<Output>,
    ) {
        let result = self
            .claim(asked, target)
            .and_then(|(at, offset)| self.extend_one(at, offset, lease_ms));
        // A lease is not durable, so that there is nothing to wait for.
        outputs.push(Output::Reply(reply_to(asked, target, result)));
    }

    fn extend_one(&mut self, at: LaneRef, offset: u64, lease_ms: u32) -> Result<(), Refusal> {
        let (now, longest) = (self.now, u64::from(self.options.lease_ms_max));
        let lane = self.lanes.get_mut(at).ok_or(Refusal::Unknown)?;
        let slot = lane.slot_mut(offset).ok_or(Refusal::Unknown)?;
        let began = slot.deadline - u64::from(slot.lease_ms);
        let deadline = (now + u64::from(lease_ms)).min(began + longest);
        if deadline <= slot.deadline {
            // An extension never shortens; at the maximum it is refused, so that the member knows.
            return match slot.deadline < began + longest {
                true => Ok(()),
                false => Err(Refusal::LeaseAtMaximum),
            };
        }
        slot.lease_ms = u32::try_from(deadline - began).unwrap_or(u32::MAX);
        slot.deadline = deadline;
        let (from, to) = (offset, offset + 1);
        self.timers.add(deadline, Due::Leases { lane: at, from, to });
        Ok(())
    }
}

fn reply_to(asked: Question, target: Ack, result: Result<(), Refusal>) -> Reply {
    let why = result.err().map(|why| refused(0, target, why));
    Reply {
        request: asked.request,
        accepted: u64::from(result.is_ok()),
        refused: why.into_iter().collect(),
    }
}

const fn refused(item: u32, ack: Ack, why: Refusal) -> Refused {
    let (_, offset) = ack.place();
    Refused { item, offset, why }
}
