//! The newest segment: read through, told apart from a torn tail, folded into memory.

use std::io;
use std::ops::Range;

use bytes::Bytes;

use super::Damage;
use super::directory::Found;
use crate::catalog::{Catalog, CatalogEntry};
use crate::disk::{DiskFile, read_exact_at};
use crate::error::OpenError;
use crate::index::{ActiveIndex, FrameSample, Indexed, LaneRun, id_hash, key_hash};
use crate::segment::{
    FRAME_HEADER_BYTES, FrameEvent, FrameHeader, FrameKind, Record, SEGMENT_HEADER_BYTES,
    SegmentScan,
};

/// A valid frame.
pub(super) struct Frame {
    pub(super) position: u64,
    header: FrameHeader,
    crc: u32,
    bytes: Bytes,
}

impl Frame {
    pub(super) const fn end(&self) -> u64 {
        self.position + self.header.frame_bytes()
    }
}

/// The newest segment, and where to go on.
pub(super) struct Newest {
    /// What the frames up to the first bad bytes say.
    pub(super) folded: Option<Folded>,
    /// Where they end. A mark at the very end is only evidence: the next frame goes over it.
    pub(super) end: u64,
    /// Whether something like the start of a frame follows.
    pub(super) torn: bool,
    /// Bytes that were synced and are no frames, with the seqs that they must have held.
    pub(super) holes: Vec<Damage>,
    /// The frames behind the first bad bytes.
    pub(super) behind: Vec<Frame>,
    /// Up to where a frame says that all was synced before it.
    pub(super) synced_to: u64,
    /// The file has lost its end, and frames may have been there.
    pub(super) cut: bool,
}

impl Newest {
    pub(super) fn read(found: &Found) -> Result<Self, OpenError> {
        let mut newest = Self {
            folded: None,
            end: SEGMENT_HEADER_BYTES,
            torn: false,
            holes: Vec::new(),
            behind: Vec::new(),
            synced_to: 0,
            cut: false,
        };
        let mut scan = SegmentScan::new(&*found.file, found.salt)?;
        let mut holes = Vec::new();
        let mut synced_to = 0;
        // Whether the bytes behind the last frame tell that nothing more was written.
        let mut ends = false;
        while let Some(event) = scan.next()? {
            match event {
                FrameEvent::Frame { position, header, crc, bytes } => {
                    synced_to = synced_to.max(header.synced_to);
                    ends = matches!(header.kind, FrameKind::Mark | FrameKind::Close);
                    newest.add(found, Frame { position, header, crc, bytes }, !holes.is_empty());
                }
                FrameEvent::Hole(range) => holes.push((range, newest.next_seq(found))),
                FrameEvent::End { position, torn } => {
                    newest.torn = torn;
                    // A mark is written over by the frame that follows.
                    ends |= !torn && position < found.file.len()?;
                }
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
            .map(|(bytes, from)| {
                let seqs = from..seq_behind(bytes.end).unwrap_or(from).max(from);
                let reason = "the bytes are not a frame";
                Damage { file: found.name.segment_file(), bytes, seqs, reason }
            })
            .collect();
        let lost = newest.lost_end(found)?;
        newest.cut = lost.is_some() && !ends;
        newest.holes.extend(lost);
        Ok(newest)
    }

    /// A file that is shorter than it was made has lost bytes that may have been promised.
    fn lost_end(&self, found: &Found) -> Result<Option<Damage>, OpenError> {
        let length = found.file.len()?;
        let is_sealed = self.folded.as_ref().is_some_and(|folded| folded.sealed);
        if is_sealed || length >= found.file_bytes {
            return Ok(None);
        }
        let next = self.next_seq(found);
        Ok(Some(Damage {
            file: found.name.segment_file(),
            bytes: length..found.file_bytes,
            seqs: next..next,
            reason: "the end is missing",
        }))
    }

    fn next_seq(&self, found: &Found) -> u64 {
        let known = self.folded.as_ref().map_or(found.name.base, |folded| folded.next_seq);
        self.behind.last().map_or(known, |frame| frame.header.next_seq())
    }

    pub(super) fn add(&mut self, found: &Found, frame: Frame, behind: bool) {
        if behind {
            self.behind.push(frame);
            return;
        }
        if matches!(frame.header.kind, FrameKind::Mark | FrameKind::Close) {
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
/// only what is written anew is sure to be part of a sync.
pub(super) fn write_again(file: &dyn DiskFile, range: Range<u64>) -> io::Result<()> {
    const CHUNK_BYTES: u64 = 1024 * 1024;
    if range.is_empty() {
        return Ok(());
    }
    let mut position = range.start;
    let mut buffer = Vec::new();
    while position < range.end {
        let count = CHUNK_BYTES.min(range.end - position);
        buffer.resize(count as usize, 0);
        read_exact_at(file, &mut buffer, position)?;
        file.write_at(&buffer, position)?;
        position += count;
    }
    file.sync_data()
}

/// Makes sure that frames that were cut off can never be taken for valid ones again.
pub(super) fn erase(file: &dyn DiskFile, end: u64, cut: &[u64]) -> io::Result<()> {
    let zeroes = [0; FRAME_HEADER_BYTES];
    let length = file.len()?;
    for &position in std::iter::once(&end).chain(cut) {
        let count = (FRAME_HEADER_BYTES as u64).min(length.saturating_sub(position)) as usize;
        file.write_at(zeroes.get(..count).unwrap_or_default(), position)?;
    }
    file.sync_data()
}

/// What the frames of the newest segment say.
pub(super) struct Folded {
    pub(super) catalog: Catalog,
    pub(super) index: ActiveIndex,
    pub(super) next_seq: u64,
    pub(super) chain: u32,
    pub(super) sealed: bool,
    pub(super) first_ms: Option<u64>,
    pub(super) last_ms: u64,
}

impl Folded {
    pub(super) fn new(found: &Found) -> Self {
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
    pub(super) fn add(&mut self, frame: &Frame) -> Option<()> {
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
            FrameKind::Mark | FrameKind::Close => {}
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
        let mut runs = Vec::new();
        while let Some(record) = Record::unchecked(bytes, start) {
            let lane = record.lane();
            let id = record.id();
            LaneRun::add(&mut runs, lane, record.offset().get());
            indexed.push(Indexed {
                position: position as u32 + start as u32,
                id,
                id_hash: id_hash(lane.topic, &id),
                key_hash: record.key().map(|key| key_hash(lane.topic, key)),
            });
            self.catalog.advance(lane, record.offset().get() + 1, id);
            start += record.bytes();
        }
        self.index.add(&runs, indexed.into_iter());
    }
}
