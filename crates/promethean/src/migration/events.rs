//! Events of all lanes, merged by the time at which they were appended: a store on one machine has one
//! time for all of them, which does not go back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use promethean_event::Timestamp;

use super::error::MigrateError;
use super::places::{Places, topics};
use super::proof::Course;
use crate::store::{Lane, Restore, Store, TopicTable};

/// Events that wait in memory, about, over all lanes.
const WAITING_MAX: usize = 100_000;
/// Events that are handed over together.
const AT_ONCE: usize = 4_000;
/// Or bytes.
const BYTES_AT_ONCE: usize = 8 * 1024 * 1024;

/// What is left to read of a lane, and where it goes.
struct LaneSource<'a> {
    course: Course<'a>,
    to: Lane,
}

/// Takes over the events that the target does not have yet, and that were appended by a time. `told` is
/// called with how many it was.
pub(super) async fn take_over(
    (from, to): (&dyn Store, &dyn Store),
    restore: &dyn Restore,
    (places, settled): (&Places, Timestamp),
    mut told: impl FnMut(u64) + Send,
) -> Result<(), MigrateError> {
    let table = from.topics();
    let mut sources = sources((from, to), &table, places).await?;
    let mut order: BinaryHeap<Reverse<(Timestamp, usize)>> = BinaryHeap::new();
    let next_of = async |sources: &mut Vec<LaneSource<'_>>, number: usize| {
        let Some(source) = sources.get_mut(number) else { return Ok(None) };
        let time = source.course.peek().await?.map(|stored| stored.appended_at);
        let time = time.filter(|time| *time <= settled);
        Ok::<_, MigrateError>(time.map(|time| Reverse((time, number))))
    };
    for number in 0..sources.len() {
        order.extend(next_of(&mut sources, number).await?);
    }
    let (mut piece, mut bytes) = (Vec::new(), 0);
    while let Some(Reverse((_, number))) = order.pop() {
        if let Some(source) = sources.get_mut(number)
            && let Some(stored) = source.course.next().await?
        {
            bytes += stored.bytes as usize;
            piece.push((source.to, stored));
        }
        order.extend(next_of(&mut sources, number).await?);
        if piece.len() >= AT_ONCE || bytes >= BYTES_AT_ONCE {
            let count = piece.len() as u64;
            restore.restore(std::mem::take(&mut piece)).await?;
            bytes = 0;
            told(count);
        }
    }
    let count = piece.len() as u64;
    restore.restore(piece).await?;
    told(count);
    Ok(())
}

/// Has the lanes of the target start and end where those of the source do.
pub(super) async fn place(
    (from, to): (&dyn Store, &dyn Store),
    restore: &dyn Restore,
    places: &Places,
) -> Result<(), MigrateError> {
    let mut bounds = Vec::new();
    for lane in topics(&from.topics()).flat_map(|entry| entry.lanes()) {
        let Some(target) = places.lane(lane) else { continue };
        let wanted = from.bounds(lane).await?;
        if to.bounds(target).await? != wanted {
            bounds.push((target, wanted));
        }
    }
    for piece in bounds.chunks(AT_ONCE) {
        restore.place(piece.to_vec()).await?;
    }
    Ok(())
}

async fn sources<'a>(
    (from, to): (&'a dyn Store, &dyn Store),
    table: &'a TopicTable,
    places: &Places,
) -> Result<Vec<LaneSource<'a>>, MigrateError> {
    let lanes: Vec<_> =
        topics(table).flat_map(|entry| entry.lanes().map(move |lane| (entry, lane))).collect();
    let page = (WAITING_MAX / lanes.len().max(1)).clamp(16, 1_000);
    let mut sources = Vec::new();
    for (entry, lane) in lanes {
        let Some(target) = places.lane(lane) else { continue };
        let bounds = from.bounds(lane).await?;
        // What is there is passed over: all before the end is, in this order.
        let next = to.bounds(target).await?.next.max(bounds.start);
        let course = Course::new(from, &entry.definition.topic, lane, next..bounds.next);
        sources.push(LaneSource { course: course.paged(page), to: target });
    }
    Ok(sources)
}
