//! Rows that were read lately, so that a document many ask for is not read from the file each time.
//!
//! A row is kept only if no write has begun or ended while it was read, and goes before a write
//! that touches it begins: whoever finds one here sees what a reader of the file would see.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::projection::limits::RECENT_BYTES_MAX;
use crate::projection::view_store::StoredRow;

/// What a row takes beside its key and document, about.
const ROW_BYTES: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct RecentRows(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// By table and key. Rows that nobody asks for go with the older half.
    newer: Tables,
    older: Tables,
    newer_bytes: usize,
    /// How many writes have begun and ended.
    turns: u64,
}

type Tables = HashMap<String, HashMap<String, StoredRow>>;

/// When a read began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadTurn(u64);

impl RecentRows {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A row, if it is kept.
    pub(crate) fn find(&self, table: &str, key: &str) -> Option<StoredRow> {
        let mut inner = self.lock();
        if let Some(row) = inner.newer.get(table).and_then(|rows| rows.get(key)) {
            return Some(row.clone());
        }
        let row = inner.older.get_mut(table)?.remove(key)?;
        inner.add(table, row.clone());
        Some(row)
    }

    /// Before a row is read.
    pub(crate) fn begin_read(&self) -> ReadTurn {
        ReadTurn(self.lock().turns)
    }

    /// Keeps a row that was read since then, unless something was written meanwhile.
    pub(crate) fn keep(&self, table: &str, row: &StoredRow, since: ReadTurn) {
        let mut inner = self.lock();
        // An odd number is a write that is under way.
        if inner.turns == since.0 && since.0.is_multiple_of(2) {
            inner.add(table, row.clone());
        }
    }

    /// Before rows are written.
    pub(super) fn begin_write<'a, W: 'a>(
        &self,
        touched: impl Iterator<Item = (&'a str, &'a BTreeMap<String, W>)>,
    ) {
        let mut inner = self.lock();
        inner.turns += 1;
        for (table, writes) in touched {
            inner.forget(table, writes.keys());
        }
    }

    /// Before anything may be written.
    pub(super) fn begin_change(&self) {
        let mut inner = self.lock();
        let turns = inner.turns + 1;
        *inner = Inner { turns, ..Inner::default() };
    }

    /// A write is over, one way or the other.
    pub(super) fn end_write(&self) {
        self.lock().turns += 1;
    }
}

impl Inner {
    fn add(&mut self, table: &str, row: StoredRow) {
        self.newer_bytes += ROW_BYTES + row.key.len() + row.value.as_bytes().len();
        match self.newer.get_mut(table) {
            Some(rows) => drop(rows.insert(row.key.clone(), row)),
            None => {
                let rows = HashMap::from([(row.key.clone(), row)]);
                self.newer.insert(table.to_owned(), rows);
            }
        }
        if self.newer_bytes > RECENT_BYTES_MAX / 2 {
            self.older = mem::take(&mut self.newer);
            self.newer_bytes = 0;
        }
    }

    fn forget<'a>(&mut self, table: &str, keys: impl Iterator<Item = &'a String>) {
        let (newer, older) = (self.newer.get_mut(table), self.older.get_mut(table));
        let mut halves = [newer, older];
        if halves.iter().all(Option::is_none) {
            return;
        }
        for key in keys {
            for half in halves.iter_mut().flatten() {
                half.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use promethean_event::{Offset, Partition, Payload, Timestamp};

    use super::*;
    use crate::store::{Lane, TopicId};

    fn row(key: &str, offset: u64) -> StoredRow {
        StoredRow {
            key: key.to_owned(),
            ts: Timestamp::from_millis(0),
            appended_at: Timestamp::from_millis(0),
            lane: Lane { topic: TopicId::new(1), partition: Partition::ZERO },
            offset: Offset::new(offset),
            version: None,
            value: Payload::from_stored(Bytes::from_static(b"{}")),
        }
    }

    fn writes(keys: &[&str]) -> BTreeMap<String, ()> {
        keys.iter().map(|key| ((*key).to_owned(), ())).collect()
    }

    #[test]
    fn what_is_written_goes_and_the_rest_stays() {
        let recent = RecentRows::default();
        for key in ["a", "b"] {
            recent.keep("t", &row(key, 1), recent.begin_read());
        }
        let touched = writes(&["a", "c"]);
        recent.begin_write([("t", &touched)].into_iter());
        assert_eq!(recent.find("t", "a"), None);
        assert_eq!(recent.find("t", "b"), Some(row("b", 1)));
        recent.end_write();
        assert_eq!(recent.find("t", "a"), None);
        recent.begin_change();
        recent.end_write();
        assert_eq!(recent.find("t", "b"), None);
    }

    #[test]
    fn a_read_that_a_write_overlaps_is_not_kept() {
        let recent = RecentRows::default();
        let nothing = writes(&[]);
        let before = recent.begin_read();
        recent.begin_write([("t", &nothing)].into_iter());
        let within = recent.begin_read();
        recent.keep("t", &row("a", 1), before);
        recent.keep("t", &row("a", 1), within);
        assert_eq!(recent.find("t", "a"), None, "the write may be of this row");
        recent.end_write();
        recent.keep("t", &row("a", 1), before);
        recent.keep("t", &row("a", 1), within);
        assert_eq!(recent.find("t", "a"), None, "what was read may be old by now");
        recent.keep("t", &row("a", 2), recent.begin_read());
        assert_eq!(recent.find("t", "a"), Some(row("a", 2)));
    }

    #[test]
    fn it_stays_within_its_bounds_and_keeps_what_is_asked_for() {
        let recent = RecentRows::default();
        let many = 4 * RECENT_BYTES_MAX / ROW_BYTES;
        recent.keep("t", &row("hot", 0), recent.begin_read());
        for n in 0..many {
            recent.keep("t", &row(&n.to_string(), 0), recent.begin_read());
            assert!(recent.find("t", "hot").is_some(), "{n}");
        }
        let inner = recent.lock();
        let kept: usize = [&inner.newer, &inner.older]
            .iter()
            .flat_map(|half| half.values())
            .map(HashMap::len)
            .sum();
        assert!(kept * ROW_BYTES <= RECENT_BYTES_MAX, "{kept}");
    }
}
