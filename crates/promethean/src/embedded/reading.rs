//! The way out: pages, from memory at once, from the disk on a thread that may block.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use promethean_event::{Offset, Topic};
use promethean_log::{self as log, LaneReader, Log, Record, RecordRef};

use super::blocking;
use super::readers::{OpenReader, Readers};
use super::translate::{log_lane, log_topic};
use crate::store::limits::{AHEAD_BYTES, AHEAD_EVENTS, PAGE_EVENTS_RESERVED};
use crate::store::{
    EventPage, Gap, KeyPage, KeyQuery, Lane, Outlines, Page, PageLimit, Read, ReadError, Stored,
    TopicId, TopicTable,
};

/// A wish to read forward.
#[derive(Debug, Clone)]
struct Forward {
    lane: Lane,
    topic: Topic,
    from: Offset,
    limit: PageLimit,
}

/// Reads a lane.
pub(super) fn read(
    readers: &Arc<Readers>,
    log: &Log,
    table: &TopicTable,
    read: Read,
) -> BoxFuture<'static, Result<Page, ReadError>> {
    let (Read::From { lane, .. } | Read::Before { lane, .. }) = read;
    let Some(topic) = topic_name(table, lane.topic) else {
        return Box::pin(std::future::ready(Err(ReadError::UnknownLane)));
    };
    match read {
        Read::From { lane, from, limit } => {
            if let Some(page) = readers.ahead(lane, from, limit) {
                return Box::pin(std::future::ready(Ok(page)));
            }
            let forward = Forward { lane, topic, from, limit };
            if log.in_tail(log_lane(lane), from) {
                let page = forward.read_memory(log);
                return Box::pin(std::future::ready(page));
            }
            let (readers, log) = (Arc::clone(readers), log.clone());
            Box::pin(blocking(move || forward.read_disk(&log, &readers)))
        }
        Read::Before { lane, before, limit } => {
            let log = log.clone();
            Box::pin(blocking(move || page_before(&log, lane, before, limit, &topic)))
        }
    }
}

/// Reads forward, without decoding.
pub(super) fn fetch(
    readers: &Arc<Readers>,
    log: &Log,
    table: &TopicTable,
    (lane, from, limit): (Lane, Offset, PageLimit),
) -> BoxFuture<'static, Result<EventPage, ReadError>> {
    let Some(topic) = topic_name(table, lane.topic) else {
        return Box::pin(std::future::ready(Err(ReadError::UnknownLane)));
    };
    let forward = Forward { lane, topic, from, limit };
    if log.in_tail(log_lane(lane), from) {
        let page = forward.begin(log).and_then(|mut reader| forward.records(&mut reader));
        return Box::pin(std::future::ready(page));
    }
    let (readers, log) = (Arc::clone(readers), log.clone());
    Box::pin(blocking(move || {
        let (known, round) = readers.take(lane, from);
        let mut reader = match known {
            Some(reader) => reader,
            None => OpenReader::new(forward.begin(&log)?, from),
        };
        let page = forward.records(&mut reader.reader)?;
        reader.stands_at(page.next);
        readers.put(lane, reader, round);
        Ok(page)
    }))
}

impl Forward {
    fn records(&self, reader: &mut LaneReader) -> Result<EventPage, ReadError> {
        let limit = log::PageLimit { events: self.limit.events, bytes: self.limit.bytes };
        let mut outlines = Outlines::new();
        let expected = limit.events.min(PAGE_EVENTS_RESERVED);
        let records = reader.next_records(limit, |record| outlines.add_record(record, expected))?;
        Ok(EventPage::of_records(records, outlines, self.topic.clone()))
    }

    fn read_memory(&self, log: &Log) -> Result<Page, ReadError> {
        let end = log.lane(log_lane(self.lane)).map_or(0, |known| known.next.get());
        let left = usize::try_from(end.saturating_sub(self.from.get())).unwrap_or(usize::MAX);
        self.page(&mut self.begin(log)?, self.limit, left)
    }

    fn read_disk(&self, log: &Log, readers: &Readers) -> Result<Page, ReadError> {
        let (known, round) = readers.take(self.lane, self.from);
        let (mut reader, limit) = match known {
            Some(reader) => {
                let events = self.limit.events.max(AHEAD_EVENTS);
                (reader, PageLimit { events, bytes: self.limit.bytes.max(AHEAD_BYTES) })
            }
            None => (OpenReader::new(self.begin(log)?, self.from), self.limit),
        };
        let page = self.page(&mut reader.reader, limit, limit.events)?;
        let page = reader.page(page, self.limit);
        readers.put(self.lane, reader, round);
        Ok(page)
    }

    fn begin(&self, log: &Log) -> Result<LaneReader, ReadError> {
        Ok(log.read(log_lane(self.lane), self.from)?)
    }

    fn page(
        &self,
        reader: &mut LaneReader,
        limit: PageLimit,
        expected: usize,
    ) -> Result<Page, ReadError> {
        let limit = log::PageLimit { events: limit.events, bytes: limit.bytes };
        let room = expected.min(limit.events).min(PAGE_EVENTS_RESERVED);
        let mut events: Vec<Stored> = Vec::with_capacity(room);
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
    let wanted = log::PageLimit { events: limit.events.max(1), bytes: limit.bytes.max(1) };
    let found = log.page_before(log_lane(lane), before, wanted)?;
    let bytes: usize = found.records.iter().map(Record::bytes).sum();
    let full = found.records.len() >= wanted.events || bytes >= wanted.bytes;
    let mut page = Page::default();
    page.gaps.extend(found.gaps.into_iter().map(gap));
    for record in &found.records {
        let stored = decode(record.as_ref(), topic);
        page.events.push(stored.ok_or_else(|| unreadable_event(topic, record.offset()))?);
    }
    // If the page is not full, nothing is before it, or it is among the gaps.
    let oldest = found.records.last().filter(|_| full);
    page.next = oldest.map_or(Offset::ZERO, Record::offset);
    Ok(page)
}
