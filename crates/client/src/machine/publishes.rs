use std::collections::BTreeMap;

use promethean_event::EventId;

use super::backoff::Backoff;
use super::wire::{self, Answer};
use super::{Asked, Effect, Machine, Ticket};
use crate::error::{ConnectError, PublishError, Refusal};

/// What a frame has besides its events.
const FRAME_HEAD_BYTES: usize = 64;

/// A publish that was not answered yet.
#[derive(Debug)]
struct Pending {
    /// The events as JSON. They carry their ids, so that sending them again adds nothing twice.
    events: String,
    id: EventId,
    deadline_ms: u64,
    backoff: Backoff,
    is_sent: bool,
    /// Refused for now: to be sent again then.
    again_ms: Option<u64>,
}

/// Everything that was published and is not answered yet, in order.
#[derive(Debug, Default)]
pub(super) struct Publishes {
    pending: BTreeMap<Ticket, Pending>,
}

impl Publishes {
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn due_ms(&self) -> Option<u64> {
        let due = |pending: &Pending| pending.deadline_ms.min(pending.again_ms.unwrap_or(u64::MAX));
        self.pending.values().map(due).min()
    }
}

/// Events to publish.
#[derive(Debug)]
pub(crate) struct PublishWish {
    pub(crate) events: String,
    pub(crate) id: EventId,
    pub(crate) deadline_ms: u64,
}

impl Machine {
    pub(super) fn publish(&mut self, ticket: Ticket, wish: PublishWish, out: &mut Vec<Effect>) {
        let PublishWish { events, id, deadline_ms } = wish;
        let (bytes, max) = (events.len() + FRAME_HEAD_BYTES, self.frame_bytes_max);
        if bytes > max {
            // A larger frame would end the connection, again and again.
            let error = PublishError::TooLarge { bytes, max };
            return out.push(Effect::Published(ticket, Err(error)));
        }
        let backoff = Backoff::new(self.seed ^ ticket);
        let pending = Pending { events, id, deadline_ms, backoff, is_sent: false, again_ms: None };
        self.publishes.pending.insert(ticket, pending);
        if self.is_ready() {
            self.send_publish(ticket, out);
        }
    }

    /// Sends everything again, in order, over a new connection.
    pub(super) fn republish(&mut self, out: &mut Vec<Effect>) {
        let tickets: Vec<Ticket> = self.publishes.pending.keys().copied().collect();
        for ticket in tickets {
            self.send_publish(ticket, out);
        }
    }

    fn send_publish(&mut self, ticket: Ticket, out: &mut Vec<Effect>) {
        let corr = self.next_corr();
        if let Some(pending) = self.publishes.pending.get_mut(&ticket) {
            pending.is_sent = true;
            pending.again_ms = None;
            out.push(Effect::Send(wire::publish(corr, &pending.events)));
            self.asked.insert(corr, Asked::Publish(ticket));
        }
    }

    pub(super) fn published(&mut self, ticket: Ticket, answer: Answer, out: &mut Vec<Effect>) {
        if self.publishes.pending.remove(&ticket).is_some() {
            let Answer { mut places, durability, .. } = answer;
            places.iter_mut().for_each(|place| place.durability = durability);
            out.push(Effect::Published(ticket, Ok(places)));
        }
    }

    pub(super) fn publish_refused(
        &mut self,
        (now, ticket): (u64, Ticket),
        refusal: Refusal,
        out: &mut Vec<Effect>,
    ) {
        let Some(pending) = self.publishes.pending.get_mut(&ticket) else {
            return;
        };
        if refusal.code.is_retryable() {
            let asked = refusal.retry_after.map_or(0, |wait| wait.as_millis() as u64);
            pending.again_ms = Some(now + asked.max(pending.backoff.next_ms()).max(1));
            return;
        }
        self.publishes.pending.remove(&ticket);
        out.push(Effect::Published(ticket, Err(PublishError::Refused(refusal))));
    }

    pub(super) fn tick_publishes(&mut self, now: u64, out: &mut Vec<Effect>) {
        let is_ready = self.is_ready();
        let mut again = Vec::new();
        self.publishes.pending.retain(|&ticket, pending| {
            if pending.deadline_ms <= now {
                let error = match pending.is_sent {
                    true => PublishError::Indeterminate { id: pending.id },
                    false => PublishError::NotSent,
                };
                out.push(Effect::Published(ticket, Err(error)));
                return false;
            }
            if is_ready && pending.again_ms.is_some_and(|at| at <= now) {
                again.push(ticket);
            }
            true
        });
        for ticket in again {
            self.send_publish(ticket, out);
        }
    }

    /// There will be no connection any more.
    pub(super) fn fail_publishes(&mut self, error: &ConnectError, out: &mut Vec<Effect>) {
        for (ticket, pending) in std::mem::take(&mut self.publishes.pending) {
            let error = match pending.is_sent {
                true => PublishError::Indeterminate { id: pending.id },
                false => error.clone().into(),
            };
            out.push(Effect::Published(ticket, Err(error)));
        }
    }
}
