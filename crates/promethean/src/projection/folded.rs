//! A view folded from the log up to a moment, into a database of its own: for views whose documents
//! have no history of their own, because code made them or because their keys come from payloads.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use promethean_event::Offset;

use super::database::{Database, Faults, get, rows};
use super::document::Document;
use super::driver::Site;
use super::error::ProjectionError;
use super::past::PastError;
use super::verify::{Scratch, fold_to};
use super::views::Projection;
use crate::as_of::Moment;
use crate::store::Lane;

/// Events that are folded for one question.
pub const FOLD_EVENTS_MAX: u64 = 5_000_000;

/// Views of a projection as they were, for as long as this is kept.
pub struct Folded {
    projection: Projection,
    database: Arc<Database>,
    _scratch: Scratch,
    /// Events that were gone from the log before they could be folded.
    pub missed: u64,
}

impl std::fmt::Debug for Folded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Folded").field("projection", &self.projection).finish_non_exhaustive()
    }
}

/// Several questions may be asked at once, each with a file of its own.
static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Projection {
    /// Folds the log up to a moment of append: a time, or a place in the topic's partition 0.
    pub async fn folded(&self, moment: Moment) -> Result<Folded, PastError> {
        let view = self.name().to_owned();
        self.site.topics_are_there().await.map_err(super::error::ViewError::from)?;
        let mut ends: HashMap<Lane, Offset> = HashMap::new();
        let mut events = 0;
        for (lane, end) in self.site.ends().await.map_err(super::error::ViewError::from)? {
            let until = match moment {
                Moment::Appended(_) => self.site.bus.end_at(lane, moment).await?.unwrap_or(end),
                Moment::Offset(_) | Moment::Happened(_) => return Err(PastError::NotByKey(view)),
            };
            let start = self.site.bus.store().bounds(lane).await?.start;
            events += until.get().saturating_sub(start.get());
            ends.insert(lane, until);
        }
        if events > FOLD_EVENTS_MAX {
            return Err(PastError::TooLong { events, max: FOLD_EVENTS_MAX });
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-at-{number}", self.name());
        let scratch = Scratch::beside(self.site.database.path(), &name);
        let path = scratch.path().to_owned();
        let opening = tokio::task::spawn_blocking(move || Database::open(&path, Faults::default()));
        let broken = |_| super::error::ViewError::from(ProjectionError::BrokenOff);
        let database = opening.await.map_err(broken)?.map_err(super::error::ViewError::from)?;
        let site = Site { database: Arc::clone(&database), ..self.site.clone() };
        let missed = fold_to(&site, ends).await?;
        Ok(Folded { projection: self.clone(), database, _scratch: scratch, missed })
    }
}

impl Folded {
    /// The document of a key.
    pub async fn get(&self, view: &str, key: &str) -> Result<Option<Document>, PastError> {
        let (table, key) = (self.projection.table(view)?, key.to_owned());
        let row = self.read(move |connection| get(connection, &table, &key)).await?;
        Ok(row.and_then(|row| self.projection.documents(vec![row]).pop()))
    }

    /// Documents by key, after a key.
    pub async fn scan(
        &self,
        view: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<Document>, PastError> {
        let (table, after) = (self.projection.table(view)?, after.map(str::to_owned));
        let read = move |connection: &_| rows(connection, &table, after.as_deref(), max.max(1));
        Ok(self.projection.documents(self.read(read).await?))
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&rusqlite::Connection) -> Result<T, super::database::DatabaseError>
        + Send
        + 'static,
    ) -> Result<T, PastError> {
        let database = Arc::clone(&self.database);
        let reading = tokio::task::spawn_blocking(move || database.read(read)).await;
        let broken = |_| super::error::ViewError::from(ProjectionError::BrokenOff);
        Ok(reading.map_err(broken)?.map_err(super::error::ViewError::from)?)
    }
}
