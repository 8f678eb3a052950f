use std::sync::atomic::{AtomicU64, Ordering};

use super::table::Settled;

/// What a drainer has done since it was made. Totals that only rise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DrainCounters {
    /// Events published and marked.
    pub sent: u64,
    /// Those of them that had been in the store already: published before a crash or by a publish
    /// whose answer was lost.
    pub duplicates: u64,
    /// Attempts that failed and are tried again.
    pub failed: u64,
    /// Events given up.
    pub dead: u64,
    /// Rows that could not be marked because another drainer had taken them over.
    pub fenced: u64,
    /// Sent rows that were removed.
    pub purged: u64,
    /// Times the database refused.
    pub database_errors: u64,
}

/// The totals, as they are counted.
#[derive(Debug, Default)]
pub(super) struct Tallies {
    sent: AtomicU64,
    duplicates: AtomicU64,
    failed: AtomicU64,
    dead: AtomicU64,
    fenced: AtomicU64,
    purged: AtomicU64,
    database_errors: AtomicU64,
}

impl Tallies {
    pub(super) fn settled(&self, settled: Settled) {
        add(&self.sent, settled.sent);
        add(&self.failed, settled.failed);
        add(&self.dead, settled.dead);
        add(&self.fenced, settled.fenced);
    }

    pub(super) fn duplicates(&self, count: usize) {
        add(&self.duplicates, count as u64);
    }

    pub(super) fn purged(&self, count: usize) {
        add(&self.purged, count as u64);
    }

    pub(super) fn database_error(&self) {
        add(&self.database_errors, 1);
    }

    pub(super) fn read(&self) -> DrainCounters {
        DrainCounters {
            sent: self.sent.load(Ordering::Relaxed),
            duplicates: self.duplicates.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            dead: self.dead.load(Ordering::Relaxed),
            fenced: self.fenced.load(Ordering::Relaxed),
            purged: self.purged.load(Ordering::Relaxed),
            database_errors: self.database_errors.load(Ordering::Relaxed),
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
