//! The views of a bus, and the projections that keep them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use promethean_event::Offset;
use tokio::sync::{mpsc, oneshot, watch};

use super::changelog::Changelog;
use super::database::{Faults, SqliteViews};
use super::definition::Definition;
use super::delegated::DelegatedProjection;
use super::document::Document;
use super::driver::Site;
use super::error::{ProjectionError, ViewError};
use super::limits::WAIT_LOOK_MS;
use super::position::Position;
use super::progress::{Progress, ProjectionState};
use super::rebuild::Rebuilding;
use super::supervise::{Command, Supervisor};
use super::tenure::Tenure;
use super::transaction::TransactionalProjection;
use super::view::View;
use super::view_store::{BuildState, Counts, Right, Rows, StoredRow, ViewStore};
use crate::bus::Bus;
use crate::store::{Lane, ReadError};

/// The views of a bus, in one SQLite file or in MongoDB, where any tool may read them meanwhile. A
/// cheap handle: clones share it; projections end with the last one.
#[derive(Clone)]
pub struct Views {
    inner: Arc<ViewsInner>,
}

struct ViewsInner {
    bus: Bus,
    database: Arc<dyn ViewStore>,
    scratch: Arc<Path>,
    projections: Mutex<BTreeMap<String, Projection>>,
}

/// A projection that was started. A cheap handle.
#[derive(Clone)]
pub struct Projection {
    pub(crate) site: Site,
    pub(crate) progress: watch::Receiver<Progress>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) rebuilding: Arc<Mutex<Option<watch::Receiver<Rebuilding>>>>,
}

/// A projection and how it stands.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProjectionStatus {
    /// Its name.
    pub name: String,
    /// Its views.
    pub views: Vec<String>,
    /// How it stands.
    pub progress: Progress,
    /// Events that it has not read.
    pub lag: u64,
    /// How far its views are built anew, if they are.
    pub rebuilding: Option<Rebuilding>,
}

impl Views {
    /// Opens the views of a bus, making the file if it is not there.
    pub async fn open(bus: &Bus, path: impl AsRef<Path>) -> Result<Self, ViewError> {
        Self::open_with(bus, path.as_ref(), Faults::default()).await
    }

    pub(crate) async fn open_with(
        bus: &Bus,
        path: &Path,
        faults: Faults,
    ) -> Result<Self, ViewError> {
        let scratch = path.to_owned();
        let path = path.to_owned();
        let opening = tokio::task::spawn_blocking(move || SqliteViews::open_with(&path, faults));
        let database = opening.await.map_err(|_| ProjectionError::BrokenOff)??;
        Ok(Self::over(bus, Arc::new(database), scratch))
    }

    /// The views of a bus in a store of views. Verifying them, and asking what they were, needs
    /// room on this machine: files whose names begin with `scratch`, for as long as it takes.
    pub fn over(bus: &Bus, store: Arc<dyn ViewStore>, scratch: PathBuf) -> Self {
        let (projections, scratch) = (Mutex::default(), scratch.into());
        let inner = ViewsInner { bus: bus.clone(), database: store, scratch, projections };
        Self { inner: Arc::new(inner) }
    }

    /// Starts a changelog projection. It goes on where it was.
    pub async fn changelog(&self, changelog: Changelog) -> Result<Projection, ViewError> {
        // The schemas have to be known before the first event is brought to a version.
        let registry = &self.inner.bus.inner.groups.site().schemas;
        registry.catalog().await.map_err(ViewError::from)?;
        self.start(changelog.finish(registry)?).await
    }

    /// Starts a projection in Rust. It goes on where it was.
    pub async fn transactional(
        &self,
        projection: TransactionalProjection,
    ) -> Result<Projection, ViewError> {
        self.start(projection.finish()?).await
    }

    /// Starts a projection that writes by itself. It goes on where it was.
    pub async fn delegated(
        &self,
        projection: DelegatedProjection,
    ) -> Result<Projection, ViewError> {
        self.start(projection.finish()?).await
    }

    async fn start(&self, definition: Definition) -> Result<Projection, ViewError> {
        let name = definition.name.to_string();
        let site = Site {
            bus: self.inner.bus.clone(),
            database: Arc::clone(&self.inner.database),
            definition: Arc::new(definition),
            tenure: Arc::new(Tenure::new(self.inner.bus.clone())),
            scratch: Arc::clone(&self.inner.scratch),
        };
        let (projection, supervisor, commands) = Projection::new(site);
        {
            let mut projections = self.projections();
            projections.retain(|_, projection| !projection.is_over());
            if projections.contains_key(&name) {
                return Err(ViewError::Running(name));
            }
            for view in &projection.site.definition.views {
                let owner = projections.values().find(|other| other.has_view(&view.name));
                if let Some(owner) = owner {
                    let owner = owner.name().to_owned();
                    return Err(ViewError::Taken { view: view.name.clone(), owner });
                }
            }
            projections.insert(name, projection.clone());
        }
        // The tables are there when this returns, whatever becomes of the projection; unless
        // another hub keeps them, which has made them.
        if let Err(error) = projection.site.arrange().await {
            self.projections().remove(projection.name());
            return Err(error.into());
        }
        self.inner.bus.inner.runtime.spawn(supervisor.run(commands));
        Ok(projection)
    }

    /// Those that run.
    pub fn running(&self) -> Vec<Projection> {
        self.projections().values().filter(|one| !one.is_over()).cloned().collect()
    }

    fn projections(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Projection>> {
        self.inner.projections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The projection that keeps a view.
    pub fn keeper(&self, view: &str) -> Result<Projection, ViewError> {
        let projections = self.projections();
        let keeper = projections.values().find(|projection| projection.has_view(view)).cloned();
        keeper.ok_or_else(|| ViewError::UnknownView(super::view::shortened(view)))
    }

    /// All projections that were started, by name.
    pub fn keepers(&self) -> Vec<Projection> {
        self.projections().values().cloned().collect()
    }

    /// The document of a key.
    pub async fn get(&self, view: &str, key: &str) -> Result<Option<Document>, ViewError> {
        self.keeper(view)?.get(view, key).await
    }

    /// All projections that were started, by name.
    pub async fn list(&self) -> Result<Vec<ProjectionStatus>, ViewError> {
        let projections: Vec<Projection> = self.projections().values().cloned().collect();
        let mut list = Vec::with_capacity(projections.len());
        for projection in projections {
            list.push(projection.status().await?);
        }
        Ok(list)
    }

    /// Removes the views of a projection that does not run, and where it was.
    pub async fn forget(&self, projection: &str) -> Result<(), ViewError> {
        {
            let mut projections = self.projections();
            projections.retain(|_, projection| !projection.is_over());
            if projections.contains_key(projection) {
                return Err(ViewError::Running(projection.to_owned()));
            }
        }
        Ok(self.inner.database.forget(projection.to_owned()).await?)
    }

    /// Stops all projections. What they have committed stays.
    pub async fn stop(&self) {
        let projections = std::mem::take(&mut *self.projections());
        for projection in projections.into_values() {
            projection.stop().await;
        }
    }
}

impl Site {
    /// Makes tables and indexes, if they are this hub's to make.
    async fn arrange(&self) -> Result<(), ProjectionError> {
        let name = self.definition.name.as_str();
        if self.tenure.take(&*self.database, name, Right::Free).await? {
            let obtained = self.obtain(self.requested(BuildState::Live)).await;
            match obtained {
                // Another one was faster just now.
                Err(error) if self.is_anothers(&error) => self.tenure.lose(),
                other => drop(other?),
            }
        }
        Ok(())
    }
}

impl Projection {
    fn new(site: Site) -> (Self, Supervisor, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(4);
        let (sender, progress) = watch::channel(Progress {
            state: ProjectionState::Waiting,
            cursors: HashMap::new(),
            counts: Counts::default(),
            missed: 0,
            definition: String::new(),
        });
        let rebuilding = Arc::default();
        let supervisor = Supervisor {
            site: site.clone(),
            progress: Arc::new(sender),
            itself: commands.downgrade(),
            rebuilding: Arc::clone(&rebuilding),
        };
        (Self { site, progress, commands, rebuilding }, supervisor, receiver)
    }

    /// Its name, also that of the group of its dead letters.
    pub fn name(&self) -> &str {
        self.site.definition.name.as_str()
    }

    fn has_view(&self, view: &str) -> bool {
        self.site.definition.view_at(view).is_some()
    }

    /// The declarations of its views.
    pub fn views(&self) -> &[View] {
        &self.site.definition.views
    }

    /// What its documents follow: part of every validator.
    pub fn definition(&self) -> String {
        self.progress.borrow().definition.clone()
    }

    /// Begins again after a failure, once its reason is gone. One that goes on is left alone; one
    /// that another hub keeps, well or not, is kept here from then on.
    pub async fn resume(&self) -> Result<(), ViewError> {
        self.take().await?;
        let told = self.commands.send(Command::Again).await;
        told.map_err(|_| ViewError::Stopped(self.name().to_owned()))
    }

    /// How fresh a document is that was read after a look at the progress: the last event of its
    /// partition that is surely in it, or did not concern it.
    pub fn freshness(&self, before: &Progress, document: &Document) -> Position {
        let position = &document.position;
        let topic = self.site.bus.topics().get(&position.topic).map(|entry| entry.id);
        let lane = topic.map(|topic| Lane { topic, partition: position.partition });
        let next = lane.and_then(|lane| before.cursors.get(&lane));
        let last = next.and_then(|next| next.get().checked_sub(1)).map(Offset::new);
        let offset = last.map_or(position.offset, |last| last.max(position.offset));
        Position { offset, ..position.clone() }
    }

    /// The last events that it has read, one for each partition, in order.
    pub fn places(&self) -> Vec<Position> {
        let cursors = self.progress.borrow().cursors.clone();
        let last = |(lane, next): (Lane, Offset)| {
            let offset = Offset::new(next.get().checked_sub(1)?);
            Some(self.position(lane, offset))
        };
        let mut places: Vec<Position> = cursors.into_iter().filter_map(last).collect();
        places.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        places
    }

    /// The declaration of one of its views.
    pub fn view(&self, view: &str) -> Option<&View> {
        let definition = &self.site.definition;
        definition.view_at(view).and_then(|place| definition.views.get(place))
    }

    fn is_over(&self) -> bool {
        self.progress.borrow().state == ProjectionState::Stopped
    }

    fn is_at_work(&self) -> bool {
        let state = &self.progress.borrow().state;
        !matches!(state, ProjectionState::Stopped | ProjectionState::Failed { .. })
    }

    /// How it stands now.
    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// How it stands, to be watched.
    pub fn watch(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// How it stands, with what it has not read.
    pub async fn status(&self) -> Result<ProjectionStatus, ViewError> {
        let progress = self.progress();
        let mut lag = 0;
        for (&lane, next) in &progress.cursors {
            match self.site.bus.store().bounds(lane).await {
                Ok(bounds) => lag += bounds.next.get().saturating_sub(next.get()),
                // Of a topic that was removed there is nothing left to read; the projection says so.
                Err(ReadError::UnknownLane) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let views = self.site.definition.views.iter().map(|view| view.name.clone()).collect();
        let rebuilding = self.rebuilding().map(|progress| progress.borrow().clone());
        Ok(ProjectionStatus { name: self.name().to_owned(), views, progress, lag, rebuilding })
    }

    pub(crate) fn rebuilding(&self) -> Option<watch::Receiver<Rebuilding>> {
        self.rebuilding.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The document of a key, in one of its views.
    pub async fn get(&self, view: &str, key: &str) -> Result<Option<Document>, ViewError> {
        let table = self.table(view)?;
        // One that works no more may have left the file to another process.
        let recent = self.is_at_work().then(|| self.site.database.recent(&table, key)).flatten();
        let row = match recent {
            Some(row) => Some(row),
            None => self.site.database.get(table, key.to_owned()).await?,
        };
        Ok(row.map(|row| {
            let (lane, offset) = (row.lane, row.offset);
            row.document(self.position(lane, offset))
        }))
    }

    /// Documents by key, after a key.
    pub async fn scan(
        &self,
        view: &str,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<Document>, ViewError> {
        let (table, after) = (self.table(view)?, after.map(str::to_owned));
        Ok(self.documents(self.site.database.rows(table, after, max.max(1)).await?))
    }

    pub(crate) fn documents(&self, rows: Rows) -> Vec<Document> {
        let document = |row: StoredRow| {
            let (lane, offset) = (row.lane, row.offset);
            row.document(self.position(lane, offset))
        };
        rows.into_iter().map(document).collect()
    }

    pub(crate) fn table(&self, view: &str) -> Result<String, ViewError> {
        // Only a declared name, which is safe in SQL, becomes a table.
        let view = self.view(view).map(|view| view.name.clone());
        view.ok_or_else(|| ViewError::UnknownView(self.name().to_owned()))
    }

    pub(crate) fn position(&self, lane: Lane, offset: Offset) -> Position {
        let topics = self.site.bus.topics();
        let known = topics.by_id(lane.topic).map(|entry| entry.definition.topic.clone());
        let topic = known.or_else(|| self.site.definition.topics.first().cloned());
        let Some(topic) = topic else {
            unreachable!("a checked definition has at least one topic");
        };
        Position { topic, partition: lane.partition, offset }
    }

    /// Waits until an event is in the views, for reading one's own writes; no longer than a time.
    /// An event of a topic that they are not made of never will be.
    pub async fn wait_for(
        &self,
        position: &Position,
        at_most: std::time::Duration,
    ) -> Result<(), ViewError> {
        let topics = self.site.bus.topics();
        let entry = topics.get(&position.topic);
        let unknown = || ProjectionError::NoTopic(position.topic.clone());
        let entry = entry.ok_or_else(unknown)?;
        let lane = Lane { topic: entry.id, partition: position.partition };
        let is_read = self.site.definition.topics.contains(&position.topic);
        if !is_read || !entry.lanes().any(|of_topic| of_topic == lane) {
            return Err(ViewError::NotRead(position.clone()));
        }
        let is_in = |progress: &Progress| {
            progress.cursors.get(&lane).is_some_and(|&next| next > position.offset)
        };
        let behind = || ViewError::Behind(position.clone());
        let waiting = self.until(is_in);
        tokio::time::timeout(at_most, waiting).await.map_err(|_| behind())?
    }

    /// Waits until everything that is in the topics now is in the views.
    pub async fn caught_up(&self) -> Result<(), ViewError> {
        self.site.topics_are_there().await?;
        let ends = self.site.ends().await?;
        self.until(|progress| {
            let is_in = |(lane, end): (&Lane, &Offset)| {
                progress.cursors.get(lane).is_some_and(|next| next >= end)
            };
            ends.iter().all(is_in)
        })
        .await
    }

    async fn until(&self, is_so: impl Fn(&Progress) -> bool) -> Result<(), ViewError> {
        let mut progress = self.progress.clone();
        let is_over = |progress: &Progress| {
            matches!(progress.state, ProjectionState::Failed { .. } | ProjectionState::Stopped)
        };
        let waiting = progress.wait_for(|progress| is_so(progress) || is_over(progress));
        let ended = tokio::select! {
            ended = waiting => ended,
            never = self.keep_looking() => match never {},
        };
        match ended {
            Ok(progress) if is_so(&progress) => Ok(()),
            _ => Err(ViewError::Stopped(self.name().to_owned())),
        }
    }

    /// Where another hub keeps the views, has it looked often how far they are, for as long as
    /// somebody waits to hear it.
    async fn keep_looking(&self) -> std::convert::Infallible {
        if !self.site.database.is_shared() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(WAIT_LOOK_MS)).await;
            self.site.tenure.look.notify_one();
        }
    }

    /// Stops it. What it has committed stays, and it goes on there when it is started again. What it has
    /// not read may be cleaned away from then on; with views in MongoDB, after seven days.
    pub async fn stop(&self) {
        let (answer, answered) = oneshot::channel();
        if self.commands.send(Command::Stop(answer)).await.is_ok() {
            drop(answered.await);
        }
    }
}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Views").field("database", &self.inner.database).finish_non_exhaustive()
    }
}

impl fmt::Debug for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Projection").field("name", &self.name()).finish_non_exhaustive()
    }
}
