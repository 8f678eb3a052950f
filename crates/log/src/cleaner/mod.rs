//! Retention and key compaction, as one job: sealed segments are written again without what is
//! dead, and swapped in whole.
//!
//! 1. Retention moves the start of a lane. The new start is a record in the log, durable before
//!    any byte goes, so that a reader of what is gone is always told where history starts.
//! 2. Runs of sealed segments that have enough dead events, or that have become small, are copied
//!    without the dead ones into one segment of a higher generation: written beside, synced,
//!    indexed, then renamed. From that moment it replaces the run; if the process dies before the
//!    old files are removed, opening the log removes them.
//! 3. A segment with damage, or that the disk does not give, is left alone: it may be wanted for repair.
//!    The others are cleaned.
//! 4. The log always begins with a segment of seq 0, if only with an empty one: otherwise a file that
//!    is missing there could not be told from one that was cleaned away.
//!
//! An event of a compacted topic is dead if a newer one of its key exists and it is old enough. A
//! tombstone is dead if it is the newest, old enough, and nothing older of its key is left that it
//! would have to keep hidden. What a hold keeps is never dead.

mod plan;

mod rewrite;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use promethean_event::Offset;

use crate::engine::{Engine, Segment, Spare};
use crate::error::{AppendError, ReadError};
use crate::log::Log;
use crate::options::Drive;
use crate::recovery::is_full;
use crate::segment::FileKind;
use crate::ticket::Ticket;
use crate::topic::Lane;

use plan::Plan;
use rewrite::Stopped;

/// Offsets that must stay, whatever the topics' rules say: from each of these on.
#[derive(Debug, Clone, Default)]
pub struct Holds(HashMap<Lane, Offset>);

impl Holds {
    /// Keeps a lane from an offset on. Of several holds on a lane the lowest counts.
    pub fn keep(&mut self, lane: Lane, from: Offset) {
        let held = self.0.entry(lane).or_insert(from);
        *held = from.min(*held);
    }

    fn of(&self, lane: Lane) -> u64 {
        self.0.get(&lane).map_or(u64::MAX, |offset| offset.get())
    }
}

/// Why cleaning stopped. What was done is done, the rest is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CleanError {
    /// A segment could not be read.
    #[error("cleaning stopped at a segment that cannot be read")]
    Read(#[from] ReadError),
    /// The new start of a lane could not be written.
    #[error("cleaning stopped because the log takes no writes")]
    Append(#[from] AppendError),
    /// A new segment could not be written.
    #[error("cleaning stopped because storage failed")]
    Io(#[from] io::Error),
}

/// Cleans the log once. Gives how many segments were written again or removed. Damage keeps nothing
/// from being cleaned but the segment in which it is: the first that was met is told at the end.
pub(crate) fn clean(log: &Log, engine: &Arc<Engine>, holds: &Holds) -> Result<usize, CleanError> {
    let _one_at_a_time = engine.cleaning();
    let now = engine.site.options.clock.now().millis();
    let mut round = Round { engine, holds, now, met: None };
    let starts = plan::starts(&mut round)?;
    if !starts.is_empty() {
        answered(log, engine, log.trim(starts))?;
    }
    let mut cleaned = 0;
    let mut from = 0;
    // Oldest first: whether a tombstone may go depends on what is left before it.
    while let Some(run) = Plan::next(&mut round, from)? {
        // What supersedes an event must be as durable as the event was, before that one goes.
        answered(log, engine, log.sync())?;
        let segments = run.segments.clone();
        let replacement = match rewrite::rewrite(engine, &run) {
            Err(Stopped::Source(name, error)) => {
                engine.note_damaged(name);
                round.met.get_or_insert(error);
                // Once more from where it began: without that one.
                continue;
            }
            Err(Stopped::Here(error)) => return Err(error),
            Ok(replacement) => replacement,
        };
        from = run.end_seq();
        cleaned += segments.len();
        swap(engine, segments, replacement)?;
    }
    round.met.map_or(Ok(cleaned), |error| Err(error.into()))
}

/// What holds for one round of cleaning.
struct Round<'a> {
    engine: &'a Engine,
    holds: &'a Holds,
    now: u64,
    /// The first that could not be read. What it keeps from being cleaned is left.
    met: Option<ReadError>,
}

impl Round<'_> {
    /// What was read; `None`, and a note, if it could not be. Where there was no room for what had to be
    /// written for it, the round is over.
    fn or_left<T>(&mut self, read: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(ReadError::Io(error)) if is_full(&error) => Err(error.into()),
            Err(error @ (ReadError::Damaged { .. } | ReadError::Io(_))) => {
                self.met.get_or_insert(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Waits for an answer of the writer, which may have to be given its turn first.
fn answered<T>(
    log: &Log,
    engine: &Engine,
    ticket: Ticket<Result<T, AppendError>>,
) -> Result<T, AppendError> {
    if engine.site.options.drive == Drive::Caller {
        log.commit_waiting();
    }
    ticket.wait()
}

/// Puts the new segment in the place of the old ones, and lets go of their files.
fn swap(
    engine: &Engine,
    old: Vec<Arc<Segment>>,
    new: Option<Arc<Segment>>,
) -> Result<(), CleanError> {
    let names: Vec<_> = old.iter().map(|segment| segment.name).collect();
    let replaced = new.is_some();
    // Without a replacement only the missing files say that the events are gone: they must not
    // come back after a crash once anybody has been told so.
    let mut spares = Vec::new();
    if !replaced {
        remove_left_behind(engine, &old)?;
        spares = let_go(engine, &old)?;
    }
    {
        let mut state = engine.write();
        let place = state.sealed.iter().position(|segment| names.contains(&segment.name));
        state.sealed.retain(|segment| !names.contains(&segment.name));
        if let (Some(place), Some(new)) = (place, new) {
            state.sealed.insert(place, new);
        }
    }
    if replaced {
        spares = let_go(engine, &old)?;
    }
    for (segment, spare) in old.into_iter().zip(spares) {
        let Some(name) = spare else { continue };
        let written_to = segment.end_position;
        let file = Arc::into_inner(segment).map(|segment| segment.file);
        // A reader may still have the file: only one that nobody holds is used again.
        match file.filter(|file| Arc::strong_count(file) == 1) {
            Some(file) => {
                let bytes = file.len()?;
                let (filled, room_taken) = (true, bytes <= written_to);
                engine.site.upkeep.put_spare(Spare { name, file, bytes, filled, room_taken });
            }
            None => engine.site.disk.remove(&name)?,
        }
    }
    Ok(())
}

/// Files that these segments had replaced and that an earlier failure has left behind: without
/// their successors they would count again.
fn remove_left_behind(engine: &Engine, old: &[Arc<Segment>]) -> Result<(), CleanError> {
    let (Some(first), Some(last)) = (old.first(), old.last()) else {
        return Ok(());
    };
    let disk = &engine.site.disk;
    for file in disk.list()? {
        let FileKind::Segment(name) = FileKind::of(&file) else { continue };
        let within = (first.name.base..last.next_seq).contains(&name.base);
        if within && old.iter().all(|segment| segment.name != name) {
            gone(disk.remove(&name.index_file()))?;
            gone(disk.remove(&file))?;
        }
    }
    Ok(disk.sync_dir()?)
}

/// Takes the names of segments away, oldest first, each one durably before the next: a crash must
/// not leave a hole, nor find the bytes of another segment under an old name. Gives the names
/// under which files are kept as spares.
fn let_go(engine: &Engine, old: &[Arc<Segment>]) -> Result<Vec<Option<String>>, CleanError> {
    let disk = &engine.site.disk;
    let mut spares = Vec::with_capacity(old.len());
    for segment in old {
        let name = segment.name;
        gone(disk.remove(&name.index_file()))?;
        let wanted = wants_spare(engine, &*segment.file, spares.iter().flatten().count())?;
        let spare = wanted.then(|| engine.site.upkeep.spare_name());
        match &spare {
            Some(spare) => gone(disk.rename(&name.segment_file(), spare))?,
            None => gone(disk.remove(&name.segment_file()))?,
        }
        disk.sync_dir()?;
        spares.push(spare);
    }
    Ok(spares)
}

/// A name that an earlier try has taken away already is no failure.
fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn wants_spare(
    engine: &Engine,
    file: &dyn crate::disk::DiskFile,
    planned: usize,
) -> io::Result<bool> {
    let options = &engine.site.options;
    Ok(engine.site.upkeep.spare_count() + planned < options.spare_segments
        && file.len()? >= options.segment_bytes_min)
}
