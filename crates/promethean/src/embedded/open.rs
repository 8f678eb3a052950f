use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread;

use promethean_event::{Offset, Topic};
use promethean_log::{
    self as log, Cleaning, Clock, Compaction, GapReason, Lane, Log, PageLimit, RecordRef,
    TopicDefinition,
};
use tokio::sync::Notify;

use super::EmbeddedStore;
use super::checkpoint::{Checkpoints, Progress};
use super::handed::{HandedEntries, HandedGroups, Sequence};
use super::journal::{Desk, Journal, Ledger, SystemTopics, Topics};
use super::keeper;
use super::kept::{EntryChange, GroupChange, Kept, KeptGroup};
use super::readers::Readers;
use super::record::{CheckpointRecord, DeltaRecord, EntryRecord, RecordError, lane_of};
use super::translate::entry;
use crate::migration::{Mark, MigrateError};
use crate::store::{SaveError, TopicTable};

/// How an embedded store is opened.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// The log under it.
    pub log: log::Options,
    /// A checkpoint follows so many saves. Default 4,096.
    pub checkpoint_records: u64,
    /// Or so many bytes of saves. Default 4 MiB. Never fewer than the last checkpoint had, so that
    /// checkpoints do not cost more than saves.
    pub checkpoint_bytes: u64,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            log: log::Options::default(),
            checkpoint_records: 4096,
            checkpoint_bytes: 4 * 1024 * 1024,
        }
    }
}

/// What of the options is not the log's.
#[derive(Debug)]
pub(super) struct Settings {
    clock: Arc<dyn Clock>,
    checkpoint_records: u64,
    checkpoint_bytes: u64,
}

impl EmbeddedOptions {
    pub(super) fn split(self) -> (log::Options, Settings) {
        let Self { log, checkpoint_records, checkpoint_bytes } = self;
        let clock = Arc::clone(&log.clock);
        (log, Settings { clock, checkpoint_records, checkpoint_bytes })
    }
}

/// What was found when a store was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenReport {
    /// What was found in the log.
    pub log: log::OpenReport,
    /// Groups that are there.
    pub groups: usize,
    /// Saves since the last checkpoint that were gone through.
    pub saves_replayed: u64,
}

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The log was not opened.
    #[error(transparent)]
    Log(#[from] log::OpenError),
    /// The topics of the system's could not be made.
    #[error("the store's own topics could not be made")]
    Define(#[from] log::AppendError),
    /// The state of groups could not be read.
    #[error("the state of groups cannot be read")]
    Read(#[from] log::ReadError),
    /// The state of groups is damaged.
    #[error("{topic} is damaged at offset {offset}: {reason}; restore the log from a copy")]
    Damaged {
        /// The topic of the system's.
        topic: Topic,
        /// The record.
        offset: Offset,
        /// What is wrong.
        reason: String,
    },
    /// The store is part of a move to another one, or was.
    #[error("{0}")]
    Moved(Mark),
    /// It is not known whether it is part of a move.
    #[error("whether the store was moved cannot be read")]
    Mark(#[source] Box<MigrateError>),
    /// The system gave no thread.
    #[error("a thread could not be started")]
    Thread(#[from] io::Error),
}

pub(super) fn open(
    log: Log,
    report: log::OpenReport,
    settings: Settings,
) -> Result<(EmbeddedStore, OpenReport), OpenError> {
    let system = define_topics(&log)?;
    let table: TopicTable = log.topics().into_iter().map(|(id, what)| entry(id, what)).collect();
    let mut kept = Kept::default();
    let checkpoint = load_checkpoint(&log, &system, &mut kept)?;
    let saves_replayed = replay(&log, &system, &mut kept, &table)?;
    load_entries(&log, &system, &mut kept)?;
    let next = |lane| log.lane(lane).map_or(0, |known| known.next.get());
    kept.applied = next(system.deltas.1);
    let groups = kept.groups.len();
    let ledger = Ledger {
        deltas: Sequence::new(system.deltas.1, next(system.deltas.1)),
        entries: Sequence::new(system.entries.1, next(system.entries.1)),
        handed_groups: HandedGroups::of(&kept),
        handed_entries: HandedEntries::of(&kept),
        waiting: VecDeque::new(),
        stop: None,
    };
    let version = u64::from(table.users().next().is_some());
    let desk = Arc::new(Desk {
        log: log.clone(),
        clock: settings.clock,
        system,
        ledger: Mutex::new(ledger),
        arrived: Condvar::new(),
        kept: RwLock::new(kept),
        table: RwLock::new(Topics { table: Arc::new(table), version }),
        topics_changed: Notify::new(),
    });
    let checkpoints = Checkpoints {
        records_max: settings.checkpoint_records.max(1),
        bytes_max: settings.checkpoint_bytes,
        tried: Progress { records: checkpoint.covers, bytes: 0 },
        covered: checkpoint.covers,
        last_bytes: checkpoint.bytes,
    };
    let keeper = Arc::clone(&desk);
    let named = thread::Builder::new().name("prom-store-keeper".to_owned());
    let keeper = named.spawn(move || keeper::run(&keeper, checkpoints))?;
    let journal = Arc::new(Journal::new(desk, keeper));
    let damage = Arc::default();
    EmbeddedStore::note(&damage, report.damage.clone());
    if let Some((file, position)) = &report.torn_tail {
        tracing::info!(file, position, "a write that a crash had cut off was taken away");
    }
    let store = EmbeddedStore { log, journal, readers: Arc::new(Readers::default()), damage };
    Ok((store, OpenReport { log: report, groups, saves_replayed }))
}

fn define_topics(log: &Log) -> Result<SystemTopics, OpenError> {
    let compaction = Cleaning { compaction: Some(Compaction::default()), ..Cleaning::default() };
    let define = |name: &str, cleaning| {
        let topic = Topic::system(name).unwrap_or_else(|_| unreachable!("a good name"));
        let definition = TopicDefinition::new(topic.clone()).with_cleaning(cleaning);
        let id = log.define(definition).wait()?;
        let partition = promethean_event::Partition::ZERO;
        Ok::<_, OpenError>((topic, Lane { topic: id, partition }))
    };
    Ok(SystemTopics {
        deltas: define("$deltas", Cleaning::default())?,
        groups: define("$groups", Cleaning::default())?,
        entries: define("$entries", compaction)?,
    })
}

/// The checkpoint that was found.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    covers: u64,
    bytes: u64,
}

fn load_checkpoint(log: &Log, system: &SystemTopics, kept: &mut Kept) -> Result<Found, OpenError> {
    let mut found = Found::default();
    let mut records: Vec<(u64, CheckpointRecord)> = Vec::new();
    let mut bytes = 0;
    read_all(log, &system.groups, Offset::ZERO, |record| {
        let content: CheckpointRecord = serde_json::from_slice(record.payload().as_bytes())?;
        bytes += record.bytes() as u64;
        let CheckpointRecord::Mark { from, covers } = content else {
            records.push((record.offset().get(), content));
            return Ok(());
        };
        // What is before it belongs to one that was never finished.
        records.retain(|(offset, _)| *offset >= from);
        found = Found { covers, bytes: std::mem::take(&mut bytes) };
        kept.groups.clear();
        records.drain(..).try_for_each(|(_, content)| take_up(kept, content))
    })?;
    kept.applied = found.covers;
    Ok(found)
}

fn take_up(kept: &mut Kept, content: CheckpointRecord) -> Result<(), BadRecord> {
    match content {
        CheckpointRecord::Group { group, incarnation, settings } => {
            let lanes = std::collections::BTreeMap::new();
            kept.groups.insert(group, KeptGroup { incarnation, settings, lanes });
        }
        CheckpointRecord::Lane { group, lane, state } => {
            let group = kept.groups.get_mut(&group).ok_or(BadRecord::NoGroup)?;
            group.lanes.insert(lane_of(lane), state.to_state()?);
        }
        CheckpointRecord::Mark { .. } => {}
    }
    Ok(())
}

fn replay(
    log: &Log,
    system: &SystemTopics,
    kept: &mut Kept,
    table: &TopicTable,
) -> Result<u64, OpenError> {
    let mut replayed = 0;
    let from = Offset::new(kept.applied);
    read_all(log, &system.deltas, from, |record| {
        let content: DeltaRecord = serde_json::from_slice(record.payload().as_bytes())?;
        let delta = |(lane, delta): &(u64, super::record::Encoded)| {
            Ok::<_, BadRecord>((lane_of(*lane), delta.to_delta()?))
        };
        let change = GroupChange {
            place: record.offset().get(),
            group: content.group,
            incarnation: content.incarnation,
            settings: content.settings,
            lanes: content.lanes.iter().map(delta).collect::<Result<_, _>>()?,
            removed: content.removed,
            bytes: record.bytes() as u64,
        };
        replayed += 1;
        Ok(kept.apply(&change, table)?)
    })?;
    Ok(replayed)
}

fn load_entries(log: &Log, system: &SystemTopics, kept: &mut Kept) -> Result<(), OpenError> {
    read_all(log, &system.entries, Offset::ZERO, |record| {
        let content: EntryRecord = serde_json::from_slice(record.payload().as_bytes())?;
        let EntryRecord { space, key, value, .. } = content;
        kept.apply_entry(EntryChange { place: record.offset().get(), space, key, value });
        Ok(())
    })
}

/// What is wrong with a record.
#[derive(Debug, thiserror::Error)]
enum BadRecord {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Delivery(#[from] promethean_delivery::DecodeError),
    #[error(transparent)]
    Save(#[from] SaveError),
    #[error("a lane of a group that is not there")]
    NoGroup,
}

/// Goes through all that is kept of a topic of the system's, from a place on.
fn read_all(
    log: &Log,
    (topic, lane): &(Topic, Lane),
    from: Offset,
    mut take: impl FnMut(RecordRef<'_>) -> Result<(), BadRecord>,
) -> Result<(), OpenError> {
    let damaged = |offset, reason: String| {
        let topic = topic.clone();
        OpenError::Damaged { topic, offset, reason }
    };
    let start = log.lane(*lane).map_or(Offset::ZERO, |known| known.start);
    let mut reader = log.read(*lane, from.max(start))?;
    loop {
        let mut bad = None;
        let visited = reader.visit(PageLimit::default(), |record| {
            if bad.is_none()
                && let Err(error) = take(record)
            {
                bad = Some((record.offset(), error));
            }
        })?;
        if let Some((offset, error)) = bad {
            return Err(damaged(offset, error.to_string()));
        }
        if let Some(gap) = visited.gaps.iter().find(|gap| gap.reason == GapReason::Corrupt) {
            return Err(damaged(gap.from, format!("nothing can be read up to {}", gap.to)));
        }
        if visited.events == 0 {
            return Ok(());
        }
    }
}
