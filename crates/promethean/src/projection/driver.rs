//! Drives one build of a projection: read, digest, append, commit, and again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use promethean_event::{FailureVerdict, Key, Offset, Topic};

use super::caution::Caution;
use super::changelog::Fold;
use super::database::DatabaseError;
use super::definition::{Definition, Kind};
use super::digest::{Digested, is_for_another};
use super::effects::{Effects, Voice};
use super::error::ProjectionError;
use super::feed::{BatchLimit, Fed, Feed, is_missed};
use super::limits::{RETRY_MS, RETRY_MS_MAX};
use super::progress::Hold;
use super::stamp::{Order, Write};
use super::supervise::describe;
use super::tenure::Tenure;
use super::transaction::Digester;
use super::view_store::{
    Batch, Build, BuildClaim, BuildCursor, Counts, CursorMove, Phase, Table, ViewStore,
};
use crate::bus::Bus;
use crate::options::UnknownTopics;
use crate::store::{Gap, KeyQuery, Lane, ReadError, Stored, TopicId};

/// Keys that are read at once when views are built from them.
const KEYS_AT_ONCE: usize = 2_000;
/// Events of a key that are looked through for one that is not another group's.
const HISTORY_MAX: usize = 1_000;

/// What a step has come to.
#[derive(Debug)]
pub(crate) enum Step {
    /// Something was committed.
    Moved,
    /// There is nothing more for now.
    CaughtUp,
    /// The next event is to be tried again after a time.
    Again(Duration, String),
}

/// One build on its way.
#[derive(Debug)]
pub(crate) struct Driver {
    bus: Bus,
    database: Arc<dyn ViewStore>,
    pub(super) definition: Arc<Definition>,
    tenure: Arc<Tenure>,
    build: Build,
    tables: Arc<Vec<Table>>,
    topics: Arc<BTreeMap<TopicId, Topic>>,
    cursors: HashMap<Lane, BuildCursor>,
    feed: Feed,
    ends: Option<HashMap<Lane, Offset>>,
    /// Read, and to be tried again.
    pub(super) rest: VecDeque<Fed>,
    effects: Effects,
    attempts: u32,
    hold: Hold,
    reached: u64,
    graves_cleared: u64,
    watched: Option<Watched>,
    pub(super) caution: Caution,
    /// A step is under way, or was broken off: nobody has heard how it ended.
    is_torn: bool,
}

/// A document whose last write is to be known, also if that is a deletion.
#[derive(Debug)]
pub(crate) struct Watched {
    /// The view, by its place in the definition.
    pub(crate) view: usize,
    pub(crate) key: String,
    pub(crate) last: Option<Write>,
}

impl Watched {
    fn see(&mut self, writes: &[BTreeMap<String, Write>], order: Order) {
        let Some(write) = writes.get(self.view).and_then(|writes| writes.get(&self.key)) else {
            return;
        };
        let stands = match &self.last {
            None => Some(write.clone()),
            Some(last) => order.after(write.clone(), last.stamp()),
        };
        self.last = stands.or(self.last.take());
    }
}

/// What a driver needs to know.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) bus: Bus,
    pub(crate) database: Arc<dyn ViewStore>,
    pub(crate) definition: Arc<Definition>,
    /// By which claim it is this bus that keeps the views.
    pub(crate) tenure: Arc<Tenure>,
    /// What files beside are named after.
    pub(crate) scratch: Arc<Path>,
}

impl Driver {
    pub(crate) fn new(site: &Site, build: Build, voice: Voice) -> Self {
        let Site { bus, database, definition, tenure, .. } = site.clone();
        let tables = definition
            .views
            .iter()
            .map(|view| Table { view: view.name.clone(), name: build.table(&view.name) });
        let tables = Arc::new(tables.collect());
        let topics = build.cursors.iter().map(|cursor| (cursor.lane.topic, cursor.topic.clone()));
        let topics = Arc::new(topics.collect());
        let feed = Feed::new(Arc::clone(bus.store()), &build.cursors);
        let offsets = build.cursors.iter().map(|cursor| (cursor.lane, cursor.next));
        let hold = bus.inner.holds.hold(offsets.collect());
        let effects = Effects::new(bus.clone(), definition.name.clone(), voice);
        let cursors = build.cursors.iter().map(|cursor| (cursor.lane, cursor.clone())).collect();
        Self {
            bus,
            database,
            definition,
            tenure,
            build,
            tables,
            topics,
            cursors,
            feed,
            ends: None,
            rest: VecDeque::new(),
            effects,
            attempts: 0,
            hold,
            reached: 0,
            graves_cleared: 0,
            watched: None,
            caution: Caution::default(),
            is_torn: false,
        }
    }

    /// Keeps an eye on one document.
    pub(crate) fn watch(&mut self, watched: Watched) {
        self.watched = Some(watched);
    }

    /// What was last written to the document that is watched.
    pub(crate) fn last_write(&mut self) -> Option<Write> {
        self.watched.take()?.last
    }

    pub(crate) const fn build(&self) -> &Build {
        &self.build
    }

    pub(crate) fn cursors(&self) -> HashMap<Lane, Offset> {
        self.cursors.iter().map(|(&lane, cursor)| (lane, cursor.next)).collect()
    }

    pub(crate) fn missed(&self) -> u64 {
        self.cursors.values().map(|cursor| cursor.missed).sum()
    }

    pub(crate) const fn attempts(&self) -> u32 {
        self.attempts
    }

    pub(crate) const fn is_silent(&self) -> bool {
        self.effects.is_silent()
    }

    /// Goes no further than this.
    pub(crate) fn stop_at(&mut self, ends: HashMap<Lane, Offset>) {
        self.feed.stop_at(&ends);
        self.ends = Some(ends);
    }

    /// Waits until there may be more. False if there never will.
    pub(crate) async fn grown(&mut self) -> bool {
        self.feed.grown().await
    }

    /// One batch. After an error, what was not committed is read again.
    pub(crate) async fn step(&mut self) -> Result<Step, ProjectionError> {
        if self.is_torn {
            self.reload().await?;
            if self.is_torn {
                self.attempts += 1;
                let error = "the database of views cannot be asked how far it is".to_owned();
                return Ok(Step::Again(backoff(self.attempts), error));
            }
        }
        self.is_torn = true;
        let claim = self.tenure.claim();
        let result = match self.build.phase.clone() {
            Phase::Keys(after) => self.keys(after).await,
            Phase::Events => self.events().await,
        };
        self.is_torn = false;
        self.settled(result, claim).await
    }

    /// What a step has come to, with what is to be done about it.
    async fn settled(
        &mut self,
        result: Result<Step, ProjectionError>,
        claim: u64,
    ) -> Result<Step, ProjectionError> {
        match result {
            Ok(Step::Again(delay, error)) => {
                self.attempts += 1;
                Ok(Step::Again(delay.max(backoff(self.attempts)), error))
            }
            Ok(step) => {
                self.attempts = 0;
                Ok(step)
            }
            Err(error) if error.is_transient() => {
                self.attempts += 1;
                self.reload().await?;
                Ok(Step::Again(backoff(self.attempts), describe(&error)))
            }
            // This bus itself has claimed it anew meanwhile, for its other build: nothing was
            // written, and nothing is lost.
            Err(ProjectionError::Database(DatabaseError::Fenced))
                if self.tenure.is_held() && self.tenure.claim() != claim =>
            {
                self.read_again().await?;
                Ok(Step::Moved)
            }
            Err(error) => Err(self.explained(error)),
        }
    }

    /// A topic that was removed has nothing more to read, and one that was made anew is another one.
    pub(crate) fn topics_are_the_same(&self) -> Result<(), ProjectionError> {
        let topics = self.bus.topics();
        let gone = self.cursors.values().find(|cursor| topics.by_id(cursor.lane.topic).is_none());
        gone.map_or(Ok(()), |cursor| Err(ProjectionError::TopicReplaced(cursor.topic.clone())))
    }

    /// A start beyond the end is a log that is not the one the views were made from.
    fn explained(&self, error: ProjectionError) -> ProjectionError {
        if let (ProjectionError::Read(ReadError::UnknownLane), Err(replaced)) =
            (&error, self.topics_are_the_same())
        {
            return replaced;
        }
        match (&error, self.definition.topics.first()) {
            (ProjectionError::Read(ReadError::BeyondEnd { .. }), Some(topic)) => {
                ProjectionError::Ahead(topic.clone())
            }
            _ => error,
        }
    }

    /// Goes back to what is committed: whatever was on its way, the database says how it went.
    async fn reload(&mut self) -> Result<(), ProjectionError> {
        // Claimed anew first: a commit that nobody has heard of is through by then, or never will
        // be. So it is known by its cursors, and not done a second time.
        match self.tenure.renew(&*self.database, self.definition.name.as_str()).await {
            Ok(()) => self.read_again().await,
            Err(error) if error.is_transient() => {
                self.is_torn = true;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn read_again(&mut self) -> Result<(), ProjectionError> {
        let name = self.definition.name.to_string();
        let found = match self.database.find(name, self.build.state).await {
            Ok(found) => found,
            Err(error) if error.is_transient() => {
                self.is_torn = true;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.is_torn = false;
        let Some(build) = found.filter(|build| build.number == self.build.number) else {
            return Err(DatabaseError::Fenced.into());
        };
        self.cursors = build.cursors.iter().map(|cursor| (cursor.lane, cursor.clone())).collect();
        self.build = build;
        self.rewind();
        Ok(())
    }

    /// Reads again from where the last commit has left off.
    pub(super) fn rewind(&mut self) {
        let mut cursors: Vec<BuildCursor> = self.cursors.values().cloned().collect();
        cursors.sort_by_key(|cursor| cursor.lane);
        self.feed = Feed::new(Arc::clone(self.bus.store()), &cursors);
        if let Some(ends) = &self.ends {
            self.feed.stop_at(ends);
        }
        self.rest.clear();
    }

    /// Takes what it takes next by itself.
    pub(super) fn forget_plan(&mut self) {
        self.build.plan.clear();
    }

    async fn events(&mut self) -> Result<Step, ProjectionError> {
        let batch: Vec<Fed> = if !self.build.plan.is_empty() {
            self.feed.planned(&self.build.plan).await?
        } else if self.rest.is_empty() {
            let BatchLimit { events, bytes } = self.definition.batch;
            self.feed.batch(BatchLimit { events: self.caution.at_most(events), bytes }).await?
        } else {
            std::mem::take(&mut self.rest).into()
        };
        if batch.is_empty() && !self.build.plan.is_empty() {
            // Done already, or gone.
            self.forget_plan();
            return Ok(Step::Moved);
        }
        if batch.is_empty() {
            self.clear_graves().await?;
            return Ok(Step::CaughtUp);
        }
        if let Kind::Delegated { carry } = &self.definition.kind {
            let carry = Arc::clone(carry);
            return self.delegate(&carry, batch.into()).await;
        }
        if let Kind::Changelog { .. } = &self.definition.kind {
            return self.fold(batch).await;
        }
        let mut digested = self.digest(batch).await?;
        let retry = digested.retry.take();
        let rest = std::mem::take(&mut digested.rest);
        self.commit(digested, None).await?;
        self.rest = rest;
        Ok(match retry {
            None => Step::Moved,
            Some(failure) => {
                let delay = match failure.verdict() {
                    FailureVerdict::RetryAfter(delay) => delay,
                    _ => Duration::ZERO,
                };
                Step::Again(delay, failure.into_error())
            }
        })
    }

    /// Makes of a batch what the projection makes of it, on a thread for that.
    pub(super) async fn digest(&self, batch: Vec<Fed>) -> Result<Digested, ProjectionError> {
        let (definition, database) = (Arc::clone(&self.definition), Arc::clone(&self.database));
        let (tables, topics) = (Arc::clone(&self.tables), self.bus.topics());
        let makes_topics = matches!(self.bus.inner.options.unknown_topics, UnknownTopics::Make(_));
        let work = move || match &definition.kind {
            Kind::Changelog { mapping, unkeyed } => {
                let (order, group) = (definition.order(), &definition.name);
                let fold = Fold { mapping: &**mapping, unkeyed: *unkeyed, order, group };
                Ok(fold.digest(batch))
            }
            Kind::Transactional { apply } => {
                let rows = database.reader()?;
                let digester = Digester {
                    definition: &definition,
                    tables: &tables,
                    rows: &*rows,
                    topics: &topics,
                    makes_topics,
                };
                digester.digest(apply, batch)
            }
            Kind::Delegated { .. } => {
                let mut digested = Digested::default();
                batch.iter().for_each(|fed| digested.pass(fed));
                Ok(digested)
            }
        };
        let digested = tokio::task::spawn_blocking(work).await;
        Ok(digested.map_err(|_| ProjectionError::BrokenOff)??)
    }

    /// Appends what goes with a batch, then commits it with its cursors.
    pub(super) async fn commit(
        &mut self,
        digested: Digested,
        phase: Option<Phase>,
    ) -> Result<(), ProjectionError> {
        let Digested { writes, emitted, given_up, mut counts, next, gaps, order, reached, .. } =
            digested;
        counts.dead = given_up.len() as u64;
        let voiced = self.effects.voiced(emitted, given_up);
        let synced = !voiced.is_empty();
        if synced {
            self.keep_plan(order).await?;
            self.effects.append(&voiced).await?;
        }
        if let Some(watched) = &mut self.watched {
            watched.see(&writes, self.definition.order());
        }
        let moves = self.moves(&next, &gaps);
        let batch = Batch {
            writes,
            cursors: moves.clone(),
            counts,
            phase: phase.clone(),
            synced,
            ..self.empty_batch()
        };
        let stale = self.database.apply(batch).await?;
        counts.stale += stale;
        self.reached = self.reached.max(reached);
        self.moved(&moves, counts, phase);
        Ok(())
    }

    /// The build that this drives, by the claim of now.
    fn claimed(&self) -> BuildClaim {
        BuildClaim {
            projection: self.definition.name.to_string(),
            claim: self.tenure.claim(),
            build: self.build.number,
            state: self.build.state,
        }
    }

    /// A batch that changes nothing.
    pub(super) fn empty_batch(&self) -> Batch {
        Batch {
            of: self.claimed(),
            tables: Arc::clone(&self.tables),
            topics: Arc::clone(&self.topics),
            order: self.definition.order(),
            grave_ms: self.definition.grave_ms,
            writes: Vec::new(),
            cursors: Vec::new(),
            counts: Counts::default(),
            phase: None,
            graves_until: None,
            synced: false,
        }
    }

    pub(super) fn moves(
        &self,
        next: &HashMap<Lane, Offset>,
        gaps: &[(Lane, Gap)],
    ) -> Vec<CursorMove> {
        let by_key = self.definition.is_by_key();
        let mut moves = Vec::new();
        for (&lane, &to) in next {
            let Some(cursor) = self.cursors.get(&lane) else { continue };
            let of_lane = gaps.iter().filter(|(of, _)| *of == lane).map(|(_, gap)| gap);
            let missed = of_lane
                .filter(|gap| is_missed(gap, by_key, cursor.begun))
                .map(|gap| gap.to.get() - gap.from.get())
                .sum();
            moves.push(CursorMove { lane, from: cursor.next, to, missed });
        }
        moves
    }

    /// What is appended for an event may depend on what came before it, also from other
    /// partitions. So their order is kept first: if this batch is done again, it is the same one.
    async fn keep_plan(&self, order: Vec<(Lane, Offset)>) -> Result<(), ProjectionError> {
        if self.cursors.len() < 2 || !matches!(self.definition.kind, Kind::Transactional { .. }) {
            return Ok(());
        }
        Ok(self.database.keep_plan(self.claimed(), order).await?)
    }

    pub(super) fn moved(&mut self, moves: &[CursorMove], counts: Counts, phase: Option<Phase>) {
        for moved in moves {
            if let Some(cursor) = self.cursors.get_mut(&moved.lane) {
                cursor.next = moved.to;
                cursor.missed += moved.missed;
            }
            self.hold.advance(moved.lane, moved.to);
        }
        self.build.plan.clear();
        let all = &mut self.build.counts;
        all.events += counts.events;
        all.stale += counts.stale;
        all.unkeyed += counts.unkeyed;
        all.dead += counts.dead;
        if let Some(phase) = phase {
            self.build.phase = phase;
        }
    }

    /// Forgets deletions that are long past. Only at the end of all partitions: what comes next
    /// was then appended later than everything that has been seen.
    async fn clear_graves(&mut self) -> Result<(), ProjectionError> {
        let keep_ms = self.definition.grave_ms;
        let until = self.reached.saturating_sub(keep_ms);
        let is_due = until > self.graves_cleared.saturating_add(keep_ms / 16);
        if !self.definition.order().has_graves() || !is_due {
            return Ok(());
        }
        let batch = Batch { graves_until: Some(until), ..self.empty_batch() };
        self.database.apply(batch).await?;
        self.graves_cleared = until;
        Ok(())
    }

    /// Some keys with their newest events. The cursors stand where the partitions ended before
    /// the first key was read, so that nothing that came since is missed.
    async fn keys(&mut self, after: Option<String>) -> Result<Step, ProjectionError> {
        let topic = self
            .definition
            .topics
            .first()
            .and_then(|topic| self.bus.topics().get(topic).map(|entry| entry.id));
        let topic = topic.ok_or(ReadError::UnknownLane)?;
        let after = after.and_then(|key| Key::new(key).ok());
        let max = self.caution.at_most(KEYS_AT_ONCE);
        let query = KeyQuery { topic, prefix: String::new(), after, max };
        let page = self.bus.store().keys(query).await?;
        let taken = page.events.len();
        let last = page.events.last().and_then(|stored| stored.event.key.clone());
        let mut batch = Vec::with_capacity(page.events.len());
        for stored in page.events {
            let lane = Lane { topic, partition: stored.event.partition };
            let stored = match is_for_another(&stored, &self.definition.name) {
                true => self.newest_of_ours(lane, &stored).await?,
                false => Some(stored),
            };
            batch.extend(stored.map(|stored| Fed::Event(lane, Box::new(stored))));
        }
        let mut digested = self.digest(batch).await?;
        digested.next.clear();
        // The live build has parked these, or will.
        digested.given_up.clear();
        let phase = match last {
            Some(key) if page.more => Phase::Keys(Some(key.as_str().to_owned())),
            _ => Phase::Events,
        };
        if digested.writes.is_empty() {
            digested.writes = vec![BTreeMap::new()];
        }
        match self.commit(digested, Some(phase.clone())).await {
            Err(ProjectionError::Database(DatabaseError::Rejected(_))) => {
                if self.caution.halve(taken) {
                    return Ok(Step::Moved);
                }
                // Parked by the live build, too.
                let writes = vec![BTreeMap::new()];
                self.commit(Digested { writes, ..Digested::default() }, Some(phase)).await?;
            }
            committed => committed?,
        }
        self.caution.relax(KEYS_AT_ONCE);
        Ok(Step::Moved)
    }

    /// The newest event of a key that was not published for another group only.
    async fn newest_of_ours(
        &self,
        lane: Lane,
        newest: &Stored,
    ) -> Result<Option<Stored>, ProjectionError> {
        let Some(key) = newest.event.key.clone() else {
            return Ok(None);
        };
        let history = self.bus.store().history(lane.topic, key, HISTORY_MAX).await?;
        Ok(history.into_iter().find(|stored| !is_for_another(stored, &self.definition.name)))
    }
}

pub(crate) fn backoff(attempts: u32) -> Duration {
    let doublings = attempts.saturating_sub(1).min(16);
    Duration::from_millis(RETRY_MS.saturating_mul(1 << doublings).min(RETRY_MS_MAX))
}
