//! The file of views behind the seam. What a projection commits goes to the thread that writes;
//! readers have connections of their own, on threads that may block.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;

use super::builds::{find, forget, keep_plan, obtain, switch};
use super::{Database, DatabaseError, Faults, rows};
use crate::projection::query::{ListQuery, Value};
use crate::projection::view::View;
use crate::projection::view_store::{
    Answer, Batch, Build, BuildClaim, BuildState, Frozen, Plan, Requested, Right, RowReader, Rows,
    StoredRow, ViewStore,
};
use crate::store::HubId;

/// Views in one SQLite file, which one process writes and any tool may read meanwhile.
#[derive(Debug, Clone)]
pub struct SqliteViews {
    database: Arc<Database>,
}

impl SqliteViews {
    /// Opens the file, making it if it is not there. Blocks.
    pub fn open(path: &Path) -> Result<Self, DatabaseError> {
        Self::open_with(path, Faults::default())
    }

    pub(crate) fn open_with(path: &Path, faults: Faults) -> Result<Self, DatabaseError> {
        Ok(Self { database: Database::open(path, faults)? })
    }

    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Answer<'static, T> {
        let database = Arc::clone(&self.database);
        blocking(move || database.read(read))
    }
}

/// Does something that blocks, on a thread for that.
fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DatabaseError> + Send + 'static,
) -> Answer<'static, T> {
    let working = tokio::task::spawn_blocking(work);
    Box::pin(async move { working.await.unwrap_or(Err(DatabaseError::Closed)) })
}

/// Nobody else can have a projection of this file: the log has one process.
const NO_CLAIM: u64 = 0;

impl ViewStore for SqliteViews {
    fn is_shared(&self) -> bool {
        false
    }

    fn claim(&self, _: String, _: Option<HubId>, _: Right) -> Answer<'_, Option<u64>> {
        Box::pin(std::future::ready(Ok(Some(NO_CLAIM))))
    }

    fn holds(&self, _: String, _: u64) -> Answer<'_, bool> {
        Box::pin(std::future::ready(Ok(true)))
    }

    fn release(&self, _: String, _: u64) -> Answer<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// On the thread that writes: behind what has been begun, which may be what is asked about.
    fn find(&self, projection: String, state: BuildState) -> Answer<'_, Option<Build>> {
        Box::pin(self.database.write(move |connection, _| find(connection, &projection, state)))
    }

    fn obtain(&self, wanted: Requested) -> Answer<'_, Build> {
        Box::pin(self.database.write(move |connection, faults| obtain(connection, faults, &wanted)))
    }

    fn apply(&self, batch: Batch) -> Answer<'_, u64> {
        Box::pin(self.database.apply(batch))
    }

    fn keep_plan(&self, of: BuildClaim, plan: Plan) -> Answer<'_, ()> {
        Box::pin(
            self.database
                .write(move |connection, faults| keep_plan(connection, faults, of.build, &plan)),
        )
    }

    fn switch(&self, build: Build, wanted: Requested) -> Answer<'_, Build> {
        Box::pin(
            self.database
                .write(move |connection, faults| switch(build, connection, faults, &wanted)),
        )
    }

    fn forget(&self, projection: String) -> Answer<'_, ()> {
        Box::pin(self.database.write(move |connection, _| forget(connection, &projection)))
    }

    /// Jobs are done in order: with this one, all before it are.
    fn settle(&self) -> Answer<'_, ()> {
        Box::pin(self.database.write(|_, _| Ok(())))
    }

    fn recent(&self, table: &str, key: &str) -> Option<StoredRow> {
        self.database.recent(table, key)
    }

    fn get(&self, table: String, key: String) -> Answer<'_, Option<StoredRow>> {
        let database = Arc::clone(&self.database);
        blocking(move || database.get(&table, &key))
    }

    fn rows(&self, table: String, after: Option<String>, max: usize) -> Answer<'_, Rows> {
        self.read(move |connection| rows::rows(connection, &table, after.as_deref(), max))
    }

    fn list(&self, view: View, query: Arc<ListQuery>) -> Answer<'_, Vec<(StoredRow, Value)>> {
        self.read(move |connection| query.run(connection, &view.name))
    }

    fn reader(&self) -> Result<Box<dyn RowReader>, DatabaseError> {
        Ok(Box::new(self.database.lend()?))
    }

    fn freeze(&self, projection: String) -> Answer<'_, Frozen> {
        let database = Arc::clone(&self.database);
        blocking(move || {
            // Not one of those that are kept: it goes with its transaction.
            let connection = database.reader()?;
            connection.execute_batch("BEGIN")?;
            let live = find(&connection, &projection, BuildState::Live)?;
            Ok(Frozen { live, rows: Box::new(connection) })
        })
    }
}

impl RowReader for Connection {
    fn get(&self, table: &str, key: &str) -> Result<Option<StoredRow>, DatabaseError> {
        rows::get(self, table, key)
    }

    fn rows(&self, table: &str, after: Option<&str>, max: usize) -> Result<Rows, DatabaseError> {
        rows::rows(self, table, after, max)
    }
}
