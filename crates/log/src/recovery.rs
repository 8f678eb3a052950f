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

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use promethean_event::EventId;

use crate::catalog::{Catalog, CatalogEntry};
use crate::disk::{Disk, DiskFile, read_exact_at};
use crate::engine::{Active, Engine, Segment, Site, Spare, State, Upkeep};
use crate::error::OpenError;
use crate::index::{
    ActiveIndex, FilterBudget, FrameSample, Indexed, SegmentIndex, SideFile, SideFileError, build,
    id_hash, key_hash,
};
use crate::options::Options;
use crate::roll;
use crate::segment::{
    BadHeader, FRAME_HEADER_BYTES, FileKind, FrameEvent, FrameHeader, FrameKind, Record,
    SEGMENT_HEADER_BYTES, SegmentHeader, SegmentName, SegmentScan,
};
use crate::tail::Tail;
use crate::writer::{OpenSegment, WriteError};

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

/// A segment file whose header was read.
struct Found {
    name: SegmentName,
    salt: u32,
    file: Arc<dyn DiskFile>,
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

/// Looks at the header of every segment before anything is changed.
fn read_headers(
    disk: &dyn Disk,
    names: &[String],
    report: &mut OpenReport,
) -> Result<(Vec<Found>, Option<[u8; 16]>), OpenError> {
    let mut segments = Vec::new();
    for file_name in names {
        if let FileKind::Segment(name) = FileKind::of(file_name) {
            segments.push((name, file_name));
        }
    }
    segments.sort();
    let mut found: Vec<Found> = Vec::new();
    let mut log_id = None;
    let last = segments.last().map(|(name, _)| *name);
    for (name, file_name) in segments {
        let file = disk.open(file_name)?;
        let reason = match read_header(&*file, file_name)? {
            Ok((header, salt)) if header.name == name => {
                if *log_id.get_or_insert(header.log_id) != header.log_id {
                    return Err(OpenError::ForeignSegment { file: file_name.clone() });
                }
                found.push(Found { name, salt, file });
                continue;
            }
            Ok(_) => "it is another segment than its name says",
            Err(()) => "its header is damaged",
        };
        if Some(name) == last {
            return Err(OpenError::Damaged { file: file_name.clone(), reason });
        }
        let bytes = 0..file.len()?;
        report.damage.push(Damage { file: file_name.clone(), bytes, seqs: 0..0, reason });
    }
    Ok((found, log_id))
}

fn read_header(
    file: &dyn DiskFile,
    name: &str,
) -> Result<Result<(SegmentHeader, u32), ()>, OpenError> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
    match read_exact_at(file, &mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Err(())),
        other => other?,
    }
    match SegmentHeader::decode(&bytes) {
        Ok(header) => Ok(Ok(header)),
        Err(BadHeader::Damaged) => Ok(Err(())),
        Err(BadHeader::Version(version)) => {
            Err(OpenError::UnknownFormat { file: name.to_owned(), version })
        }
    }
}

/// Removes what an earlier process did not finish; keeps its spare files for use.
fn tidy_up(disk: &dyn Disk, names: &[String], upkeep: &Upkeep) -> Result<(), OpenError> {
    for name in names {
        match FileKind::of(name) {
            FileKind::Unfinished => disk.remove(name)?,
            FileKind::Spare => {
                upkeep.note_spare_name(name);
                let file = disk.open(name)?;
                let bytes = file.len()?;
                upkeep.put_spare(Spare { name: name.clone(), file, bytes });
            }
            // The cleaner indexes a new segment before it gives it its name.
            FileKind::Index(segment) if !names.contains(&segment.segment_file()) => {
                disk.remove(name)?;
            }
            FileKind::Segment(_) | FileKind::Index(_) | FileKind::Other => {}
        }
    }
    Ok(())
}

/// Takes segments that cannot be read at all out of the way, without deleting them.
fn quarantine(disk: &dyn Disk, report: &OpenReport) -> Result<(), OpenError> {
    for damage in &report.damage {
        disk.rename(&damage.file, &format!("{}.damaged", damage.file))?;
    }
    if !report.damage.is_empty() {
        disk.sync_dir()?;
    }
    Ok(())
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
        let Found { name, salt, file } = found;
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
            let cut: Vec<u64> = behind.iter().map(|frame| frame.position).collect();
            erase(&*found.file, end, &cut)?;
        } else {
            for (hole, seqs) in &holes {
                self.report.damage.push(Damage {
                    file: name.clone(),
                    bytes: hole.clone(),
                    seqs: seqs.clone(),
                    reason: "the bytes are not a frame",
                });
            }
            for frame in &behind {
                folded.add(frame).ok_or_else(|| bad("its catalog is damaged"))?;
            }
        }
        if folded.sealed || !holes.is_empty() {
            let end = behind.last().map_or(end, Frame::end);
            let holes = holes.into_iter().map(|(hole, _)| hole).collect();
            return self.go_on_behind(found, folded, end, holes);
        }
        let capacity = found.file.len()?;
        let segment = OpenSegment {
            name: found.name,
            salt: found.salt,
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
            next_seq: folded.next_seq,
            last_append_ms: folded.last_ms,
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
        let sealed = self.sealed;
        let state = State { catalog, sealed, active, tail, next_seq, last_append_ms };
        Ok((Engine::new(self.site, self.filters, state), segment, self.report))
    }
}

/// A valid frame.
struct Frame {
    position: u64,
    header: FrameHeader,
    crc: u32,
    bytes: Bytes,
}

impl Frame {
    const fn end(&self) -> u64 {
        self.position + self.header.frame_bytes()
    }
}

/// The newest segment, and where to go on.
struct Newest {
    /// What the frames up to the first bad bytes say.
    folded: Option<Folded>,
    /// Where they end. A mark at the very end is only evidence: the next frame goes over it.
    end: u64,
    /// Whether something like the start of a frame follows.
    torn: bool,
    /// Bytes that were synced and are no frames, with the seqs that they must have held.
    holes: Vec<(Range<u64>, Range<u64>)>,
    /// The frames behind the first bad bytes.
    behind: Vec<Frame>,
    /// Up to where a frame says that all was synced before it.
    synced_to: u64,
}

impl Newest {
    fn read(found: &Found) -> Result<Self, OpenError> {
        let mut newest = Self {
            folded: None,
            end: SEGMENT_HEADER_BYTES,
            torn: false,
            holes: Vec::new(),
            behind: Vec::new(),
            synced_to: 0,
        };
        let mut scan = SegmentScan::new(&*found.file, found.salt)?;
        let mut holes = Vec::new();
        let mut synced_to = 0;
        while let Some(event) = scan.next()? {
            match event {
                FrameEvent::Frame { position, header, crc, bytes } => {
                    synced_to = synced_to.max(header.synced_to);
                    newest.add(found, Frame { position, header, crc, bytes }, !holes.is_empty());
                }
                FrameEvent::Hole(range) => holes.push((range, newest.next_seq(found))),
                FrameEvent::End { torn, .. } => newest.torn = torn,
            }
        }
        newest.torn |= !holes.is_empty();
        newest.synced_to = synced_to;
        let seq_behind = |position: u64| {
            let next = newest.behind.iter().find(|frame| frame.position >= position);
            next.map(|frame| frame.header.first_seq)
        };
        let damaged = holes.into_iter().filter(|(range, _)| range.start < synced_to);
        newest.holes = damaged
            .map(|(range, from)| {
                let to = seq_behind(range.end).unwrap_or(from).max(from);
                (range, from..to)
            })
            .collect();
        Ok(newest)
    }

    fn next_seq(&self, found: &Found) -> u64 {
        let known = self.folded.as_ref().map_or(found.name.base, |folded| folded.next_seq);
        self.behind.last().map_or(known, |frame| frame.header.next_seq())
    }

    fn add(&mut self, found: &Found, frame: Frame, behind: bool) {
        if behind {
            self.behind.push(frame);
            return;
        }
        if frame.header.kind == FrameKind::Mark {
            return;
        }
        let first = self.end == SEGMENT_HEADER_BYTES;
        self.end = frame.end();
        if first && frame.header.kind == FrameKind::Catalog {
            self.folded = Some(Folded::new(found));
        }
        let taken = self.folded.as_mut().and_then(|folded| folded.add(&frame));
        if taken.is_none() {
            self.folded = None;
        }
    }
}

/// Writes bytes over themselves that no frame says were synced. If a sync of them had failed before
/// the log's process ended, the kernel may hold them as clean although they are not on the disk:
/// only what is written anew is sure to be part of the next sync.
fn write_again(file: &dyn DiskFile, range: Range<u64>) -> io::Result<()> {
    const CHUNK_BYTES: u64 = 1024 * 1024;
    let mut position = range.start;
    let mut buffer = Vec::new();
    while position < range.end {
        let count = CHUNK_BYTES.min(range.end - position);
        buffer.resize(count as usize, 0);
        read_exact_at(file, &mut buffer, position)?;
        file.write_at(&buffer, position)?;
        position += count;
    }
    Ok(())
}

/// Makes sure that frames that were cut off can never be taken for valid ones again.
fn erase(file: &dyn DiskFile, end: u64, cut: &[u64]) -> io::Result<()> {
    let zeroes = [0; FRAME_HEADER_BYTES];
    let length = file.len()?;
    for &position in std::iter::once(&end).chain(cut) {
        let count = (FRAME_HEADER_BYTES as u64).min(length.saturating_sub(position)) as usize;
        file.write_at(zeroes.get(..count).unwrap_or_default(), position)?;
    }
    file.sync_data()
}

/// What the frames of the newest segment say.
struct Folded {
    catalog: Catalog,
    index: ActiveIndex,
    next_seq: u64,
    chain: u32,
    sealed: bool,
    first_ms: Option<u64>,
    last_ms: u64,
}

impl Folded {
    fn new(found: &Found) -> Self {
        Self {
            catalog: Catalog::default(),
            index: ActiveIndex::default(),
            next_seq: found.name.base,
            chain: found.salt,
            sealed: false,
            first_ms: None,
            last_ms: 0,
        }
    }

    /// `None` if a catalog frame is not of our making.
    fn add(&mut self, frame: &Frame) -> Option<()> {
        let Frame { position, header, crc, bytes } = frame;
        self.chain = *crc;
        self.last_ms = self.last_ms.max(header.append_ms);
        self.next_seq = self.next_seq.max(header.next_seq());
        match header.kind {
            FrameKind::Catalog => {
                let entries = CatalogEntry::decode_all(bytes.get(FRAME_HEADER_BYTES..)?)?;
                entries.iter().for_each(|entry| self.catalog.apply(entry));
            }
            FrameKind::Events => self.add_events(*position, header, bytes),
            FrameKind::Seal => self.sealed = true,
            FrameKind::Mark => {}
        }
        Some(())
    }

    fn add_events(&mut self, position: u64, header: &FrameHeader, bytes: &Bytes) {
        let sample = FrameSample {
            seq: header.first_seq,
            append_ms: header.append_ms,
            position: position as u32,
        };
        self.first_ms.get_or_insert(header.append_ms);
        self.index.add_frame(sample);
        let mut start = FRAME_HEADER_BYTES;
        let mut indexed = Vec::with_capacity(header.count as usize);
        while let Some(record) = Record::unchecked(bytes, start) {
            let lane = record.lane();
            let id = record.id();
            indexed.push(Indexed {
                lane,
                offset: record.offset().get(),
                position: position as u32 + start as u32,
                id,
                id_hash: id_hash(lane.topic, &id),
                key_hash: record.key().map(|key| key_hash(lane.topic, key)),
            });
            self.catalog.advance(lane, record.offset().get() + 1, id);
            start += record.bytes();
        }
        self.index.add(&indexed);
    }
}

fn remove_if_there(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
