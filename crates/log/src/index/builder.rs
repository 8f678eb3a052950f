//! Builds the side file of a sealed segment by reading the segment once.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::filter::FilterBuilder;
use super::footer::{Footer, Section};
use super::paged::paginate;
use super::{FrameSample, IdRange, id_hash, key_hash};
use crate::catalog::CatalogEntry;
use crate::codec::{put_u32, put_u64, put_varint};
use crate::disk::{Disk, DiskFile};
use crate::segment::{
    FRAME_HEADER_BYTES, FrameEvent, FrameKind, RecordHeader, RecordRef, SegmentName, SegmentScan,
};
use crate::topic::Lane;

/// Entries of one block of a lane's positions.
pub(crate) const BLOCK_ENTRIES: usize = 128;
/// Keys between two that are written in full.
pub(crate) const RESTART_ENTRIES: usize = 16;
/// Hashes of one bucket, on average.
const BUCKET_ENTRIES: usize = 32;

/// What a segment holds, gathered in one pass.
#[derive(Debug, Default)]
struct Contents {
    lanes: BTreeMap<Lane, LaneContents>,
    ids: Vec<(u64, u32)>,
    id_range: Option<IdRange>,
    keys: Vec<KeyContents>,
    key_bytes: Vec<u8>,
    frames: Vec<FrameSample>,
    holes: Vec<Range<u64>>,
    append_ms: Option<(u64, u64)>,
    end: Option<SegmentEnd>,
}

#[derive(Debug, Default)]
struct LaneContents {
    /// Where the lane stood when the segment began.
    start: Option<u64>,
    entries: Vec<(u64, u32)>,
    bytes: u64,
}

#[derive(Debug, Clone)]
struct KeyContents {
    /// Topic number (big-endian, so that it sorts) and key.
    composite: Range<u32>,
    hash: u64,
    position: u32,
    tombstone: bool,
}

#[derive(Debug, Clone, Copy)]
struct SegmentEnd {
    next_seq: u64,
    position: u64,
    crc: u32,
    sealed: bool,
}

/// Reads the segment and writes its side file: first beside, then, synced, under its name.
pub(crate) fn build(
    disk: &dyn Disk,
    segment: &dyn DiskFile,
    name: SegmentName,
    salt: u32,
) -> io::Result<Arc<dyn DiskFile>> {
    let contents = Contents::gather(segment, name, salt)?;
    let bytes = contents.encode(name, salt);
    let (unfinished, finished) = (format!("{}.tmp", name.index_file()), name.index_file());
    match disk.remove(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(&unfinished)?;
    let written = file.write_at(&bytes, 0).and_then(|()| file.sync_data());
    // On a disk that is full it would be in everybody's way.
    written.inspect_err(|_| drop(disk.remove(&unfinished)))?;
    disk.rename(&unfinished, &finished)?;
    // The name need not be durable: a side file that is lost is built again.
    Ok(file)
}

impl Contents {
    fn gather(segment: &dyn DiskFile, name: SegmentName, salt: u32) -> io::Result<Self> {
        let mut contents = Self::default();
        let mut scan = SegmentScan::new(segment, salt)?;
        let mut end = SegmentEnd { next_seq: name.base, position: 0, crc: salt, sealed: false };
        while let Some(event) = scan.next()? {
            match event {
                FrameEvent::Frame { position, header, crc, bytes } => {
                    end.position = position + header.frame_bytes();
                    end.crc = crc;
                    end.next_seq = end.next_seq.max(header.first_seq);
                    end.sealed = header.kind == FrameKind::Seal;
                    if header.kind == FrameKind::Seal {
                        // A segment of which nothing is left still has its place in time.
                        contents.append_ms.get_or_insert((header.append_ms, header.append_ms));
                    }
                    if header.kind == FrameKind::Catalog {
                        contents.add_catalog(&bytes);
                    }
                    if header.kind == FrameKind::Events {
                        contents.add_sample(header.first_seq, header.append_ms, position as u32);
                        end.next_seq = contents.add_frame(position, &bytes) + 1;
                    }
                }
                FrameEvent::Hole(range) => contents.holes.push(range),
                FrameEvent::End { position, .. } => end.position = position,
            }
        }
        contents.end = Some(end);
        Ok(contents)
    }

    /// The catalog at the start of a segment says where lanes stood, also those that have no event
    /// in it: so a search over segments need not ask its way past them.
    fn add_catalog(&mut self, frame: &Bytes) {
        let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        for entry in CatalogEntry::decode_all(body).unwrap_or_default() {
            if let CatalogEntry::Lane { lane, state } = entry {
                self.lanes.entry(lane).or_default().start = Some(state.next.get());
            }
        }
    }

    fn add_sample(&mut self, seq: u64, append_ms: u64, position: u32) {
        FrameSample { seq, append_ms, position }.add_to(&mut self.frames);
        let (first, _) = self.append_ms.unwrap_or((append_ms, append_ms));
        self.append_ms = Some((first, append_ms));
    }

    /// Takes the records of a valid frame; gives the seq of the last one.
    fn add_frame(&mut self, position: u64, frame: &Bytes) -> u64 {
        let mut start = FRAME_HEADER_BYTES;
        let mut last_seq = 0;
        while let Some(record) = RecordRef::unchecked(frame, start) {
            let header = record.header();
            last_seq = header.seq;
            self.add_record(record, &header, position as u32 + start as u32);
            start += record.bytes();
        }
        last_seq
    }

    fn add_record(&mut self, record: RecordRef<'_>, header: &RecordHeader, position: u32) {
        let lane = self.lanes.entry(header.lane).or_default();
        lane.entries.push((header.offset, position));
        lane.bytes += header.record_bytes() as u64;
        let id = record.id();
        self.id_range.get_or_insert(IdRange::EMPTY).add(id);
        self.ids.push((id_hash(header.lane.topic, &id), position));
        if let Some(key) = record.key() {
            let start = self.key_bytes.len() as u32;
            self.key_bytes.extend_from_slice(&header.lane.topic.get().to_be_bytes());
            self.key_bytes.extend_from_slice(key.as_bytes());
            let hash = key_hash(header.lane.topic, key);
            let composite = start..self.key_bytes.len() as u32;
            let tombstone = header.is_tombstone();
            self.keys.push(KeyContents { composite, hash, position, tombstone });
        }
    }

    fn encode(mut self, name: SegmentName, salt: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let end =
            self.end.unwrap_or(SegmentEnd { next_seq: 0, position: 0, crc: 0, sealed: false });
        let (first_ms, last_ms) = self.append_ms.unwrap_or((0, 0));
        let (key_hashes, keys, restarts) = self.put_keys(&mut out);
        let filter = self.put_filter(&mut out, &key_hashes);
        let (id_buckets, ids) = put_hash_table(&mut out, std::mem::take(&mut self.ids));
        let (key_buckets, key_table) = put_hash_table(&mut out, key_hashes);
        let lanes = self.put_lanes(&mut out);
        let frames = self.put_frames(&mut out);
        let holes = self.put_holes(&mut out);
        let footer = Footer {
            name,
            salt,
            sealed: end.sealed,
            next_seq: end.next_seq,
            end_position: end.position,
            last_crc: end.crc,
            first_ms,
            last_ms,
            id_range: self.id_range.unwrap_or(IdRange::EMPTY),
            sections: [
                lanes,
                ids,
                id_buckets,
                keys,
                restarts,
                key_table,
                key_buckets,
                frames,
                filter,
                holes,
            ],
        };
        let mut file = paginate(salt, &out);
        file.extend_from_slice(&footer.encode());
        file
    }

    /// Keys in order, each with the positions of its events, newest first.
    fn put_keys(&mut self, out: &mut Vec<u8>) -> (Vec<(u64, u32)>, Section, Section) {
        let bytes = std::mem::take(&mut self.key_bytes);
        let text = |key: &KeyContents| {
            bytes.get(key.composite.start as usize..key.composite.end as usize).unwrap_or_default()
        };
        let keys = in_key_order(std::mem::take(&mut self.keys), text);
        let start = out.len();
        let mut table = Vec::new();
        let mut restarts = Vec::new();
        let mut before: &[u8] = &[];
        for (number, group) in keys.chunk_by(|a, b| text(a) == text(b)).enumerate() {
            let Some(newest) = group.last() else { continue };
            let entry = (out.len() - start) as u32;
            let full = number % RESTART_ENTRIES == 0;
            if full {
                restarts.push(entry);
                before = &[];
            }
            let key = text(newest);
            let same = key.iter().zip(before).take_while(|(a, b)| a == b).count();
            let suffix = key.get(same..).unwrap_or_default();
            put_varint(out, same as u64);
            put_varint(out, suffix.len() as u64);
            out.extend_from_slice(suffix);
            table.push((newest.hash, (out.len() - start) as u32));
            put_varint(out, (group.len() as u64) << 1 | u64::from(newest.tombstone));
            put_varint(out, u64::from(newest.position));
            for pair in group.windows(2).rev() {
                if let [older, newer] = pair {
                    put_varint(out, u64::from(newer.position - older.position));
                }
            }
            before = key;
        }
        let keys = Section::of(start, out.len() - start);
        let restart_start = out.len();
        restarts.iter().for_each(|&position| put_u32(out, position));
        (table, keys, Section::of(restart_start, restarts.len()))
    }

    fn put_filter(&self, out: &mut Vec<u8>, keys: &[(u64, u32)]) -> Section {
        let mut filter = FilterBuilder::new(self.ids.len() + keys.len());
        self.ids.iter().chain(keys).for_each(|&(hash, _)| filter.add(hash));
        let bytes = filter.finish();
        let start = out.len();
        out.extend_from_slice(&bytes);
        Section::of(start, bytes.len())
    }

    /// The table of lanes, behind the positions that it points to.
    fn put_lanes(&self, out: &mut Vec<u8>) -> Section {
        let mut table = Vec::new();
        for (lane, contents) in &self.lanes {
            let (directory, blocks) = put_positions(out, &contents.entries);
            put_u32(&mut table, lane.topic.get());
            put_u32(&mut table, lane.partition.get());
            let first = contents.entries.first().map_or(0, |&(offset, _)| offset);
            put_u64(&mut table, contents.start.unwrap_or(first));
            put_u64(&mut table, contents.entries.first().map_or(0, |&(offset, _)| offset));
            put_u64(&mut table, contents.entries.last().map_or(0, |&(offset, _)| offset));
            put_u64(&mut table, contents.bytes);
            put_u64(&mut table, directory as u64);
            put_u32(&mut table, blocks as u32);
            put_u32(&mut table, contents.entries.len() as u32);
        }
        let start = out.len();
        out.extend_from_slice(&table);
        Section::of(start, self.lanes.len())
    }

    fn put_frames(&self, out: &mut Vec<u8>) -> Section {
        let start = out.len();
        for sample in &self.frames {
            put_u64(out, sample.seq);
            put_u64(out, sample.append_ms);
            put_u32(out, sample.position);
        }
        Section::of(start, self.frames.len())
    }

    fn put_holes(&self, out: &mut Vec<u8>) -> Section {
        let start = out.len();
        for hole in &self.holes {
            put_u64(out, hole.start);
            put_u64(out, hole.end);
        }
        Section::of(start, self.holes.len())
    }
}

/// Sorts by text, then by position. Most keys have many events, and texts are slow to compare: so
/// events come together by hash, and each text is sorted once, mostly by its first bytes.
fn in_key_order<'a>(
    mut keys: Vec<KeyContents>,
    text: impl Fn(&KeyContents) -> &'a [u8],
) -> Vec<KeyContents> {
    keys.sort_unstable_by_key(|key| (key.hash, key.position));
    let mut groups: Vec<(u128, &[KeyContents])> = Vec::new();
    let mut clash = false;
    for group in keys.chunk_by(|a, b| a.hash == b.hash) {
        if let Some(first) = group.first() {
            clash |= group.iter().any(|key| text(key) != text(first));
            groups.push((front(text(first)), group));
        }
    }
    if clash {
        // Two texts with one hash: rare enough to do it the plain way.
        keys.sort_by(|a, b| text(a).cmp(text(b)).then(a.position.cmp(&b.position)));
        return keys;
    }
    let full = |group: &[KeyContents]| group.first().map(&text).unwrap_or_default();
    groups.sort_unstable_by(|(a, a_group), (b, b_group)| {
        a.cmp(b).then_with(|| full(a_group).cmp(full(b_group)))
    });
    groups.into_iter().flat_map(|(_, group)| group).cloned().collect()
}

/// The first bytes of a text, as a number that sorts as they do.
fn front(text: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    for (place, byte) in bytes.iter_mut().zip(text) {
        *place = *byte;
    }
    u128::from_be_bytes(bytes)
}

/// A lane's positions: blocks of deltas, then their directory. Gives where the directory starts
/// and how many blocks there are.
fn put_positions(out: &mut Vec<u8>, entries: &[(u64, u32)]) -> (usize, usize) {
    let mut directory = Vec::new();
    let blocks = entries.chunks(BLOCK_ENTRIES);
    let count = blocks.len();
    for block in blocks {
        let Some(&(first_offset, first_position)) = block.first() else {
            continue;
        };
        put_u64(&mut directory, first_offset);
        put_u32(&mut directory, first_position);
        put_u32(&mut directory, block.len() as u32);
        put_u64(&mut directory, out.len() as u64);
        for pair in block.windows(2) {
            if let [(offset, position), (next_offset, next_position)] = pair {
                put_varint(out, next_offset - offset - 1);
                put_varint(out, u64::from(next_position - position));
            }
        }
    }
    let data_end = out.len() as u64;
    let start = out.len();
    out.extend_from_slice(&directory);
    put_u64(out, data_end);
    (start, count)
}

/// Hashes in order, and where each bucket of them starts.
fn put_hash_table(out: &mut Vec<u8>, mut entries: Vec<(u64, u32)>) -> (Section, Section) {
    entries.sort_unstable();
    let buckets = entries.len().div_ceil(BUCKET_ENTRIES).max(1);
    let bucket_start = out.len();
    let mut next = 0;
    for bucket in 0..buckets {
        while entries.get(next).is_some_and(|&(hash, _)| bucket_of(hash, buckets) < bucket) {
            next += 1;
        }
        put_u32(out, next as u32);
    }
    put_u32(out, entries.len() as u32);
    let table_start = out.len();
    for &(hash, value) in &entries {
        put_u64(out, hash);
        put_u32(out, value);
    }
    (Section::of(bucket_start, buckets), Section::of(table_start, entries.len()))
}

pub(crate) const fn bucket_of(hash: u64, buckets: usize) -> usize {
    ((hash as u128 * buckets as u128) >> 64) as usize
}
