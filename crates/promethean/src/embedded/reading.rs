//! The way out: pages, from memory at once, from the disk on a thread that may block.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_core::future::BoxFuture;
use promethean_event::{Offset, Partition, Topic};
use promethean_log::{self as log, GapReason, LaneReader, Log, Record, RecordRef};

use super::blocking;
use super::translate::{log_lane, log_topic};
use crate::store::limits::{OPEN_READERS_MAX, PAGE_EVENTS_RESERVED};
use crate::store::{
    EventPage, Gap, KeyPage, KeyQuery, Lane, Page, PageLimit, Read, ReadError, Stored, TopicId,
    TopicTable,
};

/// Readers that stand where their last page ended, so that one who goes on there need not be
/// positioned again.
#[derive(Debug, Default)]
pub(super) struct Reading {
    open: Mutex<OpenReaders>,
}

#[derive(Debug, Default)]
struct OpenReaders {
    /// Oldest first.
    readers: VecDeque<(Lane, LaneReader)>,
    /// Rises when what readers know has become old.
    round: u64,
}

/// A wish to read forward.
#[derive(Debug, Clone)]
struct Forward {
    lane: Lane,
    topic: Topic,
    from: Offset,
    limit: PageLimit,
    /// How many events there are, up to the limit.
    expected: usize,
}

impl Reading {
    fn lock(&self) -> MutexGuard<'_, OpenReaders> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of all readers: what they know may be gone.
    pub(super) fn forget(&self) {
        let mut open = self.lock();
        open.round += 1;
        open.readers.clear();
    }

    pub(super) fn read(
        self: &Arc<Self>,
        log: &Log,
        table: &TopicTable,
        read: Read,
    ) -> BoxFuture<'static, Result<Page, ReadError>> {
        let lane = match read {
            Read::From { lane, .. } | Read::Before { lane, .. } => lane,
        };
        let Some(topic) = topic_name(table, lane.topic) else {
            return Box::pin(std::future::ready(Err(ReadError::UnknownLane)));
        };
        match read {
            Read::From { lane, from, limit } => {
                let end = log.lane(log_lane(lane)).map_or(0, |known| known.next.get());
                let left = usize::try_from(end.saturating_sub(from.get())).unwrap_or(usize::MAX);
                let expected = left.min(limit.events).min(PAGE_EVENTS_RESERVED);
                let forward = Forward { lane, topic, from, limit, expected };
                if log.in_tail(log_lane(lane), from) {
                    let page = forward.begin(log).and_then(|mut reader| forward.page(&mut reader));
                    return Box::pin(std::future::ready(page));
                }
                let (reading, log) = (Arc::clone(self), log.clone());
                Box::pin(blocking(move || reading.page(&log, &forward)))
            }
            Read::Before { lane, before, limit } => {
                let log = log.clone();
                Box::pin(blocking(move || page_before(&log, lane, before, limit, &topic)))
            }
        }
    }

    /// Reads forward, without decoding.
    pub(super) fn fetch(
        self: &Arc<Self>,
        log: &Log,
        table: &TopicTable,
        (lane, from, limit): (Lane, Offset, PageLimit),
    ) -> BoxFuture<'static, Result<EventPage, ReadError>> {
        let Some(topic) = topic_name(table, lane.topic) else {
            return Box::pin(std::future::ready(Err(ReadError::UnknownLane)));
        };
        let forward = Forward { lane, topic, from, limit, expected: 0 };
        if log.in_tail(log_lane(lane), from) {
            let page = forward.begin(log).and_then(|mut reader| forward.records(&mut reader));
            return Box::pin(std::future::ready(page));
        }
        let (reading, log) = (Arc::clone(self), log.clone());
        Box::pin(blocking(move || {
            reading.going_on(&log, &forward, |reader| forward.records(reader))
        }))
    }

    fn page(&self, log: &Log, forward: &Forward) -> Result<Page, ReadError> {
        self.going_on(log, forward, |reader| forward.page(reader))
    }

    /// Reads with the reader that stands there, if there is one, and keeps it for the next.
    fn going_on<T>(
        &self,
        log: &Log,
        forward: &Forward,
        read: impl FnOnce(&mut LaneReader) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let (known, round) = self.take(forward.lane, forward.from);
        let mut reader = match known {
            Some(reader) => reader,
            None => forward.begin(log)?,
        };
        let page = read(&mut reader)?;
        self.put(forward.lane, reader, round);
        Ok(page)
    }

    fn take(&self, lane: Lane, from: Offset) -> (Option<LaneReader>, u64) {
        let mut open = self.lock();
        let fits =
            |(known, reader): &(Lane, LaneReader)| *known == lane && reader.position() == from;
        let place = open.readers.iter().rposition(fits);
        let reader = place.and_then(|place| open.readers.remove(place));
        (reader.map(|(_, reader)| reader), open.round)
    }

    fn put(&self, lane: Lane, reader: LaneReader, round: u64) {
        let mut open = self.lock();
        if open.round == round {
            open.readers.push_back((lane, reader));
            if open.readers.len() > OPEN_READERS_MAX {
                open.readers.pop_front();
            }
        }
    }
}

impl Forward {
    fn begin(&self, log: &Log) -> Result<LaneReader, ReadError> {
        Ok(log.read(log_lane(self.lane), self.from)?)
    }

    const fn limit(&self) -> log::PageLimit {
        log::PageLimit { events: self.limit.events, bytes: self.limit.bytes }
    }

    fn records(&self, reader: &mut LaneReader) -> Result<EventPage, ReadError> {
        let records = reader.next_records(self.limit())?;
        Ok(EventPage::of_records(records, self.topic.clone()))
    }

    fn page(&self, reader: &mut LaneReader) -> Result<Page, ReadError> {
        let limit = self.limit();
        let mut events: Vec<Stored> = Vec::with_capacity(self.expected);
        let mut unreadable = None;
        let visited = reader.visit(limit, |record| match decode(record, &self.topic) {
            Some(stored) => events.push(stored),
            None => unreadable = Some(record.offset()),
        })?;
        if let Some(offset) = unreadable {
            return Err(unreadable_event(&self.topic, offset));
        }
        let gaps = visited.gaps.into_iter().map(gap).collect();
        Ok(Page { events, gaps, next: reader.position() })
    }
}

fn gap(gap: log::Gap) -> Gap {
    let log::Gap { lane, from, to, reason } = gap;
    Gap { partition: lane.partition, from, to, reason }
}

fn decode(record: RecordRef<'_>, topic: &Topic) -> Option<Stored> {
    let event = record.to_event(topic)?;
    Some(Stored { event, appended_at: record.appended_at(), bytes: record.bytes() as u32 })
}

fn unreadable_event(topic: &Topic, offset: Offset) -> ReadError {
    ReadError::Damaged(format!("the event at offset {offset} of {topic} cannot be understood"))
}

fn topic_name(table: &TopicTable, topic: TopicId) -> Option<Topic> {
    table.by_id(topic).map(|entry| entry.definition.topic.clone())
}

/// A record as the seam shows it.
pub(super) fn stored(record: &Record, table: &TopicTable) -> Result<Stored, ReadError> {
    let id = TopicId::new(record.lane().topic.get());
    let topic = topic_name(table, id).ok_or(ReadError::UnknownLane)?;
    decode(record.as_ref(), &topic).ok_or_else(|| unreadable_event(&topic, record.offset()))
}

pub(super) fn keys(log: &Log, table: &TopicTable, query: &KeyQuery) -> Result<KeyPage, ReadError> {
    let max = query.max.max(1);
    let mut reader = log.keys(log_topic(query.topic), &query.prefix).with_page(max + 1);
    if let Some(after) = &query.after {
        reader = reader.after(after);
    }
    let mut page = KeyPage::default();
    loop {
        let records = reader.next_page()?;
        if records.is_empty() {
            return Ok(page);
        }
        for record in records {
            if page.events.len() == max {
                page.more = true;
                return Ok(page);
            }
            page.events.push(stored(&record, table)?);
        }
    }
}

fn page_before(
    log: &Log,
    lane: Lane,
    before: Offset,
    limit: PageLimit,
    topic: &Topic,
) -> Result<Page, ReadError> {
    let known = log.lane(log_lane(lane)).ok_or(ReadError::UnknownLane)?;
    let mut end = before.min(known.next);
    let wanted = log::PageLimit { events: limit.events.max(1), bytes: limit.bytes.max(1) };
    let records = log.page_before(log_lane(lane), end, wanted)?.records;
    let mut page = Page::default();
    let bytes: usize = records.iter().map(Record::bytes).sum();
    let full = records.len() >= wanted.events || bytes >= wanted.bytes;
    for record in records {
        add_gap(&mut page, lane.partition, record.offset().next(), end, GapReason::Compacted);
        end = record.offset();
        let stored = decode(record.as_ref(), topic);
        page.events.push(stored.ok_or_else(|| unreadable_event(topic, end))?);
    }
    page.next = end;
    if !full {
        add_gap(&mut page, lane.partition, known.start, end, GapReason::Compacted);
        let expired = known.start.min(end);
        add_gap(&mut page, lane.partition, Offset::ZERO, expired, GapReason::Expired);
        page.next = Offset::ZERO;
    }
    Ok(page)
}

fn add_gap(page: &mut Page, partition: Partition, from: Offset, to: Offset, reason: GapReason) {
    if from < to {
        page.gaps.push(Gap { partition, from, to, reason });
    }
}
