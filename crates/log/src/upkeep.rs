//! The threads of a log: the writer's, one that keeps spare files ready, one that builds side
//! files. Each waits for a bell; nothing polls.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::engine::{Engine, Segment};
use crate::error::ReadError;
use crate::index::SegmentIndex;
use crate::roll;
use crate::writer::Writer;

/// Starts the threads.
pub(crate) fn spawn(
    engine: &Arc<Engine>,
    writer: Option<Writer>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    if let Some(writer) = writer {
        let engine = Arc::clone(engine);
        threads.push(named("prom-log-writer")?.spawn(move || write_all(&engine, writer))?);
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

fn write_all(engine: &Engine, mut writer: Writer) {
    let mut served = 0;
    loop {
        let requests = engine.queue.wait(served);
        if requests.is_empty() {
            writer.close();
            return;
        }
        served = requests.len();
        writer.commit(requests);
        engine.waiting.wake_all();
        if engine.queue.is_empty() {
            writer.mark();
        }
    }
}

fn keep_spares(engine: &Engine) {
    let mut bell = engine.site.upkeep.bell();
    loop {
        // A disk that is full or fails shows itself to the publishers; here it only means that no
        // spare is ready.
        while let Ok(true) = roll::fill_spare(engine) {}
        if !engine.site.upkeep.wait(&mut bell) {
            return;
        }
    }
}

fn keep_indexes(engine: &Engine) {
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
    roll::fill_spare(engine)?;
    index_sealed(engine)
}
