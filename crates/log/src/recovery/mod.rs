//! Opening a log: what is there, what of it is whole, and where to go on.
//!
//! Nothing is changed before all headers have been looked at, so that a directory that this build
//! cannot handle is left untouched. Only the newest segment is read through; sealed ones answer by
//! their side files.
//!
//! *Torn or damaged?* A frame that does not check may be the tail of a write that a crash cut off,
//! which nobody was promised, or damage to bytes that were promised. Each frame says up to which
//! position its segment was synced when it was written. If a valid frame behind the bad bytes says
//! that they had been synced, they are damage: they are kept and reported, and the log goes on in
//! a new segment. If none says so, they are a torn tail and are cut off.
//!
//! *Missing?* The segments cover all seqs from 0 on, and what follows the last one that is sealed is
//! on the disk before the seal is (`successor`). A newest one that is missing is not replaced: nobody
//! knows what it held, and its offsets must not be given a second time.
//!
//! *A full disk* does not keep a log from being opened: what has to be made is made as small as can
//! be, and side files wait in memory.

mod directory;

mod newest;

pub(crate) mod successor;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use promethean_event::EventId;

use crate::catalog::Catalog;
use crate::disk::{Disk, DiskFile};
use crate::engine::{Active, Engine, Segment, Site, State, Upkeep};
use crate::error::OpenError;
use crate::error::WriteError;
use crate::index::{ActiveIndex, FilterBudget, SegmentIndex, SideFile, SideFileError, build};
use crate::options::Options;
use crate::recent::Recent;
use crate::roll;
use crate::segment::{FrameEvent, Holes, SegmentName, SegmentScan};
use crate::tail::Tail;
use crate::writer::OpenSegment;

pub(crate) use directory::set_aside;
use directory::{Found, copy_aside, quarantine, read_headers, tidy_up};
use newest::{Folded, Frame, Newest, erase, write_again};
use successor::{Prepared, prepared};

/// Segments whose side files may have to wait in memory for room.
const UNBUILT_MAX: usize = 16;
/// What is said of a segment that should be there.
pub(crate) const MISSING: &str = "the segment is missing";

/// What was found when a log was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenReport {
    /// A write that a crash had cut off, and that nobody had been promised: file and position.
    pub torn_tail: Option<(String, u64)>,
    /// Bytes that are not what was written. They are left as they are.
    pub damage: Vec<Damage>,
    /// Side files that were missing or damaged, and were built again.
    pub rebuilt: Vec<String>,
}

/// Bytes of the log that are not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// The bytes of it.
    pub bytes: Range<u64>,
    /// The events that were there, as seqs; empty if it were none.
    pub seqs: Range<u64>,
    /// What is wrong.
    pub reason: &'static str,
}

/// Reads a log's directory. Gives the engine, the segment to write, and what was found.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    options: Options,
) -> Result<(Engine, OpenSegment, OpenReport), OpenError> {
    // What a process that was killed had written may still be on its way to the disk; whoever
    // reads it from now on must not lose it any more.
    disk.sync_dir()?;
    let names = disk.list()?;
    let mut report = OpenReport::default();
    let (found, log_id) = read_headers(&*disk, &names, &mut report)?;
    let upkeep = Upkeep::default();
    tidy_up(&*disk, &names, &upkeep)?;
    quarantine(&*disk, &names, &report)?;

    let filters = FilterBudget::new(options.filter_bytes);
    let log_id = log_id.unwrap_or_else(|| *EventId::generate().as_bytes());
    let site = Site { disk, options, log_id, whole: true, upkeep };
    let mut opening = Opening { site, filters, report, names, sealed: Vec::new(), unbuilt: 0 };
    let found = opening.without_superseded(found)?;
    let mut found = opening.with_front(found)?;
    let newest = found.pop();
    for older in found {
        opening.open_sealed(older)?;
    }
    match newest {
        Some(newest) => opening.open_newest(newest),
        None => opening.start(Catalog::default(), 0, 0),
    }
}

struct Opening {
    site: Site,
    filters: FilterBudget,
    report: OpenReport,
    /// All files that were there.
    names: Vec<String>,
    sealed: Vec<Arc<Segment>>,
    /// How many of the last ones have no side file.
    unbuilt: usize,
}

impl Opening {
    /// Drops segments that a cleaned one has replaced: the crash came before their removal.
    fn without_superseded(&mut self, mut found: Vec<Found>) -> Result<Vec<Found>, OpenError> {
        found.sort_by_key(|found| (found.name.base, std::cmp::Reverse(found.name.generation)));
        let mut kept: Vec<Found> = Vec::new();
        let mut covered_to = 0;
        for segment in found {
            if segment.name.base < covered_to {
                self.site.disk.remove(&segment.name.segment_file())?;
                remove_if_there(&*self.site.disk, &segment.name.index_file())?;
                continue;
            }
            if segment.name.generation > 0 {
                covered_to = self.side_file(&segment)?.0.footer().next_seq;
            }
            kept.push(segment);
        }
        Ok(kept)
    }

    /// Sees to it that the log begins with seq 0. One that was cleaned by an earlier build may not.
    fn with_front(&mut self, mut found: Vec<Found>) -> Result<Vec<Found>, OpenError> {
        let (Some(oldest), Some(newest)) = (found.first(), found.last()) else {
            return Ok(found);
        };
        if newest.whole || oldest.name.base == 0 {
            return Ok(found);
        }
        // What was set aside a moment ago may have been the beginning.
        let full = self.site.disk.free_bytes()? < self.site.options.free_bytes_min;
        if full || !self.report.damage.is_empty() {
            self.site.whole = false;
            return Ok(found);
        }
        match roll::write_front(&self.site, oldest.name.base) {
            Ok(name) => {
                let (mut front, _) =
                    read_headers(&*self.site.disk, &[name.segment_file()], &mut self.report)?;
                front.append(&mut found);
                Ok(front)
            }
            Err(WriteError::NoSpace) => {
                self.site.whole = false;
                Ok(found)
            }
            Err(WriteError::Failed(error)) => Err(error.into()),
        }
    }

    /// The side file of a segment, built again if need be, and the holes that it tells of.
    fn side_file(&mut self, found: &Found) -> Result<(SideFile, Vec<Range<u64>>), OpenError> {
        let opened = self.site.disk.open(&found.name.index_file()).map_err(SideFileError::from);
        match opened.and_then(|side| self.read_side(found, side)) {
            Ok(side) => Ok(side),
            Err(SideFileError::Io(error)) => Err(error.into()),
            Err(SideFileError::Damaged) => self.built_again(found),
        }
    }

    fn read_side(
        &self,
        found: &Found,
        side: Arc<dyn DiskFile>,
    ) -> Result<(SideFile, Vec<Range<u64>>), SideFileError> {
        let side = SideFile::open(side, found.name, found.salt, &self.filters)?;
        let holes = side.holes()?;
        Ok((side, holes))
    }

    /// The one that is there, if there is one, stays until the new one is whole.
    fn built_again(&mut self, found: &Found) -> Result<(SideFile, Vec<Range<u64>>), OpenError> {
        let Found { name, salt, file, .. } = found;
        let built = build(&*self.site.disk, &**file, *name, *salt)?;
        let built = self.read_side(found, built);
        self.report.rebuilt.push(name.index_file());
        built.map_err(|error| match error {
            SideFileError::Io(error) => error.into(),
            SideFileError::Damaged => {
                OpenError::Damaged { file: name.index_file(), reason: "it does not read back" }
            }
        })
    }

    /// A segment that is not the newest one.
    fn open_sealed(&mut self, found: Found) -> Result<(), OpenError> {
        // Only the last ones may be without: searches rely on it.
        if self.unbuilt > 0 {
            return self.open_unbuilt(found);
        }
        let (mut side, mut holes) = match self.side_file(&found) {
            Err(OpenError::Io(error)) if is_full(&error) => return self.open_unbuilt(found),
            other => other?,
        };
        if !holes.is_empty() && !self.report_holes(&found)? {
            // The segment was restored from a copy.
            match self.built_again(&found) {
                // What there is does until there is room.
                Err(OpenError::Io(error)) if is_full(&error) => {}
                built => (side, holes) = built?,
            }
        }
        let footer = side.footer().clone();
        let file = found.name.segment_file();
        let length = found.file.len()?;
        if !footer.sealed || length < footer.end_position {
            let bytes = footer.end_position.min(length)..footer.end_position.max(length);
            let reason = "the end is missing";
            let seqs = footer.next_seq..footer.next_seq;
            self.report.damage.push(Damage { file, bytes: bytes.clone(), seqs, reason });
            holes.push(bytes);
        }
        self.check_continuity(found.name.base);
        let append_ms = self.later(footer.first_ms..footer.last_ms);
        self.sealed.push(Arc::new(Segment {
            name: found.name,
            salt: found.salt,
            file: found.file,
            index: SegmentIndex::Side(side),
            next_seq: footer.next_seq,
            end_position: footer.end_position,
            append_ms,
            holes,
        }));
        Ok(())
    }

    /// The append times of the next segment. They never go back, but one of which damage took all that
    /// has a time does not say so: a search over segments would pass by those before it.
    fn later(&self, append_ms: Range<u64>) -> Range<u64> {
        let before = self.sealed.last().map_or(0, |last| last.append_ms.end);
        append_ms.start.max(before)..append_ms.end.max(before)
    }

    /// Reads a segment through for what its side file does not say: which events the damage took.
    /// Gives whether there is any.
    fn report_holes(&mut self, found: &Found) -> Result<bool, OpenError> {
        let mut holes = Holes::since(found.name.base);
        let mut scan = SegmentScan::new(&*found.file, found.salt)?;
        while let Some(event) = scan.next()? {
            match event {
                FrameEvent::Frame { header, .. } => holes.frame(&header),
                FrameEvent::Hole(bytes) => holes.hole(bytes),
                FrameEvent::End { .. } => {}
            }
        }
        let (file, found) = (found.name.segment_file(), holes.into_found());
        let there_are = !found.is_empty();
        self.report.damage.extend(found.into_iter().map(|(bytes, seqs)| {
            let reason = "the bytes are not a frame";
            Damage { file: file.clone(), bytes, seqs, reason }
        }));
        Ok(there_are)
    }

    /// The same while there is no room for its side file, which is built when there is.
    fn open_unbuilt(&mut self, found: Found) -> Result<(), OpenError> {
        let full = || OpenError::Io(io::ErrorKind::StorageFull.into());
        let Newest { folded, end, holes, behind, .. } = Newest::read(&found)?;
        let folded = folded.filter(|folded| folded.sealed).ok_or_else(full)?;
        self.unbuilt += 1;
        if !holes.is_empty() || !behind.is_empty() || self.unbuilt > UNBUILT_MAX {
            return Err(full());
        }
        self.check_continuity(found.name.base);
        self.push_folded(found, folded, end, Vec::new());
        Ok(())
    }

    /// Reports events that no segment has: a file is missing.
    fn check_continuity(&mut self, base: u64) {
        let first = if self.site.whole { 0 } else { base };
        let expected = self.sealed.last().map_or(first, |last| last.next_seq);
        if base > expected {
            self.report.damage.push(Damage {
                file: SegmentName { base: expected, generation: 0 }.segment_file(),
                bytes: 0..0,
                seqs: expected..base,
                reason: MISSING,
            });
        }
    }

    fn open_newest(mut self, found: Found) -> Result<(Engine, OpenSegment, OpenReport), OpenError> {
        found.file.sync_data()?;
        let name = found.name.segment_file();
        let bad = |reason| OpenError::Damaged { file: name.clone(), reason };
        let Newest { folded, end, torn, holes, behind, synced_to, cut } = Newest::read(&found)?;
        // Nobody knows how many events were there; their offsets must not be given a second time.
        if cut && !self.names.contains(&set_aside(&name)) {
            return Err(bad("its end is missing"));
        }
        if holes.is_empty() {
            write_again(&*found.file, synced_to..end)?;
        }
        // A segment begins with the catalog; without it nobody knows what the numbers mean.
        let mut folded = folded.ok_or_else(|| bad("its catalog is damaged"))?;
        let successor = self.successor(&found, folded.sealed.then_some(folded.next_seq))?;
        self.check_continuity(found.name.base);
        if holes.is_empty() {
            if torn || !behind.is_empty() {
                self.report.torn_tail = Some((name.clone(), end));
            }
            // Always: a header of which a crash left only the rest would be made whole by the
            // first bytes of the next frame.
            let cut: Vec<u64> = behind.iter().map(|frame| frame.position).collect();
            erase(&*found.file, end, &cut)?;
        } else {
            self.report.damage.extend(holes.iter().cloned());
            for frame in &behind {
                folded.add(frame).ok_or_else(|| bad("its catalog is damaged"))?;
            }
        }
        let next = SegmentName { base: folded.next_seq, generation: 0 };
        if !holes.is_empty() && next == found.name {
            // Nothing is in it but topics, and the next one gets its name.
            copy_aside(&*self.site.disk, &self.names, &found)?;
            return self.start(folded.catalog, next.base, folded.last_ms);
        }
        if folded.sealed || !holes.is_empty() {
            let end = behind.last().map_or(end, Frame::end);
            let holes = holes.into_iter().map(|hole| hole.bytes).collect();
            let Folded { next_seq, last_ms, .. } = folded;
            let catalog = self.push_folded(found, folded, end, holes);
            return match successor {
                Some(successor) => self.follow(successor, catalog, last_ms),
                None => self.start(catalog, next_seq, last_ms),
            };
        }
        self.go_on(found, folded, end)
    }

    /// Goes on writing the newest segment, of which nothing is damaged.
    fn go_on(
        self,
        found: Found,
        folded: Folded,
        end: u64,
    ) -> Result<(Engine, OpenSegment, OpenReport), OpenError> {
        let name = found.name.segment_file();
        let capacity = found.file.len()?;
        let segment = OpenSegment {
            name: found.name,
            salt: found.salt,
            second: roll::opened_again(&self.site, &name, &found.file)?,
            file: Arc::clone(&found.file),
            filled: true,
            room_taken: false,
            capacity,
            position: end,
            chain: folded.chain,
        };
        let active = Active {
            name: found.name,
            salt: found.salt,
            file: found.file,
            index: folded.index,
            first_ms: folded.first_ms,
            end_position: end,
        };
        let tail = Tail::new(self.site.options.tail_bytes);
        let state = State {
            catalog: folded.catalog,
            sealed: self.sealed,
            active,
            tail,
            recent: Recent::after(folded.next_seq),
            next_seq: folded.next_seq,
            last_append_ms: folded.last_ms,
            rate_bytes: 0,
        };
        Ok((Engine::new(self.site, self.filters, state), segment, self.report))
    }

    /// What was made ready to follow the newest segment, if that is sealed at a seq.
    fn successor(
        &self,
        newest: &Found,
        sealed: Option<u64>,
    ) -> Result<Option<Prepared>, OpenError> {
        let site = &self.site;
        let mut successor = None;
        for prepared in prepared(&*site.disk, &self.names, site.log_id, newest.name.base)? {
            if sealed == Some(prepared.name.base) && successor.is_none() {
                successor = Some(prepared);
            } else {
                prepared.forget()?;
            }
        }
        let Some(base) = sealed.filter(|_| successor.is_none() && newest.whole) else {
            return Ok(successor);
        };
        let file = SegmentName { base, generation: 0 }.segment_file();
        // Somebody has set it aside, and knows what he has lost.
        if self.names.contains(&set_aside(&file)) {
            return Ok(None);
        }
        Err(OpenError::Damaged { file, reason: MISSING })
    }

    /// A segment that was read through and stays as it is. Gives what it says of topics.
    fn push_folded(
        &mut self,
        found: Found,
        folded: Folded,
        end: u64,
        holes: Vec<Range<u64>>,
    ) -> Catalog {
        let append_ms = self.later(folded.first_ms.unwrap_or(folded.last_ms)..folded.last_ms);
        self.sealed.push(Arc::new(Segment {
            name: found.name,
            salt: found.salt,
            file: found.file,
            index: SegmentIndex::Memory(folded.index),
            next_seq: folded.next_seq,
            end_position: end,
            append_ms,
            holes,
        }));
        folded.catalog
    }

    /// Finishes what a crash has interrupted: the next segment gets its name.
    fn follow(
        self,
        successor: Prepared,
        catalog: Catalog,
        last_append_ms: u64,
    ) -> Result<(Engine, OpenSegment, OpenReport), OpenError> {
        let Prepared { spare, name, file, salt, position, chain } = successor;
        drop(self.site.upkeep.take_named(&spare));
        let (second, capacity) = (Arc::clone(&file), file.len()?);
        let (filled, room_taken) = (true, false);
        let segment =
            OpenSegment { name, salt, file, second, filled, room_taken, capacity, position, chain };
        let prepared = roll::found_prepared(spare, segment);
        let segment = roll::publish(&self.site, prepared).map_err(failed)?;
        Ok(self.write_to(segment, catalog, last_append_ms))
    }

    /// Makes a new segment to write.
    fn start(
        self,
        catalog: Catalog,
        next_seq: u64,
        last_append_ms: u64,
    ) -> Result<(Engine, OpenSegment, OpenReport), OpenError> {
        let bytes: u64 = self.sealed.iter().map(|segment| segment.end_position).sum();
        let options = &self.site.options;
        let place = roll::Place {
            name: SegmentName { base: next_seq, generation: 0 },
            frame_bytes: 0,
            segment_bytes: (bytes / 16).clamp(options.segment_bytes_min, options.segment_bytes_max),
            seq: next_seq,
            append_ms: last_append_ms,
            catalog: catalog.snapshot(),
        };
        let prepared = match roll::prepare(&self.site, &place) {
            Err(WriteError::NoSpace) => roll::prepare_least(&self.site, &place),
            other => other,
        };
        let segment = roll::publish(&self.site, prepared.map_err(failed)?).map_err(failed)?;
        Ok(self.write_to(segment, catalog, last_append_ms))
    }

    /// The log as it is, and a segment without events that is written next.
    fn write_to(
        self,
        segment: OpenSegment,
        catalog: Catalog,
        last_append_ms: u64,
    ) -> (Engine, OpenSegment, OpenReport) {
        let next_seq = segment.name.base;
        let active = Active {
            name: segment.name,
            salt: segment.salt,
            file: Arc::clone(&segment.file),
            index: ActiveIndex::default(),
            first_ms: None,
            end_position: segment.position,
        };
        let tail = Tail::new(self.site.options.tail_bytes);
        let recent = Recent::after(next_seq);
        let sealed = self.sealed;
        let rate_bytes = 0;
        let state =
            State { catalog, sealed, active, tail, recent, next_seq, last_append_ms, rate_bytes };
        (Engine::new(self.site, self.filters, state), segment, self.report)
    }
}

fn failed(error: WriteError) -> OpenError {
    match error {
        WriteError::NoSpace => OpenError::Io(io::ErrorKind::StorageFull.into()),
        WriteError::Failed(error) => OpenError::Io(error),
    }
}

pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn remove_if_there(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
