//! Reading a lane, forward and backward, and telling what is missing.

use mongodb::bson::{Document, doc};
use mongodb::options::Hint;
use promethean::store::{
    Gap, GapReason, Lane, LaneBounds, Page, PageLimit, ReadError, Stored, TopicEntry,
};
use promethean_event::Offset;

use crate::cluster::{BY_OFFSET, Cluster};
use crate::document::{decode, signed, unsigned};
use crate::fault::Fault;
use crate::lookup::of_lane;

/// Where a lane starts and ends. One that nothing was appended to has no document.
pub(crate) async fn bounds(cluster: &Cluster, lane: Lane) -> Result<LaneBounds, Fault> {
    let by_id = cluster.lanes.find_one(doc! { "_id": signed(lane.id().get()) });
    let found = cluster.ask(by_id).await?;
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
    let (events, is_full) = collect(cluster, entry, (lane, range, 1), limit).await?;
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
    let reading = reading.batch_size(u32::try_from(events_max.min(1_000)).unwrap_or(1_000));
    let mut cursor = cluster.ask(reading).await?;
    let (mut events, mut bytes) = (Vec::new(), 0);
    while cluster.ask(cursor.advance()).await? {
        let stored = decode(cursor.current())?;
        bytes += stored.bytes as usize;
        events.push(stored);
        if events.len() >= events_max || bytes >= limit.bytes {
            return Ok((events, true));
        }
    }
    Ok((events, false))
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
