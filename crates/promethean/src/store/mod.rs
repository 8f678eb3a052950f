//! The one storage seam. Everything above it is the same for memory, the embedded log and MongoDB;
//! the suite in `harness` holds every implementation to the same behaviour.
//!
//! Called per batch, never per event. What a method promises, and every store keeps:
//!
//! - `append` answers once the events are as durable as was asked for; all of a batch or nothing;
//!   the same id again answers with the first place.
//! - `save` is one atomic step: all deltas and all dead letters of a group, in the order in which
//!   the calls were made, durable before it is answered.
//! - `read` never skips silently: what is missing is a [`Gap`].
//! - `grown` wakes without polling.

mod record;

mod event_page;

mod outlines;

mod topics;

mod claims;

mod run;

mod restore;

mod error;

pub(crate) mod limits;

use std::fmt;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use promethean_event::{EventId, GroupName, Key, NewEvent, Offset, Timestamp, Topic};

pub use claims::{Attend, Claim, Claims, HEARD_SPACES, HubId, HubPresence};
pub use error::{AppendError, ReadError, SaveError};
pub use event_page::EventPage;
pub(crate) use outlines::{Outlines, key_hash};
pub use promethean_delivery::{LaneDelta, LaneState};
pub use promethean_event::{Cleaning, Compaction, TopicDefinition};
pub use promethean_log::{Clock, Durability, GapReason, SystemClock};
pub use record::{
    Append, Appended, Entry, Expectation, Gap, GroupRecord, GroupSave, Growth, KeyPage, KeyQuery,
    LaneBounds, Page, PageLimit, Put, Read, Receipt, Stored,
};
pub use restore::{Restore, unplaced};
pub use run::{Part, Run};
pub use topics::{Lane, TopicEntry, TopicId, TopicTable};

/// Where events and the state of groups are kept.
///
/// Futures that are `'static` have been started when the method returns: their order is the order
/// of the calls, and dropping one does not take the request back.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// All topics, as they are now. Cheap: a snapshot that is only made anew when they change.
    fn topics(&self) -> Arc<TopicTable>;

    /// Defines a topic, or changes how it is cleaned. The same definition again changes nothing.
    fn define(&self, definition: TopicDefinition)
    -> BoxFuture<'static, Result<TopicId, SaveError>>;

    /// Removes a topic with all its events. Its name may be defined anew, as another topic.
    fn remove(&self, topic: TopicId) -> BoxFuture<'static, Result<(), SaveError>>;

    /// Appends events: all or none, over any number of topics.
    fn append(&self, append: Append) -> BoxFuture<'static, Result<Appended, AppendError>>;

    /// Appends that came together: each is all or none and answered for itself, and they stand in
    /// this order. Handed over by the first poll at the latest, like a single one.
    fn append_run(&self, run: Run) -> BoxFuture<'static, Vec<Result<Appended, AppendError>>> {
        let each: Vec<_> = run.into_appends().map(|append| self.append(append)).collect();
        Box::pin(futures_util::future::join_all(each))
    }

    /// Reads a lane, forward or backward. What is in memory is answered at the first poll.
    fn read(&self, read: Read) -> BoxFuture<'static, Result<Page, ReadError>>;

    /// Reads a lane forward for delivery, where most events are handed on unseen. Like `read`, if
    /// a store has no faster way.
    fn fetch(
        &self,
        lane: Lane,
        from: Offset,
        limit: PageLimit,
    ) -> BoxFuture<'static, Result<EventPage, ReadError>> {
        let read = self.read(Read::From { lane, from, limit });
        Box::pin(async move { read.await.map(EventPage::from) })
    }

    /// Where a lane starts and ends.
    fn bounds(&self, lane: Lane) -> BoxFuture<'_, Result<LaneBounds, ReadError>>;

    /// The first offset that was appended at or after a time; the end if there is none.
    fn offset_at(&self, lane: Lane, time: Timestamp) -> BoxFuture<'_, Result<Offset, ReadError>>;

    /// The event with an id.
    fn find(&self, topic: TopicId, id: EventId)
    -> BoxFuture<'_, Result<Option<Stored>, ReadError>>;

    /// The newest event of each key, in the order given; a tombstone if the key is gone, `None` if
    /// it never was.
    fn latest(
        &self,
        topic: TopicId,
        keys: Vec<Key>,
    ) -> BoxFuture<'_, Result<Vec<Option<Stored>>, ReadError>>;

    /// Keys in order, each with its newest event; tombstones included.
    fn keys(&self, query: KeyQuery) -> BoxFuture<'_, Result<KeyPage, ReadError>>;

    /// The newest events of a key, newest first.
    fn history(
        &self,
        topic: TopicId,
        key: Key,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<Stored>, ReadError>>;

    /// Completes when the store has grown since `mark`, or is closed; 0 is the beginning. Tells
    /// which lanes grew, if they are few enough to tell.
    fn grown(&self, mark: u64) -> BoxFuture<'_, Growth>;

    /// The names of all groups.
    fn groups(&self) -> BoxFuture<'_, Result<Vec<GroupName>, ReadError>>;

    /// What is kept of a group; `None` if there is no such group.
    fn group(&self, group: GroupName) -> BoxFuture<'_, Result<Option<GroupRecord>, ReadError>>;

    /// Makes a step of a group durable, with its dead letters: all or nothing.
    fn save(&self, save: GroupSave) -> BoxFuture<'static, Result<(), SaveError>>;

    /// Forgets a group.
    fn remove_group(&self, group: GroupName) -> BoxFuture<'static, Result<(), SaveError>>;

    /// Keeps or removes small things of the system's (settings, schemas, tokens), all or nothing.
    /// Refused as [`SaveError::Changed`] if an entry is not at the version that was expected.
    fn put(&self, puts: Vec<Put>) -> BoxFuture<'static, Result<(), SaveError>>;

    /// All entries of a space, by key.
    fn entries(&self, space: &'static str) -> BoxFuture<'_, Result<Vec<Entry>, ReadError>>;

    /// Removes what retention and compaction let go, except from the given offsets on.
    fn clean(&self, holds: Vec<(Lane, Offset)>) -> BoxFuture<'_, Result<(), ReadError>>;

    /// How the hubs that use this store share out lanes. `None` if nobody else can use it: then
    /// every lane is the caller's.
    fn claims(&self) -> Option<&dyn Claims> {
        None
    }

    /// How it takes up what another store has kept. `None` if it cannot.
    fn restoring(&self) -> Option<&dyn Restore> {
        None
    }

    /// Why the store takes no more writes, if it does not.
    fn failure(&self) -> Option<String>;

    /// What of the store is not as it was written, as far as was found, each in a line.
    fn damage(&self) -> Vec<String> {
        Vec::new()
    }

    /// Reads a part of what is stored, to see whether it still is what was written: the one at
    /// `place`, counted round. Gives how many parts there are; none if others see to it.
    fn scrub(&self, _place: u64) -> BoxFuture<'_, Result<usize, ReadError>> {
        Box::pin(async { Ok(0) })
    }

    /// Reads that went to the disk rather than to memory, for measurements.
    fn disk_reads(&self) -> u64 {
        0
    }

    /// Answers what is waiting and closes. Reading may go on; writing does not.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// Topics in which a store may keep state: nobody else may write there.
const RESERVED: [&str; 3] = ["$deltas", "$groups", "$entries"];

/// Whether a topic is one in which a store may keep state.
pub fn is_reserved(topic: &Topic) -> bool {
    topic.is_system() && RESERVED.contains(&topic.as_str())
}

/// Whether a space can have this name.
pub fn is_space(name: &str) -> bool {
    !name.contains('.') && Topic::new(name).is_ok()
}

/// A single event, to be appended synced.
impl From<NewEvent> for Append {
    fn from(event: NewEvent) -> Self {
        Self { events: vec![event], ..Self::default() }
    }
}

/// The event at an offset; `None` if it is not there any more.
pub(crate) async fn event_at(
    store: &dyn Store,
    lane: Lane,
    offset: Offset,
) -> Result<Option<Stored>, ReadError> {
    let limit = PageLimit { events: 1, bytes: 1 };
    let page = store.read(Read::From { lane, from: offset, limit }).await?;
    Ok(page.events.into_iter().find(|stored| stored.event.offset == offset))
}
