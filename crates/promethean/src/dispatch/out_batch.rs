use std::sync::Arc;

use promethean_delivery::{Deliver, Run, Token};
use promethean_event::Timestamp;

use crate::store::{EventPage, Lane};

/// Events for one member from one lane.
#[derive(Debug)]
pub(crate) struct OutBatch {
    pub(crate) lane: Lane,
    pub(crate) epoch: u32,
    pub(crate) deadline_ms: u64,
    /// The pages that the events are in; nearly always one.
    pages: Vec<Arc<EventPage>>,
    runs: Vec<OutRun>,
    len: usize,
}

/// Events of a page that follow each other, on their way to a member.
#[derive(Debug, Clone, Copy)]
struct OutRun {
    /// The number of the first in the batch.
    number: usize,
    page: u32,
    /// The place of the first in the page.
    index: u32,
    run: Run,
}

/// One event of a batch: where it is, and by what name it was delivered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutEvent {
    page: u32,
    index: u32,
    pub(crate) token: Token,
}

impl OutBatch {
    pub(super) const fn new(lane: Lane, deliver: &Deliver) -> Self {
        let (epoch, deadline_ms) = (deliver.epoch, deliver.deadline);
        Self { lane, epoch, deadline_ms, pages: Vec::new(), runs: Vec::new(), len: 0 }
    }

    /// The same lease, without events.
    pub(super) const fn emptied(&self) -> Self {
        let Self { lane, epoch, deadline_ms, .. } = *self;
        Self { lane, epoch, deadline_ms, pages: Vec::new(), runs: Vec::new(), len: 0 }
    }

    /// Adds events that follow each other in a page from a place on.
    pub(super) fn push(&mut self, page: &Arc<EventPage>, index: usize, run: Run) {
        if !self.pages.last().is_some_and(|last| Arc::ptr_eq(last, page)) {
            self.pages.push(Arc::clone(page));
        }
        let (page, index) = (self.pages.len() as u32 - 1, index as u32);
        self.runs.push(OutRun { number: self.len, page, index, run });
        self.len += run.count() as usize;
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// What was delivered.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        self.runs.iter().map(|out| out.run)
    }

    /// One of the events.
    pub(crate) fn get(&self, number: usize) -> Option<OutEvent> {
        let after = self.runs.partition_point(|out| out.number <= number);
        let out = self.runs.get(after.checked_sub(1)?)?;
        let ahead = number - out.number;
        ((ahead as u64) < out.run.count()).then(|| self.event(out, ahead as u32))
    }

    /// All of the events.
    pub(crate) fn events(&self) -> impl Iterator<Item = OutEvent> {
        self.runs.iter().flat_map(move |out| {
            (0..out.run.count() as u32).map(move |ahead| self.event(out, ahead))
        })
    }

    fn event(&self, out: &OutRun, ahead: u32) -> OutEvent {
        let Run { from, attempt, round, .. } = out.run;
        let (lane, offset) = (self.lane.id(), from + u64::from(ahead));
        let token = Token { lane, offset, epoch: self.epoch, attempt, round };
        OutEvent { page: out.page, index: out.index + ahead, token }
    }

    /// Whether all events of its pages can be read for sure.
    pub(crate) fn are_sound(&self) -> bool {
        self.pages.iter().all(|page| page.are_sound())
    }

    /// Whether an event can be read for sure.
    pub(crate) fn is_sound(&self, event: OutEvent) -> bool {
        self.place(event).is_some_and(|(page, index)| page.is_sound(index))
    }

    /// When the store took an event.
    pub(crate) fn appended_at(&self, event: OutEvent) -> Option<Timestamp> {
        let (page, index) = self.place(event)?;
        page.appended_at(index)
    }

    /// The page of an event, and its place there.
    pub(crate) fn place(&self, event: OutEvent) -> Option<(&EventPage, usize)> {
        Some((self.pages.get(event.page as usize)?, event.index as usize))
    }
}
