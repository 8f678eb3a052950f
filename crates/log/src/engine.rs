//! What writer, readers and upkeep see together.

use std::collections::HashSet;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard,
    RwLockWriteGuard,
};
use std::time::Duration;

use bytes::Bytes;

use crate::catalog::{Catalog, CatalogEntry, Names};
use crate::disk::{Disk, DiskFile};
use crate::error::ReadError;
use crate::flight::{Flights, Frame};
use crate::frame_memory::FrameMemory;
use crate::index::{
    ActiveIndex, FilterBudget, FrameSample, Indexed, SegmentIndex, SideFile, SideFileError, build,
};
use crate::options::Options;
use crate::queue::Queue;
use crate::recent::Recent;
use crate::segment::{Record, RecordHeader, SegmentName};
use crate::sync_times::SyncTimes;
use crate::tail::{Tail, Waiting};

/// Engine by all handles of a log.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) site: Site,
    pub(crate) queue: Queue,
    /// Frames that are written and not shown yet.
    pub(crate) flights: Flights,
    pub(crate) waiting: Waiting,
    pub(crate) filters: FilterBudget,
    pub(crate) memory: FrameMemory,
    pub(crate) sync_times: SyncTimes,
    /// Reads that went to the disk rather than to the tail in memory.
    pub(crate) disk_reads: AtomicU64,
    failure: OnceLock<String>,
    /// Held while the log is cleaned.
    cleaning: Mutex<()>,
    /// Segments that the cleaner found to be damaged: it leaves them alone from then on.
    damaged: Mutex<HashSet<SegmentName>>,
    /// Held while a side file is built.
    building: Mutex<()>,
    /// Apart from the state, so that publishers do not wait for an index that takes up a frame.
    names: RwLock<Arc<Names>>,
    state: RwLock<State>,
}

/// Where the log is and how it was opened: all that it takes to make files.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    /// In the header of every segment, so that those of another log are noticed.
    pub(crate) log_id: [u8; 16],
    /// Whether the log begins with a segment of seq 0: new segments say so.
    pub(crate) whole: bool,
    pub(crate) upkeep: Upkeep,
}

/// The log at one moment.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) catalog: Catalog,
    /// Oldest first; their seq ranges follow each other.
    pub(crate) sealed: Vec<Arc<Segment>>,
    pub(crate) active: Active,
    pub(crate) tail: Tail,
    pub(crate) recent: Recent,
    pub(crate) next_seq: u64,
    pub(crate) last_append_ms: u64,
    /// The size at which the last segment would have lasted long enough; 0 if it has.
    pub(crate) rate_bytes: u64,
}

/// A segment that is full sooner was too small for what is going on.
const SEGMENT_MS_MIN: u64 = 10_000;

/// The segment that is being written.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) name: SegmentName,
    pub(crate) salt: u32,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) index: ActiveIndex,
    pub(crate) first_ms: Option<u64>,
    /// Where the last frame that readers may see ends.
    pub(crate) end_position: u64,
}

/// A segment that nobody writes any more.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) name: SegmentName,
    pub(crate) salt: u32,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) index: SegmentIndex,
    pub(crate) next_seq: u64,
    pub(crate) end_position: u64,
    /// Append times of the first and the last event.
    pub(crate) append_ms: Range<u64>,
    /// Stretches of bytes that are no frames: the segment is left alone by the cleaner.
    pub(crate) holes: Vec<Range<u64>>,
}

impl Engine {
    pub(crate) fn new(site: Site, filters: FilterBudget, state: State) -> Self {
        Self {
            queue: Queue::new(site.options.queue_requests_max, site.options.queue_bytes_max),
            flights: Flights::default(),
            waiting: Waiting::default(),
            filters,
            memory: FrameMemory::default(),
            sync_times: SyncTimes::default(),
            disk_reads: AtomicU64::new(0),
            failure: OnceLock::new(),
            cleaning: Mutex::new(()),
            damaged: Mutex::default(),
            building: Mutex::new(()),
            names: RwLock::new(state.catalog.names()),
            site,
            state: RwLock::new(state),
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it takes to encode events.
    pub(crate) fn names(&self) -> RwLockReadGuard<'_, Arc<Names>> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets written changes of the catalog take effect.
    pub(crate) fn apply(&self, state: &mut State, entries: &[CatalogEntry]) {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        // Given back first, so that the catalog need not copy them to change them.
        *names = Arc::default();
        entries.iter().for_each(|entry| state.catalog.apply(entry));
        *names = state.catalog.names();
    }

    /// Takes note that the log takes no more writes.
    pub(crate) fn note_failure(&self, text: &str) {
        // The first one is the cause; what comes after it follows from it.
        let first = self.failure.set(text.to_owned());
        drop(first);
    }

    /// The log takes no more writes.
    pub(crate) fn fail(&self, text: &str) {
        self.flights.fail(text.to_owned());
        self.note_failure(text);
    }

    /// Lets readers see a frame. Publishers are answered first, and go on while the index takes it
    /// up; whoever reads now waits until it has, so that nobody misses what he was told is there.
    pub(crate) fn show(&self, frame: &Frame, answer: &mut dyn FnMut()) {
        let mut state = self.write();
        answer();
        state.show(frame, &self.memory);
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Only one cleaning runs at a time.
    pub(crate) fn cleaning(&self) -> MutexGuard<'_, ()> {
        self.cleaning.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn damaged(&self) -> MutexGuard<'_, HashSet<SegmentName>> {
        self.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a segment that cannot be read through.
    pub(crate) fn note_damaged(&self, name: SegmentName) {
        self.damaged().insert(name);
    }

    /// Whether nothing speaks against writing a segment again.
    pub(crate) fn can_be_cleaned(&self, segment: &Segment) -> bool {
        segment.holes.is_empty()
            && matches!(segment.index, SegmentIndex::Side(_))
            && !self.damaged().contains(&segment.name)
    }

    pub(crate) fn count_disk_read(&self) {
        self.disk_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks a segment's index; a damaged side file is built again first.
    pub(crate) fn ask<T>(
        &self,
        segment: &Arc<Segment>,
        question: impl Fn(&SegmentIndex) -> Result<T, SideFileError>,
    ) -> Result<T, ReadError> {
        match question(&segment.index) {
            Ok(answer) => Ok(answer),
            Err(SideFileError::Io(error)) => Err(error.into()),
            Err(SideFileError::Damaged) => {
                let rebuilt = self.rebuild(segment)?;
                question(&rebuilt.index).map_err(|error| error.of(segment.name))
            }
        }
    }

    /// Builds the side file of a segment and puts it in the place of the index that was there.
    pub(crate) fn rebuild(&self, segment: &Arc<Segment>) -> Result<Arc<Segment>, ReadError> {
        let name = segment.name;
        let _one_at_a_time = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.read().sealed.iter().find(|known| known.name == name).cloned();
        if let Some(built) = known.filter(|known| !Arc::ptr_eq(known, segment)) {
            return Ok(built);
        }
        let file = build(&*self.site.disk, &*segment.file, name, segment.salt)?;
        let side = SideFile::open(file, name, segment.salt, &self.filters);
        let side = side.map_err(|error| error.of(name))?;
        let mut holes = side.holes().map_err(|error| error.of(name))?;
        // The side file knows nothing of an end that is gone.
        holes.extend(segment.holes.iter().cloned());
        holes.sort_unstable_by_key(|hole| (hole.start, hole.end));
        holes.dedup();
        let rebuilt = Arc::new(Segment {
            name,
            salt: segment.salt,
            file: Arc::clone(&segment.file),
            index: SegmentIndex::Side(side),
            next_seq: segment.next_seq,
            end_position: segment.end_position,
            append_ms: segment.append_ms.clone(),
            holes,
        });
        let mut state = self.write();
        if let Some(place) = state.sealed.iter_mut().find(|known| known.name == name) {
            *place = Arc::clone(&rebuilt);
        }
        Ok(rebuilt)
    }
}

impl Segment {
    pub(crate) fn place(&self) -> ReadPlace {
        ReadPlace {
            name: self.name,
            salt: self.salt,
            file: Arc::clone(&self.file),
            end: self.end_position,
        }
    }
}

impl Active {
    pub(crate) fn place(&self) -> ReadPlace {
        ReadPlace {
            name: self.name,
            salt: self.salt,
            file: Arc::clone(&self.file),
            end: self.end_position,
        }
    }
}

/// What it takes to read records of a segment.
#[derive(Debug, Clone)]
pub(crate) struct ReadPlace {
    pub(crate) name: SegmentName,
    pub(crate) salt: u32,
    pub(crate) file: Arc<dyn DiskFile>,
    /// No record stands at or behind this position.
    pub(crate) end: u64,
}

impl ReadPlace {
    /// Bytes from `position` on: as many as asked for, or up to the end.
    pub(crate) fn bytes(&self, position: u64, count: usize) -> io::Result<Bytes> {
        self.bytes_in(Vec::new(), position, count)
    }

    /// The same, in memory that is there.
    pub(crate) fn bytes_in(
        &self,
        mut buffer: Vec<u8>,
        position: u64,
        count: usize,
    ) -> io::Result<Bytes> {
        let count = count.min(self.end.saturating_sub(position) as usize);
        self.file.append_at(&mut buffer, position, count)?;
        Ok(buffer.into())
    }

    /// The record at a position; `None` if the bytes there are not a good one.
    pub(crate) fn record(&self, position: u32) -> io::Result<Option<Record>> {
        let bytes = self.bytes(u64::from(position), RECORD_GUESS_BYTES)?;
        let Some(header) = RecordHeader::decode(self.salt, &bytes) else {
            return Ok(None);
        };
        if header.record_bytes() <= bytes.len() {
            return Ok(Record::decode(self.salt, &bytes));
        }
        let bytes = self.bytes(u64::from(position), header.record_bytes())?;
        Ok(Record::decode(self.salt, &bytes))
    }

    pub(crate) fn damaged(&self, position: u32) -> ReadError {
        ReadError::Damaged { file: self.name.segment_file(), position: u64::from(position) }
    }
}

/// Most records are no longer, so that one read is enough.
const RECORD_GUESS_BYTES: usize = 1024;

impl State {
    fn show(&mut self, frame: &Frame, memory: &FrameMemory) {
        let Frame { segment, position, bytes, first_seq: seq, append_ms, placed, .. } = frame;
        let (segment, position, append_ms) = (*segment, *position, *append_ms);
        self.next_seq = placed.next_seq;
        self.last_append_ms = append_ms;
        self.active.first_ms.get_or_insert(append_ms);
        self.active.end_position = u64::from(position) + bytes.len() as u64;
        self.active.index.add_frame(FrameSample { seq: *seq, append_ms, position });
        let entries = placed.batches.iter().flat_map(|batch| &batch.entries);
        let indexed = entries.filter(|entry| entry.fresh).map(|entry| Indexed {
            position: position + entry.start,
            id: entry.id,
            id_hash: entry.id_hash,
            key_hash: entry.key_hash(),
        });
        self.active.index.add(&placed.runs, indexed);
        self.tail.push(segment, position, bytes.clone(), |gone| memory.give(gone));
        self.recent.note(&self.catalog, placed.ends.iter().map(|(end, _)| end.lane));
        for (end, greatest_id) in &placed.ends {
            self.catalog.advance(end.lane, end.next, *greatest_id);
        }
    }

    /// Bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        let sealed: u64 = self.sealed.iter().map(|segment| segment.end_position).sum();
        sealed + self.active.end_position
    }

    /// How large the next segment should be: a sixteenth of the log, so that a small log is small
    /// on disk; but if the last one was full in no time, as much as makes it last, since each new
    /// segment costs a few syncs.
    pub(crate) fn segment_bytes(&self, options: &Options) -> u64 {
        let by_log = self.bytes() / 16;
        by_log.max(self.rate_bytes).clamp(options.segment_bytes_min, options.segment_bytes_max)
    }

    /// Takes note of how long a segment took to be filled.
    pub(crate) fn note_segment(&mut self, bytes: u64, millis: u64) {
        let times = SEGMENT_MS_MIN / millis.max(1);
        self.rate_bytes = bytes.saturating_mul(times);
    }
}

/// Work for the upkeep: spare files that are ready, and a bell.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    inner: Mutex<UpkeepState>,
    bell: Condvar,
    /// Held while a spare file is filled.
    filling: Mutex<()>,
}

#[derive(Debug, Default)]
struct UpkeepState {
    spares: Vec<Spare>,
    /// The number of the next spare file.
    next_spare: u64,
    /// How often the bell was rung.
    rung: u64,
    /// Those who wait for a spare file that is being filled.
    hurried: usize,
    stopping: bool,
}

/// A file without a place in the log yet, written full of something.
#[derive(Debug, Clone)]
pub(crate) struct Spare {
    /// Written before: a sync has no metadata to commit.
    pub(crate) filled: bool,
    /// Known to be written all over, and not only thought to be: a file that an earlier process has left
    /// may have holes.
    pub(crate) room_taken: bool,
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) bytes: u64,
}

impl Upkeep {
    fn lock(&self) -> MutexGuard<'_, UpkeepState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only one spare file is filled at a time.
    pub(crate) fn filling(&self) -> MutexGuard<'_, ()> {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, for one who waits: whoever is filling takes no more rests.
    pub(crate) fn filling_at_once(&self) -> MutexGuard<'_, ()> {
        self.lock().hurried += 1;
        self.bell.notify_all();
        let filling = self.filling();
        self.lock().hurried -= 1;
        filling
    }

    /// A name for a spare file that no other has.
    pub(crate) fn spare_name(&self) -> String {
        let mut state = self.lock();
        let number = state.next_spare;
        state.next_spare += 1;
        format!("{number:08x}.spare")
    }

    pub(crate) fn note_spare_name(&self, name: &str) {
        let number = name.strip_suffix(".spare").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let mut state = self.lock();
        state.next_spare = state.next_spare.max(number.map_or(0, |number| number + 1));
    }

    pub(crate) fn spare_count(&self) -> usize {
        self.lock().spares.len()
    }

    pub(crate) fn put_spare(&self, spare: Spare) {
        self.lock().spares.push(spare);
    }

    /// A spare file of a length within a range.
    pub(crate) fn take_spare(&self, bytes: RangeInclusive<u64>) -> Option<Spare> {
        let mut state = self.lock();
        let place = state.spares.iter().position(|spare| bytes.contains(&spare.bytes))?;
        Some(state.spares.swap_remove(place))
    }

    /// The spare file of a name.
    pub(crate) fn take_named(&self, name: &str) -> Option<Spare> {
        let mut state = self.lock();
        let place = state.spares.iter().position(|spare| spare.name == name)?;
        Some(state.spares.swap_remove(place))
    }

    /// Whether there is a filled one of so many bytes.
    pub(crate) fn has_spare(&self, bytes: u64) -> bool {
        self.lock().spares.iter().any(|spare| spare.filled && spare.bytes >= bytes)
    }

    /// All spares, to be removed.
    pub(crate) fn take_all(&self) -> Vec<Spare> {
        std::mem::take(&mut self.lock().spares)
    }

    /// Tells the upkeep that there may be work.
    pub(crate) fn ring(&self) {
        self.lock().rung += 1;
        self.bell.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.bell.notify_all();
    }

    pub(crate) fn stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Waits for a time, unless somebody waits for the filler; false when the log closes.
    pub(crate) fn rest(&self, time: Duration) -> bool {
        let going = |state: &mut UpkeepState| !state.stopping && state.hurried == 0;
        let rested = self.bell.wait_timeout_while(self.lock(), time, going);
        let (state, _) = rested.unwrap_or_else(PoisonError::into_inner);
        !state.stopping
    }

    /// How often the bell was rung so far: for one who starts to listen.
    pub(crate) fn bell(&self) -> u64 {
        self.lock().rung
    }

    /// Waits until the bell is rung again; false when the log closes.
    pub(crate) fn wait(&self, heard: &mut u64) -> bool {
        let mut state = self.lock();
        while state.rung == *heard && !state.stopping {
            state = self.bell.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        *heard = state.rung;
        !state.stopping
    }
}
