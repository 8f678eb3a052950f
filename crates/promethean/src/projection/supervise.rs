//! The task of a projection: waits for its turn where other hubs could keep the same views, drives
//! the live build, waits out what goes by itself, stops visibly at what does not, and puts a new
//! build in the place of the live one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promethean_event::Offset;
use tokio::sync::{mpsc, oneshot, watch};

use super::database::DatabaseError;
use super::definition::Kind;
use super::driver::{Driver, Site, Step, backoff};
use super::effects::Voice;
use super::error::ProjectionError;
use super::limits::{LOOK_MS, LOOK_MS_MAX};
use super::progress::{Hold, Progress, ProjectionState};
use super::rebuild::Rebuilding;
use super::view_store::{Build, BuildCursor, BuildState, Requested, Right};
use super::views::Projection;
use crate::store::Lane;

/// What a projection can be told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Put this build in the place of the live one.
    Switch(Box<Driver>, oneshot::Sender<Result<(), ProjectionError>>),
    /// Begin again, if it has failed.
    Again,
    /// Keep the views here, whichever hub does so now.
    Take(oneshot::Sender<Result<(), ProjectionError>>),
    /// End; answered when nothing more will be written.
    Stop(oneshot::Sender<()>),
}

/// The task of a projection.
pub(crate) struct Supervisor {
    pub(crate) site: Site,
    pub(crate) progress: Arc<watch::Sender<Progress>>,
    /// The way back to itself; not one that keeps it alive.
    pub(crate) itself: mpsc::WeakSender<Command>,
    pub(crate) rebuilding: Arc<Mutex<Option<watch::Receiver<Rebuilding>>>>,
}

impl Supervisor {
    pub(crate) async fn run(self, mut commands: mpsc::Receiver<Command>) {
        let mut driver = None;
        let (mut is_begun, mut held) = (false, None);
        loop {
            let work = async {
                if !is_begun {
                    self.stand_by().await?;
                    driver = self.begin().await?;
                    (is_begun, held) = (true, None);
                }
                match &mut driver {
                    Some(driver) => drive(driver, &self.site, &self.progress).await,
                    None => self.site.until_lost().await,
                }
            };
            let command = tokio::select! {
                biased;
                command = commands.recv() => command,
                Err(error) = work => {
                    if self.site.is_anothers(&error) {
                        let name = &self.site.definition.name;
                        tracing::info!(projection = %name, "another hub keeps the views now");
                        self.site.tenure.lose();
                        (driver, is_begun) = (None, false);
                        continue;
                    }
                    held = self.unread().await;
                    // What was begun is over; a new build may still take its place.
                    (driver, is_begun) = (None, true);
                    self.failed(&error);
                    continue;
                }
            };
            match command {
                Some(Command::Switch(builder, answer)) => {
                    let switched = self.switch(&mut driver, *builder).await;
                    (is_begun, held) = (true, self.unread().await.filter(|_| driver.is_none()));
                    drop(answer.send(switched));
                }
                Some(Command::Again) => {
                    // One that goes on is left alone.
                    is_begun = is_begun && driver.is_some();
                }
                Some(Command::Take(answer)) => {
                    let (database, name) = (&*self.site.database, &self.site.definition.name);
                    let taken = self.site.tenure.take(database, name.as_str(), Right::Order).await;
                    (driver, is_begun) = (None, false);
                    // Nobody may wait any more.
                    let taken = match taken {
                        Ok(true) => Ok(()),
                        Ok(false) => Err(DatabaseError::Fenced.into()),
                        Err(error) => Err(error.into()),
                    };
                    let _unheard = answer.send(taken);
                }
                Some(Command::Stop(answer)) => {
                    drop(driver.take());
                    self.end().await;
                    // Nobody may wait any more.
                    let _unheard = answer.send(());
                    return;
                }
                None => {
                    drop(driver.take());
                    self.end().await;
                    return;
                }
            }
        }
    }

    /// Nothing more will be written from here.
    async fn end(&self) {
        if let Err(error) = self.site.database.settle().await {
            tracing::warn!(%error, "the last commit of a projection is not known");
        }
        let name = self.site.definition.name.as_str();
        self.site.tenure.give_back(&*self.site.database, name).await;
        self.progress.send_modify(|p| p.state = ProjectionState::Stopped);
    }

    /// Keeps from cleaning what one that has failed has still to read, should it begin again.
    async fn unread(&self) -> Option<Hold> {
        let name = self.site.definition.name.to_string();
        let live = self.site.database.find(name, BuildState::Live).await.ok()??;
        let cursors = live.cursors.iter().map(|cursor| (cursor.lane, cursor.next)).collect();
        Some(self.site.bus.inner.holds.hold(cursors))
    }

    /// Waits until it is this hub's turn, and shows meanwhile how far another one is.
    async fn stand_by(&self) -> Result<(), ProjectionError> {
        let Site { definition, tenure, bus, .. } = &self.site;
        let (mut pause, mut attempts) = (Duration::from_millis(LOOK_MS), 0);
        let mut hold = None;
        while !tenure.is_held() {
            match self.site.take_or_look().await {
                Ok(None) => return Ok(()),
                Ok(Some(live)) => {
                    attempts = 0;
                    let is_moved = match &live {
                        Some(live) => show_build(live, &self.progress, ProjectionState::Elsewhere),
                        None => {
                            self.progress.send_modify(|p| p.state = ProjectionState::Elsewhere);
                            false
                        }
                    };
                    // What the other has not read is not to be cleaned from here, either.
                    let cursors = live.iter().flat_map(|live| &live.cursors);
                    let cursors = cursors.map(|cursor| (cursor.lane, cursor.next)).collect();
                    drop(hold.replace(bus.inner.holds.hold(cursors)));
                    pause = match is_moved {
                        true => Duration::from_millis(LOOK_MS),
                        false => (pause * 2).min(Duration::from_millis(LOOK_MS_MAX)),
                    };
                }
                Err(error) if error.is_transient() => {
                    attempts += 1;
                    let error = describe(&error);
                    tracing::debug!(projection = %definition.name, error, "cannot stand by");
                    let state = ProjectionState::Retrying { error, attempts };
                    self.progress.send_modify(|progress| progress.state = state);
                    pause = backoff(attempts);
                }
                Err(error) => return Err(error),
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = tenure.look.notified() => {}
            }
        }
        Ok(())
    }

    /// The live build's driver; none if its views wait to be built anew, which is then begun.
    async fn begin(&self) -> Result<Option<Driver>, ProjectionError> {
        let driver = self.site.begin_at_last(&self.progress).await?;
        let is_rebuilding = self.rebuilding.lock().is_ok_and(|rebuilding| rebuilding.is_some());
        let is_due = driver.is_none() || self.site.is_half_built().await?;
        if is_due && !is_rebuilding && !self.site.definition.is_delegated() {
            self.projection().iter().for_each(Projection::rebuild_in_background);
        }
        Ok(driver)
    }

    /// A handle of itself, if anybody has one still.
    fn projection(&self) -> Option<Projection> {
        let (site, rebuilding) = (self.site.clone(), Arc::clone(&self.rebuilding));
        let (progress, commands) = (self.progress.subscribe(), self.itself.upgrade()?);
        Some(Projection { site, progress, commands, rebuilding })
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
            Ok(self.site.database.switch(build, wanted).await?)
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
                if self.site.is_anothers(&error) {
                    self.site.tenure.lose();
                } else {
                    self.failed(&error);
                }
                Err(error)
            }
        }
    }
}

/// Follows the log until something fails that does not go by itself.
async fn drive(
    driver: &mut Driver,
    site: &Site,
    progress: &watch::Sender<Progress>,
) -> Result<(), ProjectionError> {
    loop {
        match driver.step().await? {
            Step::Moved => show(driver, progress, ProjectionState::Running),
            Step::CaughtUp => {
                show(driver, progress, ProjectionState::Running);
                if !wait(driver, site).await? {
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

/// Waits until there may be more. One who has nothing to commit would not hear that another hub
/// has taken over, and asks.
async fn wait(driver: &mut Driver, site: &Site) -> Result<bool, ProjectionError> {
    if !site.database.is_shared() {
        return Ok(driver.grown().await);
    }
    loop {
        let look = Duration::from_millis(LOOK_MS_MAX);
        if let Ok(is_open) = tokio::time::timeout(look, driver.grown()).await {
            return Ok(is_open);
        }
        site.is_ours_still().await?;
    }
}

fn show(driver: &Driver, progress: &watch::Sender<Progress>, state: ProjectionState) {
    let shown = Progress {
        state,
        cursors: driver.cursors(),
        counts: driver.build().counts,
        missed: driver.missed(),
        definition: driver.build().definition.clone(),
    };
    show_if_other(shown, progress);
}

/// How far a build has come that another hub makes; false if nothing has changed.
fn show_build(build: &Build, progress: &watch::Sender<Progress>, state: ProjectionState) -> bool {
    let shown = Progress {
        state,
        cursors: build.cursors.iter().map(|cursor| (cursor.lane, cursor.next)).collect(),
        counts: build.counts,
        missed: build.cursors.iter().map(|cursor| cursor.missed).sum(),
        definition: build.definition.clone(),
    };
    show_if_other(shown, progress)
}

fn show_if_other(shown: Progress, progress: &watch::Sender<Progress>) -> bool {
    progress.send_if_modified(|progress| {
        let is_other = *progress != shown;
        *progress = shown;
        is_other
    })
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
            claim: self.tenure.claim(),
            definition: definition.fingerprint(),
            views: definition.views.clone(),
            state,
            from_keys: state == BuildState::Building && definition.is_by_key(),
            cursors: Vec::new(),
        }
    }

    pub(crate) async fn obtain(&self, wanted: Requested) -> Result<Build, ProjectionError> {
        Ok(self.database.obtain(wanted).await?)
    }

    /// Whether an error says that another hub keeps the views by now.
    pub(super) fn is_anothers(&self, error: &ProjectionError) -> bool {
        let is_fenced = matches!(error, ProjectionError::Database(DatabaseError::Fenced));
        is_fenced && self.database.is_shared()
    }

    /// Refused if another hub has taken over.
    async fn is_ours_still(&self) -> Result<(), ProjectionError> {
        let name = self.definition.name.as_str();
        match self.tenure.is_still_held(&*self.database, name).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(DatabaseError::Fenced.into()),
            // Whoever cannot be asked cannot have told anybody else.
            Err(error) if error.is_transient() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// One that has nothing to drive only waits, and hears it if another hub takes over.
    async fn until_lost(&self) -> Result<(), ProjectionError> {
        if !self.database.is_shared() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(Duration::from_millis(LOOK_MS_MAX)).await;
            self.is_ours_still().await?;
        }
    }

    /// Takes the projection if it is to be had; otherwise tells how far another hub is.
    async fn take_or_look(&self) -> Result<Option<Option<Build>>, ProjectionError> {
        let name = self.definition.name.as_str();
        if self.tenure.take(&*self.database, name, Right::Free).await? {
            return Ok(None);
        }
        Ok(Some(self.database.find(name.to_owned(), BuildState::Live).await?))
    }

    /// Whether building anew was broken off.
    pub(crate) async fn is_half_built(&self) -> Result<bool, ProjectionError> {
        let name = self.definition.name.to_string();
        let building = self.database.find(name, BuildState::Building).await?;
        let fingerprint = self.definition.fingerprint();
        Ok(building.is_some_and(|build| build.definition == fingerprint))
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
        if build.definition != fingerprint && !self.definition.is_delegated() {
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
        let live = self.database.find(name, BuildState::Live).await?;
        let cursors = live.map(|live| live.cursors);
        let cursors = cursors.unwrap_or_default().into_iter();
        Ok(cursors.map(|cursor| (cursor.lane, cursor.next)).collect())
    }

    /// What a builder may append. Code decides by what it has seen, in an order that partitions do
    /// not have: it is silent, and never passes the live build. Parking goes by the event alone.
    pub(crate) async fn voice_of_builder(&self) -> Result<Voice, ProjectionError> {
        Ok(match self.definition.kind {
            Kind::Transactional { .. } | Kind::Delegated { .. } => Voice::Silent,
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
