//! The seam between projections and the database that their views are kept in.
//!
//! Two stores implement it: a SQLite file (`database/`), and collections of MongoDB (the `mongo`
//! crate). One suite holds both to the same (`harness/src/conformance/views/`). Called per batch,
//! never per event. What every store keeps:
//!
//! - A batch is all of its documents, counts and cursors, or nothing.
//! - A batch whose cursors are not where it says they are, or whose claim is another's by now, is
//!   refused as [`DatabaseError::Fenced`].
//! - Which of two writes to a key stands is what [`Order`] says, whatever order they come in.
//! - Readers see whole batches, and never wait for writers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use promethean_event::{Offset, Payload, Timestamp, Topic};

use super::document::Document;
use super::position::Position;
use super::query::{ListQuery, Value};
use super::view::View;
use crate::store::{HubId, Lane, TopicId};

pub use super::database::{DatabaseError, SqliteViews};
pub use super::stamp::{Order, Stamp, Write};

/// Whether a build is read, or made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildState {
    /// It is what readers see.
    Live,
    /// It is made beside that, to take its place.
    Building,
}

/// What a build is made from now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The newest event of each key after this one.
    Keys(Option<String>),
    /// Events, from the cursors on.
    Events,
}

/// What has been counted since a build began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that were worked on.
    pub events: u64,
    /// Writes that were older than what was there.
    pub stale: u64,
    /// Events without a key, or that did not fit: parked.
    pub unkeyed: u64,
    /// Events that became dead letters, those included.
    pub dead: u64,
}

/// How far a build has come in one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildCursor {
    /// The partition.
    pub lane: Lane,
    /// The name of its topic.
    pub topic: Topic,
    /// What it reads next.
    pub next: Offset,
    /// Where the partition ended when the build began.
    pub begun: Offset,
    /// Events that were gone before they were read.
    pub missed: u64,
}

/// In which order lanes were passed: up to where, one after the other.
pub type Plan = Vec<(Lane, Offset)>;

/// One making of the views of a projection, with its cursors. A projection has one that is live,
/// and at most one that is being made to replace it.
#[derive(Debug, Clone)]
pub struct Build {
    /// Its number, which no other build of the store has.
    pub number: i64,
    /// Whether it is read, or made.
    pub state: BuildState,
    /// The fingerprint of the definition that it follows.
    pub definition: String,
    /// What it is made from now.
    pub phase: Phase,
    /// What it has counted.
    pub counts: Counts,
    /// How far it has come.
    pub cursors: Vec<BuildCursor>,
    /// In which order lanes have to be read next, up to where: something was appended for it.
    pub plan: Plan,
}

impl Build {
    /// The table, or collection, of a view.
    pub fn table(&self, view: &str) -> String {
        match self.state {
            BuildState::Live => view.to_owned(),
            BuildState::Building => building_table(view, self.number),
        }
    }
}

/// The table of a view while a build is being made.
pub fn building_table(view: &str, build: i64) -> String {
    format!("{view}__build_{build}")
}

/// A build that is wanted.
#[derive(Debug, Clone)]
pub struct Requested {
    /// The projection.
    pub projection: String,
    /// By which claim.
    pub claim: u64,
    /// The fingerprint of its definition.
    pub definition: String,
    /// Its views.
    pub views: Vec<View>,
    /// Which of its builds.
    pub state: BuildState,
    /// Whether it begins with the newest event of each key.
    pub from_keys: bool,
    /// Where it begins, for the case that it is new.
    pub cursors: Vec<BuildCursor>,
}

impl Requested {
    /// Whether a build that is there is what is wanted: the live one, which is kept until it is
    /// replaced, or a half-made one by the same definition. One that was begun from a topic that is
    /// not there any more is nothing to go on with.
    pub fn goes_on_with(&self, build: &Build) -> bool {
        let is_there = |cursor: &BuildCursor| {
            self.cursors.iter().any(|wanted| wanted.lane.topic == cursor.lane.topic)
        };
        build.state == BuildState::Live
            || build.definition == self.definition && build.cursors.iter().all(is_there)
    }
}

/// A view's table in a build.
#[derive(Debug, Clone)]
pub struct Table {
    /// The view.
    pub view: String,
    /// Its table.
    pub name: String,
}

/// A cursor that moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CursorMove {
    /// The partition.
    pub lane: Lane,
    /// Where it must be.
    pub from: Offset,
    /// Where it goes.
    pub to: Offset,
    /// Events between that were gone.
    pub missed: u64,
}

/// A build of a projection, in the hands of whoever has the claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildClaim {
    /// The projection.
    pub projection: String,
    /// By which claim.
    pub claim: u64,
    /// The number of the build.
    pub build: i64,
    /// Whether it is read, or made.
    pub state: BuildState,
}

/// What is committed together.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The build that it belongs to.
    pub of: BuildClaim,
    /// Its tables.
    pub tables: Arc<Vec<Table>>,
    /// The names of the topics that it reads.
    pub topics: Arc<BTreeMap<TopicId, Topic>>,
    /// By what writes to a key are ordered.
    pub order: Order,
    /// How long deletions are remembered, in milliseconds of append time.
    pub grave_ms: u64,
    /// By view, as in `tables`; one write for each key.
    pub writes: Vec<BTreeMap<String, Write>>,
    /// Where cursors go.
    pub cursors: Vec<CursorMove>,
    /// What is added to the counts, but for writes that turn out to be stale.
    pub counts: Counts,
    /// The new phase, if it changes.
    pub phase: Option<Phase>,
    /// Deletions from before this append time need not be remembered any more.
    pub graves_until: Option<u64>,
    /// Whether something was appended for this: then it must survive a power cut, and the plan
    /// that was kept for it is done.
    pub synced: bool,
}

/// A row of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRow {
    /// The key.
    pub key: String,
    /// Event time of the event that wrote it last.
    pub ts: Timestamp,
    /// When the store took that event.
    pub appended_at: Timestamp,
    /// The partition of that event.
    pub lane: Lane,
    /// Its place there.
    pub offset: Offset,
    /// The version of the document, in a view with versions.
    pub version: Option<i64>,
    /// The document.
    pub value: Payload,
}

/// Some rows.
pub type Rows = Vec<StoredRow>;

impl StoredRow {
    /// The row as a document; whoever reads knows the name of the topic.
    pub fn document(self, position: Position) -> Document {
        Document {
            key: self.key,
            ts: self.ts,
            appended_at: self.appended_at,
            position,
            version: self.version,
            value: self.value,
        }
    }
}

/// Reads rows for code that cannot await, on a thread that may block.
pub trait RowReader: Send {
    /// The row of a key.
    fn get(&self, table: &str, key: &str) -> Result<Option<StoredRow>, DatabaseError>;

    /// Rows by key, after a key.
    fn rows(&self, table: &str, after: Option<&str>, max: usize) -> Result<Rows, DatabaseError>;
}

/// Views at one moment: where their live build was, and what was in them.
pub struct Frozen {
    /// The live build; none if the projection never ran.
    pub live: Option<Build>,
    /// Its rows, as of then.
    pub rows: Box<dyn RowReader>,
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen").field("live", &self.live).finish_non_exhaustive()
    }
}

/// By what right a hub asks for a projection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// If nobody has it, or one that is not there any more.
    Free,
    /// Whoever has it.
    Order,
}

/// An answer of a store of views.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, DatabaseError>>;

/// Where views are kept.
pub trait ViewStore: fmt::Debug + Send + Sync + 'static {
    /// Whether hubs share it: then a projection is kept by the hub that has claimed it.
    fn is_shared(&self) -> bool;

    /// Claims a projection for a hub; answers with an epoch above that of every claim before, or
    /// `None` if another hub has it. No commit by an earlier claim comes after it. A store that is
    /// not shared has nothing to claim, and always answers with the same number.
    fn claim(
        &self,
        projection: String,
        hub: Option<HubId>,
        right: Right,
    ) -> Answer<'_, Option<u64>>;

    /// Whether a claim is still the newest one.
    fn holds(&self, projection: String, claim: u64) -> Answer<'_, bool>;

    /// Gives a claim back. One that is another's by now stays theirs.
    fn release(&self, projection: String, claim: u64) -> Answer<'_, ()>;

    /// The build of a projection in a state, if there is one.
    fn find(&self, projection: String, state: BuildState) -> Answer<'_, Option<Build>>;

    /// The build that is wanted: the one that is there, if it [goes on](Requested::goes_on_with), or a
    /// new one. Cursors that it lacks are
    /// added, and its views get the indexes that they declare. A view has one projection, also one
    /// that does not run now.
    fn obtain(&self, wanted: Requested) -> Answer<'_, Build>;

    /// Commits a batch; answers how many of its writes were stale. One that was begun is done, also
    /// if nobody waits for it any more.
    fn apply(&self, batch: Batch) -> Answer<'_, u64>;

    /// Keeps in which order lanes are read, before anything is appended for it: durable at once.
    fn keep_plan(&self, of: BuildClaim, plan: Plan) -> Answer<'_, ()>;

    /// Puts the build that was made in the place of the live one.
    fn switch(&self, build: Build, wanted: Requested) -> Answer<'_, Build>;

    /// Removes all that there is of a projection: views, cursors, what is half built.
    fn forget(&self, projection: String) -> Answer<'_, ()>;

    /// Waits until everything that was begun is done, one way or the other.
    fn settle(&self) -> Answer<'_, ()>;

    /// The row of a key, if it can be had without waiting.
    fn recent(&self, table: &str, key: &str) -> Option<StoredRow> {
        let _ = (table, key);
        None
    }

    /// The row of a key.
    fn get(&self, table: String, key: String) -> Answer<'_, Option<StoredRow>>;

    /// Rows by key, after a key.
    fn rows(&self, table: String, after: Option<String>, max: usize) -> Answer<'_, Rows>;

    /// Rows by a query, each with what it is sorted by: one more than its limit, if there are.
    fn list(&self, view: View, query: Arc<ListQuery>) -> Answer<'_, Vec<(StoredRow, Value)>>;

    /// A reader of what is committed, for the thread that calls this, which may block.
    fn reader(&self) -> Result<Box<dyn RowReader>, DatabaseError>;

    /// The views of a projection at one moment.
    fn freeze(&self, projection: String) -> Answer<'_, Frozen>;
}
