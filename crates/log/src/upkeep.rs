//! The threads of a log: the writer's, one that keeps spare files ready, one that builds side
//! files. Each waits for a bell; nothing polls.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::begun::Begun;
use crate::disk::DiskFile;
use crate::engine::{Engine, Segment};
use crate::error::{AppendError, ReadError};
use crate::index::SegmentIndex;
use crate::queue::{Request, Turn};
use crate::roll::{self, Pace};
use crate::writer::Writer;

/// How far the upkeep stands back behind publishers and readers: side files can wait, but a spare
/// file that comes too late makes the next segment slow.
const SPARE_NICENESS: i32 = 5;
const INDEX_NICENESS: i32 = 10;

/// Threads that write and sync: see `flight.rs`.
const WRITING_THREADS: usize = 2;

/// The writer, for whoever has the turn; none when the log is closed.
pub(crate) type SharedWriter = Arc<Mutex<Option<Writer>>>;

/// Starts the threads.
pub(crate) fn spawn(
    engine: &Arc<Engine>,
    writer: &SharedWriter,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    for number in 0..WRITING_THREADS {
        let (engine, writer) = (Arc::clone(engine), Arc::clone(writer));
        let name = named("prom-log-writer")?;
        threads.push(name.spawn(move || write_all(&engine, &writer, number))?);
    }
    let spares = Arc::clone(engine);
    threads.push(named("prom-log-spare")?.spawn(move || keep_spares(&spares))?);
    let indexes = Arc::clone(engine);
    threads.push(named("prom-log-index")?.spawn(move || keep_indexes(&indexes))?);
    Ok(threads)
}

fn named(name: &str) -> io::Result<std::thread::Builder> {
    Ok(std::thread::Builder::new().name(name.to_owned()))
}

/// One of the threads that write: while one syncs a frame the other may write the next.
fn write_all(engine: &Engine, writer: &SharedWriter, number: usize) {
    let mut has_turn = false;
    loop {
        match engine.queue.wait(has_turn) {
            Turn::Write(requests) => {
                has_turn = true;
                if let Some((begun, file)) = begin(writer, requests, number) {
                    has_turn = !engine.queue.pass(begun.publishers);
                    let synced = begun.sync(engine, &*file);
                    if !has_turn {
                        engine.queue.synced();
                    }
                    begun.land(engine, synced);
                }
            }
            Turn::LeaveWord => {
                if let Some(writer) = lock(writer).as_mut() {
                    writer.rest();
                }
                engine.memory.clear();
                has_turn = true;
            }
            Turn::Stop => break,
        }
    }
}

/// Writes what waits by the thread of the one who waits for it, if nobody else is at it: to wake one
/// that writes, and to be woken by it, takes longer than to write. The turn is kept until the frame is
/// synced, so that nobody else syncs by the same open file.
pub(crate) fn write_here(engine: &Engine, writer: &SharedWriter, bytes_max: usize) {
    let Some(requests) = engine.queue.take_turn(bytes_max) else {
        return engine.queue.call_writer();
    };
    if let Some((begun, file)) = begin(writer, requests, 0) {
        begun.finish(engine, &*file);
    }
    // At once: no thread is awake that could do it when nothing has happened for a while. But one has
    // to see to it that what nobody waits for is synced.
    let mut behind = false;
    if let Some(writer) = lock(writer).as_mut() {
        writer.mark();
        behind = writer.is_behind();
    }
    engine.queue.give_turn(behind);
}

/// Writes a frame; gives what is left to do, and the open file by which a thread syncs.
fn begin(
    writer: &SharedWriter,
    requests: Vec<Request>,
    thread: usize,
) -> Option<(Begun, Arc<dyn DiskFile>)> {
    let mut writer = lock(writer);
    let Some(writer) = writer.as_mut() else {
        requests.into_iter().for_each(|request| request.refuse(&AppendError::Closed));
        return None;
    };
    let begun = writer.begin(requests)?;
    Some((begun, writer.file_of(thread)))
}

fn lock(writer: &SharedWriter) -> MutexGuard<'_, Option<Writer>> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep_spares(engine: &Engine) {
    stand_back(SPARE_NICENESS);
    let mut bell = engine.site.upkeep.bell();
    loop {
        // A disk that is full or fails shows itself to the publishers; here it only means that no
        // spare is ready.
        drop(fill_spares(engine, Pace::Resting));
        if !engine.site.upkeep.wait(&mut bell) {
            return;
        }
    }
}

fn keep_indexes(engine: &Engine) {
    stand_back(INDEX_NICENESS);
    let mut bell = engine.site.upkeep.bell();
    loop {
        // Without a side file the segment goes on with its index in memory; tried again at the
        // next bell.
        drop(index_sealed(engine));
        if !engine.site.upkeep.wait(&mut bell) {
            return;
        }
    }
}

/// Lowers the priority of this thread.
fn stand_back(niceness: i32) {
    // Elsewhere it would be the priority of the whole process.
    if cfg!(target_os = "linux") {
        // Where it is not allowed nothing is lost.
        let _ = rustix::process::nice(niceness);
    }
}

/// Fills spare files until there are enough of them.
pub(crate) fn fill_spares(engine: &Engine, pace: Pace) -> io::Result<()> {
    while roll::fill_spare(engine, pace)? {}
    Ok(())
}

/// Builds the side files that are missing, oldest first.
pub(crate) fn index_sealed(engine: &Engine) -> Result<(), ReadError> {
    while let Some(segment) = next_unindexed(engine) {
        let rebuilt = engine.rebuild(&segment)?;
        // What was filled ahead and is not needed goes back to the disk.
        if rebuilt.holes.is_empty() {
            rebuilt.file.set_len(rebuilt.end_position)?;
        }
    }
    Ok(())
}

fn next_unindexed(engine: &Engine) -> Option<Arc<Segment>> {
    let state = engine.read();
    let unindexed =
        state.sealed.iter().find(|segment| matches!(segment.index, SegmentIndex::Memory(_)));
    unindexed.cloned()
}

/// One round of everything, for a caller who drives the log.
pub(crate) fn round(engine: &Engine) -> Result<(), ReadError> {
    roll::fill_spare(engine, Pace::AtOnce)?;
    index_sealed(engine)
}
