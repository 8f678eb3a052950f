//! The state of all groups as a whole, written now and then, so that opening need not go through
//! all deltas there ever were.
//!
//! A checkpoint is written whole, not only what changed: the one before it can then be trimmed, and
//! nothing of a removed group can be left behind. It becomes due when the deltas behind the last
//! one have grown as large as that one was, so that checkpoints never cost more than the deltas.

use promethean_event::{NewEvent, Offset};
use promethean_log::{Append, AppendError};

use super::journal::Desk;
use super::kept::Kept;
use super::record::{self, CheckpointRecord, Encoded, RecordError, group_key};
use crate::store::TopicTable;
use crate::store::limits::{CHECKPOINT_PART_BYTES, CHECKPOINT_PART_RECORDS};

/// When checkpoints are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checkpoints {
    /// So many deltas are due for one,
    pub(super) records_max: u64,
    /// or so many bytes of them.
    pub(super) bytes_max: u64,
    /// Where the last try stood.
    pub(super) tried: Progress,
    /// What the last one covers.
    pub(super) covered: u64,
    /// How large it was.
    pub(super) last_bytes: u64,
}

/// How far the deltas have come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// The next place in `$deltas`.
    pub(super) records: u64,
    /// Bytes since the store was opened.
    pub(super) bytes: u64,
}

impl Progress {
    fn of(desk: &Desk) -> Self {
        let kept = desk.kept();
        Self { records: kept.applied, bytes: kept.applied_bytes }
    }
}

/// Why there is no checkpoint. Nothing is lost: the deltas are still there.
#[derive(Debug, thiserror::Error)]
enum CheckpointError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl Checkpoints {
    pub(super) fn are_due(&self, desk: &Desk) -> bool {
        let now = Progress::of(desk);
        let records = now.records.saturating_sub(self.tried.records);
        let bytes = now.bytes.saturating_sub(self.tried.bytes);
        let much = records >= self.records_max || bytes >= self.bytes_max;
        much && bytes >= self.last_bytes
    }

    pub(super) fn would_cover_anything(&self, desk: &Desk) -> bool {
        desk.kept().applied > self.covered
    }

    /// Writes a checkpoint, and lets go of what it covers.
    pub(super) fn write(&mut self, desk: &Desk) {
        match try_write(desk) {
            Ok((covers, bytes)) => {
                self.covered = covers;
                self.last_bytes = bytes;
            }
            Err(error) => tracing::warn!(%error, "no checkpoint of the groups; tried again later"),
        }
        self.tried = Progress::of(desk);
    }
}

/// Gives what it covers and its size.
fn try_write(desk: &Desk) -> Result<(u64, u64), CheckpointError> {
    // Only this thread changes what is kept: it stays as it is while the lock is let go.
    let table = desk.topics();
    let covers = desk.kept().applied;
    let first = desk.log.lane(desk.system.groups.1).map_or(Offset::ZERO, |lane| lane.next);
    let mut writer = PartWriter { desk, next: first.get(), events: Vec::new(), bytes: 0, total: 0 };
    writer.add_groups(&desk.kept(), &table)?;
    writer.add(&CheckpointRecord::Mark { from: first.get(), covers }, None)?;
    writer.flush()?;
    let (groups, deltas) = (desk.system.groups.1, desk.system.deltas.1);
    desk.log.trim(vec![(groups, first), (deltas, Offset::new(covers))]).wait()?;
    Ok((covers, writer.total))
}

/// Writes a checkpoint in parts of bounded size.
struct PartWriter<'a> {
    desk: &'a Desk,
    next: u64,
    events: Vec<NewEvent>,
    bytes: usize,
    total: u64,
}

impl PartWriter<'_> {
    fn add_groups(&mut self, kept: &Kept, table: &TopicTable) -> Result<(), CheckpointError> {
        for (name, group) in &kept.groups {
            let content = CheckpointRecord::Group {
                group: name.clone(),
                incarnation: group.incarnation,
                settings: group.settings.clone(),
            };
            self.add(&content, Some(group_key(name, None)?))?;
            for (lane, state) in group.live_lanes(table) {
                let content = CheckpointRecord::Lane {
                    group: name.clone(),
                    lane: record::lane_number(lane),
                    state: Encoded::state(state),
                };
                self.add(&content, Some(group_key(name, Some(lane))?))?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        content: &CheckpointRecord,
        key: Option<promethean_event::Key>,
    ) -> Result<(), CheckpointError> {
        let at = (self.desk.clock.now(), Offset::new(self.next));
        let event = record::event(&self.desk.system.groups.0, key, content, at)?;
        self.next += 1;
        self.bytes += event.payload.as_bytes().len();
        self.total += event.payload.as_bytes().len() as u64;
        self.events.push(event);
        if self.events.len() >= CHECKPOINT_PART_RECORDS || self.bytes >= CHECKPOINT_PART_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CheckpointError> {
        self.bytes = 0;
        let events = std::mem::take(&mut self.events);
        if !events.is_empty() {
            self.desk.log.append(&Append { events, ..Append::default() }).wait()?;
        }
        Ok(())
    }
}
