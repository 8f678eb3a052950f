use std::fmt;
use std::time::Duration;

use promethean_delivery::Ack;
use promethean_event::{Event, Failure, FromEvent};

use super::ack_ranges::AckRanges;
use super::delivered::{Delivered, fail, lost_ack};
use crate::error::AckError;
use crate::member::{Answer, Batch, Seat};

/// Events of one partition that came together, in their order, each on its own lease. Acked as a
/// whole, or taken apart. Dropped without a word, none of them is acked: they come again.
#[derive(Debug)]
pub struct DeliveredBatch<T = Event> {
    events: Vec<Delivered<T>>,
    seat: Seat,
    /// What was delivered, if all of it is here.
    whole: Option<Vec<Batch>>,
}

impl<T: FromEvent> DeliveredBatch<T> {
    pub(super) const fn new(events: Vec<Delivered<T>>, seat: Seat) -> Self {
        Self { events, seat, whole: None }
    }

    /// Without those that cannot be read, which are dead letters by now.
    pub(super) fn of(batch: Batch, seat: Seat) -> Self {
        let events = Vec::with_capacity(batch.len());
        let mut all = Self { events, seat, whole: Some(Vec::new()) };
        all.add(batch);
        all
    }

    /// Adds what came behind it.
    pub(super) fn add(&mut self, batch: Batch) {
        let before = self.events.len();
        let events = &mut self.events;
        if T::version().is_none() && batch.is_sound() && !self.seat.is_faulty() {
            batch.events().for_each(|leased| events.push(Delivered::unread(leased)));
        } else {
            events.extend(batch.events().filter_map(Delivered::of));
        }
        if self.events.len() - before < batch.len() {
            self.whole = None;
        }
        if let Some(whole) = &mut self.whole {
            whole.push(batch);
        }
    }

    /// How many events.
    pub const fn len(&self) -> usize {
        self.events.len()
    }

    /// Never, for one that a subscription gives.
    pub const fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The events.
    pub fn iter(&self) -> std::slice::Iter<'_, Delivered<T>> {
        self.events.iter()
    }

    /// All of them are done. Waits until that is durable; an error if any was not the consumer's
    /// any more, the others are done nevertheless.
    pub async fn ack(self) -> Result<(), AckError> {
        self.acked().all().await
    }

    /// All of them are done. Said at once; the answer may be waited for, or left alone.
    pub fn acked(self) -> Answer {
        let mut acks = AckRanges::default();
        match &self.whole {
            Some(batches) if !self.seat.is_faulty() => {
                for batch in batches {
                    let of = (batch.lane().id(), batch.epoch());
                    batch.runs().for_each(|run| acks.add_run(of, run));
                }
            }
            _ => {
                for delivered in &self.events {
                    if self.seat.loses_ack() {
                        drop(fail(&self.seat, delivered.token(), &lost_ack()));
                    } else {
                        acks.add(delivered.token());
                    }
                }
            }
        }
        self.seat.ack(&acks.take())
    }

    /// They could not be handled: all of them again, after the group's backoff. It counts as an
    /// attempt of each.
    pub async fn retry(self, error: impl fmt::Display) -> Result<(), AckError> {
        let failure = Failure::retry(error);
        let tokens = self.events.iter().map(Delivered::token);
        let answers: Vec<Answer> = tokens.map(|token| fail(&self.seat, token, &failure)).collect();
        for answer in answers {
            answer.all().await?;
        }
        Ok(())
    }

    /// It takes longer: the leases of all end so long from now, within the group's maximum.
    pub async fn extend(&self, time: Duration) -> Result<(), AckError> {
        let ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let tokens = self.events.iter().map(Delivered::token);
        let answers: Vec<Answer> =
            tokens.map(|token| self.seat.extend(Ack::Token(token), ms)).collect();
        for answer in answers {
            answer.all().await?;
        }
        Ok(())
    }
}

impl<T> IntoIterator for DeliveredBatch<T> {
    type Item = Delivered<T>;
    type IntoIter = std::vec::IntoIter<Delivered<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.events.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a DeliveredBatch<T> {
    type Item = &'a Delivered<T>;
    type IntoIter = std::slice::Iter<'a, Delivered<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.events.iter()
    }
}
