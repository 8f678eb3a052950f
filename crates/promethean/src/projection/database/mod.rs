//! The database of views: one SQLite file, one thread that writes, any number of readers.
//!
//! Write-ahead log, so that readers (also other programs) see the last commit and never wait.
//! `synchronous = NORMAL`: a commit survives the death of the process; after a power cut the file
//! is at some earlier commit, cursors and documents together, and the log brings it forward.
//! A commit that goes with events that were appended is synced.

mod layout;

mod builds;

mod apply;

mod rows;

mod recent;

mod sqlite_views;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use tokio::sync::{mpsc, oneshot};

pub(crate) use rows::{COLUMNS, read_row};
pub use sqlite_views::SqliteViews;

use recent::RecentRows;
use rows::get;

use super::limits::{
    CHECKPOINT_PAGES, LOCK_WAIT_MS, READER_CACHE_KIB, READERS_KEPT_MAX, WRITER_CACHE_KIB,
    WRITES_WAITING_MAX,
};
use super::view_store::{Batch, RowReader, Rows, StoredRow};

/// Why the database of views did not do something.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// SQLite refused.
    #[error("the database of views")]
    Sqlite(#[source] Arc<rusqlite::Error>),
    /// Written by a newer version of this program.
    #[error("the database of views has format {found}, this program knows {known}; update it")]
    Format {
        /// What was found.
        found: i64,
        /// The newest that is known.
        known: i64,
    },
    /// The view was made by another projection.
    #[error("view {view} was made by projection {owner}; forget that one, or choose another name")]
    Taken {
        /// The view.
        view: String,
        /// Whose it is.
        owner: String,
    },
    /// Another one moved the cursor: nothing was written.
    #[error("another process keeps this projection too: its cursor has moved")]
    Fenced,
    /// It cannot be reached, or was busy, or nobody knows what became of a commit.
    #[error("the database of views: {0}")]
    Unavailable(String),
    /// It does not do this, whenever it is asked.
    #[error("the database of views: {0}")]
    Refused(String),
    /// It does not take one of the documents, for what is in it; nothing of the batch was written.
    #[error("the database of views: {0}")]
    Rejected(String),
    /// The database is closed.
    #[error("the database of views is closed")]
    Closed,
}

impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(Arc::new(error))
    }
}

impl DatabaseError {
    /// Whether trying again may help.
    pub(crate) fn is_transient(&self) -> bool {
        let error = match self {
            Self::Sqlite(error) => error,
            Self::Unavailable(_) => return true,
            _ => return false,
        };
        matches!(
            error.sqlite_error_code(),
            Some(
                ErrorCode::DatabaseBusy
                    | ErrorCode::DatabaseLocked
                    | ErrorCode::DiskFull
                    | ErrorCode::SystemIoFailure
                    | ErrorCode::OperationInterrupted
                    | ErrorCode::OutOfMemory
            )
        )
    }
}

/// Lets the n-th step of the thread that writes fail, for tests: a step is a statement or a commit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults(Option<Arc<AtomicI64>>);

impl Faults {
    /// The step after so many others fails.
    #[cfg(test)]
    pub(crate) fn after(steps: i64) -> (Self, Arc<AtomicI64>) {
        let left = Arc::new(AtomicI64::new(steps));
        (Self(Some(Arc::clone(&left))), left)
    }

    fn step(&self) -> Result<(), rusqlite::Error> {
        let Some(left) = &self.0 else {
            return Ok(());
        };
        if left.fetch_sub(1, Ordering::Relaxed) == 0 {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
            return Err(rusqlite::Error::SqliteFailure(code, Some("injected".into())));
        }
        Ok(())
    }
}

type Job = Box<dyn FnOnce(&mut Connection, &Faults) + Send>;

/// The database of views.
struct Database {
    path: PathBuf,
    jobs: mpsc::Sender<Job>,
    readers: Mutex<Vec<Connection>>,
    recent: Arc<RecentRows>,
}

impl Database {
    /// Opens the database, making it if it is not there. Blocks.
    pub(crate) fn open(path: &Path, faults: Faults) -> Result<Arc<Self>, DatabaseError> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_millis(LOCK_WAIT_MS))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        connection.set_prepared_statement_cache_capacity(64);
        layout::prepare(&mut connection)?;
        let (jobs, mut waiting) = mpsc::channel::<Job>(WRITES_WAITING_MAX);
        let run = move || {
            while let Some(job) = waiting.blocking_recv() {
                job(&mut connection, &faults);
            }
        };
        let thread = std::thread::Builder::new().name("views".into()).spawn(run);
        thread.map_err(|error| {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_NOMEM);
            DatabaseError::from(rusqlite::Error::SqliteFailure(code, Some(error.to_string())))
        })?;
        let (readers, recent) = (Mutex::new(Vec::new()), Arc::default());
        Ok(Arc::new(Self { path: path.to_owned(), jobs, readers, recent }))
    }

    /// Does something on the thread that writes. Jobs are done in the order in which they come;
    /// one that was begun is done, also if nobody waits for it any more.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection, &Faults) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let recent = Arc::clone(&self.recent);
        self.on_writer(move |connection, faults| {
            recent.begin_change();
            let done = job(connection, faults);
            recent.end_write();
            done
        })
        .await
    }

    /// Commits a batch; answers how many of its writes were stale.
    pub(crate) async fn apply(&self, batch: Batch) -> Result<u64, DatabaseError> {
        let recent = Arc::clone(&self.recent);
        self.on_writer(move |connection, faults| {
            let tables = batch.tables.iter().map(|table| table.name.as_str());
            recent.begin_write(tables.zip(&batch.writes));
            let done = apply::apply(&batch, connection, faults);
            recent.end_write();
            done
        })
        .await
    }

    async fn on_writer<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection, &Faults) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection, faults| {
            // Nobody may wait any more.
            drop(answer.send(job(connection, faults)));
        });
        self.jobs.send(job).await.map_err(|_| DatabaseError::Closed)?;
        answered.await.map_err(|_| DatabaseError::Closed)?
    }

    /// Reads, as of the last commit. Blocks.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let connection = self.take_reader()?;
        let result = read(&connection);
        self.keep_reader(connection);
        result
    }

    /// A connection for a while. Blocks.
    fn lend(self: &Arc<Self>) -> Result<Lent, DatabaseError> {
        let connection = Some(self.take_reader()?);
        Ok(Lent { database: Arc::clone(self), connection })
    }

    fn take_reader(&self) -> Result<Connection, DatabaseError> {
        let kept = self.readers().pop();
        match kept {
            Some(connection) => Ok(connection),
            None => self.reader(),
        }
    }

    fn keep_reader(&self, connection: Connection) {
        // A transaction that was left open would show old commits to the next one.
        if connection.is_autocommit() {
            let mut readers = self.readers();
            if readers.len() < READERS_KEPT_MAX {
                readers.push(connection);
            }
        }
    }

    /// The row of a key, if it was read lately and is still the same.
    pub(crate) fn recent(&self, table: &str, key: &str) -> Option<StoredRow> {
        self.recent.find(table, key)
    }

    /// The row of a key, which is kept for those who ask next. Blocks.
    pub(crate) fn get(&self, table: &str, key: &str) -> Result<Option<StoredRow>, DatabaseError> {
        let turn = self.recent.begin_read();
        let row = self.read(|connection| get(connection, table, key))?;
        if let Some(row) = &row {
            self.recent.keep(table, row, turn);
        }
        Ok(row)
    }

    fn readers(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that only reads.
    pub(crate) fn reader(&self) -> Result<Connection, DatabaseError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(Duration::from_millis(LOCK_WAIT_MS))?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }
}

/// A connection that only reads, given back when this is dropped.
struct Lent {
    database: Arc<Database>,
    connection: Option<Connection>,
}

impl Lent {
    fn connection(&self) -> Result<&Connection, DatabaseError> {
        self.connection.as_ref().ok_or(DatabaseError::Closed)
    }
}

impl RowReader for Lent {
    fn get(&self, table: &str, key: &str) -> Result<Option<StoredRow>, DatabaseError> {
        get(self.connection()?, table, key)
    }

    fn rows(&self, table: &str, after: Option<&str>, max: usize) -> Result<Rows, DatabaseError> {
        rows::rows(self.connection()?, table, after, max)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.database.keep_reader(connection);
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("path", &self.path).finish_non_exhaustive()
    }
}
