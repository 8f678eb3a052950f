use std::iter;

use promethean_event::NewEvent;

use super::record::{Append, Expectation};
use promethean_log::Durability;

/// Appends that came together: each is all or none and answered for itself, and they stand in this
/// order. Their events lie in one list, because there are many of them and most have one event.
#[derive(Debug, Clone, Default)]
pub struct Run {
    events: Vec<NewEvent>,
    parts: Vec<Part>,
    /// The events of the parts that are there; those behind them have none yet.
    parted: usize,
}

/// One of them.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// How many of the events are its own.
    pub events: usize,
    /// How far they must have travelled.
    pub durability: Durability,
    /// Where partitions must end for it to be taken.
    pub expect: Vec<Expectation>,
}

impl Run {
    /// Adds an event to those that the next part is made of.
    pub fn add(&mut self, event: NewEvent) {
        self.events.push(event);
    }

    /// The events that were added since the last part.
    pub fn added(&self) -> &[NewEvent] {
        self.events.get(self.parted..).unwrap_or_default()
    }

    /// Takes them back.
    pub fn take_back(&mut self) -> impl ExactSizeIterator<Item = NewEvent> {
        self.events.drain(self.parted..)
    }

    /// Makes a part of them.
    pub fn part(&mut self, durability: Durability, expect: Vec<Expectation>) {
        self.parts.push(Part { events: self.events.len() - self.parted, durability, expect });
        self.parted = self.events.len();
    }

    /// Adds a whole part.
    pub fn push(&mut self, append: Append) {
        drop(self.take_back());
        let Append { events, durability, expect } = append;
        self.events.extend(events);
        self.part(durability, expect);
    }

    /// All events, part after part.
    pub fn events(&self) -> &[NewEvent] {
        self.events.get(..self.parted).unwrap_or_default()
    }

    /// The same, to be changed.
    pub fn events_mut(&mut self) -> &mut [NewEvent] {
        self.events.get_mut(..self.parted).unwrap_or_default()
    }

    /// The parts.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Whether there is no part.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Each for itself.
    pub fn into_appends(self) -> impl Iterator<Item = Append> {
        let mut events = self.events.into_iter();
        let mut parts = self.parts.into_iter();
        iter::from_fn(move || {
            let Part { events: own, durability, expect } = parts.next()?;
            Some(Append { events: events.by_ref().take(own).collect(), durability, expect })
        })
    }
}

impl FromIterator<Append> for Run {
    fn from_iter<I: IntoIterator<Item = Append>>(appends: I) -> Self {
        let mut run = Self::default();
        appends.into_iter().for_each(|append| run.push(append));
        run
    }
}
