use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use promethean_event::{EventId, Key, NewEvent, Offset, Payload, Timestamp};
use tokio::sync::watch;

use super::record::{JobRecord, JobState, Refused, ReplayCursor};
use super::spec::{CompileFilter, Compiled, ReplaySpec, SpecError};
use crate::bus::Bus;
use crate::error::PublishError;
use crate::store::{Entry, Lane, PageLimit, Put, Read, ReadError, SaveError, Stored, TopicId};

/// Where jobs are kept.
const SPACE: &str = "jobs";
/// Events that are read and published together.
const EVENTS_AT_ONCE: usize = 500;
/// Jobs that are kept; older ones that are over go.
const JOBS_MAX: usize = 1_000;

/// Why something about jobs did not happen.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// What was asked for makes no sense.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// No such job.
    #[error("there is no job {0}")]
    Unknown(EventId),
    /// The job is over.
    #[error("the job is {0} already")]
    Over(&'static str),
    /// Another hub has changed it meanwhile.
    #[error("another hub has the job")]
    Elsewhere,
    /// Its record cannot be written.
    #[error("the job's record cannot be written: {0}")]
    Malformed(String),
    /// A topic was removed, or is another one now.
    #[error("topic {0} is not the one that the job began with")]
    TopicReplaced(promethean_event::Topic),
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store could not keep something.
    #[error(transparent)]
    Save(#[from] SaveError),
    /// Something could not be published.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// The jobs of a bus. A cheap handle; jobs stop with the last one, and go on where they were when
/// they are resumed.
#[derive(Clone)]
pub struct Jobs {
    inner: Arc<Inner>,
}

struct Inner {
    bus: Bus,
    filters: CompileFilter,
    running: Mutex<HashMap<EventId, watch::Sender<Wanted>>>,
}

/// What is wanted of a running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Run,
    Pause,
    Cancel,
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
}

impl Jobs {
    /// The jobs of a bus. Filters are made by a function, since they are the edge's.
    pub fn new(bus: &Bus, filters: CompileFilter) -> Self {
        let inner = Inner { bus: bus.clone(), filters, running: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    pub(super) fn bus(&self) -> &Bus {
        &self.inner.bus
    }

    pub(super) fn compiled(&self, spec: ReplaySpec) -> Result<Compiled, SpecError> {
        spec.compile(self.inner.filters)
    }

    /// Goes on with what ran when the bus was closed.
    pub async fn resume_all(&self) -> Result<usize, JobError> {
        let jobs = self.list().await?;
        let open: Vec<JobRecord> =
            jobs.into_iter().filter(|job| job.state == JobState::Running).collect();
        let count = open.len();
        for job in open {
            self.run(job)?;
        }
        Ok(count)
    }

    /// Begins a replay.
    pub async fn replay(&self, spec: ReplaySpec) -> Result<JobRecord, JobError> {
        let cursors = self.cursors(&spec).await?;
        self.compiled(spec.clone())?;
        let now = self.inner.bus.inner.groups.site().clock.now().millis();
        let mut job = JobRecord {
            id: EventId::generate(),
            replay: spec,
            state: JobState::Running,
            error: None,
            started_at: now,
            updated_at: now,
            cursors,
            read: 0,
            published: 0,
            duplicates: 0,
            refused: 0,
            refusals: Vec::new(),
            taken_over: 0,
            version: 0,
        };
        self.keep(&mut job).await?;
        self.tidy().await?;
        self.run(job.clone())?;
        Ok(job)
    }

    /// Where a replay begins and ends in each partition.
    pub(super) async fn cursors(&self, spec: &ReplaySpec) -> Result<Vec<ReplayCursor>, JobError> {
        let bus = &self.inner.bus;
        let topics = bus.topics();
        let mut cursors = Vec::new();
        for entry in topics.users().filter(|entry| spec.from.matches(&entry.definition.topic)) {
            for lane in entry.lanes() {
                let bounds = bus.store().bounds(lane).await?;
                let at = async |time: Option<u64>, default: Offset| match time {
                    None => Ok::<_, ReadError>(default),
                    Some(ms) => bus.store().offset_at(lane, Timestamp::from_millis(ms)).await,
                };
                cursors.push(ReplayCursor {
                    topic: entry.definition.topic.clone(),
                    number: entry.id.get(),
                    partition: lane.partition,
                    next: at(spec.since, bounds.start).await?.max(bounds.start),
                    end: at(spec.until, bounds.next).await?.min(bounds.next),
                });
            }
        }
        if cursors.is_empty() {
            return Err(SpecError::NoSource(spec.from.clone()).into());
        }
        Ok(cursors)
    }

    /// All jobs, newest first.
    pub async fn list(&self) -> Result<Vec<JobRecord>, JobError> {
        let entries = self.inner.bus.store().entries(SPACE).await?;
        let job = |entry: &Entry| {
            let job: JobRecord = entry.value.decode().ok()?;
            Some(JobRecord { version: entry.version, ..job })
        };
        let mut jobs: Vec<JobRecord> = entries.iter().filter_map(job).collect();
        jobs.sort_by_key(|job| std::cmp::Reverse((job.started_at, job.id)));
        Ok(jobs)
    }

    /// One job.
    pub async fn get(&self, id: EventId) -> Result<JobRecord, JobError> {
        let found = self.list().await?.into_iter().find(|job| job.id == id);
        found.ok_or(JobError::Unknown(id))
    }

    /// Lets a job wait.
    pub async fn pause(&self, id: EventId) -> Result<JobRecord, JobError> {
        self.turn(id, Wanted::Pause, JobState::Paused).await
    }

    /// Gives a job up. What it has published stays.
    pub async fn cancel(&self, id: EventId) -> Result<JobRecord, JobError> {
        self.turn(id, Wanted::Cancel, JobState::Cancelled).await
    }

    /// Lets a job that waits or has failed go on.
    pub async fn resume(&self, id: EventId) -> Result<JobRecord, JobError> {
        let mut job = self.get(id).await?;
        over(&job.state)?;
        if self.sender(id).is_none() {
            (job.state, job.error) = (JobState::Running, None);
            self.keep(&mut job).await?;
            self.run(job.clone())?;
        }
        Ok(job)
    }

    /// Waits until a job does not run any more; for those who have the bus to themselves.
    pub async fn finished(&self, id: EventId) -> Result<JobRecord, JobError> {
        if let Some(sender) = self.sender(id) {
            sender.closed().await;
        }
        self.get(id).await
    }

    fn sender(&self, id: EventId) -> Option<watch::Sender<Wanted>> {
        let running = self.inner.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.get(&id).cloned()
    }

    async fn turn(
        &self,
        id: EventId,
        wanted: Wanted,
        state: JobState,
    ) -> Result<JobRecord, JobError> {
        if let Some(sender) = self.sender(id) {
            sender.send_replace(wanted);
            sender.closed().await;
        }
        loop {
            let mut job = self.get(id).await?;
            if job.state == state {
                return Ok(job);
            }
            over(&job.state)?;
            job.state = state.clone();
            match self.keep(&mut job).await {
                // The hub that does it was faster; it hears of this when it writes the next time.
                Err(JobError::Elsewhere) => {}
                kept => return kept.map(|()| job),
            }
        }
    }

    /// Keeps a job. Where hubs share the store, on condition that nobody else has changed it since.
    pub(super) async fn keep(&self, job: &mut JobRecord) -> Result<(), JobError> {
        let key = Key::new(job.id.to_string()).map_err(|_| JobError::Unknown(job.id))?;
        let value = Payload::of(job).map_err(|error| JobError::Malformed(error.to_string()))?;
        let is_shared = self.bus().store().claims().is_some();
        let expect = is_shared.then_some(job.version);
        let put = Put { space: SPACE, key, value: Some(value), expect };
        match self.bus().store().put(vec![put]).await {
            Err(SaveError::Changed { .. }) => return Err(JobError::Elsewhere),
            other => other?,
        }
        if is_shared {
            let kept = self.get(job.id).await?;
            job.version = kept.version;
            // Changed again already: by somebody who takes it over or gives it up.
            if kept != *job {
                return Err(JobError::Elsewhere);
            }
        }
        Ok(())
    }

    /// Old jobs that are over go.
    async fn tidy(&self) -> Result<(), JobError> {
        let over = self.list().await?.into_iter().skip(JOBS_MAX).filter(|job| !job.state.is_open());
        let puts: Vec<Put> = over
            .filter_map(|job| Key::new(job.id.to_string()).ok())
            .map(|key| Put { space: SPACE, key, value: None, expect: None })
            .collect();
        if !puts.is_empty() {
            self.bus().store().put(puts).await?;
        }
        Ok(())
    }

    pub(super) fn runs_here(&self, id: EventId) -> bool {
        self.sender(id).is_some()
    }

    pub(super) fn run(&self, job: JobRecord) -> Result<(), JobError> {
        let compiled = self.compiled(job.replay.clone())?;
        let (sender, wanted) = watch::channel(Wanted::Run);
        let id = job.id;
        self.inner.running.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let jobs = self.clone();
        self.bus().inner.runtime.spawn(async move {
            let mut job = job;
            match jobs.work(&mut job, &compiled, &wanted).await {
                Ok(()) => {}
                Err(JobError::Elsewhere) => {
                    tracing::info!(job = %job.id, "a replay is another hub's, or was given up there");
                }
                Err(error) => {
                    tracing::warn!(job = %job.id, %error, "a replay has stopped");
                    (job.state, job.error) = (JobState::Failed, Some(error.to_string()));
                    if let Err(error) = jobs.keep(&mut job).await {
                        tracing::warn!(job = %job.id, %error, "its state could not be kept");
                    }
                }
            }
            let mut running = jobs.inner.running.lock().unwrap_or_else(PoisonError::into_inner);
            running.remove(&id);
            drop(running);
            drop(wanted);
        });
        Ok(())
    }

    async fn work(
        &self,
        job: &mut JobRecord,
        compiled: &Compiled,
        wanted: &watch::Receiver<Wanted>,
    ) -> Result<(), JobError> {
        for place in 0..job.cursors.len() {
            loop {
                let turned = match *wanted.borrow() {
                    Wanted::Run => None,
                    Wanted::Pause => Some(JobState::Paused),
                    Wanted::Cancel => Some(JobState::Cancelled),
                };
                if let Some(state) = turned {
                    job.state = state;
                    return self.keep(job).await;
                }
                let Some(cursor) = job.cursors.get(place).cloned() else { break };
                if cursor.next >= cursor.end {
                    break;
                }
                let before = job.published;
                let next = self.piece(job, compiled, &cursor).await?;
                if let Some(cursor) = job.cursors.get_mut(place) {
                    cursor.next = next;
                }
                job.updated_at = self.bus().inner.groups.site().clock.now().millis();
                self.keep(job).await?;
                if let Some(rate) = compiled.spec.rate {
                    let published = job.published.saturating_sub(before) as f64;
                    let rest = Duration::from_secs_f64(published / f64::from(rate.max(1)));
                    let mut wanted = wanted.clone();
                    // Told to stop, it stops; nobody left to tell is no reason to.
                    let told = wanted.wait_for(|wanted| *wanted != Wanted::Run);
                    drop(tokio::time::timeout(rest, told).await);
                }
            }
        }
        job.state = JobState::Done;
        self.keep(job).await
    }

    /// Reads and publishes some events; answers where to go on.
    async fn piece(
        &self,
        job: &mut JobRecord,
        compiled: &Compiled,
        cursor: &ReplayCursor,
    ) -> Result<Offset, JobError> {
        let lane = Lane { topic: TopicId::new(cursor.number), partition: cursor.partition };
        let known = self.bus().topics().by_id(lane.topic).map(|e| e.definition.topic.clone());
        if known.as_ref() != Some(&cursor.topic) {
            return Err(JobError::TopicReplaced(cursor.topic.clone()));
        }
        let at_once = compiled
            .spec
            .rate
            .map_or(EVENTS_AT_ONCE, |rate| (rate as usize / 10).clamp(1, EVENTS_AT_ONCE));
        let limit = PageLimit { events: at_once, ..PageLimit::default() };
        let page = self.bus().store().read(Read::From { lane, from: cursor.next, limit }).await?;
        let mut copies = Vec::new();
        for stored in page.events.iter().filter(|stored| stored.event.offset < cursor.end) {
            job.read += 1;
            match compiled.copy(&stored.event) {
                Ok(Some(copy)) => copies.push((stored, copy)),
                Ok(None) => {}
                Err(why) => refuse(job, stored, why),
            }
        }
        self.publish(job, copies).await?;
        Ok(if page.next > cursor.next { page.next.min(cursor.end) } else { cursor.end })
    }

    /// All together; if some are refused, one by one.
    async fn publish(
        &self,
        job: &mut JobRecord,
        copies: Vec<(&Stored, NewEvent)>,
    ) -> Result<(), JobError> {
        if copies.is_empty() {
            return Ok(());
        }
        let batch = copies.iter().map(|(_, copy)| copy.clone()).collect();
        match self.bus().publish_marked(batch).await {
            Ok(published) => {
                count(job, published.iter().map(|published| published.duplicate));
                return Ok(());
            }
            Err(error) if is_of_an_event(&error) => {}
            Err(error) => return Err(error.into()),
        }
        for (stored, copy) in copies {
            match self.bus().publish_marked(vec![copy]).await {
                Ok(published) => count(job, published.iter().map(|one| one.duplicate)),
                Err(error) if is_of_an_event(&error) => refuse(job, stored, error.to_string()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Whether it is the event that is refused, not the store that fails.
fn is_of_an_event(error: &PublishError) -> bool {
    use crate::store::AppendError;
    match error {
        PublishError::Append(error) => {
            matches!(error, AppendError::IdConflict { .. } | AppendError::TooLarge { .. })
        }
        PublishError::Define { .. }
        | PublishError::Schemas(_)
        | PublishError::Snapshots(_)
        | PublishError::UnknownTopic(_) => false,
        _ => true,
    }
}

fn count(job: &mut JobRecord, duplicates: impl Iterator<Item = bool>) {
    for duplicate in duplicates {
        if duplicate {
            job.duplicates += 1;
        } else {
            job.published += 1;
        }
    }
}

fn refuse(job: &mut JobRecord, stored: &Stored, why: String) {
    job.refused += 1;
    Refused::note(&mut job.refusals, &stored.event, why);
}

fn over(state: &JobState) -> Result<(), JobError> {
    match state {
        JobState::Done => Err(JobError::Over("done")),
        JobState::Cancelled => Err(JobError::Over("cancelled")),
        JobState::Running | JobState::Paused | JobState::Failed => Ok(()),
    }
}
