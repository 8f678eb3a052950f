use promethean_event::{Event, Offset, Payload, Timestamp, Topic};
use promethean_log::{RecordPage, RecordRef};

use super::record::{Gap, Page, Stored};

/// Events of a lane on their way to consumers, and what is missing between them. Where the store
/// can, they stay as they were stored until somebody looks at one; what delivery has to know of
/// them is kept apart, so that it need not.
#[derive(Debug)]
pub struct EventPage {
    events: Events,
    outlines: Vec<Outline>,
    /// Every offset from the first to the last is there.
    is_dense: bool,
    /// Offsets that were passed and are not among them.
    pub gaps: Vec<Gap>,
    /// Where to go on.
    pub next: Offset,
}

#[derive(Debug)]
enum Events {
    Decoded(Vec<Stored>),
    Records { records: RecordPage, topic: Topic },
}

impl From<Page> for EventPage {
    fn from(page: Page) -> Self {
        let outlines: Vec<Outline> = page.events.iter().map(Outline::of_stored).collect();
        Self {
            is_dense: is_dense(&outlines),
            outlines,
            events: Events::Decoded(page.events),
            gaps: page.gaps,
            next: page.next,
        }
    }
}

impl EventPage {
    /// Records of the log, of one topic.
    pub(crate) fn of_records(
        mut records: RecordPage,
        outlines: Vec<Outline>,
        topic: Topic,
    ) -> Self {
        let gaps = std::mem::take(&mut records.gaps);
        let gaps = gaps.into_iter().map(|gap| Gap {
            partition: gap.lane.partition,
            from: gap.from,
            to: gap.to,
            reason: gap.reason,
        });
        let (gaps, next) = (gaps.collect(), records.next);
        let is_dense = is_dense(&outlines);
        Self { events: Events::Records { records, topic }, outlines, is_dense, gaps, next }
    }

    /// How many events.
    pub const fn len(&self) -> usize {
        self.outlines.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What delivery has to know of an event.
    pub fn outline(&self, index: usize) -> Option<&Outline> {
        self.outlines.get(index)
    }

    /// What delivery has to know of the events from one on.
    pub fn outlines_from(&self, index: usize) -> &[Outline] {
        self.outlines.get(index..).unwrap_or_default()
    }

    /// The whole event. `None` if there is none, or if it was stored by a faulty program.
    pub fn event(&self, index: usize) -> Option<Event> {
        match &self.events {
            Events::Decoded(events) => events.get(index).map(|stored| stored.event.clone()),
            Events::Records { records, topic } => records.get(index)?.to_event(topic),
        }
    }

    /// An event with what the store knows of it. `None` as for [`event`](Self::event).
    pub(crate) fn stored(&self, index: usize) -> Option<Stored> {
        let outline = self.outline(index)?;
        let (appended_at, bytes) = (outline.appended_at, outline.bytes);
        Some(Stored { event: self.event(index)?, appended_at, bytes })
    }

    /// A hash of an event's key that two keys do not share, if it has one.
    pub(crate) fn key_name(&self, index: usize) -> Option<u128> {
        let name = xxhash_rust::xxh3::xxh3_128;
        match &self.events {
            Events::Decoded(events) => {
                events.get(index)?.event.key.as_ref().map(|key| name(key.as_str().as_bytes()))
            }
            Events::Records { records, .. } => records.get(index)?.key_bytes().map(name),
        }
    }

    /// The payload of an event alone, as it was published.
    pub fn payload(&self, index: usize) -> Option<Payload> {
        match &self.events {
            Events::Decoded(events) => events.get(index).map(|stored| stored.event.payload.clone()),
            Events::Records { records, .. } => records.get(index).map(|record| record.payload()),
        }
    }

    /// The place of an offset among the events, if it is there.
    pub fn find(&self, offset: u64) -> Option<usize> {
        let index = self.first_from(offset);
        (self.outlines.get(index)?.offset == offset).then_some(index)
    }

    /// The place of the first event at or after an offset.
    pub fn first_from(&self, offset: u64) -> usize {
        match self.outlines.first() {
            // Nearly always nothing is missing, and the place is known without a search.
            Some(first) if self.is_dense => {
                let index = offset.saturating_sub(first.offset);
                usize::try_from(index).map_or(self.len(), |index| index.min(self.len()))
            }
            _ => self.outlines.partition_point(|outline| outline.offset < offset),
        }
    }
}

fn is_dense(outlines: &[Outline]) -> bool {
    let ends = outlines.first().zip(outlines.last());
    ends.is_some_and(|(first, last)| last.offset - first.offset + 1 == outlines.len() as u64)
}

/// What delivery has to know of an event.
#[derive(Debug, Clone, Copy)]
pub struct Outline {
    /// Its place.
    pub offset: u64,
    key: u64,
    /// When the store took it.
    pub appended_at: Timestamp,
    /// Its size.
    pub bytes: u32,
    is_keyed: bool,
    /// Whether it has headers.
    pub has_headers: bool,
    /// Whether it can be read for sure: decoding it may wait until somebody asks for it.
    pub is_sound: bool,
}

impl Outline {
    fn of_stored(stored: &Stored) -> Self {
        let event = &stored.event;
        Self {
            offset: event.offset.get(),
            key: event.key.as_ref().map_or(0, |key| key_hash(key.as_str().as_bytes())),
            appended_at: stored.appended_at,
            bytes: stored.bytes,
            is_keyed: event.key.is_some(),
            has_headers: !event.headers.is_empty(),
            is_sound: true,
        }
    }

    /// The outline of a record that is at hand.
    pub(crate) fn of_record(record: &RecordRef<'_>) -> Self {
        let key = record.key_bytes();
        Self {
            offset: record.offset().get(),
            key: key.map_or(0, key_hash),
            appended_at: record.appended_at(),
            bytes: record.bytes() as u32,
            is_keyed: key.is_some(),
            has_headers: record.has_headers(),
            is_sound: record.is_plain(),
        }
    }

    /// What delivery knows its key by.
    pub fn key(&self) -> Option<u64> {
        self.is_keyed.then_some(self.key)
    }
}

/// What delivery knows a key by. Seed 0, as everywhere: parked keys keep it.
pub(crate) fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}
