//! A frame that is written, until it lands.

use std::io;

use crate::clock::Stopwatch;
use crate::disk::DiskFile;
use crate::engine::Engine;
use crate::flight::Frame;
use crate::options::Options;

/// Never tried again: after a failed sync the kernel may call lost pages clean.
pub(crate) fn sync(options: &Options, file: &dyn DiskFile) -> io::Result<()> {
    #[cfg(feature = "planted-bugs")]
    if let Some(result) = crate::planted::sync(options, file) {
        return result;
    }
    let _ = options;
    file.sync_data()
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
