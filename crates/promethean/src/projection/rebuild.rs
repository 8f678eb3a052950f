//! Builds the views of a projection anew, beside the live ones, and then in their place.
//!
//! The new build has tables and cursors of its own, so that it goes on after a crash where it was.
//! Views of which only the newest event of a key matters are made from those (and then from what
//! came meanwhile), others from every event. Nothing is emitted or parked again for what the live
//! build has passed.

use std::collections::HashMap;
use std::sync::PoisonError;

use promethean_event::Offset;
use tokio::sync::{oneshot, watch};

use super::driver::{Driver, Step};
use super::effects::Voice;
use super::error::{ProjectionError, ViewError};
use super::supervise::{Command, describe};
use super::view_store::{BuildState, Phase, Requested};
use super::views::Projection;
use crate::store::Lane;

/// How far views are built anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rebuilding {
    /// Events that have been worked on, or keys, if the views are made from keys.
    pub done: u64,
    /// Events that have not, as far as is known.
    pub left: u64,
    /// Whether they are made from keys now.
    pub from_keys: bool,
}

/// Marks a projection as being built anew for as long as it is.
struct Mark<'a> {
    projection: &'a Projection,
    progress: watch::Sender<Rebuilding>,
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        let rebuilding = &self.projection.rebuilding;
        *rebuilding.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Projection {
    fn mark(&self) -> Result<Mark<'_>, ViewError> {
        let mut rebuilding = self.rebuilding.lock().unwrap_or_else(PoisonError::into_inner);
        if rebuilding.is_some() {
            return Err(ViewError::Rebuilding(self.name().to_owned()));
        }
        let (progress, receiver) = watch::channel(Rebuilding::default());
        *rebuilding = Some(receiver);
        Ok(Mark { projection: self, progress })
    }

    /// Builds the views anew beside the live ones, which go on meanwhile, and switches. If it was
    /// broken off before, it goes on where it was. [`Projection::status`] tells how far it is.
    pub async fn rebuild(&self) -> Result<(), ViewError> {
        if self.site.definition.is_delegated() {
            return Err(ViewError::Foreign(self.name().to_owned()));
        }
        let mark = self.mark()?;
        self.take().await?;
        self.site.topics_are_there().await?;
        let voice = self.site.voice_of_builder().await?;
        let mut builder = self.builder(voice).await?;
        self.make(&mut builder, &mark).await?;
        let (answer, answered) = oneshot::channel();
        let stopped = || ViewError::Stopped(self.name().to_owned());
        let switch = Command::Switch(Box::new(builder), answer);
        self.commands.send(switch).await.map_err(|_| stopped())?;
        Ok(answered.await.map_err(|_| stopped())??)
    }

    /// The same, without waiting for it.
    pub(crate) fn rebuild_in_background(&self) {
        let projection = self.clone();
        self.site.bus.inner.runtime.spawn(async move {
            if let Err(error) = projection.rebuild().await {
                let (name, error) = (projection.name(), describe(&error));
                tracing::warn!(projection = name, error, "the views were not built anew");
            }
        });
    }

    /// Has the views kept here: who builds them anew must be who keeps them.
    pub(crate) async fn take(&self) -> Result<(), ViewError> {
        if self.site.tenure.is_held() {
            return Ok(());
        }
        let stopped = || ViewError::Stopped(self.name().to_owned());
        let (answer, answered) = oneshot::channel();
        self.commands.send(Command::Take(answer)).await.map_err(|_| stopped())?;
        Ok(answered.await.map_err(|_| stopped())??)
    }

    async fn builder(&self, voice: Voice) -> Result<Driver, ViewError> {
        let wanted = self.site.requested(BuildState::Building);
        let cursors = self.site.beginnings(wanted.from_keys).await?;
        let build = self.site.obtain(Requested { cursors, ..wanted }).await?;
        Ok(Driver::new(&self.site, build, voice))
    }

    /// Brings a build to the end of what it may read for the first time.
    async fn make(&self, builder: &mut Driver, mark: &Mark<'_>) -> Result<(), ViewError> {
        if builder.is_silent() {
            builder.stop_at(self.site.live_cursors().await?);
        }
        loop {
            let step = builder.step().await?;
            let progress = self.how_far(builder).await?;
            mark.progress.send_replace(progress);
            match step {
                Step::Moved => {}
                Step::CaughtUp => return Ok(()),
                Step::Again(delay, _) => tokio::time::sleep(delay).await,
            }
        }
    }

    async fn how_far(&self, builder: &Driver) -> Result<Rebuilding, ProjectionError> {
        let ends: HashMap<Lane, Offset> = self.site.ends().await?;
        let cursors = builder.cursors();
        let left = ends.iter().map(|(lane, end)| {
            end.get().saturating_sub(cursors.get(lane).map_or(0, |next| next.get()))
        });
        Ok(Rebuilding {
            done: builder.build().counts.events,
            left: left.sum(),
            from_keys: matches!(builder.build().phase, Phase::Keys(_)),
        })
    }
}
