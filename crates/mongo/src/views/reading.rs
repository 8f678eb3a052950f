//! Reading views: as of the last commit that a majority has, or all at one moment.

use std::sync::{Mutex, PoisonError};

use mongodb::ClientSession;
use mongodb::bson::doc;
use mongodb::options::ReadConcern;
use promethean::projection::view_store::{
    BuildState, DatabaseError, Frozen, RowReader, Rows, StoredRow,
};
use tokio::runtime::Handle;

use super::row::decode;
use super::{MongoViews, record, refused};

impl MongoViews {
    pub(super) async fn row(
        &self,
        table: String,
        key: String,
    ) -> Result<Option<StoredRow>, DatabaseError> {
        let collection = self.collection(&table);
        let found = self.cluster.ask(collection.find_one(doc! { "_id": key })).await;
        found.map_err(refused)?.map(|found| decode(&found)).transpose()
    }

    pub(super) async fn rows_after(
        &self,
        table: String,
        after: Option<String>,
        max: usize,
    ) -> Result<Rows, DatabaseError> {
        let collection = self.collection(&table);
        // No key is empty, so that all keys come after the empty one.
        let beyond = doc! { "_id": { "$gt": after.unwrap_or_default() } };
        let limit = i64::try_from(max).unwrap_or(i64::MAX);
        let found = collection.find(beyond).sort(doc! { "_id": 1 }).limit(limit);
        let mut cursor = self.cluster.ask(found).await.map_err(refused)?;
        let mut rows = Vec::new();
        while self.cluster.ask(cursor.advance()).await.map_err(refused)? {
            rows.push(decode(cursor.current())?);
        }
        Ok(rows)
    }

    pub(super) async fn freeze_now(&self, projection: String) -> Result<Frozen, DatabaseError> {
        let handle = handle()?;
        // Said with each read, too: a session leaves the concern of a collection as it is.
        let session = self.cluster.client.start_session().snapshot(true);
        let mut session = self.cluster.ask(session).await.map_err(refused)?;
        let by_name = doc! { "_id": &projection };
        let record = self.projections.find_one(by_name).session(&mut session);
        let record = record.read_concern(ReadConcern::snapshot());
        let record = self.cluster.ask(record).await.map_err(refused)?;
        let live = record.map_or(Ok(None), |record| record::build(&record, BuildState::Live))?;
        let session = Mutex::new(session);
        let rows = Box::new(FrozenReader { views: self.clone(), handle, session });
        Ok(Frozen { live, rows })
    }
}

fn handle() -> Result<Handle, DatabaseError> {
    // Without a runtime there is nobody to ask the database.
    Handle::try_current().map_err(|_| DatabaseError::Closed)
}

/// Reads for code that cannot await, by the runtime that it is not on.
pub(super) struct BlockingReader {
    views: MongoViews,
    handle: Handle,
}

impl BlockingReader {
    pub(super) fn new(views: MongoViews) -> Result<Self, DatabaseError> {
        Ok(Self { views, handle: handle()? })
    }
}

impl RowReader for BlockingReader {
    fn get(&self, table: &str, key: &str) -> Result<Option<StoredRow>, DatabaseError> {
        self.handle.block_on(self.views.row(table.to_owned(), key.to_owned()))
    }

    fn rows(&self, table: &str, after: Option<&str>, max: usize) -> Result<Rows, DatabaseError> {
        let after = after.map(str::to_owned);
        self.handle.block_on(self.views.rows_after(table.to_owned(), after, max))
    }
}

/// The same, at one moment. Servers remember it for five minutes, unless they are told otherwise.
struct FrozenReader {
    views: MongoViews,
    handle: Handle,
    session: Mutex<ClientSession>,
}

impl RowReader for FrozenReader {
    fn get(&self, table: &str, key: &str) -> Result<Option<StoredRow>, DatabaseError> {
        let collection = self.views.collection(table);
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let finding = collection.find_one(doc! { "_id": key }).session(&mut *session);
        let finding = finding.read_concern(ReadConcern::snapshot());
        let found = self.handle.block_on(self.views.cluster.ask(finding)).map_err(refused)?;
        found.map(|found| decode(&found)).transpose()
    }

    fn rows(&self, table: &str, after: Option<&str>, max: usize) -> Result<Rows, DatabaseError> {
        let collection = self.views.collection(table);
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let beyond = doc! { "_id": { "$gt": after.unwrap_or_default() } };
        let limit = i64::try_from(max).unwrap_or(i64::MAX);
        self.handle.block_on(async {
            let finding = collection.find(beyond).sort(doc! { "_id": 1 }).limit(limit);
            let finding = finding.session(&mut *session).read_concern(ReadConcern::snapshot());
            let mut cursor = self.views.cluster.ask(finding).await.map_err(refused)?;
            let mut rows = Vec::new();
            while let Some(found) = cursor.next(&mut session).await {
                rows.push(decode(&found.map_err(|error| refused(error.into()))?)?);
            }
            Ok(rows)
        })
    }
}
