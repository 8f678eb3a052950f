use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::error::DatabaseError;
use super::limits::BUSY_WAIT;
use super::schema;

/// How a drainer gets a connection of its own.
#[derive(Clone)]
pub struct ConnectionSource(Arc<dyn Fn() -> rusqlite::Result<Connection> + Send + Sync>);

impl ConnectionSource {
    /// Connections are made by a function: for those that need a key, an extension or a timeout of
    /// their own. Each one must be new, not a part of a pool.
    pub fn new(open: impl Fn() -> rusqlite::Result<Connection> + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }
}

/// The file must be there already.
impl From<PathBuf> for ConnectionSource {
    fn from(path: PathBuf) -> Self {
        Self::new(move || {
            let flags = OpenFlags::default().difference(OpenFlags::SQLITE_OPEN_CREATE);
            let connection = Connection::open_with_flags(&path, flags)?;
            connection.busy_timeout(BUSY_WAIT)?;
            Ok(connection)
        })
    }
}

/// The file must be there already.
impl From<&Path> for ConnectionSource {
    fn from(path: &Path) -> Self {
        path.to_owned().into()
    }
}

impl fmt::Debug for ConnectionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionSource")
    }
}

/// A connection that is used on blocking threads, one job at a time, and opened anew after an
/// error.
#[derive(Debug, Clone)]
pub(super) struct Database {
    source: ConnectionSource,
    connection: Arc<Mutex<Option<Connection>>>,
}

impl Database {
    pub(super) fn new(source: ConnectionSource) -> Self {
        Self { source, connection: Arc::default() }
    }

    /// Does a job. It is done to its end even if nobody waits for it any more.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let Self { source, connection } = self.clone();
        let work = move || {
            let mut slot = connection.lock().unwrap_or_else(PoisonError::into_inner);
            // Taken out, so that a job that panics takes the connection with it.
            let mut connection = match slot.take() {
                Some(connection) => connection,
                None => open(&source)?,
            };
            let result = job(&mut connection);
            if result.as_ref().err().is_none_or(leaves_connection_sound) {
                *slot = Some(connection);
            }
            result
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => Err(DatabaseError::Aborted(error.to_string())),
        }
    }
}

fn open(source: &ConnectionSource) -> Result<Connection, DatabaseError> {
    let connection = (source.0)()?;
    // The sync of a claim takes along all commits before it. So nothing is published that a power
    // loss could still undo, also where the application itself commits without a sync.
    connection.pragma_update(None, "synchronous", "FULL")?;
    schema::check(&connection)?;
    Ok(connection)
}

fn leaves_connection_sound(error: &DatabaseError) -> bool {
    match error {
        DatabaseError::Sqlite(error) => {
            matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
            )
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        schema::install(&Connection::open(&path).unwrap()).unwrap();
        (folder, path)
    }

    #[tokio::test]
    async fn its_commits_are_synced() {
        let (_folder, path) = installed();
        let database = Database::new(path.into());
        let level: i64 = database
            .run(|connection| Ok(connection.pragma_query_value(None, "synchronous", |r| r.get(0))?))
            .await
            .unwrap();
        assert_eq!(level, 2, "FULL");
    }

    #[tokio::test]
    async fn a_panic_and_an_error_cost_the_connection_only() {
        let (_folder, path) = installed();
        let database = Database::new(path.into());
        let mark = |connection: &mut Connection| {
            connection.execute_batch("CREATE TEMP TABLE mine (a)").map_err(DatabaseError::from)
        };
        database.run(mark).await.unwrap();
        let panicked = database.run(|_| -> Result<(), _> { panic!("of the test") }).await;
        assert!(matches!(panicked, Err(DatabaseError::Aborted(_))));
        database.run(mark).await.expect("a new connection, without the temporary table");
        let wrong = database.run(|c| Ok(c.execute_batch("nonsense")?)).await;
        assert!(matches!(wrong, Err(DatabaseError::Sqlite(_))));
        database.run(mark).await.expect("a new connection again");
    }

    #[tokio::test]
    async fn a_missing_file_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("no.db");
        let database = Database::new(path.as_path().into());
        assert!(matches!(database.run(|_| Ok(())).await, Err(DatabaseError::Sqlite(_))));
        assert!(!path.exists());
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
        assert!(matches!(database.run(|_| Ok(())).await, Err(DatabaseError::NotInstalled)));
    }
}
