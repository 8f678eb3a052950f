use promethean_delivery::Found;
use promethean_event::Timestamp;
use promethean_log::RecordRef;

use super::record::Stored;

/// What delivery has to know of the events of a page, so that it need not look at them.
#[derive(Debug)]
pub(crate) struct Outlines {
    found: Vec<Found>,
    /// When the store took them: the first of those that it took together, and the time.
    taken: Vec<(usize, Timestamp)>,
    /// Whether all can be read for sure: decoding one may wait until somebody asks for it.
    are_sound: bool,
    have_headers: bool,
}

impl Outlines {
    pub(crate) const fn new() -> Self {
        Self { found: Vec::new(), taken: Vec::new(), are_sound: true, have_headers: false }
    }

    pub(super) fn of_stored(events: &[Stored]) -> Self {
        let mut outlines = Self::new();
        outlines.found.reserve(events.len());
        for Stored { event, appended_at, bytes } in events {
            let key = event.key.as_ref().map(|key| key_hash(key.as_str().as_bytes()));
            outlines.have_headers |= !event.headers.is_empty();
            outlines.add((event.offset.get(), key, *bytes), *appended_at);
        }
        outlines
    }

    /// Adds a record that is at hand; there will be about so many.
    pub(crate) fn add_record(&mut self, record: &RecordRef<'_>, expected: usize) {
        if self.found.is_empty() {
            self.found.reserve(expected);
        }
        let key = record.key_bytes().map(key_hash);
        self.are_sound &= record.is_plain();
        self.have_headers |= record.has_headers();
        self.add((record.offset().get(), key, record.bytes() as u32), record.appended_at());
    }

    fn add(&mut self, (offset, key, bytes): (u64, Option<u64>, u32), appended_at: Timestamp) {
        if self.taken.last().is_none_or(|(_, time)| *time != appended_at) {
            self.taken.push((self.found.len(), appended_at));
        }
        self.found.push(Found { offset, key, bytes, skip: false });
    }

    pub(super) fn found(&self) -> &[Found] {
        &self.found
    }

    pub(super) const fn are_sound(&self) -> bool {
        self.are_sound
    }

    pub(super) const fn have_headers(&self) -> bool {
        self.have_headers
    }

    pub(super) fn taken_at(&self, index: usize) -> Option<Timestamp> {
        let after = self.taken.partition_point(|(first, _)| *first <= index);
        Some(self.taken.get(after.checked_sub(1)?)?.1)
    }

    /// How many of `count` events from one on were taken at which time.
    pub(super) fn taken(
        &self,
        index: usize,
        count: usize,
    ) -> impl Iterator<Item = (Timestamp, usize)> {
        let after = self.taken.partition_point(|(first, _)| *first <= index);
        let (mut from, to) = (index, (index + count).min(self.found.len()));
        (after..).map_while(move |next| {
            let (_, time) = *self.taken.get(next.checked_sub(1)?)?;
            let end = self.taken.get(next).map_or(to, |(first, _)| (*first).min(to));
            let taken = end.saturating_sub(from);
            from = end;
            (taken > 0).then_some((time, taken))
        })
    }

    /// Whether every offset from the first to the last is there.
    pub(super) fn are_dense(&self) -> bool {
        let ends = self.found.first().zip(self.found.last());
        ends.is_some_and(|(first, last)| last.offset - first.offset + 1 == self.found.len() as u64)
    }
}

/// What delivery knows a key by. Seed 0, as everywhere: parked keys keep it.
pub(crate) fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}
