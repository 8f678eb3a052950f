use std::fmt;
use std::sync::Arc;

use promethean_event::{EventId, Timestamp, Topic};

use super::alignment::align;
use super::error::MigrateError;
use super::mark::{self, Mark, Role, Stage};
use super::places::{Places, topics};
use super::proof::{Pair, Proof};
use super::tally::{self, Tally};
use super::{entries, events, groups};
use crate::store::{Restore, Store};

/// A move from one store to another. The target is for this alone; the source may be in use until
/// [`begin`](Self::begin).
#[derive(Clone)]
pub struct Migration {
    from: Arc<dyn Store>,
    to: Arc<dyn Store>,
    /// What the two are called, each in the mark of the other.
    names: (String, String),
}

impl fmt::Debug for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migration").field("names", &self.names).finish_non_exhaustive()
    }
}

/// What a move would do.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MigrationPlan {
    /// Topics of the source.
    pub topics: Vec<TopicPlan>,
    /// Groups of the source.
    pub groups: u64,
    /// Entries of the source, in each space.
    pub entries: Vec<(String, u64)>,
    /// How far an earlier run of the same move has come; `None` if there was none.
    pub begun: Option<Stage>,
}

/// A topic that is moved.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TopicPlan {
    /// Its name.
    pub topic: Topic,
    /// Its partitions.
    pub partitions: u32,
    /// Offsets from where its partitions start to where they end: so many events at most.
    pub offsets: u64,
    /// Of these, how many are past already.
    pub there: u64,
}

/// How far a move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// So many events more were taken over.
    Events(u64),
    /// Everything was taken over, and is read and compared.
    Verifying,
}

/// What was moved.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MigrationReport {
    /// Topics.
    pub topics: u64,
    /// Events.
    pub events: u64,
    /// Groups.
    pub groups: u64,
    /// Entries: schemas, jobs, settings and the like.
    pub entries: u64,
    /// Over all events that were compared, with places and times.
    pub hash: u128,
    /// Events that the target has and the source has let go of by its rules since they were copied.
    /// They go by the same rules.
    pub let_go: u64,
}

impl Migration {
    /// A move between two stores; the names are what each says of the other.
    pub fn new(from: (Arc<dyn Store>, &str), to: (Arc<dyn Store>, &str)) -> Self {
        let names = (from.1.to_owned(), to.1.to_owned());
        Self { from: from.0, to: to.0, names }
    }

    fn restore(store: &dyn Store) -> Result<&dyn Restore, MigrateError> {
        store.restoring().ok_or(MigrateError::CannotRestore)
    }

    /// What would be moved. Changes nothing; refused if it could not be.
    pub async fn plan(&self) -> Result<MigrationPlan, MigrateError> {
        let begun = self.begun().await?.map(|(mark, _)| mark.stage);
        let places = Places::between(&*self.from, &*self.to);
        let mut planned = Vec::new();
        for entry in topics(&self.from.topics()) {
            let (mut offsets, mut there) = (0, 0);
            for lane in entry.lanes() {
                let bounds = self.from.bounds(lane).await?;
                let span = bounds.next.get() - bounds.start.get();
                offsets += span;
                if let Some(target) = places.lane(lane) {
                    let next = self.to.bounds(target).await?.next.get();
                    there += next.saturating_sub(bounds.start.get()).min(span);
                }
            }
            let topic = entry.definition.topic.clone();
            let partitions = entry.definition.partitions.get();
            planned.push(TopicPlan { topic, partitions, offsets, there });
        }
        let all = entries::all(&*self.from, Self::restore(&*self.from)?).await?;
        let mut counted: Vec<(String, u64)> = Vec::new();
        for (space, _) in all.keys() {
            match counted.last_mut().filter(|(known, _)| known == space) {
                Some((_, count)) => *count += 1,
                None => counted.push(((*space).to_owned(), 1)),
            }
        }
        let groups = self.from.groups().await?.len() as u64;
        Ok(MigrationPlan { topics: planned, groups, entries: counted, begun })
    }

    /// The mark of the target, if this move was begun. Refused if it must not be.
    async fn begun(&self) -> Result<Option<(Mark, u64)>, MigrateError> {
        let source = mark::of_role(&*self.from, Role::Source).await?;
        let unfinished = mark::of_role(&*self.from, Role::Target).await?;
        if let Some((mark, _)) = unfinished.filter(|(mark, _)| mark.is_closed()) {
            return Err(MigrateError::Another { role: "source", other: mark.other });
        }
        let target = mark::of_role(&*self.to, Role::Target).await?;
        if let Some((mark, _)) = mark::of_role(&*self.to, Role::Source).await? {
            return Err(MigrateError::Another { role: "target", other: mark.other });
        }
        match (source, target) {
            (Some((source, _)), Some(target)) if source.id == target.0.id => Ok(Some(target)),
            // Copied while the source was in use, or the source was opened again meanwhile.
            (None, Some(target))
                if target.0.stage == Stage::Moving && target.0.other == self.names.0 =>
            {
                Ok(Some(target))
            }
            (_, Some((target, _))) => {
                Err(MigrateError::Another { role: "target", other: target.other })
            }
            // Begun, and cut off before the target was marked.
            (Some((source, _)), None)
                if source.stage == Stage::Moving && source.other == self.names.1 =>
            {
                self.empty().await.map(|()| None)
            }
            (Some((source, _)), None) => {
                Err(MigrateError::Another { role: "source", other: source.other })
            }
            (None, None) => self.empty().await.map(|()| None),
        }
    }

    async fn empty(&self) -> Result<(), MigrateError> {
        if let Some(entry) = topics(&self.to.topics()).next() {
            return Err(MigrateError::NotEmpty(format!("topic {}", entry.definition.topic)));
        }
        if let Some(group) = self.to.groups().await?.first() {
            return Err(MigrateError::NotEmpty(format!("group {group}")));
        }
        let spaces = Self::restore(&*self.to)?.spaces().await?;
        match spaces.iter().find(|space| *space != mark::SPACE) {
            Some(space) => Err(MigrateError::NotEmpty(format!("entries of `{space}`"))),
            None => Ok(()),
        }
    }

    /// Marks the target, so that nobody uses it before the move has ended. The source stays as it is.
    pub async fn begin_copy(&self) -> Result<(), MigrateError> {
        if self.begun().await?.is_some() {
            return Ok(());
        }
        let (other, stage) = (self.names.0.clone(), Stage::Moving);
        let mark = Mark { id: EventId::generate(), role: Role::Target, stage, other };
        mark::leave(&*self.to, &mark, 0).await
    }

    /// Copies what the target does not have of what was appended by a time, while the source is in use,
    /// and compares it. Gives how many events it was. May be run again, and again: it goes on.
    ///
    /// Behind `settled` nothing may come to a source any more with an earlier append time. A store on
    /// one machine has one clock; hubs have several.
    pub async fn catch_up(
        &self,
        settled: Timestamp,
        proof: &mut Proof,
        mut told: impl FnMut(Progress) + Send,
    ) -> Result<u64, MigrateError> {
        let mut copied = 0;
        self.copy(settled, proof, |count| {
            copied += count;
            told(Progress::Events(count));
        })
        .await?;
        told(Progress::Verifying);
        self.compare(proof).await?;
        Ok(copied)
    }

    /// Marks both stores, so that others leave them alone. From here on until [`Self::end`].
    pub async fn begin(&self) -> Result<(), MigrateError> {
        let target = self.begun().await?;
        let known = mark::of_role(&*self.from, Role::Source).await?;
        let of_target = target.as_ref().map(|(mark, _)| mark.id);
        let id = of_target.or(known.as_ref().map(|(mark, _)| mark.id));
        let id = id.unwrap_or_else(EventId::generate);
        let (from, to) = self.names.clone();
        let stage = Stage::Moving;
        let source = Mark { id, role: Role::Source, stage, other: to };
        if known.as_ref().is_none_or(|(mark, _)| mark.id != id) {
            let version = known.map_or(0, |(_, version)| version);
            mark::leave(&*self.from, &source, version).await?;
        }
        if target.is_none() {
            mark::leave(&*self.to, &Mark { role: Role::Target, other: from, ..source }, 0).await?;
        }
        Ok(())
    }

    /// Takes everything over that the target does not have, and compares both, but for what is known
    /// to be the same. May be run again.
    pub async fn run(
        &self,
        proof: &mut Proof,
        mut told: impl FnMut(Progress) + Send,
    ) -> Result<MigrationReport, MigrateError> {
        let (from, to) = (&*self.from, &*self.to);
        let (restore, source) = (Self::restore(to)?, Self::restore(from)?);
        let everything = Timestamp::from_millis(u64::MAX);
        self.copy(everything, proof, |count| told(Progress::Events(count))).await?;
        let places = Places::between(from, to);
        events::place((from, to), restore, &places).await?;
        groups::take_over(from, to, &places).await?;
        let wanted = entries::placed(entries::all(from, source).await?, &places)?;
        entries::take_over(to, restore, &wanted).await?;
        told(Progress::Verifying);
        self.verify(proof).await
    }

    /// Topics and events.
    async fn copy(
        &self,
        settled: Timestamp,
        proof: &mut Proof,
        told: impl FnMut(u64) + Send,
    ) -> Result<(), MigrateError> {
        let (from, to) = (&*self.from, &*self.to);
        align(from, to, proof).await?;
        let places = Places::between(from, to);
        events::take_over((from, to), Self::restore(to)?, (&places, settled), told).await
    }

    /// Compares the events that both have.
    async fn compare(&self, proof: &mut Proof) -> Result<(), MigrateError> {
        let (from, to) = (&*self.from, &*self.to);
        let places = Places::between(from, to);
        let mut differences = Vec::new();
        for entry in topics(&from.topics()) {
            for lane in entry.lanes() {
                let Some(target) = places.lane(lane) else { continue };
                let end = from.bounds(lane).await?.next.min(to.bounds(target).await?.next);
                let pair = Pair { topic: &entry.definition.topic, from: lane, to: target };
                differences.extend(proof.go_on((from, to), pair, end).await?);
            }
        }
        if differences.is_empty() { Ok(()) } else { Err(MigrateError::Differs(differences)) }
    }

    /// Compares all that is in both stores, but for what is known to be the same.
    pub async fn verify(&self, proof: &mut Proof) -> Result<MigrationReport, MigrateError> {
        let (from, to) = (&*self.from, &*self.to);
        let places = Places::between(from, to);
        let here = entries::all(from, Self::restore(from)?).await?;
        let mut source = Tally { topics: tally::of_topics(from).await?, ..Tally::default() };
        source.entries = entries::placed(here, &places)?;
        for name in from.groups().await? {
            if let Some(record) = from.group(name.clone()).await? {
                source.groups.insert(name, groups::placed(record, &places));
            }
        }
        let mut target = Tally { topics: tally::of_topics(to).await?, ..Tally::default() };
        target.entries = entries::all(to, Self::restore(to)?).await?;
        for name in to.groups().await? {
            if let Some(record) = to.group(name.clone()).await? {
                target.groups.insert(name, groups::ordered(record));
            }
        }
        let differences = source.differences(&target);
        if !differences.is_empty() {
            return Err(MigrateError::Differs(differences));
        }
        self.compare(proof).await?;
        Ok(MigrationReport {
            topics: target.topics.len() as u64,
            events: proof.events(),
            groups: target.groups.len() as u64,
            entries: target.entries.len() as u64,
            hash: proof.hash(),
            let_go: proof.let_go(),
        })
    }

    /// Marks the source as moved, and opens the target. In this order: never are both open.
    pub async fn end(&self) -> Result<(), MigrateError> {
        for (store, role) in [(&self.from, Role::Source), (&self.to, Role::Target)] {
            if let Some((mark, version)) = mark::of_role(&**store, role).await? {
                mark::leave(&**store, &Mark { stage: Stage::Moved, ..mark }, version).await?;
            }
        }
        Ok(())
    }
}
