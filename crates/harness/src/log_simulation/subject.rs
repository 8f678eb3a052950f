//! The log under test, spoken to in the simulation's own words: the one place that changes when
//! the log's interface does.

use std::sync::Arc;

use promethean_event::{EventId, Key, Offset, Seq, Timestamp};
use promethean_log::{
    Append, AppendError, Appended, Drive, Durability, Expectation, GapReason, Holds, Lane, Log,
    OpenError, OpenReport, Options, Page, PageLimit, ReadError, Record, Ticket, TopicDefinition,
    TopicId,
};

pub use promethean_log::PlantedBug;

use super::draft::{Destination, Digest};
use super::model::{
    Batch, LaneKey, Placed, Seen, SeenEvent, SeenGap, SeenLane, SeenLog, SeenReason, Strength,
};
use super::session::Session;

/// The answer to an append, to come.
pub(super) type AppendTicket = Ticket<Result<Appended, AppendError>>;
/// The answer to a definition, to come.
pub(super) type DefineTicket = Ticket<Result<TopicId, AppendError>>;

/// Why the log said no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    IdConflict,
    OffsetMismatch,
    NoSpace,
    StorageFailed,
    /// A read failed, and nothing was written.
    LookupFailed,
    Other(String),
}

/// What became of a request.
#[derive(Debug)]
pub(super) enum Answer<T> {
    Yes(T),
    No(Refusal),
    /// Nothing, although the writer had its turn.
    Silence,
}

/// Where an append put its events, each with its seq, and when.
#[derive(Debug)]
pub(super) struct Receipts {
    pub(super) places: Vec<(Placed, u64)>,
    pub(super) appended_ms: u64,
}

/// An event that was found, and where.
pub(super) type Found = (LaneKey, SeenEvent);

/// An open log.
#[derive(Debug)]
pub(super) struct Subject {
    log: Log,
    destinations: Vec<Destination>,
    topics: Vec<Option<TopicId>>,
}

impl Subject {
    pub(super) fn open(session: &Session) -> Result<(Self, OpenReport), OpenError> {
        let profile = &session.profile;
        let options = Options {
            segment_bytes_min: profile.segment_bytes_min,
            segment_bytes_max: profile.segment_bytes_max,
            spare_segments: profile.spare_segments,
            tail_bytes: profile.tail_bytes,
            filter_bytes: profile.filter_bytes,
            free_bytes_min: 0,
            clock: Arc::new(session.clock.clone()),
            drive: Drive::Caller,
            planted: session.planted,
            ..Options::default()
        };
        let (log, report) = Log::open(Arc::new(session.disk.attach()), options)?;
        let destinations = session.destinations.clone();
        let topics = destinations.iter().map(|to| log.topic_id(&to.topic)).collect();
        Ok((Self { log, destinations, topics }, report))
    }

    /// Whether the log has the topic.
    pub(super) fn knows(&self, topic: usize) -> bool {
        self.topics[topic].is_some()
    }

    pub(super) fn define(&self, definition: TopicDefinition) -> DefineTicket {
        self.log.define(definition)
    }

    pub(super) fn append(&self, batch: &Batch) -> AppendTicket {
        let durability = match batch.strength {
            Strength::None => Durability::None,
            Strength::Written => Durability::Written,
            Strength::Synced => Durability::Synced,
        };
        let expect = batch.expect.iter().filter_map(|&(key, next)| {
            Some(Expectation { lane: self.lane(key)?, next: Offset::new(next) })
        });
        let expect = expect.collect();
        let events = batch.drafts.iter().map(|draft| (*draft.event).clone()).collect();
        self.log.append(&Append { events, durability, expect })
    }

    pub(super) fn write_waiting(&self) {
        self.log.write_waiting();
    }

    pub(super) fn commit_waiting(&self) {
        self.log.commit_waiting();
    }

    /// One round of spare files and side files.
    pub(super) fn maintain(&self) -> Result<(), String> {
        self.log.maintain().map_err(|error| error.to_string())
    }

    /// One round of the cleaner.
    pub(super) fn clean(&self) -> Result<usize, String> {
        self.log.clean(&Holds::default()).map_err(|error| error.to_string())
    }

    /// Whether the log takes no more writes.
    pub(super) fn has_failed(&self) -> bool {
        self.log.failure().is_some()
    }

    pub(super) fn close(&self) {
        self.log.close();
    }

    pub(super) fn defined(&mut self, topic: usize, ticket: &DefineTicket) -> Answer<()> {
        match ticket.try_take() {
            Some(Ok(id)) => {
                self.topics[topic] = Some(id);
                Answer::Yes(())
            }
            Some(Err(error)) => Answer::No(refusal(error)),
            None => Answer::Silence,
        }
    }

    pub(super) fn appended(&self, ticket: &AppendTicket) -> Answer<Receipts> {
        let appended = match ticket.try_take() {
            Some(Ok(appended)) => appended,
            Some(Err(error)) => return Answer::No(refusal(error)),
            None => return Answer::Silence,
        };
        let places = appended.receipts.iter().map(|receipt| {
            let place = Placed {
                lane: self.key(receipt.lane),
                offset: receipt.offset.get(),
                duplicate: receipt.duplicate,
            };
            (place, receipt.seq.get())
        });
        Answer::Yes(Receipts {
            places: places.collect(),
            appended_ms: appended.appended_at.millis(),
        })
    }

    fn lane(&self, key: LaneKey) -> Option<Lane> {
        let topic = self.topics[key.topic]?;
        Some(Lane { topic, partition: promethean_event::Partition::new(key.partition) })
    }

    fn key(&self, lane: Lane) -> LaneKey {
        // A topic that nobody has defined gets a number that no check will accept.
        let topic = self.topics.iter().position(|id| *id == Some(lane.topic));
        LaneKey { topic: topic.unwrap_or(usize::MAX), partition: lane.partition.get() }
    }

    fn seen(&self, record: &Record) -> Found {
        let key = self.key(record.lane());
        // An event that cannot be decoded has a digest that no check will accept.
        let digest = self
            .destinations
            .get(key.topic)
            .and_then(|destination| record.to_event(&destination.topic).map(Digest::of_stored));
        let event = SeenEvent {
            offset: record.offset().get(),
            seq: record.seq().get(),
            appended_ms: record.appended_at().millis(),
            digest: digest.unwrap_or(0),
        };
        (key, event)
    }

    /// Where a lane starts and ends; `None` if the log does not know it.
    pub(super) fn bounds(&self, key: LaneKey) -> Option<(u64, u64)> {
        let state = self.log.lane(self.lane(key)?)?;
        Some((state.start.get(), state.next.get()))
    }

    /// Everything of all lanes, lane by lane, in pages of at most `page` events.
    pub(super) fn read_all(&self, page: usize) -> Result<SeenLog, ReadError> {
        let mut seen = SeenLog::new();
        for destination in &self.destinations {
            for partition in 0..destination.partitions.get() {
                let key = LaneKey { topic: destination.number, partition };
                let Some((start, next)) = self.bounds(key) else {
                    continue;
                };
                let items = self.read_lane(key, 0, page)?;
                seen.insert(key, SeenLane { start, next, items });
            }
        }
        Ok(seen)
    }

    /// A lane from `from` to its end.
    pub(super) fn read_lane(
        &self,
        key: LaneKey,
        from: u64,
        page: usize,
    ) -> Result<Vec<Seen>, ReadError> {
        let Some(lane) = self.lane(key) else {
            return Ok(Vec::new());
        };
        let mut reader = self.log.read(lane, Offset::new(from))?;
        let mut items = Vec::new();
        loop {
            let before = reader.position();
            let page = reader.next_page(limit(page))?;
            self.collect(&page, &mut |_, item| items.push(item));
            if reader.position() == before {
                return Ok(items);
            }
        }
    }

    /// A lane from its first offset to its end or to the first error.
    pub(super) fn read_lane_as_far(&self, key: LaneKey) -> (Vec<Seen>, Option<ReadError>) {
        let mut items = Vec::new();
        let Some(lane) = self.lane(key) else {
            return (items, None);
        };
        let mut reader = match self.log.read(lane, Offset::new(0)) {
            Ok(reader) => reader,
            Err(error) => return (items, Some(error)),
        };
        loop {
            let before = reader.position();
            match reader.next_page(limit(1000)) {
                Ok(page) => self.collect(&page, &mut |_, item| items.push(item)),
                Err(error) => return (items, Some(error)),
            }
            if reader.position() == before {
                return (items, None);
            }
        }
    }

    /// Calls `take` for events and gaps in order: a gap stands before the first event after it.
    fn collect(&self, page: &Page, take: &mut dyn FnMut(LaneKey, Seen)) {
        let mut gaps: Vec<_> = page.gaps.iter().collect();
        for record in &page.records {
            let (key, event) = self.seen(record);
            gaps.retain(|gap| {
                let before = gap.lane == record.lane() && gap.from <= record.offset();
                if before {
                    take(key, Seen::Gap(seen_gap(gap)));
                }
                !before
            });
            take(key, Seen::Event(event));
        }
        for gap in gaps {
            take(self.key(gap.lane), Seen::Gap(seen_gap(gap)));
        }
    }

    pub(super) fn find(&self, topic: usize, id: &EventId) -> Result<Option<Found>, ReadError> {
        let Some(topic) = self.topics[topic] else {
            return Ok(None);
        };
        Ok(self.log.find(topic, id)?.map(|record| self.seen(&record)))
    }

    pub(super) fn latest(&self, topic: usize, key: &Key) -> Result<Option<Found>, ReadError> {
        let Some(topic) = self.topics[topic] else {
            return Ok(None);
        };
        Ok(self.log.latest(topic, key)?.map(|record| self.seen(&record)))
    }

    /// The events of a key, oldest first.
    pub(super) fn history(&self, topic: usize, key: &Key) -> Result<Vec<Found>, ReadError> {
        let Some(topic) = self.topics[topic] else {
            return Ok(Vec::new());
        };
        let records = self.log.history(topic, key, usize::MAX)?;
        Ok(records.iter().rev().map(|record| self.seen(record)).collect())
    }

    /// The newest events of the keys with a prefix.
    pub(super) fn keys(&self, topic: usize, prefix: &str) -> Result<Vec<Found>, ReadError> {
        let Some(topic) = self.topics[topic] else {
            return Ok(Vec::new());
        };
        let mut reader = self.log.keys(topic, prefix);
        let mut found = Vec::new();
        loop {
            let page = reader.next_page()?;
            if page.is_empty() {
                return Ok(found);
            }
            found.extend(page.iter().map(|record| self.seen(record)));
        }
    }

    /// At most `page` events of a lane before an offset, oldest first.
    pub(super) fn page_before(
        &self,
        key: LaneKey,
        before: u64,
        page: usize,
    ) -> Result<Vec<Found>, ReadError> {
        let Some(lane) = self.lane(key) else {
            return Ok(Vec::new());
        };
        let page = self.log.page_before(lane, Offset::new(before), limit(page))?;
        Ok(page.records.iter().rev().map(|record| self.seen(record)).collect())
    }

    /// Several topics from a seq on, in the order of appending.
    pub(super) fn read_merged(
        &self,
        topics: &[usize],
        from: u64,
        page: usize,
    ) -> Result<Vec<Found>, ReadError> {
        let lanes = topics.iter().flat_map(|&topic| {
            (0..self.destinations[topic].partitions.get())
                .filter_map(move |partition| self.lane(LaneKey { topic, partition }))
        });
        let mut reader = self.log.read_merged(lanes, Seq::new(from))?;
        let mut found = Vec::new();
        loop {
            let page = reader.next_page(limit(page))?;
            if page.records.is_empty() && page.gaps.is_empty() {
                return Ok(found);
            }
            found.extend(page.records.iter().map(|record| self.seen(record)));
        }
    }

    /// Where a lane's events from `time` on begin.
    pub(super) fn offset_at(&self, key: LaneKey, time: u64) -> Result<u64, ReadError> {
        let Some(lane) = self.lane(key) else {
            return Ok(0);
        };
        Ok(self.log.offset_at(lane, Timestamp::from_millis(time))?.get())
    }
}

fn limit(events: usize) -> PageLimit {
    PageLimit { events, ..PageLimit::default() }
}

fn seen_gap(gap: &promethean_log::Gap) -> SeenGap {
    let reason = match gap.reason {
        GapReason::Expired => SeenReason::Expired,
        GapReason::Compacted => SeenReason::Compacted,
        _ => SeenReason::Corrupt,
    };
    SeenGap { from: gap.from.get(), to: gap.to.get(), reason }
}

fn refusal(error: AppendError) -> Refusal {
    match error {
        AppendError::IdConflict { .. } => Refusal::IdConflict,
        AppendError::OffsetMismatch { .. } => Refusal::OffsetMismatch,
        AppendError::NoSpace => Refusal::NoSpace,
        AppendError::StorageFailed(_) => Refusal::StorageFailed,
        AppendError::LookupFailed { .. } => Refusal::LookupFailed,
        other => Refusal::Other(other.to_string()),
    }
}
