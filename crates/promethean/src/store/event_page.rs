use promethean_event::{Event, Offset, Timestamp, Topic};
use promethean_log::{RecordPage, RecordRef};

use super::record::{Gap, Page, Stored};

/// Events of a lane on their way to consumers, and what is missing between them. Where the store
/// can, they stay as they were stored until somebody looks at one.
#[derive(Debug)]
pub struct EventPage {
    events: Events,
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
        Self { events: Events::Decoded(page.events), gaps: page.gaps, next: page.next }
    }
}

impl EventPage {
    /// Records of the log, of one topic.
    pub(crate) fn of_records(mut records: RecordPage, topic: Topic) -> Self {
        let gaps = std::mem::take(&mut records.gaps);
        let gaps = gaps.into_iter().map(|gap| Gap {
            partition: gap.lane.partition,
            from: gap.from,
            to: gap.to,
            reason: gap.reason,
        });
        let (gaps, next) = (gaps.collect(), records.next);
        Self { events: Events::Records { records, topic }, gaps, next }
    }

    /// How many events.
    pub const fn len(&self) -> usize {
        match &self.events {
            Events::Decoded(events) => events.len(),
            Events::Records { records, .. } => records.len(),
        }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The offset of an event.
    pub fn offset(&self, index: usize) -> Option<u64> {
        match &self.events {
            Events::Decoded(events) => events.get(index).map(|stored| stored.event.offset.get()),
            Events::Records { records, .. } => records.get(index).map(|r| r.offset().get()),
        }
    }

    /// What delivery has to know of an event: offset, key, bytes, whether it has headers.
    pub fn outline(&self, index: usize) -> Option<Outline<'_>> {
        match &self.events {
            Events::Decoded(events) => {
                let stored = events.get(index)?;
                let event = &stored.event;
                Some(Outline {
                    offset: event.offset.get(),
                    key: OutlineKey::Known(event.key.as_ref().map(|key| key.as_str())),
                    bytes: stored.bytes,
                    has_headers: !event.headers.is_empty(),
                })
            }
            Events::Records { records, .. } => {
                let record = records.get(index)?;
                Some(Outline {
                    offset: record.offset().get(),
                    key: OutlineKey::Record(record),
                    bytes: record.bytes() as u32,
                    has_headers: record.has_headers(),
                })
            }
        }
    }

    /// The whole event. `None` if there is none, or if it was stored by a faulty program.
    pub fn event(&self, index: usize) -> Option<Event> {
        match &self.events {
            Events::Decoded(events) => events.get(index).map(|stored| stored.event.clone()),
            Events::Records { records, topic } => records.get(index)?.to_event(topic),
        }
    }

    /// When the store took an event.
    pub fn appended_at(&self, index: usize) -> Option<Timestamp> {
        match &self.events {
            Events::Decoded(events) => events.get(index).map(|stored| stored.appended_at),
            Events::Records { records, .. } => records.get(index).map(|r| r.appended_at()),
        }
    }

    /// The place of an offset among the events, if it is there.
    pub fn find(&self, offset: u64) -> Option<usize> {
        let index = self.first_from(offset);
        (self.offset(index) == Some(offset)).then_some(index)
    }

    /// The place of the first event at or after an offset.
    pub fn first_from(&self, offset: u64) -> usize {
        let before = |index: usize| self.offset(index).is_some_and(|at| at < offset);
        // Nearly always nothing is missing, and the place is known without a search.
        let first = self.offset(0).unwrap_or(offset);
        let guess = offset.checked_sub(first).and_then(|guess| usize::try_from(guess).ok());
        let guess = guess.unwrap_or(0);
        if self.offset(guess) == Some(offset) {
            return guess;
        }
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if before(middle) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// What delivery has to know of an event.
#[derive(Debug, Clone, Copy)]
pub struct Outline<'a> {
    /// Its place.
    pub offset: u64,
    key: OutlineKey<'a>,
    /// Its size.
    pub bytes: u32,
    /// Whether it has headers.
    pub has_headers: bool,
}

#[derive(Debug, Clone, Copy)]
enum OutlineKey<'a> {
    Known(Option<&'a str>),
    Record(RecordRef<'a>),
}

impl<'a> Outline<'a> {
    /// Its key.
    pub fn key(&self) -> Option<&'a str> {
        match &self.key {
            OutlineKey::Known(key) => *key,
            OutlineKey::Record(record) => record.key(),
        }
    }
}
