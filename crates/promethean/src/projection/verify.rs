//! Compares views with what the log says they should be.
//!
//! The views are read at one moment, at one cursor. The log is folded up to that cursor into views
//! beside them, by the same code as ever but in silence. Both are then read side by side.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as AtomicOrdering};

use promethean_event::Offset;

use super::database::{DatabaseError, SqliteViews};
use super::driver::{Driver, Site, Step, Watched};
use super::effects::Voice;
use super::error::{ProjectionError, ViewError};
use super::limits::DIFFERENCES_MAX;
use super::stamp::Write;
use super::tenure::Tenure;
use super::view_store::{BuildState, Requested, RowReader, StoredRow, ViewStore};
use super::views::Projection;
use crate::store::Lane;

static NUMBER: AtomicU64 = AtomicU64::new(0);

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
        if self.site.definition.is_delegated() {
            return Err(ViewError::Foreign(self.name().to_owned()));
        }
        // One of its own: another verification may be under way, or have its file closed just now.
        let number = NUMBER.fetch_add(1, AtomicOrdering::Relaxed);
        let scratch = Scratch::beside(&self.site.scratch, &format!("{}-{number}", self.name()));
        let mut fold = FoldBeside::begin(&self.site, &scratch).await?;
        fold.go_to(self.site.live_cursors().await?).await?;
        // Only now, when little is left to fold: what is frozen cannot be kept for long.
        let frozen = self.site.database.freeze(self.name().to_owned()).await?;
        let Some(live) = frozen.live else {
            return Ok(Verification::default());
        };
        fold.go_to(live.cursors.iter().map(|cursor| (cursor.lane, cursor.next)).collect()).await?;
        let missed = fold.missed();
        let views: Vec<String> =
            self.site.definition.views.iter().map(|view| view.name.clone()).collect();
        let comparing = tokio::task::spawn_blocking(move || {
            let expected = fold.rows.reader()?;
            let mut found = Verification { missed, ..Verification::default() };
            for view in &views {
                compare(view, &*frozen.rows, &*expected, &mut found)?;
            }
            Ok::<_, DatabaseError>(found)
        });
        Ok(comparing.await.map_err(|_| ProjectionError::BrokenOff)??)
    }
}

/// The log folded into a file beside, whatever the views themselves are kept in: both sort keys by
/// their bytes.
pub(super) struct FoldBeside {
    pub(super) rows: SqliteViews,
    driver: Driver,
    /// Events before the first that there is.
    gone: u64,
}

impl FoldBeside {
    pub(super) async fn begin(site: &Site, scratch: &Scratch) -> Result<Self, ViewError> {
        let path = scratch.0.clone();
        let opening = tokio::task::spawn_blocking(move || SqliteViews::open(&path));
        let rows = opening.await.map_err(|_| ProjectionError::BrokenOff)??;
        let database: Arc<dyn ViewStore> = Arc::new(rows.clone());
        let tenure = Arc::new(Tenure::new(site.bus.clone()));
        let site = Site { database, tenure, ..site.clone() };
        let cursors = site.beginnings(false).await?;
        let gone = cursors.iter().map(|cursor| cursor.next.get()).sum();
        let wanted = Requested { cursors, ..site.requested(BuildState::Live) };
        let build = site.obtain(wanted).await?;
        Ok(Self { rows, driver: Driver::new(&site, build, Voice::Silent), gone })
    }

    /// Folds up to these places.
    pub(super) async fn go_to(&mut self, ends: HashMap<Lane, Offset>) -> Result<(), ViewError> {
        self.driver.stop_at(ends);
        loop {
            match self.driver.step().await? {
                Step::Moved => {}
                Step::CaughtUp => return Ok(()),
                Step::Again(delay, _) => tokio::time::sleep(delay).await,
            }
        }
    }

    /// How much of the log is gone.
    pub(super) fn missed(&self) -> u64 {
        self.gone + self.driver.missed()
    }

    /// A document whose last write is to be known.
    pub(super) fn watch(&mut self, watched: Watched) {
        self.driver.watch(watched);
    }

    /// What was last written to the document that is watched.
    pub(super) fn last_write(&mut self) -> Option<Write> {
        self.driver.last_write()
    }
}

fn compare(
    view: &str,
    found: &dyn RowReader,
    expected: &dyn RowReader,
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
    rows: &'a dyn RowReader,
    table: &'a str,
    after: Option<String>,
    ahead: std::vec::IntoIter<StoredRow>,
    is_over: bool,
}

impl<'a> SideRows<'a> {
    fn new(rows: &'a dyn RowReader, table: &'a str) -> Self {
        Self { rows, table, after: None, ahead: Vec::new().into_iter(), is_over: false }
    }

    fn peek(&mut self) -> Result<Option<&StoredRow>, DatabaseError> {
        if self.ahead.as_slice().is_empty() && !self.is_over {
            let page = self.rows.rows(self.table, self.after.as_deref(), ROWS_AT_ONCE)?;
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
