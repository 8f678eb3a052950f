//! Compares views with what the log says they should be.
//!
//! The views are read in one transaction, at one cursor. The log is folded up to that cursor into
//! views beside them, by the same code as ever but in silence. Both are then read side by side.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use promethean_event::Offset;
use rusqlite::Connection;

use super::database::{
    Build, BuildState, Database, DatabaseError, Faults, Requested, StoredRow, rows,
};
use super::driver::{Driver, Site, Step, Watched};
use super::effects::Voice;
use super::error::{ProjectionError, ViewError};
use super::limits::DIFFERENCES_MAX;
use super::stamp::Write;
use super::views::Projection;
use crate::store::Lane;

/// Rows that are compared at once.
const ROWS_AT_ONCE: usize = 1_000;

/// What a verification has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// Documents that were compared, in all views.
    pub documents: u64,
    /// Documents that are not what they should be.
    pub different: u64,
    /// The first of them, so many at most.
    pub differences: Vec<Difference>,
    /// Events that were gone from the log before they could be folded: with any, differences may
    /// be theirs.
    pub missed: u64,
}

/// A document that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The view.
    pub view: String,
    /// The key.
    pub key: String,
    /// What the view has.
    pub found: Option<String>,
    /// What the log says it should have.
    pub expected: Option<String>,
}

/// A database beside the views, gone when this is.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn beside(path: &Path, name: &str) -> Self {
        let scratch = Self(path.with_extension(format!("verify-{name}")));
        // One may be left from a crash.
        scratch.remove();
        scratch
    }

    fn remove(&self) {
        for end in ["", "-wal", "-shm"] {
            let mut path = self.0.clone().into_os_string();
            path.push(end);
            if let Err(error) = std::fs::remove_file(&path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(%error, "a scratch file could not be removed");
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Projection {
    /// Compares the views, at their cursors, with a fold of the log. The projection goes on
    /// meanwhile. Needs as much room as the views have.
    pub async fn verify(&self) -> Result<Verification, ViewError> {
        let (connection, live) = self.snapshot().await?;
        let Some(live) = live else {
            return Ok(Verification::default());
        };
        let scratch = Scratch::beside(self.site.database.path(), self.name());
        let path = scratch.0.clone();
        let opening = tokio::task::spawn_blocking(move || Database::open(&path, Faults::default()));
        let database = opening.await.map_err(|_| ProjectionError::BrokenOff)??;
        let site = Site { database: Arc::clone(&database), ..self.site.clone() };
        let ends = live.cursors.iter().map(|cursor| (cursor.lane, cursor.next)).collect();
        let missed = fold_to(&site, ends, None).await?.0;
        let views: Vec<String> =
            self.site.definition.views.iter().map(|view| view.name.clone()).collect();
        let comparing = tokio::task::spawn_blocking(move || {
            let mut found = Verification { missed, ..Verification::default() };
            for view in &views {
                database.read(|expected| compare(view, &connection, expected, &mut found))?;
            }
            Ok::<_, DatabaseError>(found)
        });
        Ok(comparing.await.map_err(|_| ProjectionError::BrokenOff)??)
    }

    /// A connection that sees the views at one moment, and where they were then.
    async fn snapshot(&self) -> Result<(Connection, Option<Build>), ViewError> {
        let (database, name) = (Arc::clone(&self.site.database), self.name().to_owned());
        let reading = tokio::task::spawn_blocking(move || {
            let connection = database.reader()?;
            connection.execute_batch("BEGIN")?;
            let live = Build::find(&connection, &name, BuildState::Live)?;
            Ok::<_, DatabaseError>((connection, live))
        });
        Ok(reading.await.map_err(|_| ProjectionError::BrokenOff)??)
    }
}

/// Folds the log up to these places; answers how much of it is gone, and what was last written to
/// the document that is watched.
pub(super) async fn fold_to(
    site: &Site,
    ends: HashMap<Lane, Offset>,
    watched: Option<Watched>,
) -> Result<(u64, Option<Write>), ViewError> {
    let cursors = site.beginnings(false).await?;
    let wanted = Requested { cursors, ..site.requested(BuildState::Live) };
    let start: u64 = wanted.cursors.iter().map(|cursor| cursor.next.get()).sum();
    let build = site.obtain(wanted).await?;
    let mut driver = Driver::new(site, build, Voice::Silent);
    driver.stop_at(ends);
    if let Some(watched) = watched {
        driver.watch(watched);
    }
    loop {
        match driver.step().await? {
            Step::Moved => {}
            Step::CaughtUp => return Ok((start + driver.missed(), driver.last_write())),
            Step::Again(delay, _) => tokio::time::sleep(delay).await,
        }
    }
}

fn compare(
    view: &str,
    found: &Connection,
    expected: &Connection,
    verification: &mut Verification,
) -> Result<(), DatabaseError> {
    let (mut left, mut right) = (SideRows::new(found, view), SideRows::new(expected, view));
    loop {
        let (is, should) = (left.peek()?, right.peek()?);
        let order = match (is, should) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(is), Some(should)) => is.key.cmp(&should.key),
        };
        let is = if order.is_le() { left.next() } else { None };
        let should = if order.is_ge() { right.next() } else { None };
        verification.documents += 1;
        if is != should {
            verification.different += 1;
            if verification.differences.len() < DIFFERENCES_MAX {
                let key = is.as_ref().or(should.as_ref()).map(|row| row.key.clone());
                verification.differences.push(Difference {
                    view: view.to_owned(),
                    key: key.unwrap_or_default(),
                    found: is.as_ref().map(shown),
                    expected: should.as_ref().map(shown),
                });
            }
        }
    }
}

fn shown(row: &StoredRow) -> String {
    let version = row.version.map(|version| format!(" v{version}")).unwrap_or_default();
    let (partition, offset) = (row.lane.partition.get(), row.offset);
    format!("{partition}/{offset}{version} {}", row.value.as_str())
}

/// The rows of a table, by key, some at a time.
struct SideRows<'a> {
    connection: &'a Connection,
    table: &'a str,
    after: Option<String>,
    ahead: std::vec::IntoIter<StoredRow>,
    is_over: bool,
}

impl<'a> SideRows<'a> {
    fn new(connection: &'a Connection, table: &'a str) -> Self {
        Self { connection, table, after: None, ahead: Vec::new().into_iter(), is_over: false }
    }

    fn peek(&mut self) -> Result<Option<&StoredRow>, DatabaseError> {
        if self.ahead.as_slice().is_empty() && !self.is_over {
            let page = rows(self.connection, self.table, self.after.as_deref(), ROWS_AT_ONCE)?;
            self.is_over = page.len() < ROWS_AT_ONCE;
            self.after = page.last().map(|row| row.key.clone());
            self.ahead = page.into_iter();
        }
        Ok(self.ahead.as_slice().first())
    }

    fn next(&mut self) -> Option<StoredRow> {
        self.ahead.next()
    }
}
