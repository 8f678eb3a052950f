//! The side file of a sealed segment: pages with checksums (`paged`), and behind them a footer
//! that says what the segment holds and where the sections stand.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use promethean_event::{EventId, Partition};

use super::FrameSample;
use super::builder::{BLOCK_ENTRIES, RESTART_ENTRIES, bucket_of};
use super::filter::{Filter, FilterBudget};
use super::footer::{FOOTER_BYTES, Footer, Section};
use super::key_scan::{KeyScan, decode_postings};
use super::paged::{PAYLOAD_BYTES, PageError, PagedFile};
use crate::codec::Fields;
use crate::disk::{DiskFile, read_exact_at};
use crate::error::ReadError;
use crate::segment::SegmentName;
use crate::topic::{Lane, TopicId};

const LANE_BYTES: usize = 56;
const BLOCK_BYTES: usize = 24;
const HASH_BYTES: usize = 12;
const SAMPLE_BYTES: usize = 20;

/// What went wrong with a side file.
#[derive(Debug)]
pub(crate) enum SideFileError {
    /// Missing, cut off, or with a wrong checksum: it has to be built again.
    Damaged,
    Io(io::Error),
}

impl SideFileError {
    /// As the error of a read, given whose side file it is.
    pub(crate) fn of(self, name: SegmentName) -> ReadError {
        match self {
            Self::Io(error) => error.into(),
            Self::Damaged => ReadError::Damaged { file: name.index_file(), position: 0 },
        }
    }
}

impl From<io::Error> for SideFileError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound => Self::Damaged,
            _ => Self::Io(error),
        }
    }
}

impl From<PageError> for SideFileError {
    fn from(error: PageError) -> Self {
        match error {
            PageError::Damaged => Self::Damaged,
            PageError::Io(error) => error.into(),
        }
    }
}

type Result<T, E = SideFileError> = std::result::Result<T, E>;

/// A side file, open for look-ups.
#[derive(Debug)]
pub(crate) struct SideFile {
    pages: PagedFile,
    footer: Footer,
    filter: Filter,
}

/// A lane in the table of lanes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneEntry {
    pub(crate) lane: Lane,
    /// Where the lane stood when the segment began.
    pub(crate) start: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) bytes: u64,
    pub(crate) count: u32,
    directory: u64,
    blocks: u32,
}

/// A block of positions: where it starts, and what it starts with.
#[derive(Debug, Clone, Copy)]
struct Block {
    offset: u64,
    position: u32,
    count: u32,
    start: u64,
}

/// Entries of one length, in order.
#[derive(Debug, Clone, Copy)]
struct Table {
    start: u64,
    count: u64,
    entry_bytes: usize,
}

impl LaneEntry {
    /// The directory of the lane's blocks.
    const fn table(&self) -> Table {
        Table { start: self.directory, count: self.blocks as u64, entry_bytes: BLOCK_BYTES }
    }
}

impl Block {
    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let offset = fields.u64()?;
        let position = fields.u32()?;
        let count = fields.u32()?;
        Some(Self { offset, position, count, start: fields.u64()? })
    }
}

impl SideFile {
    /// Opens the side file that belongs to the segment with this name and salt.
    pub(crate) fn open(
        file: Arc<dyn DiskFile>,
        name: SegmentName,
        salt: u32,
        budget: &FilterBudget,
    ) -> Result<Self> {
        let len = file.len()?;
        let mut bytes = [0; FOOTER_BYTES];
        let start = len.checked_sub(FOOTER_BYTES as u64).ok_or(SideFileError::Damaged)?;
        read_exact_at(&*file, &mut bytes, start)?;
        let footer = Footer::decode(&bytes).ok_or(SideFileError::Damaged)?;
        if footer.name != name || footer.salt != salt {
            return Err(SideFileError::Damaged);
        }
        let [.., filter, _] = footer.sections;
        let filter = Filter::new(filter.start, filter.count as usize, budget.clone());
        Ok(Self { pages: PagedFile::new(file, salt), footer, filter })
    }

    pub(crate) const fn footer(&self) -> &Footer {
        &self.footer
    }

    pub(super) fn read(&self, start: u64, count: usize) -> Result<Vec<u8>> {
        Ok(self.pages.read(start, count)?)
    }

    /// Reads every page and checks it.
    pub(crate) fn check_pages(&self) -> Result<()> {
        Ok(self.pages.check(FOOTER_BYTES as u64)?)
    }

    /// Damaged stretches of the segment.
    pub(crate) fn holes(&self) -> Result<Vec<Range<u64>>> {
        let [.., holes] = self.footer.sections;
        let bytes = self.read(holes.start, holes.count as usize * 16)?;
        let mut fields = Fields(&bytes);
        let mut ranges = Vec::new();
        while let (Some(start), Some(end)) = (fields.u64(), fields.u64()) {
            ranges.push(start..end);
        }
        Ok(ranges)
    }

    pub(crate) fn lane_at(&self, index: u64) -> Result<LaneEntry> {
        let [lanes, ..] = self.footer.sections;
        let bytes = self.read(lanes.start + index * LANE_BYTES as u64, LANE_BYTES)?;
        decode_lane(&bytes).ok_or(SideFileError::Damaged)
    }

    pub(crate) const fn lane_count(&self) -> u64 {
        let [lanes, ..] = self.footer.sections;
        lanes.count
    }

    pub(crate) fn lane(&self, lane: Lane) -> Result<Option<LaneEntry>> {
        let index = self.search(self.lane_table(), |fields| Some(take_lane(fields)? < lane))?;
        if index == self.lane_count() {
            return Ok(None);
        }
        Ok(Some(self.lane_at(index)?).filter(|entry| entry.lane == lane))
    }

    /// How many entries of a sorted table come first by `before`. Looks at as many entries at once
    /// as a page holds, since it is read as a whole anyhow.
    fn search(
        &self,
        table: Table,
        before: impl Fn(&mut Fields<'_>) -> Option<bool>,
    ) -> Result<u64> {
        let at_once = (PAYLOAD_BYTES / table.entry_bytes) as u64;
        let (mut low, mut high) = (0, table.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let first = middle.saturating_sub(at_once / 2).max(low);
            let last = (first + at_once).min(high);
            let start = table.start + first * table.entry_bytes as u64;
            let bytes = self.read(start, (last - first) as usize * table.entry_bytes)?;
            let entries = bytes.chunks_exact(table.entry_bytes);
            let mut passed = 0;
            for entry in entries {
                if !before(&mut Fields(entry)).ok_or(SideFileError::Damaged)? {
                    break;
                }
                passed += 1;
            }
            match passed {
                0 => high = first,
                all if first + all == last => low = last,
                some => return Ok(first + some),
            }
        }
        Ok(low)
    }

    fn lane_table(&self) -> Table {
        let [lanes, ..] = self.footer.sections;
        Table { start: lanes.start, count: lanes.count, entry_bytes: LANE_BYTES }
    }

    /// The entries of up to `count` blocks from `index` on, decoded from one read.
    fn blocks(&self, lane: &LaneEntry, index: u64, count: u64) -> Result<Vec<(u64, u32)>> {
        let count = count.min(u64::from(lane.blocks) - index) as usize;
        let start = lane.directory + index * BLOCK_BYTES as u64;
        // The start of the next block is where the last one ends; behind the very last block the
        // directory says it by itself.
        let after = if index as usize + count < lane.blocks as usize { BLOCK_BYTES } else { 8 };
        let directory = self.read(start, count * BLOCK_BYTES + after)?;
        let mut fields = Fields(&directory);
        let mut blocks = Vec::with_capacity(count);
        for _ in 0..count {
            blocks.push(Block::decode(&mut fields).ok_or(SideFileError::Damaged)?);
        }
        let mut last = fields;
        let end = if last.0.len() == BLOCK_BYTES {
            last.bytes(16).and_then(|_| last.u64())
        } else {
            last.u64()
        };
        let first = blocks.first().map_or(0, |block| block.start);
        let end = end.and_then(|end| end.checked_sub(first)).ok_or(SideFileError::Damaged)?;
        let deltas = self.read(first, end as usize)?;
        let mut out = Vec::with_capacity(count * BLOCK_ENTRIES);
        for block in &blocks {
            let from = deltas.get((block.start - first) as usize..).unwrap_or_default();
            decode_block(block, from, &mut out).ok_or(SideFileError::Damaged)?;
        }
        Ok(out)
    }

    /// Up to `max` events of a lane from offset `from` on, as (offset, position).
    pub(crate) fn positions(&self, lane: Lane, from: u64, max: usize) -> Result<Vec<(u64, u32)>> {
        let Some(entry) = self.lane(lane)?.filter(|entry| entry.count > 0 && entry.last >= from)
        else {
            return Ok(Vec::new());
        };
        let after = self.search(entry.table(), |fields| Some(fields.u64()? <= from))?;
        let first = after.saturating_sub(1);
        let wanted = (max.div_ceil(BLOCK_ENTRIES) + 1) as u64;
        let mut out = self.blocks(&entry, first, wanted)?;
        let skip = out.partition_point(|&(offset, _)| offset < from);
        out.drain(..skip);
        out.truncate(max);
        Ok(out)
    }

    /// Up to `max` events of a lane before offset `before`, newest first.
    pub(crate) fn positions_before(
        &self,
        lane: Lane,
        before: u64,
        max: usize,
    ) -> Result<Vec<(u64, u32)>> {
        let Some(entry) = self.lane(lane)?.filter(|entry| entry.count > 0 && entry.first < before)
        else {
            return Ok(Vec::new());
        };
        let end = self.search(entry.table(), |fields| Some(fields.u64()? < before))?;
        let wanted = (max.div_ceil(BLOCK_ENTRIES) + 1) as u64;
        let first = end.saturating_sub(wanted);
        let mut out = self.blocks(&entry, first, end - first)?;
        out.truncate(out.partition_point(|&(offset, _)| offset < before));
        out.reverse();
        out.truncate(max);
        Ok(out)
    }

    /// The first offset of a lane that stands at or behind a position.
    pub(crate) fn offset_from_position(&self, lane: Lane, position: u32) -> Result<Option<u64>> {
        let Some(entry) = self.lane(lane)?.filter(|entry| entry.count > 0) else {
            return Ok(None);
        };
        let at_or_before =
            |fields: &mut Fields<'_>| fields.u64().and_then(|_| Some(fields.u32()? <= position));
        let after = self.search(entry.table(), at_or_before)?;
        let entries = self.blocks(&entry, after.saturating_sub(1), 2)?;
        Ok(entries.iter().find(|&&(_, known)| known >= position).map(|&(offset, _)| offset))
    }

    fn may_have(&self, hash: u64) -> Result<bool> {
        self.filter.may_have(hash, |start, count| self.read(start, count))
    }

    /// The values that stand under a hash in a table.
    fn find(&self, table: Section, buckets: Section, hash: u64) -> Result<Vec<u32>> {
        let bucket = bucket_of(hash, buckets.count as usize) as u64;
        let bounds = self.read(buckets.start + bucket * 4, 8)?;
        let mut fields = Fields(&bounds);
        let (Some(first), Some(last)) = (fields.u32(), fields.u32()) else {
            return Err(SideFileError::Damaged);
        };
        let count = last.checked_sub(first).ok_or(SideFileError::Damaged)? as usize;
        let entries =
            self.read(table.start + u64::from(first) * HASH_BYTES as u64, count * HASH_BYTES)?;
        let mut fields = Fields(&entries);
        let mut found = Vec::new();
        while let (Some(known), Some(value)) = (fields.u64(), fields.u32()) {
            if known == hash {
                found.push(value);
            }
        }
        Ok(found)
    }

    /// Positions at which an id with this hash may stand.
    pub(crate) fn find_id(&self, id: &EventId, hash: u64) -> Result<Vec<u32>> {
        if !self.footer.id_range.may_have(id) || !self.may_have(hash)? {
            return Ok(Vec::new());
        }
        let [_, ids, buckets, ..] = self.footer.sections;
        self.find(ids, buckets, hash)
    }

    /// For each key with this hash (seldom more than one), the positions of its events, newest
    /// first, up to `max`.
    pub(crate) fn find_key(&self, hash: u64, max: usize) -> Result<Vec<Vec<u32>>> {
        if !self.may_have(hash)? {
            return Ok(Vec::new());
        }
        let [_, _, _, keys, _, table, buckets, ..] = self.footer.sections;
        let entries = self.find(table, buckets, hash)?;
        entries.iter().map(|&entry| self.postings(keys.start + u64::from(entry), max)).collect()
    }

    fn postings(&self, start: u64, max: usize) -> Result<Vec<u32>> {
        let [_, _, _, keys, ..] = self.footer.sections;
        let available = keys.start + keys.count - start;
        // Mostly one or a few; a long list is read on until it is whole.
        let mut span = 64u64.min(available);
        loop {
            let bytes = self.read(start, span as usize)?;
            if let Some(positions) = decode_postings(&mut Fields(&bytes), max) {
                return Ok(positions);
            }
            if span == available {
                return Err(SideFileError::Damaged);
            }
            span = (span * 8).min(available);
        }
    }

    /// All keys from a composite key on, in order.
    pub(crate) fn keys_from<'a>(&'a self, from: &[u8]) -> Result<KeyScan<'a>> {
        let [_, _, _, keys, restarts, ..] = self.footer.sections;
        let before = self.restarts_before(from)?;
        let Some(restart) = before.checked_sub(1) else {
            return Ok(KeyScan::at(self, keys.start));
        };
        let bytes = self.read(restarts.start + restart * 4, 4)?;
        let start = Fields(&bytes).u32().ok_or(SideFileError::Damaged)?;
        let mut scan = KeyScan::at(self, keys.start + u64::from(start));
        for _ in 0..RESTART_ENTRIES {
            let here = scan.clone();
            match scan.next()? {
                Some(entry) if entry.composite.as_slice() < from => {}
                _ => return Ok(here),
            }
        }
        Ok(scan)
    }

    /// How many keys that are written in full come before or at a composite key.
    fn restarts_before(&self, from: &[u8]) -> Result<u64> {
        let [_, _, _, keys, restarts, ..] = self.footer.sections;
        let (mut low, mut high) = (0, restarts.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let bytes = self.read(restarts.start + middle * 4, 4)?;
            let start = Fields(&bytes).u32().ok_or(SideFileError::Damaged)?;
            let entry = KeyScan::at(self, keys.start + u64::from(start)).next()?;
            if entry.is_some_and(|entry| entry.composite.as_slice() <= from) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Samples of frames, by place.
    pub(crate) fn sample(&self, index: u64) -> Result<FrameSample> {
        let [.., frames, _, _] = self.footer.sections;
        let bytes = self.read(frames.start + index * SAMPLE_BYTES as u64, SAMPLE_BYTES)?;
        take_sample(&mut Fields(&bytes)).ok_or(SideFileError::Damaged)
    }

    /// The last sample for which `before` holds, if any; `before` holds for a front part of them.
    pub(crate) fn last_sample(
        &self,
        before: impl Fn(&FrameSample) -> bool,
    ) -> Result<Option<FrameSample>> {
        let [.., frames, _, _] = self.footer.sections;
        let table = Table { start: frames.start, count: frames.count, entry_bytes: SAMPLE_BYTES };
        let after = self.search(table, |fields| Some(before(&take_sample(fields)?)))?;
        after.checked_sub(1).map(|index| self.sample(index)).transpose()
    }
}

fn take_sample(fields: &mut Fields<'_>) -> Option<FrameSample> {
    let seq = fields.u64()?;
    let append_ms = fields.u64()?;
    Some(FrameSample { seq, append_ms, position: fields.u32()? })
}

fn take_lane(fields: &mut Fields<'_>) -> Option<Lane> {
    let topic = TopicId(fields.u32()?);
    Some(Lane { topic, partition: Partition::new(fields.u32()?) })
}

fn decode_lane(bytes: &[u8]) -> Option<LaneEntry> {
    let mut fields = Fields(bytes);
    let lane = take_lane(&mut fields)?;
    Some(LaneEntry {
        lane,
        start: fields.u64()?,
        first: fields.u64()?,
        last: fields.u64()?,
        bytes: fields.u64()?,
        directory: fields.u64()?,
        blocks: fields.u32()?,
        count: fields.u32()?,
    })
}

fn decode_block(block: &Block, deltas: &[u8], out: &mut Vec<(u64, u32)>) -> Option<()> {
    let (mut offset, mut position) = (block.offset, block.position);
    out.push((offset, position));
    let mut fields = Fields(deltas);
    for _ in 1..block.count {
        offset += fields.varint()? + 1;
        position = position.checked_add(fields.varint()? as u32)?;
        out.push((offset, position));
    }
    Some(())
}
