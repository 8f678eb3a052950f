use promethean_delivery::Found;
use promethean_event::{Event, Offset, Payload, Timestamp, Topic};
use promethean_log::RecordPage;

use super::outlines::Outlines;
use super::record::{Gap, Page, Stored};

/// Events of a lane on their way to consumers, and what is missing between them. Where the store
/// can, they stay as they were stored until somebody looks at one; what delivery has to know of
/// them is kept apart, so that it need not.
#[derive(Debug)]
pub struct EventPage {
    events: Events,
    outlines: Outlines,
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
        let outlines = Outlines::of_stored(&page.events);
        Self {
            is_dense: outlines.are_dense(),
            outlines,
            events: Events::Decoded(page.events),
            gaps: page.gaps,
            next: page.next,
        }
    }
}

impl EventPage {
    /// Records of the log, of one topic.
    pub(crate) fn of_records(mut records: RecordPage, outlines: Outlines, topic: Topic) -> Self {
        let gaps = std::mem::take(&mut records.gaps);
        let gaps = gaps.into_iter().map(|gap| Gap {
            partition: gap.lane.partition,
            from: gap.from,
            to: gap.to,
            reason: gap.reason,
        });
        let (gaps, next) = (gaps.collect(), records.next);
        let is_dense = outlines.are_dense();
        Self { events: Events::Records { records, topic }, outlines, is_dense, gaps, next }
    }

    /// How many events.
    pub fn len(&self) -> usize {
        self.outlines.found().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What delivery has to know of the events.
    pub fn found(&self) -> &[Found] {
        self.outlines.found()
    }

    /// Whether every event can be read for sure.
    pub const fn are_sound(&self) -> bool {
        self.outlines.are_sound()
    }

    /// Whether an event can be read for sure: decoding it may wait until somebody asks for it.
    pub fn is_sound(&self, index: usize) -> bool {
        self.are_sound()
            || match &self.events {
                Events::Decoded(_) => true,
                Events::Records { records, .. } => {
                    records.get(index).is_some_and(|record| record.is_plain())
                }
            }
    }

    /// Whether any event has headers.
    pub const fn have_headers(&self) -> bool {
        self.outlines.have_headers()
    }

    /// Whether an event has headers.
    pub fn has_headers(&self, index: usize) -> bool {
        self.have_headers()
            && match &self.events {
                Events::Decoded(events) => {
                    events.get(index).is_some_and(|stored| !stored.event.headers.is_empty())
                }
                Events::Records { records, .. } => {
                    records.get(index).is_some_and(|record| record.has_headers())
                }
            }
    }

    /// When the store took an event.
    pub fn appended_at(&self, index: usize) -> Option<Timestamp> {
        self.outlines.taken_at(index)
    }

    /// How many of `count` events from one on the store took at which time.
    pub fn appended(&self, index: usize, count: usize) -> impl Iterator<Item = (Timestamp, usize)> {
        self.outlines.taken(index, count)
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
        let (found, appended_at) = (self.found().get(index)?, self.appended_at(index)?);
        Some(Stored { event: self.event(index)?, appended_at, bytes: found.bytes })
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
        (self.found().get(index)?.offset == offset).then_some(index)
    }

    /// How many events follow each other from a place on, without a gap.
    pub(crate) fn run(&self, index: usize) -> usize {
        let found = self.found().get(index..).unwrap_or_default();
        match found.first() {
            _ if self.is_dense => found.len(),
            Some(first) => {
                let follows = |(event, offset): &(&Found, u64)| event.offset == *offset;
                found.iter().zip(first.offset..).take_while(follows).count()
            }
            None => 0,
        }
    }

    /// The place of the first event at or after an offset.
    pub fn first_from(&self, offset: u64) -> usize {
        let found = self.found();
        match found.first() {
            // Nearly always nothing is missing, and the place is known without a search.
            Some(first) if self.is_dense => {
                let index = offset.saturating_sub(first.offset);
                usize::try_from(index).map_or(found.len(), |index| index.min(found.len()))
            }
            _ => found.partition_point(|event| event.offset < offset),
        }
    }
}
