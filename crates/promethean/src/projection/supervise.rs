//! The task of a projection: drives the live build, waits out what goes by itself, stops visibly
//! at what does not, and puts a new build in the place of the live one.

use std::collections::HashMap;
use std::sync::Arc;

use promethean_event::Offset;
use tokio::sync::{mpsc, oneshot, watch};

use super::database::{Build, BuildCursor, BuildState, Requested};
use super::definition::Kind;
use super::driver::{Driver, Site, Step, backoff};
use super::effects::Voice;
use super::error::ProjectionError;
use super::progress::{Progress, ProjectionState};
use crate::store::Lane;

/// What a projection can be told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Put this build in the place of the live one.
    Switch(Box<Driver>, oneshot::Sender<Result<(), ProjectionError>>),
    /// Begin again, if it has failed.
    Again,
    /// End; answered when nothing more will be written.
    Stop(oneshot::Sender<()>),
}

/// The task of a projection.
pub(crate) struct Supervisor {
    pub(crate) site: Site,
    pub(crate) progress: Arc<watch::Sender<Progress>>,
    pub(crate) commands: mpsc::Receiver<Command>,
}

impl Supervisor {
    pub(crate) async fn run(mut self) {
        let mut driver = None;
        let mut is_begun = false;
        loop {
            let work = async {
                if !is_begun {
                    driver = self.site.begin_at_last(&self.progress).await?;
                    is_begun = true;
                }
                match &mut driver {
                    Some(driver) => drive(driver, &self.progress).await,
                    None => std::future::pending().await,
                }
            };
            let command = tokio::select! {
                biased;
                command = self.commands.recv() => command,
                Err(error) = work => {
                    // What was begun is over; a new build may still take its place.
                    (driver, is_begun) = (None, true);
                    self.failed(&error);
                    continue;
                }
            };
            match command {
                Some(Command::Switch(builder, answer)) => {
                    let switched = self.switch(&mut driver, *builder).await;
                    is_begun = true;
                    drop(answer.send(switched));
                }
                Some(Command::Again) => {
                    // One that goes on is left alone.
                    is_begun = is_begun && driver.is_some();
                }
                Some(Command::Stop(answer)) => {
                    drop(driver.take());
                    // Jobs are done in order: with this one, all before it are.
                    drop(self.site.database.write(|_, _| Ok(())).await);
                    self.progress.send_modify(|p| p.state = ProjectionState::Stopped);
                    // Nobody may wait any more.
                    let _unheard = answer.send(());
                    return;
                }
                None => {
                    self.progress.send_modify(|p| p.state = ProjectionState::Stopped);
                    return;
                }
            }
        }
    }

    fn failed(&self, error: &ProjectionError) {
        let name = &self.site.definition.name;
        let error = describe(error);
        tracing::warn!(projection = %name, error, "the projection has stopped");
        self.progress.send_modify(|p| p.state = ProjectionState::Failed { error });
    }

    /// The live build stops where it is, the new one catches up with it and takes its place.
    async fn switch(
        &self,
        live: &mut Option<Driver>,
        mut builder: Driver,
    ) -> Result<(), ProjectionError> {
        drop(live.take());
        let switched = async {
            match self.site.voice_of_builder().await? {
                Voice::Silent => self.site.follow_live(&mut builder).await?,
                Voice::From(_) => self.site.catch_up(&mut builder).await?,
            }
            let (build, wanted) = (builder.build().clone(), self.site.requested(BuildState::Live));
            let switch = move |connection: &mut rusqlite::Connection, faults: &_| {
                build.switch(connection, faults, &wanted)
            };
            Ok(self.site.database.write(switch).await?)
        };
        let switched: Result<Build, ProjectionError> = switched.await;
        drop(builder);
        match switched {
            Ok(build) => {
                let driver = Driver::new(&self.site, build, Voice::From(HashMap::new()));
                show(&driver, &self.progress, ProjectionState::Running);
                *live = Some(driver);
                Ok(())
            }
            Err(error) => {
                self.failed(&error);
                Err(error)
            }
        }
    }
}

/// Follows the log until something fails that does not go by itself.
async fn drive(
    driver: &mut Driver,
    progress: &watch::Sender<Progress>,
) -> Result<(), ProjectionError> {
    loop {
        match driver.step().await? {
            Step::Moved => show(driver, progress, ProjectionState::Running),
            Step::CaughtUp => {
                show(driver, progress, ProjectionState::Running);
                if !driver.grown().await {
                    return Err(ProjectionError::Closed);
                }
                driver.topics_are_the_same()?;
            }
            Step::Again(delay, error) => {
                let attempts = driver.attempts();
                show(driver, progress, ProjectionState::Retrying { error, attempts });
                tokio::time::sleep(delay).await;
            }
        }
    }
}

fn show(driver: &Driver, progress: &watch::Sender<Progress>, state: ProjectionState) {
    progress.send_if_modified(|progress| {
        let shown = Progress {
            state,
            cursors: driver.cursors(),
            counts: driver.build().counts,
            missed: driver.missed(),
            definition: driver.build().definition.clone(),
        };
        let is_other = *progress != shown;
        *progress = shown;
        is_other
    });
}

/// An error with what is behind it.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

impl Site {
    /// The build that the definition asks for, without cursors.
    pub(crate) fn requested(&self, state: BuildState) -> Requested {
        let definition = &self.definition;
        Requested {
            projection: definition.name.to_string(),
            definition: definition.fingerprint(),
            views: definition.views.clone(),
            state,
            from_keys: state == BuildState::Building && definition.is_by_key(),
            cursors: Vec::new(),
        }
    }

    pub(crate) async fn obtain(&self, wanted: Requested) -> Result<Build, ProjectionError> {
        let obtain = move |connection: &mut rusqlite::Connection, faults: &_| {
            Build::obtain(connection, faults, &wanted)
        };
        Ok(self.database.write(obtain).await?)
    }

    /// Where a new build begins, in every partition of its topics.
    pub(crate) async fn beginnings(
        &self,
        at_end: bool,
    ) -> Result<Vec<BuildCursor>, ProjectionError> {
        let topics = self.bus.topics();
        let mut cursors = Vec::new();
        for topic in &self.definition.topics {
            let entry = topics.get(topic).ok_or_else(|| ProjectionError::NoTopic(topic.clone()))?;
            for lane in entry.lanes() {
                let bounds = self.bus.store().bounds(lane).await?;
                cursors.push(BuildCursor {
                    lane,
                    topic: topic.clone(),
                    next: if at_end { bounds.next } else { bounds.start },
                    begun: bounds.next,
                    missed: 0,
                });
            }
        }
        Ok(cursors)
    }

    /// The same as `begin`, again and again while it fails for a reason that may go by itself.
    async fn begin_at_last(
        &self,
        progress: &watch::Sender<Progress>,
    ) -> Result<Option<Driver>, ProjectionError> {
        let mut attempts = 0;
        loop {
            match self.begin(progress).await {
                Err(error) if error.is_transient() => {
                    attempts += 1;
                    let error = describe(&error);
                    let state = ProjectionState::Retrying { error, attempts };
                    progress.send_modify(|progress| progress.state = state);
                    tokio::time::sleep(backoff(attempts)).await;
                }
                ended => return ended,
            }
        }
    }

    /// The live build's driver; none if its views wait to be built anew.
    async fn begin(
        &self,
        progress: &watch::Sender<Progress>,
    ) -> Result<Option<Driver>, ProjectionError> {
        self.topics_are_there().await?;
        let wanted = self.requested(BuildState::Live);
        let fingerprint = wanted.definition.clone();
        let cursors = self.beginnings(false).await?;
        let build = self.obtain(wanted.clone()).await?;
        if build.definition != fingerprint {
            progress.send_modify(|progress| progress.state = ProjectionState::Rebuilding);
            return Ok(None);
        }
        let topics = self.bus.topics();
        let is_gone = |cursor: &&BuildCursor| topics.by_id(cursor.lane.topic).is_none();
        if let Some(cursor) = build.cursors.iter().find(is_gone) {
            return Err(ProjectionError::TopicReplaced(cursor.topic.clone()));
        }
        let build = self.obtain(Requested { cursors, ..wanted }).await?;
        let driver = Driver::new(self, build, Voice::From(HashMap::new()));
        show(&driver, progress, ProjectionState::Running);
        Ok(Some(driver))
    }

    /// Waits for the topics to be made.
    pub(crate) async fn topics_are_there(&self) -> Result<(), ProjectionError> {
        let mut mark = 0;
        loop {
            let topics = self.bus.topics();
            if self.definition.topics.iter().all(|topic| topics.get(topic).is_some()) {
                return Ok(());
            }
            let growth = self.bus.store().grown(mark).await;
            if growth.closed {
                return Err(ProjectionError::Closed);
            }
            mark = growth.mark;
        }
    }

    /// Where the live build is.
    pub(crate) async fn live_cursors(&self) -> Result<HashMap<Lane, Offset>, ProjectionError> {
        let name = self.definition.name.to_string();
        let find = move |connection: &mut rusqlite::Connection, _: &_| {
            Build::find(connection, &name, BuildState::Live)
        };
        let cursors = self.database.write(find).await?.map(|live| live.cursors);
        let cursors = cursors.unwrap_or_default().into_iter();
        Ok(cursors.map(|cursor| (cursor.lane, cursor.next)).collect())
    }

    /// What a builder may append. Code decides by what it has seen, in an order that partitions do
    /// not have: it is silent, and never passes the live build. Parking goes by the event alone.
    pub(crate) async fn voice_of_builder(&self) -> Result<Voice, ProjectionError> {
        Ok(match self.definition.kind {
            Kind::Transactional { .. } => Voice::Silent,
            Kind::Changelog { .. } => Voice::From(self.live_cursors().await?),
        })
    }

    /// Brings a build to where the live one is, and no further.
    pub(crate) async fn follow_live(&self, driver: &mut Driver) -> Result<(), ProjectionError> {
        driver.stop_at(self.live_cursors().await?);
        loop {
            match driver.step().await? {
                Step::Moved => {}
                Step::CaughtUp => return Ok(()),
                Step::Again(delay, _) => tokio::time::sleep(delay).await,
            }
        }
    }

    /// Where the partitions end now.
    pub(crate) async fn ends(&self) -> Result<HashMap<Lane, Offset>, ProjectionError> {
        let cursors = self.beginnings(true).await?;
        Ok(cursors.into_iter().map(|cursor| (cursor.lane, cursor.next)).collect())
    }

    /// Brings a build to where the partitions end now, at least.
    pub(crate) async fn catch_up(&self, driver: &mut Driver) -> Result<(), ProjectionError> {
        let ends = self.ends().await?;
        loop {
            let cursors = driver.cursors();
            let is_behind =
                |(lane, &end): (&Lane, &Offset)| cursors.get(lane).is_none_or(|&next| next < end);
            if !ends.iter().any(is_behind) {
                return Ok(());
            }
            match driver.step().await? {
                Step::Moved => {}
                Step::CaughtUp => {
                    if !driver.grown().await {
                        return Err(ProjectionError::Closed);
                    }
                }
                Step::Again(delay, _) => tokio::time::sleep(delay).await,
            }
        }
    }
}
