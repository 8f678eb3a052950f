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

mod directory;

mod newest;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use promethean_event::EventId;

use crate::catalog::Catalog;
use crate::disk::{Disk, DiskFile};
use crate::engine::{Active, Engine, Segment, Site, State, Upkeep};
use crate::error::OpenError;
use crate::index::{ActiveIndex, FilterBudget, SegmentIndex, SideFile, SideFileError, build};
use crate::options::Options;
use crate::recent::Recent;
use crate::roll;
use crate::segment::SegmentName;
use crate::tail::Tail;
use crate::writer::{OpenSegment, WriteError};

use directory::{Found, quarantine, read_headers, tidy_up};
use newest::{Folded, Frame, Newest, erase, write_again};

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
    quarantine(&*disk, &report)?;

    let filters = FilterBudget::new(options.filter_bytes);
    let log_id = log_id.unwrap_or_else(|| *EventId::generate().as_bytes());
    let site = Site { disk, options, log_id, upkeep };
    let mut opening = Opening { site, filters, report, sealed: Vec::new() };
    let mut found = opening.without_superseded(found)?;
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
    sealed: Vec<Arc<Segment>>,
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

    /// The side file of a segment, built again if need be, and the holes that it tells of.
    fn side_file(&mut self, found: &Found) -> Result<(SideFile, Vec<Range<u64>>), OpenError> {
        let Found { name, salt, file, .. } = found;
        let read = |side: Arc<dyn DiskFile>| {
            let side = SideFile::open(side, *name, *salt, &self.filters)?;
            let holes = side.holes()?;
            Ok((side, holes))
        };
        let opened = self.site.disk.open(&name.index_file()).map_err(SideFileError::from);
        match opened.and_then(read) {
            Ok(side) => return Ok(side),
            Err(SideFileError::Io(error)) => return Err(error.into()),
            Err(SideFileError::Damaged) => {}
        }
        let built = read(build(&*self.site.disk, &**file, *name, *salt)?);
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
        let (side, mut holes) = self.side_file(&found)?;
        let footer = side.footer().clone();
        let file = found.name.segment_file();
        for hole in &holes {
            self.report.damage.push(Damage {
                file: file.clone(),
                bytes: hole.clone(),
                seqs: 0..0,
                reason: "the bytes are not a frame",
            });
        }
        let length = found.file.len()?;
        if !footer.sealed || length < footer.end_position {
            let bytes = footer.end_position.min(length)..footer.end_position.max(length);
            let reason = "the end is missing";
            self.report.damage.push(Damage { file, bytes: bytes.clone(), seqs: 0..0, reason });
            holes.push(bytes);
        }
        self.check_continuity(found.name.base);
        self.sealed.push(Arc::new(Segment {
            name: found.name,
            salt: found.salt,
            file: found.file,
            index: SegmentIndex::Side(side),
            next_seq: footer.next_seq,
            end_position: footer.end_position,
            append_ms: footer.first_ms..footer.last_ms,
            holes,
        }));
        Ok(())
    }

    /// Reports events that no segment has: a file is missing.
    fn check_continuity(&mut self, base: u64) {
        let expected = self.sealed.last().map_or(base, |last| last.next_seq);
        if base > expected {
            self.report.damage.push(Damage {
                file: SegmentName { base: expected, generation: 0 }.segment_file(),
                bytes: 0..0,
                seqs: expected..base,
                reason: "the segment is missing",
            });
        }
    }

    fn open_newest(mut self, found: Found) -> Result<(Engine, OpenSegment, OpenReport), OpenError> {
        found.file.sync_data()?;
        let name = found.name.segment_file();
        let bad = |reason| OpenError::Damaged { file: name.clone(), reason };
        let Newest { folded, end, torn, holes, behind, synced_to } = Newest::read(&found)?;
        if holes.is_empty() {
            write_again(&*found.file, synced_to..end)?;
        }
        // A segment begins with the catalog; without it nobody knows what the numbers mean.
        let mut folded = folded.ok_or_else(|| bad("its catalog is damaged"))?;
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
        if folded.sealed || !holes.is_empty() {
            let end = behind.last().map_or(end, Frame::end);
            let holes = holes.into_iter().map(|hole| hole.bytes).collect();
            return self.go_on_behind(found, folded, end, holes);
        }
        let capacity = found.file.len()?;
        let segment = OpenSegment {
            name: found.name,
            salt: found.salt,
            second: roll::opened_again(&self.site, &name, &found.file)?,
            file: Arc::clone(&found.file),
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
            fast_segment_bytes: 0,
        };
        Ok((Engine::new(self.site, self.filters, state), segment, self.report))
    }

    /// The newest segment is full or damaged: it stays as it is, and a new one follows.
    fn go_on_behind(
        mut self,
        found: Found,
        folded: Folded,
        end: u64,
        holes: Vec<Range<u64>>,
    ) -> Result<(Engine, OpenSegment, OpenReport), OpenError> {
        let first_ms = folded.first_ms.unwrap_or(folded.last_ms);
        self.sealed.push(Arc::new(Segment {
            name: found.name,
            salt: found.salt,
            file: found.file,
            index: SegmentIndex::Memory(folded.index),
            next_seq: folded.next_seq,
            end_position: end,
            append_ms: first_ms..folded.last_ms,
            holes,
        }));
        self.start(folded.catalog, folded.next_seq, folded.last_ms)
    }

    /// Makes a new segment to write.
    fn start(
        self,
        catalog: Catalog,
        next_seq: u64,
        last_append_ms: u64,
    ) -> Result<(Engine, OpenSegment, OpenReport), OpenError> {
        let failed = |error| match error {
            WriteError::NoSpace => OpenError::Io(io::ErrorKind::StorageFull.into()),
            WriteError::Failed(error) => OpenError::Io(error),
        };
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
        let prepared = roll::prepare(&self.site, &place).map_err(failed)?;
        let segment = roll::publish(&self.site, prepared).map_err(failed)?;
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
        let fast_segment_bytes = 0;
        let state = State {
            catalog,
            sealed,
            active,
            tail,
            recent,
            next_seq,
            last_append_ms,
            fast_segment_bytes,
        };
        Ok((Engine::new(self.site, self.filters, state), segment, self.report))
    }
}

fn remove_if_there(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
