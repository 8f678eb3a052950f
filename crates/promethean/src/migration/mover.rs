use std::fmt;
use std::sync::Arc;

use promethean_event::{EventId, Topic};

use super::error::MigrateError;
use super::mark::{self, Mark, Role, Stage};
use super::places::{Places, topics};
use super::tally::{self, Tally};
use super::{entries, events, groups};
use crate::store::{Restore, Store};

/// A move from one store to another. For one who has both to himself.
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
    /// Over all events, with places and times: that of the source and of the target.
    pub hash: u128,
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

    /// Marks both stores, so that others leave them alone. From here on until [`Self::end`].
    pub async fn begin(&self) -> Result<(), MigrateError> {
        if self.begun().await?.is_some() {
            return Ok(());
        }
        let known = mark::of_role(&*self.from, Role::Source).await?;
        let id = known.as_ref().map_or_else(EventId::generate, |(mark, _)| mark.id);
        let version = known.map_or(0, |(_, version)| version);
        let (from, to) = self.names.clone();
        let stage = Stage::Moving;
        let source = Mark { id, role: Role::Source, stage, other: to };
        mark::leave(&*self.from, &source, version).await?;
        mark::leave(&*self.to, &Mark { role: Role::Target, other: from, ..source }, 0).await
    }

    /// Takes everything over that the target does not have, and compares both. May be run again.
    pub async fn run(
        &self,
        mut told: impl FnMut(Progress) + Send,
    ) -> Result<MigrationReport, MigrateError> {
        let (from, to) = (&*self.from, &*self.to);
        let (restore, source) = (Self::restore(to)?, Self::restore(from)?);
        for entry in topics(&from.topics()) {
            let topic = entry.definition.topic.clone();
            let defined = to.define(entry.definition.clone()).await;
            defined.map_err(|reason| MigrateError::Topic { topic, reason })?;
        }
        let places = Places::between(from, to);
        events::take_over((from, to), restore, &places, |count| told(Progress::Events(count)))
            .await?;
        groups::take_over(from, to, &places).await?;
        let wanted = entries::placed(entries::all(from, source).await?, &places)?;
        entries::take_over(to, restore, &wanted).await?;
        told(Progress::Verifying);
        self.verify().await
    }

    /// Reads both stores, and compares all that is in them.
    pub async fn verify(&self) -> Result<MigrationReport, MigrateError> {
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
        Ok(MigrationReport {
            topics: target.topics.len() as u64,
            events: target.events(),
            groups: target.groups.len() as u64,
            entries: target.entries.len() as u64,
            hash: target.hash(),
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
