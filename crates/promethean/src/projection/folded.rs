//! A view folded from the log up to a moment, into a database of its own: for views whose documents
//! have no history of their own, because code made them or because their keys come from payloads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use promethean_event::Offset;

use super::document::Document;
use super::driver::Watched;
use super::past::{Past, PastError};
use super::position::Position;
use super::stamp::{Stamp, Write};
use super::verify::{FoldBeside, Scratch};
use super::view_store::ViewStore;
use super::views::Projection;
use crate::as_of::Moment;
use crate::store::{Lane, ReadError, event_at};

/// Events that are folded for one question.
pub const FOLD_EVENTS_MAX: u64 = 5_000_000;

/// Views of a projection as they were, for as long as this is kept.
pub struct Folded {
    projection: Projection,
    fold: FoldBeside,
    _scratch: Scratch,
    /// Events that were gone from the log before they could be folded.
    pub missed: u64,
    /// Where partitions begin that have lost their beginnings.
    starts_at: Vec<Position>,
}

impl std::fmt::Debug for Folded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Folded").field("projection", &self.projection).finish_non_exhaustive()
    }
}

/// Several questions may be asked at once, each with a file of its own.
static NUMBER: AtomicU64 = AtomicU64::new(0);

impl Projection {
    /// Folds the log up to a moment of append, which is a time.
    pub async fn folded(&self, moment: Moment) -> Result<Folded, PastError> {
        Ok(self.fold(moment, None).await?.0)
    }

    /// The document of a key at a moment of append, from a fold of the log: for views whose documents
    /// do not have the keys of their events.
    pub async fn at_folded(
        &self,
        view: &str,
        key: &str,
        moment: Moment,
    ) -> Result<Past, PastError> {
        let unknown = || super::error::ViewError::UnknownView(view.to_owned());
        let place = self.site.definition.view_at(view).ok_or_else(unknown)?;
        let watched = Watched { view: place, key: key.to_owned(), last: None };
        let (folded, write) = self.fold(moment, Some(watched)).await?;
        let is_complete = folded.missed == 0;
        let Some(write) = write else {
            return Ok(match folded.starts_at.first() {
                Some(starts_at) if !is_complete => {
                    Past::BeforeHistory { first: None, starts_at: starts_at.clone() }
                }
                _ => Past::NeverExisted,
            });
        };
        let Stamp { lane, offset, .. } = *write.stamp();
        let event = event_at(&**self.site.bus.store(), lane, offset).await?;
        // It was folded a moment ago.
        let event = Box::new(event.ok_or(ReadError::UnknownLane)?);
        Ok(match write {
            Write::Put(stamp, value) => {
                let document = Box::new(self.document(key.to_owned(), &stamp, value));
                Past::Document { document, event, is_complete }
            }
            Write::Delete(_) => Past::Deleted { event, is_complete },
        })
    }

    async fn fold(
        &self,
        moment: Moment,
        watched: Option<Watched>,
    ) -> Result<(Folded, Option<Write>), PastError> {
        let view = self.name().to_owned();
        self.site.topics_are_there().await.map_err(super::error::ViewError::from)?;
        let mut ends: HashMap<Lane, Offset> = HashMap::new();
        let (mut events, mut starts_at) = (0, Vec::new());
        for (lane, end) in self.site.ends().await.map_err(super::error::ViewError::from)? {
            let until = match moment {
                Moment::Appended(_) => self.site.bus.end_at(lane, moment).await?.unwrap_or(end),
                Moment::Offset(_) | Moment::Happened(_) => return Err(PastError::NotByKey(view)),
            };
            let start = self.site.bus.store().bounds(lane).await?.start;
            if start > Offset::ZERO {
                starts_at.push(self.position(lane, start));
            }
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
        if let Some(watched) = watched {
            fold.watch(watched);
        }
        fold.go_to(ends).await?;
        let (missed, write) = (fold.missed(), fold.last_write());
        let projection = self.clone();
        Ok((Folded { projection, fold, _scratch: scratch, missed, starts_at }, write))
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
