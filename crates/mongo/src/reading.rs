//! Reading a lane, forward and backward, and telling what is missing.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use mongodb::bson::raw::RawDocumentBuf;
use mongodb::bson::{Document, doc};
use mongodb::options::{Hint, ReadConcern};
use mongodb::raw_batch_cursor::{RawBatch, RawBatchCursor};
use promethean::store::{
    Gap, GapReason, Lane, LaneBounds, Page, PageLimit, ReadError, Stored, TopicEntry,
};
use promethean_event::Offset;
use tokio::task::JoinHandle;

use crate::cluster::{BY_OFFSET, Cluster};
use crate::document::{decode, signed, unsigned};
use crate::fault::{Fault, too_late};
use crate::limits::{EVENT_BYTES_GUESSED, READ_EVENTS_MAX, READ_EVENTS_MIN, READS_IN_PAGE};
use crate::lookup::of_lane;

/// Where a lane starts and ends. One that nothing was appended to has no document.
pub(crate) async fn bounds(cluster: &Cluster, lane: Lane) -> Result<LaneBounds, Fault> {
    let by_id = cluster.lanes.find_one(doc! { "_id": signed(lane.id().get()) });
    let found = cluster.ask(by_id.projection(doc! { "tail": 0 })).await?;
    let number = |name: &str| {
        let number = found.as_ref().and_then(|found| found.get_i64(name).ok());
        Offset::new(number.map_or(0, unsigned))
    };
    Ok(LaneBounds { start: number("start"), next: number("next") })
}

/// Reads from an offset on. `end` is where the lane ends at least, if that is known.
pub(crate) async fn forward(
    cluster: &Cluster,
    entry: &TopicEntry,
    (lane, from, limit): (Lane, Offset, PageLimit),
    end: Option<u64>,
) -> Result<Page, ReadError> {
    // Below a known end everything can be read: no need to ask where the lane ends now.
    let end = match end.filter(|end| *end > from.get()) {
        Some(end) => end,
        None => bounds(cluster, lane).await?.next.get(),
    };
    if from.get() > end {
        return Err(ReadError::BeyondEnd { wanted: from, next: Offset::new(end) });
    }
    let mut page = Page { next: from, ..Page::default() };
    if from.get() == end {
        return Ok(page);
    }
    let range = doc! { "$gte": signed(from.get()), "$lt": signed(end) };
    let (mut events, mut is_full) =
        collect(cluster, entry, (lane, range.clone(), 1), limit).await?;
    if !is_full && events.last().is_none_or(|last| last.event.offset.get() + 1 < end) {
        // A primary that was elected a moment ago may not know yet that a majority has the last ones:
        // they must not pass for something that was compacted.
        settle(cluster, Some(lane)).await?;
        (events, is_full) = collect(cluster, entry, (lane, range, 1), limit).await?;
    }
    let reached = match events.last() {
        Some(last) if is_full => last.event.offset.get() + 1,
        _ => end,
    };
    let missing = missing(&events, from.get(), reached);
    page.gaps = explain(cluster, lane, missing).await?;
    page.next = Offset::new(reached);
    page.events = events;
    Ok(page)
}

/// Events that were told with the end of their lane, if all of them fit into a page.
pub(crate) fn page_of(
    documents: &[RawDocumentBuf],
    entry: &TopicEntry,
    limit: PageLimit,
) -> Option<Result<Page, ReadError>> {
    let decoded = documents.iter().map(|document| decode(document, &entry.definition.topic));
    let events: Vec<Stored> = match decoded.collect() {
        Ok(events) => events,
        Err(error) => return Some(Err(error)),
    };
    let bytes: usize = events.iter().map(|stored| stored.bytes as usize).sum();
    if events.len() > limit.events || bytes > limit.bytes {
        return None;
    }
    let next = Offset::new(events.last()?.event.offset.get() + 1);
    Some(Ok(Page { events, next, ..Page::default() }))
}

/// Waits until the primary has shown a majority that it is the primary, and a majority has all that it has
/// done: then majority reads see all that was ever acknowledged, and all that a change stream that is open
/// already will not tell. Which lane makes a difference only where lanes are on several shards.
pub(crate) async fn settle(cluster: &Cluster, lane: Option<Lane>) -> Result<(), Fault> {
    let id = lane.map_or(0, |lane| signed(lane.id().get()));
    let by_id = cluster.lanes.find_one(doc! { "_id": id }).projection(doc! { "_id": 1 });
    cluster.ask(by_id.read_concern(ReadConcern::linearizable())).await?;
    Ok(())
}

/// Reads backward, from the event before an offset.
pub(crate) async fn backward(
    cluster: &Cluster,
    entry: &TopicEntry,
    (lane, before, limit): (Lane, Offset, PageLimit),
) -> Result<Page, ReadError> {
    let end = bounds(cluster, lane).await?.next.get().min(before.get());
    if end == 0 {
        return Ok(Page::default());
    }
    let range = doc! { "$lt": signed(end) };
    let (events, is_full) = collect(cluster, entry, (lane, range, -1), limit).await?;
    let reached = match events.last() {
        Some(last) if is_full => last.event.offset.get(),
        _ => 0,
    };
    let mut rising: Vec<&Stored> = events.iter().collect();
    rising.reverse();
    let mut missing = between(rising.iter().map(|stored| stored.event.offset.get()), reached, end);
    missing.reverse();
    let mut gaps = explain(cluster, lane, missing).await?;
    // What is missing for two reasons is told in two parts, the newer one first.
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.from));
    Ok(Page { events, gaps, next: Offset::new(reached) })
}

/// Events of a range of offsets, up or down, until the page is full; whether it is.
async fn collect(
    cluster: &Cluster,
    entry: &TopicEntry,
    (lane, range, direction): (Lane, Document, i32),
    limit: PageLimit,
) -> Result<(Vec<Stored>, bool), ReadError> {
    let mut filter = of_lane(entry, lane);
    filter.insert("offset", range);
    let events_max = limit.events.max(1);
    let sort = doc! {
        "topic": direction, "topic_id": direction, "partition": direction, "offset": direction,
    };
    let reading = cluster.events.find(filter).sort(sort).limit(signed(events_max as u64));
    let reading = reading.hint(Hint::Name(BY_OFFSET.to_owned()));
    let at_once = cluster.event_sizes.fitting(limit.bytes);
    let reading = reading.batch_size(u32::try_from(events_max.min(at_once)).unwrap_or(1));
    let mut cursor = cluster.ask(reading.batch()).await?;
    let mut page = Filling { events: Vec::new(), bytes: 0, raw_bytes: 0, events_max, limit };
    let mut coming = cluster.ask(next_batch(&mut cursor)).await?;
    while let Some(batch) = coming.take() {
        let next = Coming::behind(&batch, cursor, &page, cluster);
        if page.take(&batch, entry)? {
            return Ok(page.end(cluster, true));
        }
        let Some(arrived) = next.arrive(cluster).await? else { break };
        (cursor, coming) = arrived;
    }
    Ok(page.end(cluster, false))
}

/// What follows a batch.
enum Coming {
    /// Nothing.
    End,
    /// The server makes it ready while that one is decoded.
    Ahead(JoinHandle<(RawBatchCursor, Option<mongodb::error::Result<Option<RawBatch>>>)>),
    /// Probably nobody wants it.
    Asked(Box<RawBatchCursor>),
}

impl Coming {
    fn behind(
        batch: &RawBatch,
        mut cursor: RawBatchCursor,
        page: &Filling,
        cluster: &Cluster,
    ) -> Self {
        if is_last(batch) {
            return Self::End;
        }
        if !page.has_room_behind(batch) {
            return Self::Asked(Box::new(cursor));
        }
        let deadline = cluster.deadline();
        Self::Ahead(tokio::spawn(async move {
            let batch = deadline.hold(next_batch(&mut cursor)).await;
            (cursor, batch)
        }))
    }

    async fn arrive(
        self,
        cluster: &Cluster,
    ) -> Result<Option<(RawBatchCursor, Option<RawBatch>)>, Fault> {
        match self {
            Self::End => Ok(None),
            Self::Ahead(ahead) => {
                let ended = |_| Fault::Refused("the program ends".to_owned());
                let (cursor, batch) = ahead.await.map_err(ended)?;
                Ok(Some((cursor, batch.ok_or_else(too_late)??)))
            }
            Self::Asked(mut cursor) => {
                let batch = cluster.ask(next_batch(&mut cursor)).await?;
                Ok(Some((*cursor, batch)))
            }
        }
    }
}

/// Whether the server has nothing more to send: its cursor has no number then.
fn is_last(batch: &RawBatch) -> bool {
    let cursor = batch.as_raw_document().get_document("cursor");
    cursor.and_then(|cursor| cursor.get_i64("id")).is_ok_and(|id| id == 0)
}

/// A page that is being read.
struct Filling {
    events: Vec<Stored>,
    bytes: usize,
    /// How much came from the server.
    raw_bytes: usize,
    events_max: usize,
    limit: PageLimit,
}

impl Filling {
    /// Whether something may fit in behind these.
    fn has_room_behind(&self, batch: &RawBatch) -> bool {
        let size = batch.as_raw_document().as_bytes().len();
        let bytes = match self.raw_bytes {
            0 => size,
            raw_bytes => size.saturating_mul(self.bytes) / raw_bytes,
        };
        self.bytes + bytes < self.limit.bytes && self.events.len() < self.events_max
    }

    /// Decodes; whether the page is full.
    fn take(&mut self, batch: &RawBatch, entry: &TopicEntry) -> Result<bool, ReadError> {
        let damaged = |error: &dyn std::fmt::Display| {
            ReadError::Damaged(format!("a document of {}: {error}", entry.definition.topic))
        };
        self.raw_bytes += batch.as_raw_document().as_bytes().len();
        for document in batch.doc_slices().map_err(|error| damaged(&error))? {
            let document = document.map_err(|error| damaged(&error))?;
            let document = document.as_document().ok_or_else(|| damaged(&"it is none"))?;
            let stored = decode(document, &entry.definition.topic)?;
            self.bytes += stored.bytes as usize;
            self.events.push(stored);
            if self.events.len() >= self.events_max || self.bytes >= self.limit.bytes {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn end(self, cluster: &Cluster, is_full: bool) -> (Vec<Stored>, bool) {
        cluster.event_sizes.note(self.events.len(), self.bytes);
        (self.events, is_full)
    }
}

async fn next_batch(cursor: &mut RawBatchCursor) -> mongodb::error::Result<Option<RawBatch>> {
    cursor.next().await.transpose()
}

/// How large events are, about: what was read last says how many to ask for at once, so that the
/// server does not send much more than what fits into a page.
#[derive(Debug)]
pub(crate) struct EventSizes(AtomicUsize);

impl Default for EventSizes {
    fn default() -> Self {
        Self(AtomicUsize::new(EVENT_BYTES_GUESSED))
    }
}

impl EventSizes {
    fn note(&self, events: usize, bytes: usize) {
        if let Some(each) = bytes.checked_div(events) {
            let known = self.0.load(Ordering::Relaxed);
            self.0.store((known + each).div_ceil(2), Ordering::Relaxed);
        }
    }

    /// So many to ask for at once: a page in a few steps, so that there is something to do while
    /// the rest comes.
    fn fitting(&self, bytes: usize) -> usize {
        let fitting = bytes / READS_IN_PAGE / self.0.load(Ordering::Relaxed).max(1);
        fitting.clamp(READ_EVENTS_MIN, READ_EVENTS_MAX)
    }
}

fn missing(events: &[Stored], from: u64, to: u64) -> Vec<(u64, u64)> {
    between(events.iter().map(|stored| stored.event.offset.get()), from, to)
}

/// The ranges from `from` to `to` that rising offsets leave out.
fn between(offsets: impl Iterator<Item = u64>, from: u64, to: u64) -> Vec<(u64, u64)> {
    let mut missing = Vec::new();
    let mut next = from;
    for offset in offsets.chain([to]) {
        if next < offset {
            missing.push((next, offset));
        }
        next = offset + 1;
    }
    missing
}

/// Why offsets are missing: those before the lane's start have expired, others were compacted.
async fn explain(
    cluster: &Cluster,
    lane: Lane,
    missing: Vec<(u64, u64)>,
) -> Result<Vec<Gap>, ReadError> {
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let start = bounds(cluster, lane).await?.start.get();
    let mut gaps = Vec::new();
    let mut add = |from: u64, to: u64, reason| {
        if from < to {
            let (from, to) = (Offset::new(from), Offset::new(to));
            gaps.push(Gap { partition: lane.partition, from, to, reason });
        }
    };
    for (from, to) in missing {
        add(from, to.min(start), GapReason::Expired);
        add(from.max(start), to, GapReason::Compacted);
    }
    Ok(gaps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_found() {
        assert_eq!(between([2, 3, 6].into_iter(), 0, 9), [(0, 2), (4, 6), (7, 9)]);
        assert_eq!(between([0, 1].into_iter(), 0, 2), []);
        assert_eq!(between(std::iter::empty(), 4, 6), [(4, 6)]);
    }
}
