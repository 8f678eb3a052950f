//! Where groups and replays begin, in the store.

use promethean_event::{EventId, Offset, Start};

use crate::error::GroupError;
use crate::store::{Lane, Store};

/// The first offset of a partition that is read.
pub(crate) async fn offset_in(
    start: Start,
    store: &dyn Store,
    lane: Lane,
) -> Result<Offset, GroupError> {
    Ok(match start {
        Start::Earliest => store.bounds(lane).await?.start,
        Start::At(time) => store.offset_at(lane, time).await?,
        Start::AfterId(id) => after(store, lane, id).await?,
        Start::Latest => store.bounds(lane).await?.next,
    })
}

async fn after(store: &dyn Store, lane: Lane, id: EventId) -> Result<Offset, GroupError> {
    if let Some(found) = store.find(lane.topic, id).await? {
        if found.event.partition == lane.partition {
            return Ok(found.event.offset.next());
        }
        return Ok(store.offset_at(lane, found.appended_at).await?);
    }
    for entry in store.topics().users() {
        if let Some(found) = store.find(entry.id, id).await? {
            return Ok(store.offset_at(lane, found.appended_at).await?);
        }
    }
    Err(GroupError::UnknownEvent(id))
}
