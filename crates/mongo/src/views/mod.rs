//! Views as ordinary collections: a document for each key, which users query as they like.
//!
//! ```text
//! <view>                  { _id: key, _key, _ts, _pos, _v?, _meta: { at, lane, offset, … }, … }
//! <view>__build_<number>  the same while it is built anew; the switch renames
//! promethean_projections  one document each: who keeps it by which claim, its builds, its cursors
//! promethean_views        whose a view is
//! promethean_graves       what was deleted, where older writes must not come back
//! ```
//!
//! A batch is one transaction: what is there of its keys is read, which write stands is decided by
//! the function that decides it for SQLite, and documents and the projection's one document are
//! written. That one is found only at the claim and the cursors that the batch was made from, so
//! that of two writers one is refused, whatever either of them believes.
//!
//! Renaming is not to be had in a transaction. So a switch (and forgetting) is noted first, done
//! then, and noted as done; whoever comes upon a note does what is left of it.

mod record;

mod row;

mod tenure;

mod holds;

mod builds;

mod pending;

mod commit;

mod searching;

mod reading;

mod session;

pub mod guide;

use std::fmt;
use std::sync::{Arc, OnceLock};

use mongodb::Collection;
use mongodb::bson::raw::RawDocumentBuf;
use mongodb::bson::{Document, doc};
use promethean::projection::query::{ListQuery, Value};
use promethean::projection::view_store::{
    Answer, Batch, Build, BuildClaim, BuildState, DatabaseError, Frozen, Plan, Requested, Right,
    RowReader, Rows, StoredRow, ViewStore,
};
use promethean::projection::{View, ViewError};
use promethean::store::HubId;
use tokio::runtime::Handle;
use tokio::sync::watch;

pub(crate) use holds::{held, unkept};
pub(crate) use row::is_row;
pub use session::{Handled, HandlingError, SessionProjection};

use crate::cluster::{Cluster, OpenError};
use crate::fault::Fault;
use crate::store::MongoStore;

/// The collections of the system's that views need.
pub(crate) const PROJECTIONS: &str = "promethean_projections";
pub(crate) const VIEWS: &str = "promethean_views";
const GRAVES: &str = "promethean_graves";
/// Since when nobody keeps a projection, by the server's clock; only while nobody does.
const AWAY_SINCE: &str = "away_since";
pub(crate) const COLLECTIONS: [&str; 3] = [PROJECTIONS, VIEWS, GRAVES];

/// Views in the database of a store. A cheap handle.
#[derive(Clone)]
pub struct MongoViews {
    cluster: Cluster,
    projections: Collection<Document>,
    views: Collection<Document>,
    graves: Collection<Document>,
    /// Commits that are under way.
    under_way: Arc<watch::Sender<usize>>,
    /// By which users' code writes; made when somebody asks for it.
    handlers: Arc<OnceLock<Cluster>>,
    /// Where that is made: whoever asks may be on another one.
    runtime: Handle,
}

impl fmt::Debug for MongoViews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoViews").field("database", &self.cluster.database.name()).finish()
    }
}

impl MongoViews {
    /// Views in the same database as a store; makes what is missing of collections and indexes.
    pub async fn of(store: &MongoStore) -> Result<Self, OpenError> {
        let cluster = store.cluster().clone();
        let failed = |fault: Fault| OpenError::Preparation(fault.to_string());
        let names = cluster.ask(cluster.database.list_collection_names()).await.map_err(failed)?;
        for name in COLLECTIONS {
            if !names.iter().any(|there| there == name) {
                cluster.make_collection(name).await.map_err(failed)?;
            }
        }
        let database = &cluster.database;
        let graves: Collection<Document> = database.collection(GRAVES);
        let by_time = doc! { "build": 1, "at": 1 };
        let by_time = mongodb::IndexModel::builder().keys(by_time).build();
        cluster.ask(graves.create_index(by_time)).await.map_err(failed)?;
        Ok(Self {
            projections: database.collection(PROJECTIONS),
            views: database.collection(VIEWS),
            graves,
            cluster,
            under_way: Arc::new(watch::Sender::new(0)),
            handlers: Arc::default(),
            runtime: Handle::current(),
        })
    }

    fn handlers(&self) -> &Cluster {
        self.handlers.get_or_init(|| {
            let _on_it = self.runtime.enter();
            self.cluster.for_handlers()
        })
    }

    /// The same by connections for users' code.
    fn by_handlers(&self) -> Self {
        let cluster = self.handlers().clone();
        let database = &cluster.database;
        Self {
            projections: database.collection(PROJECTIONS),
            views: database.collection(VIEWS),
            graves: database.collection(GRAVES),
            cluster,
            ..self.clone()
        }
    }

    /// The database that they are in. A session works with collections of its own client only: those
    /// that a handler writes are to be had from here, or from `database().client()`.
    pub fn database(&self) -> mongodb::Database {
        self.handlers().database.clone()
    }

    fn collection(&self, name: &str) -> Collection<RawDocumentBuf> {
        self.cluster.database.collection(name)
    }

    /// Does something to its end, also if nobody waits for it any more.
    fn to_its_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, DatabaseError>> + Send + 'static,
    ) -> Answer<'static, T> {
        let under_way = UnderWay::begin(&self.under_way);
        let working = tokio::spawn(async move {
            let done = work.await;
            drop(under_way);
            done
        });
        Box::pin(async move { working.await.unwrap_or(Err(DatabaseError::Closed)) })
    }
}

/// A commit that is counted for as long as it is under way.
struct UnderWay(Arc<watch::Sender<usize>>);

impl UnderWay {
    fn begin(count: &Arc<watch::Sender<usize>>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(Arc::clone(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// What the machinery of projections makes of a fault. Whatever may be an outage is waited out:
/// nothing was written, or the cursors will tell.
fn refused(fault: Fault) -> DatabaseError {
    match fault {
        Fault::Duplicate(text) => DatabaseError::Refused(text),
        Fault::Rejected(text) => DatabaseError::Rejected(text),
        Fault::Stale => DatabaseError::Fenced,
        Fault::Transient(text) | Fault::Refused(text) | Fault::Unknown(text) => {
            DatabaseError::Unavailable(text)
        }
    }
}

impl ViewStore for MongoViews {
    fn is_shared(&self) -> bool {
        true
    }

    fn claim(
        &self,
        projection: String,
        hub: Option<HubId>,
        right: Right,
    ) -> Answer<'_, Option<u64>> {
        Box::pin(async move { self.try_claim(projection, hub, right).await.map_err(refused) })
    }

    fn holds(&self, projection: String, claim: u64) -> Answer<'_, bool> {
        Box::pin(async move { self.try_holds(&projection, claim).await.map_err(refused) })
    }

    fn release(&self, projection: String, claim: u64) -> Answer<'_, ()> {
        Box::pin(async move { self.try_release(&projection, claim).await.map_err(refused) })
    }

    fn find(&self, projection: String, state: BuildState) -> Answer<'_, Option<Build>> {
        Box::pin(async move {
            let record = self.record(&projection).await.map_err(refused)?;
            record.map_or(Ok(None), |record| record::build(&record, state))
        })
    }

    fn obtain(&self, wanted: Requested) -> Answer<'_, Build> {
        Box::pin(self.obtain_build(wanted))
    }

    fn apply(&self, batch: Batch) -> Answer<'_, u64> {
        let views = self.clone();
        self.to_its_end(async move { views.commit(batch).await })
    }

    fn keep_plan(&self, of: BuildClaim, plan: Plan) -> Answer<'_, ()> {
        Box::pin(async move { self.keep_order(&of, &plan).await })
    }

    fn switch(&self, build: Build, wanted: Requested) -> Answer<'_, Build> {
        let views = self.clone();
        self.to_its_end(async move { views.switch_to(build, wanted).await })
    }

    fn forget(&self, projection: String) -> Answer<'_, ()> {
        Box::pin(self.forget_all(projection))
    }

    fn settle(&self) -> Answer<'_, ()> {
        let mut under_way = self.under_way.subscribe();
        Box::pin(async move {
            let settled = under_way.wait_for(|count| *count == 0).await;
            settled.map(drop).map_err(|_| DatabaseError::Closed)
        })
    }

    fn get(&self, table: String, key: String) -> Answer<'_, Option<StoredRow>> {
        Box::pin(self.row(table, key))
    }

    fn rows(&self, table: String, after: Option<String>, max: usize) -> Answer<'_, Rows> {
        Box::pin(self.rows_after(table, after, max))
    }

    fn list(&self, view: View, query: Arc<ListQuery>) -> Answer<'_, Vec<(StoredRow, Value)>> {
        Box::pin(self.search(view, query))
    }

    fn reader(&self) -> Result<Box<dyn RowReader>, DatabaseError> {
        Ok(Box::new(reading::BlockingReader::new(self.clone())?))
    }

    fn freeze(&self, projection: String) -> Answer<'_, Frozen> {
        Box::pin(self.freeze_now(projection))
    }
}

/// What is returned to whoever starts a projection.
pub(crate) type Started = Result<promethean::projection::Projection, ViewError>;
