use promethean_event::{EventId, Offset, Timestamp};

use crate::error::GroupError;
use crate::store::{Lane, Store};

/// Where a group begins in a partition that it has not read before. One that it has read goes on
/// where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Start {
    /// With what is published from now on.
    #[default]
    Latest,
    /// With the oldest event that is kept.
    Earliest,
    /// With the first event that the store took at or after a time.
    At(Timestamp),
    /// With what came after an event: after it in its own partition, after its time in others.
    AfterId(EventId),
}

impl Start {
    pub(crate) async fn offset_in(
        &self,
        store: &dyn Store,
        lane: Lane,
    ) -> Result<Offset, GroupError> {
        Ok(match *self {
            Self::Latest => store.bounds(lane).await?.next,
            Self::Earliest => store.bounds(lane).await?.start,
            Self::At(time) => store.offset_at(lane, time).await?,
            Self::AfterId(id) => after(store, lane, id).await?,
        })
    }
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
