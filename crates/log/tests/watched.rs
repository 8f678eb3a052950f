//! A real directory that tells what is done to it, holds up a rename, and says how much room it has.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use promethean_log::{Disk, DiskFile, RealDisk};

/// Longer than anything takes that is waited for.
const LONG: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(crate) struct Watched {
    disk: Arc<RealDisk>,
    seen: Arc<(Mutex<Seen>, Condvar)>,
}

#[derive(Debug, Default)]
struct Seen {
    syncs: u64,
    /// Renames of unfinished segments are held up.
    held: bool,
    /// One is.
    holding: bool,
    free: Option<u64>,
    /// There is no room for the seal of a segment, and a spare file cannot be removed.
    stuck: bool,
    /// Bytes of a file that cannot be read.
    spoiled: Option<(String, Range<u64>)>,
}

impl Watched {
    pub(crate) fn new(path: &Path) -> Self {
        Self { disk: Arc::new(RealDisk::open(path).unwrap()), seen: Arc::default() }
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.0.lock().unwrap());
        self.seen.1.notify_all();
    }

    fn wait(&self, time: Duration, until: impl Fn(&Seen) -> bool) -> bool {
        let seen = self.seen.0.lock().unwrap();
        let (_seen, out) = self.seen.1.wait_timeout_while(seen, time, |seen| !until(seen)).unwrap();
        !out.timed_out()
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.seen.0.lock().unwrap().syncs
    }

    pub(crate) fn wait_for_sync_beyond(&self, count: u64) -> bool {
        self.wait(LONG, |seen| seen.syncs > count)
    }

    pub(crate) fn hold_renames(&self, held: bool) {
        self.change(|seen| seen.held = held);
    }

    pub(crate) fn wait_until_holding(&self) -> bool {
        self.wait(LONG, |seen| seen.holding)
    }

    pub(crate) fn spoil(&self, name: &str, bytes: Range<u64>) {
        self.change(|seen| seen.spoiled = Some((name.to_owned(), bytes)));
    }

    fn file(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(WatchedFile { file, name: name.to_owned(), watched: self.clone() })
    }

    pub(crate) fn set_stuck(&self, stuck: bool) {
        self.change(|seen| seen.stuck = stuck);
    }

    fn is_stuck(&self) -> bool {
        self.seen.0.lock().unwrap().stuck
    }

    pub(crate) fn set_free(&self, bytes: u64) {
        self.change(|seen| seen.free = Some(bytes));
    }
}

impl Disk for Watched {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(name, self.disk.create(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(name, self.disk.open(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        if from.ends_with(".seg.tmp") {
            self.change(|seen| seen.holding = seen.held);
            self.wait(LONG, |seen| !seen.held);
            self.change(|seen| seen.holding = false);
        }
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if name.ends_with(".spare") && self.is_stuck() {
            return Err(io::Error::other("it cannot be removed"));
        }
        self.disk.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let free = self.seen.0.lock().unwrap().free;
        free.map_or_else(|| self.disk.free_bytes(), Ok)
    }
}

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn DiskFile>,
    name: String,
    watched: Watched,
}

impl DiskFile for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let end = position + buffer.len() as u64;
        let spoiled = self.watched.seen.0.lock().unwrap().spoiled.clone();
        match spoiled {
            Some((name, bytes))
                if name == self.name && position < bytes.end && bytes.start < end =>
            {
                Err(io::Error::other("it cannot be read"))
            }
            _ => self.file.read_at(buffer, position),
        }
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        if bytes.starts_with(b"PFR\x04") && self.watched.is_stuck() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_at(bytes, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.watched.change(|seen| seen.syncs += 1);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
