//! A view folded from the log up to a moment, into a database of its own: for views whose documents
//! have no history of their own, because code made them or because their keys come from payloads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use promethean_event::Offset;

use super::document::Document;
use super::past::PastError;
use super::verify::{FoldBeside, Scratch};
use super::view_store::ViewStore;
use super::views::Projection;
use crate::as_of::Moment;
use crate::store::Lane;

/// Events that are folded for one question.
pub const FOLD_EVENTS_MAX: u64 = 5_000_000;

/// Views of a projection as they were, for as long as this is kept.
pub struct Folded {
    projection: Projection,
    fold: FoldBeside,
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
        let scratch = Scratch::beside(&self.site.scratch, &name);
        let mut fold = FoldBeside::begin(&self.site, &scratch).await?;
        fold.go_to(ends).await?;
        let missed = fold.missed();
        Ok(Folded { projection: self.clone(), fold, _scratch: scratch, missed })
    }
}

impl Folded {
    /// The document of a key.
    pub async fn get(&self, view: &str, key: &str) -> Result<Option<Document>, PastError> {
        let table = self.projection.table(view)?;
        let row = self.fold.rows.get(table, key.to_owned()).await;
        let row = row.map_err(super::error::ViewError::from)?;
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
        let rows = self.fold.rows.rows(table, after, max.max(1)).await;
        Ok(self.projection.documents(rows.map_err(super::error::ViewError::from)?))
    }
}
