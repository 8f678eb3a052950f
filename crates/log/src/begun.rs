//! A frame that is written, until it lands.

use std::io;
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::disk::DiskFile;
use crate::engine::Engine;
use crate::flight::Frame;
use crate::limits::UNSYNCED_MAX;
use crate::options::{Drive, Options};

/// Never tried again: after a failed sync the kernel may call lost pages clean.
pub(crate) fn sync(options: &Options, file: &dyn DiskFile) -> io::Result<()> {
    #[cfg(feature = "planted-bugs")]
    if let Some(result) = crate::planted::sync(options, file) {
        return result;
    }
    let _ = options;
    file.sync_data()
}

/// What is unsynced, and since when.
#[derive(Debug)]
pub(crate) struct Unsynced {
    /// Where it ends: it is synced when all before this position is.
    pub(crate) end: u64,
    since: Since,
}

/// Real time where the log has threads of its own: its clock may be put back, and append times stand still
/// then. Who drives the log owns its time, too.
#[derive(Debug)]
enum Since {
    Real(Stopwatch),
    AppendMs(u64),
}

impl Unsynced {
    pub(crate) fn now(end: u64, drive: Drive, append_ms: u64) -> Self {
        let since = match drive {
            Drive::Threads => Since::Real(Stopwatch::start()),
            Drive::Caller => Since::AppendMs(append_ms),
        };
        Self { end, since }
    }

    /// Whether that is too long ago.
    pub(crate) fn is_due(&self, append_ms: u64) -> bool {
        let age = match &self.since {
            Since::Real(watch) => watch.elapsed(),
            Since::AppendMs(since) => Duration::from_millis(append_ms.saturating_sub(*since)),
        };
        age >= UNSYNCED_MAX
    }
}

/// A frame that is written, and what is left to do.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) number: u64,
    /// Where it ends, if somebody asked for a sync.
    pub(crate) sync_to: Option<u64>,
    pub(crate) publishers: usize,
}

impl Begun {
    /// Syncs the frame if need be.
    pub(crate) fn sync(&self, engine: &Engine, file: &dyn DiskFile) -> io::Result<()> {
        match self.sync_to {
            Some(_) => {
                let watch = Stopwatch::start();
                let synced = sync(&engine.site.options, file);
                engine.sync_times.note(watch.elapsed());
                synced
            }
            None => Ok(()),
        }
    }

    /// Readers see the frame and publishers are answered, as soon as it is their turn.
    pub(crate) fn land(self, engine: &Engine, synced: io::Result<()>) {
        let result = synced.map(|()| self.sync_to).map_err(|error| {
            let text = error.to_string();
            engine.note_failure(&text);
            text
        });
        let show = |frame: &Frame, answer: &mut dyn FnMut()| engine.show(frame, answer);
        let done = |frame: Frame| engine.memory.give_lists(frame.placed.batches);
        engine.flights.land(self.number, result, show, done);
        engine.waiting.wake_all();
    }

    /// All of it.
    pub(crate) fn finish(self, engine: &Engine, file: &dyn DiskFile) {
        let synced = self.sync(engine, file);
        self.land(engine, synced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Append times stand still when the clock is put back, and so did the age of what was not synced.
    #[test]
    fn what_is_unsynced_grows_old_in_real_time_where_the_log_has_threads() {
        let unsynced = Unsynced::now(100, Drive::Threads, 5000);
        assert!(!unsynced.is_due(500_000), "the clock was set forward");
        let pause = Duration::from_millis(10);
        let is_due = (0..1000).any(|_| {
            std::thread::park_timeout(pause);
            unsynced.is_due(5000)
        });
        assert!(is_due, "it was put back");
        let unsynced = Unsynced::now(100, Drive::Caller, 5000);
        assert!(!unsynced.is_due(5999) && unsynced.is_due(6000));
    }
}
