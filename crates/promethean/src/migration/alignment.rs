//! Topics of the target that are not those of the source any more: removed there since they were copied,
//! or removed and made anew. They go, and what is there now is copied from the beginning.

use super::error::MigrateError;
use super::places::topics;
use super::proof::Proof;
use crate::store::{Lane, PageLimit, Read, Store, TopicEntry};

/// Makes the topics of the target those of the source.
pub(super) async fn align(
    from: &dyn Store,
    to: &dyn Store,
    proof: &mut Proof,
) -> Result<(), MigrateError> {
    let (here, there) = (from.topics(), to.topics());
    for copied in topics(&there) {
        let topic = &copied.definition.topic;
        let is_same = match here.get(topic) {
            Some(entry) => is_copy(from, to, (entry, copied)).await?,
            None => false,
        };
        if !is_same {
            to.remove(copied.id).await?;
            proof.forget(topic);
        }
    }
    for entry in topics(&here) {
        let topic = entry.definition.topic.clone();
        let defined = to.define(entry.definition.clone()).await;
        defined.map_err(|reason| MigrateError::Topic { topic, reason })?;
    }
    Ok(())
}

/// Whether what was copied is of this topic, as far as both still have it: told by the last event of each
/// partition.
async fn is_copy(
    from: &dyn Store,
    to: &dyn Store,
    (entry, copied): (&TopicEntry, &TopicEntry),
) -> Result<bool, MigrateError> {
    if entry.definition.partitions != copied.definition.partitions {
        return Ok(false);
    }
    for (lane, copy) in entry.lanes().zip(copied.lanes()) {
        if !is_copied_lane(from, to, (lane, copy)).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn is_copied_lane(
    from: &dyn Store,
    to: &dyn Store,
    (lane, copy): (Lane, Lane),
) -> Result<bool, MigrateError> {
    let (bounds, before) = (from.bounds(lane).await?, to.bounds(copy).await?.next);
    if before > bounds.next {
        return Ok(false);
    }
    let limit = PageLimit { events: 1, ..PageLimit::default() };
    let last = to.read(Read::Before { lane: copy, before, limit }).await?.events.pop();
    let Some(last) = last.filter(|last| last.event.offset >= bounds.start) else {
        return Ok(true);
    };
    let original = Read::From { lane, from: last.event.offset, limit };
    let original = from.read(original).await?.events.pop();
    // One that was cleaned away says nothing.
    let original = original.filter(|original| original.event.offset == last.event.offset);
    Ok(original.is_none_or(|original| original.event.id == last.event.id))
}
