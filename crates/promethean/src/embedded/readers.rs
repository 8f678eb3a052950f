//! Readers that stand where their last page ended, so that one who goes on there need not be
//! positioned again. Whoever goes on is read ahead for: small pages then come from memory, without
//! the way to another thread and back.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use promethean_event::Offset;
use promethean_log::LaneReader;

use crate::store::limits::OPEN_READERS_MAX;
use crate::store::{Gap, Lane, Page, PageLimit, Stored};

/// All open readers.
#[derive(Debug, Default)]
pub(super) struct Readers {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// Oldest first.
    readers: VecDeque<(Lane, OpenReader)>,
    /// Rises when what readers know has become old.
    round: u64,
}

/// A reader, and what it has read ahead.
#[derive(Debug)]
pub(super) struct OpenReader {
    pub(super) reader: LaneReader,
    /// Where the next page starts.
    next: Offset,
    ahead: VecDeque<Stored>,
    /// What is missing between and behind these events.
    gaps: Vec<Gap>,
}

impl OpenReader {
    pub(super) const fn new(reader: LaneReader, next: Offset) -> Self {
        Self { reader, next, ahead: VecDeque::new(), gaps: Vec::new() }
    }

    /// Somebody has read with it up to there.
    pub(super) const fn stands_at(&mut self, next: Offset) {
        self.next = next;
    }

    /// Takes up what was read, and gives the first page of it.
    pub(super) fn page(&mut self, page: Page, limit: PageLimit) -> Page {
        let bytes: usize = page.events.iter().map(|stored| stored.bytes as usize).sum();
        if page.events.len() <= limit.events.max(1) && bytes <= limit.bytes {
            self.next = page.next;
            return page;
        }
        self.ahead = page.events.into();
        self.gaps = page.gaps;
        self.next_page(limit)
    }

    /// The next page of what was read ahead.
    fn next_page(&mut self, limit: PageLimit) -> Page {
        let mut page = Page { next: self.next, ..Page::default() };
        page.events.reserve(limit.events.min(self.ahead.len()));
        let mut bytes = 0;
        while let Some(stored) = self.ahead.pop_front() {
            bytes += stored.bytes as usize;
            page.next = stored.event.offset.next();
            page.events.push(stored);
            if page.events.len() >= limit.events || bytes >= limit.bytes {
                break;
            }
        }
        if self.ahead.is_empty() {
            page.next = self.reader.position();
        }
        let (passed, left) = self.gaps.iter().partition(|gap| gap.to <= page.next);
        (page.gaps, self.gaps) = (passed, left);
        self.next = page.next;
        page
    }
}

impl Readers {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of all readers: what they know may be gone.
    pub(super) fn forget(&self) {
        let mut open = self.lock();
        open.round += 1;
        open.readers.clear();
    }

    /// A page of what was read ahead from there, if it was.
    pub(super) fn ahead(&self, lane: Lane, from: Offset, limit: PageLimit) -> Option<Page> {
        let mut open = self.lock();
        let fits = |(known, reader): &&mut (Lane, OpenReader)| {
            *known == lane && reader.next == from && !reader.ahead.is_empty()
        };
        let (_, reader) = open.readers.iter_mut().rfind(fits)?;
        Some(reader.next_page(limit))
    }

    /// Takes the reader that stands there out, if there is one, with the round for giving it back.
    pub(super) fn take(&self, lane: Lane, from: Offset) -> (Option<OpenReader>, u64) {
        let mut open = self.lock();
        let fits = |(known, reader): &(Lane, OpenReader)| {
            *known == lane && reader.next == from && reader.ahead.is_empty()
        };
        let place = open.readers.iter().rposition(fits);
        let reader = place.and_then(|place| open.readers.remove(place));
        (reader.map(|(_, reader)| reader), open.round)
    }

    /// Keeps a reader, unless all were let go meanwhile.
    pub(super) fn put(&self, lane: Lane, reader: OpenReader, round: u64) {
        let mut open = self.lock();
        if open.round == round {
            open.readers.push_back((lane, reader));
            if open.readers.len() > OPEN_READERS_MAX {
                open.readers.pop_front();
            }
        }
    }
}
