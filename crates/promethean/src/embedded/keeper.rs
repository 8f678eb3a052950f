//! The thread that takes changes into memory, in the order of the log, once they are durable, and
//! writes checkpoints.

use std::sync::{Arc, PoisonError};

use super::checkpoint::Checkpoints;
use super::handed::{HandedEntries, HandedGroups, after_a_break};
use super::journal::{Desk, Kind, Ledger, Stop, Waiting};
use crate::store::{SaveError, TopicEntry, TopicId};

/// Serves until it is stopped and nothing is left.
pub(super) fn run(desk: &Desk, mut checkpoints: Checkpoints) {
    while let Some(waiting) = next(desk) {
        settle(desk, waiting);
        if checkpoints.are_due(desk) {
            checkpoints.write(desk);
        }
    }
    let stop = desk.lock().stop;
    if stop == Some(Stop::Close) && checkpoints.would_cover_anything(desk) {
        checkpoints.write(desk);
    }
}

fn next(desk: &Desk) -> Option<Waiting> {
    let mut ledger = desk.lock();
    loop {
        if let Some(waiting) = ledger.waiting.pop_front() {
            return Some(waiting);
        }
        if ledger.stop.is_some() {
            return None;
        }
        ledger = desk.arrived.wait(ledger).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Waits for the log's answer, takes note of it, and passes it on. Whoever asked may be gone.
fn settle(desk: &Desk, waiting: Waiting) {
    match waiting {
        Waiting::Group(promise, change, answer) => {
            let durable = promise.wait().map_err(SaveError::from);
            let result = durable.and_then(|()| {
                let table = desk.topics();
                desk.kept.write().unwrap_or_else(PoisonError::into_inner).apply(&change, &table)
            });
            let mut ledger = desk.lock();
            if ledger.deltas.settle(&desk.log, result.is_err()) {
                ledger.handed_groups = HandedGroups::of(&desk.kept());
            }
            drop(ledger);
            drop(answer.send(result.map_err(after_refusal)));
        }
        Waiting::Entries(promise, changes, answer) => {
            let result = promise.wait().map_err(SaveError::from);
            if result.is_ok() {
                let mut kept = desk.kept.write().unwrap_or_else(PoisonError::into_inner);
                changes.into_iter().for_each(|change| kept.apply_entry(change));
            }
            let mut ledger = desk.lock();
            if ledger.entries.settle(&desk.log, result.is_err()) {
                ledger.handed_entries = HandedEntries::of(&desk.kept());
            }
            drop(ledger);
            drop(answer.send(result.map_err(after_refusal)));
        }
        Waiting::Define(ticket, definition, answer) => {
            let result = ticket.wait().map_err(SaveError::from).map(|id| {
                let id = TopicId::new(id.get());
                desk.note_topic(TopicEntry { id, definition });
                id
            });
            drop(answer.send(result));
        }
        Waiting::Remove(ticket, topic, answer) => {
            let result = ticket.wait().map_err(SaveError::from);
            if result.is_ok() {
                desk.forget_topic(topic);
            }
            drop(answer.send(result));
        }
        Waiting::Nothing(kind, breaks, answer) => {
            let whole = desk.lock().breaks(kind) == breaks;
            let result = if whole { Ok(()) } else { Err(after_a_break().into()) };
            drop(answer.send(result));
        }
    }
}

/// What was refused only because one before it was is not the caller's mistake.
fn after_refusal(error: SaveError) -> SaveError {
    match error {
        SaveError::Append(crate::store::AppendError::OffsetMismatch { .. }) => {
            after_a_break().into()
        }
        other => other,
    }
}

impl Ledger {
    const fn breaks(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Groups => self.deltas.breaks,
            Kind::Entries => self.entries.breaks,
        }
    }
}

impl Desk {
    fn note_topic(&self, entry: TopicEntry) {
        let mut topics = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if topics.table.by_id(entry.id) == Some(&entry) {
            return;
        }
        Arc::make_mut(&mut topics.table).insert(entry);
        topics.version += 1;
        drop(topics);
        self.topics_changed.notify_waiters();
    }

    fn forget_topic(&self, topic: TopicId) {
        let mut topics = self.table.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut topics.table).remove(topic);
        topics.version += 1;
        drop(topics);
        self.topics_changed.notify_waiters();
    }
}
