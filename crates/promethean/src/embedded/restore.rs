//! Events of another store, at their places and times. One frame for each time: a frame has one.

use std::collections::{BTreeMap, VecDeque};

use futures_core::future::BoxFuture;
use promethean_event::limits::BATCH_EVENTS_MAX;
use promethean_event::{NewEvent, Offset, Timestamp};
use promethean_log::{self as log, Append, Durability, Expectation, LaneState, Log, Ticket};

use super::EmbeddedStore;
use super::translate::log_lane;
use crate::store::{AppendError, Lane, LaneBounds, ReadError, Restore, Stored, unplaced};

/// Frames that are on their way to the log's writer at once.
const UNDER_WAY_MAX: usize = 256;
/// Bytes of events in one frame, about.
const FRAME_BYTES: usize = 1024 * 1024;

impl Restore for EmbeddedStore {
    fn restore(&self, events: Vec<(Lane, Stored)>) -> BoxFuture<'_, Result<(), AppendError>> {
        Box::pin(async move {
            // Behind what was handed over by one that was cut off: lanes end where they say then.
            self.log.sync().await?;
            let mut course = Course::new(&self.log);
            for (lane, stored) in events {
                course.take(lane, stored).await?;
            }
            course.end().await
        })
    }

    fn place(&self, lanes: Vec<(Lane, LaneBounds)>) -> BoxFuture<'_, Result<(), AppendError>> {
        Box::pin(async move {
            let state = |to: &LaneBounds| LaneState { start: to.start, next: to.next };
            let lanes = lanes.iter().map(|(lane, to)| (log_lane(*lane), state(to))).collect();
            self.log.place(lanes).await?;
            Ok(self.log.sync().await?)
        })
    }

    fn spaces(&self) -> BoxFuture<'_, Result<Vec<String>, ReadError>> {
        let kept = self.journal.kept();
        let filled = kept.entries.iter().filter(|(_, entries)| !entries.is_empty());
        let names = filled.map(|(space, _)| space.clone()).collect();
        Box::pin(std::future::ready(Ok(names)))
    }
}

/// Something that the writer has not answered yet.
enum Handed {
    /// With the places that its events have to get.
    Frame(Ticket<Result<log::Appended, log::AppendError>>, Vec<(Lane, Offset)>),
    Place(Ticket<Result<(), log::AppendError>>),
}

/// Events on their way into the log. What does not follow the end of its lane is led up to by word
/// of where the lane goes on.
struct Course<'a> {
    log: &'a Log,
    ends: BTreeMap<Lane, LaneState>,
    events: Vec<NewEvent>,
    places: Vec<(Lane, Offset)>,
    bytes: usize,
    taken_at: Timestamp,
    expect: BTreeMap<Lane, Offset>,
    handed: VecDeque<Handed>,
}

impl<'a> Course<'a> {
    const fn new(log: &'a Log) -> Self {
        Self {
            log,
            ends: BTreeMap::new(),
            events: Vec::new(),
            places: Vec::new(),
            bytes: 0,
            taken_at: Timestamp::from_millis(0),
            expect: BTreeMap::new(),
            handed: VecDeque::new(),
        }
    }

    async fn take(&mut self, lane: Lane, stored: Stored) -> Result<(), AppendError> {
        let end = match self.ends.get(&lane) {
            Some(end) => *end,
            None => self.log.lane(log_lane(lane)).ok_or(AppendError::UnknownLane(lane))?,
        };
        let offset = stored.event.offset;
        if offset < end.next {
            return Ok(());
        }
        let is_full = self.events.len() >= BATCH_EVENTS_MAX.min(1_000) || self.bytes >= FRAME_BYTES;
        if stored.appended_at != self.taken_at || is_full || offset > end.next {
            self.hand().await?;
        }
        if offset > end.next {
            let to = LaneState { next: offset, ..end };
            let placed = self.log.place(vec![(log_lane(lane), to)]);
            self.note(Handed::Place(placed)).await?;
        }
        self.taken_at = stored.appended_at;
        self.bytes += stored.bytes as usize;
        self.expect.entry(lane).or_insert(offset);
        self.ends.insert(lane, LaneState { next: Offset::new(offset.get() + 1), ..end });
        self.places.push((lane, offset));
        self.events.push(unplaced(stored.event));
        Ok(())
    }

    async fn hand(&mut self) -> Result<(), AppendError> {
        if self.events.is_empty() {
            return Ok(());
        }
        let expect = std::mem::take(&mut self.expect).into_iter();
        let expect = expect.map(|(lane, next)| Expectation { lane: log_lane(lane), next });
        let append = Append {
            events: std::mem::take(&mut self.events),
            durability: Durability::Written,
            expect: expect.collect(),
        };
        self.bytes = 0;
        let ticket = self.log.append_at(&append, self.taken_at);
        let places = std::mem::take(&mut self.places);
        self.note(Handed::Frame(ticket, places)).await
    }

    async fn note(&mut self, handed: Handed) -> Result<(), AppendError> {
        self.handed.push_back(handed);
        while self.handed.len() > UNDER_WAY_MAX {
            self.settle().await?;
        }
        Ok(())
    }

    /// Waits for the oldest one.
    async fn settle(&mut self) -> Result<(), AppendError> {
        match self.handed.pop_front() {
            Some(Handed::Frame(ticket, places)) => {
                let appended = ticket.await?;
                let got = appended.receipts.iter();
                let strayed = got.zip(&places).find(|(got, (lane, offset))| {
                    got.duplicate || got.lane != log_lane(*lane) || got.offset != *offset
                });
                strayed.map_or(Ok(()), |(got, (lane, offset))| {
                    let (place, at) = (lane.partition, got.lane.partition);
                    Err(AppendError::Unavailable(format!(
                        "the event of partition {place}, offset {offset} is at {at}, {} here",
                        got.offset
                    )))
                })
            }
            Some(Handed::Place(ticket)) => Ok(ticket.await?),
            None => Ok(()),
        }
    }

    async fn end(mut self) -> Result<(), AppendError> {
        self.hand().await?;
        while !self.handed.is_empty() {
            self.settle().await?;
        }
        Ok(self.log.sync().await?)
    }
}
