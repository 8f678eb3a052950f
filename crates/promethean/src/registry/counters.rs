use std::sync::atomic::{AtomicU64, Ordering};

/// What has been done with the schemas of one topic since the bus was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SchemaCounts {
    /// Events that were checked when they were published.
    pub checked: u64,
    /// Events that were refused.
    pub refused: u64,
    /// Events that would have been refused, but were let through.
    pub warned: u64,
    /// Copies that dual writes made.
    pub copied: u64,
    /// Copies that could not be made, and without which the event was let through.
    pub uncopied: u64,
    /// Events that were brought to another version for a reader.
    pub cast: u64,
    /// Events that could not be brought to the version that a reader asked for.
    pub unreadable: u64,
}

impl SchemaCounts {
    /// Each of them, by its name.
    pub(crate) const fn named(&self) -> [(&'static str, u64); 7] {
        [
            ("checked", self.checked),
            ("refused", self.refused),
            ("warned", self.warned),
            ("copied", self.copied),
            ("uncopied", self.uncopied),
            ("cast", self.cast),
            ("unreadable", self.unreadable),
        ]
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(super) checked: Counter,
    pub(super) refused: Counter,
    pub(super) warned: Counter,
    pub(super) copied: Counter,
    pub(super) uncopied: Counter,
    pub(crate) cast: Counter,
    pub(crate) unreadable: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(super) fn counts(&self) -> SchemaCounts {
        SchemaCounts {
            checked: self.checked.get(),
            refused: self.refused.get(),
            warned: self.warned.get(),
            copied: self.copied.get(),
            uncopied: self.uncopied.get(),
            cast: self.cast.get(),
            unreadable: self.unreadable.get(),
        }
    }
}
