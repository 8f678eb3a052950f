//! Reads a whole log without changing it: what is in it, and what is wrong with it.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use promethean_event::{Offset, Topic};

use crate::catalog::{Catalog, CatalogEntry};
use crate::disk::{Disk, DiskFile, read_exact_at};
use crate::index::{FilterBudget, SideFile, SideFileError};
use crate::recovery::successor::prepared;
use crate::recovery::{Damage, MISSING, set_aside};
use crate::segment::{
    BadHeader, FRAME_HEADER_BYTES, FileKind, FrameEvent, FrameHeader, FrameKind, Holes,
    RecordHeader, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentName, SegmentScan,
};
use crate::topic::{Lane, TopicDefinition};

/// What a log holds, and what is wrong with it.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Survey {
    /// The segments, oldest first.
    pub segments: Vec<SegmentSurvey>,
    /// The topics, by name.
    pub topics: Vec<TopicSurvey>,
    /// Everything that is not as it was written.
    pub damage: Vec<Damage>,
    /// An unfinished write at the very end, which nobody was promised: file and position.
    pub torn_tail: Option<(String, u64)>,
}

/// A segment of a log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SegmentSurvey {
    /// The file.
    pub file: String,
    /// The seqs that it covers.
    pub seqs: Range<u64>,
    /// How often it was written again by the cleaner.
    pub generation: u32,
    /// Commits in it.
    pub frames: u64,
    /// Events in it.
    pub events: u64,
    /// Bytes of it that are used.
    pub bytes: u64,
    /// Bytes of its side file; 0 if it has none.
    pub index_bytes: u64,
    /// Append times of the first and the last event.
    pub append_ms: Option<(u64, u64)>,
    /// Whether it is complete.
    pub sealed: bool,
}

/// A topic of a log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TopicSurvey {
    /// What it is.
    pub definition: TopicDefinition,
    /// Events that are there.
    pub events: u64,
    /// Their bytes in the log.
    pub bytes: u64,
    /// Start and end of each partition.
    pub lanes: Vec<(Offset, Offset)>,
}

/// Reads everything; changes nothing. Not to be used on a log that is open for writing elsewhere:
/// its newest frame may be half written.
pub fn survey(disk: &dyn Disk) -> io::Result<Survey> {
    let mut work = Work::default();
    let names = disk.list()?;
    let mut segments: Vec<SegmentName> = names
        .iter()
        .filter_map(|name| match FileKind::of(name) {
            FileKind::Segment(segment) => Some(segment),
            _ => None,
        })
        .collect();
    segments.sort();
    for name in names.iter().filter(|name| FileKind::of(name) == FileKind::Aside) {
        work.damage(name, 0..disk.open(name)?.len()?, "it was set aside as unreadable");
    }
    let newest = segments.last().copied();
    for name in segments {
        work.segment(disk, name, Some(name) == newest)?;
    }
    work.ends(disk, &names)?;
    Ok(work.finish())
}

#[derive(Debug, Default)]
struct Work {
    survey: Survey,
    catalog: Catalog,
    log_id: Option<[u8; 16]>,
    /// Whether the newest segment says that the log is kept whole.
    whole: bool,
    /// Where the segment before ended.
    next_seq: Option<u64>,
    lanes: BTreeMap<Lane, LaneWork>,
}

#[derive(Debug, Default)]
struct LaneWork {
    events: u64,
    bytes: u64,
    next: Option<u64>,
}

impl Work {
    fn damage(&mut self, file: &str, bytes: Range<u64>, reason: &'static str) {
        self.lost(file, (bytes, 0..0), reason);
    }

    /// Damage that has taken events.
    fn lost(&mut self, file: &str, (bytes, seqs): (Range<u64>, Range<u64>), reason: &'static str) {
        self.survey.damage.push(Damage { file: file.to_owned(), bytes, seqs, reason });
    }

    fn segment(&mut self, disk: &dyn Disk, name: SegmentName, newest: bool) -> io::Result<()> {
        let file_name = name.segment_file();
        let file = disk.open(&file_name)?;
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        let header = match read_exact_at(&*file, &mut bytes, 0) {
            Ok(()) => SegmentHeader::decode(&bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(BadHeader::Damaged),
            Err(error) => return Err(error),
        };
        let header_bytes = 0..SEGMENT_HEADER_BYTES;
        let (header, salt) = match header {
            Ok(good) => good,
            Err(BadHeader::Damaged) => {
                self.damage(&file_name, header_bytes, "its header is damaged");
                return Ok(());
            }
            Err(BadHeader::Version(_)) => {
                self.damage(&file_name, header_bytes, "its format is of a later version");
                return Ok(());
            }
        };
        if header.name != name {
            self.damage(
                &file_name,
                header_bytes.clone(),
                "it is another segment than its name says",
            );
        }
        if *self.log_id.get_or_insert(header.log_id) != header.log_id {
            self.damage(&file_name, header_bytes, "it belongs to another log");
        }
        // A cleaned segment may stand beside those that it replaced.
        if self.next_seq.is_some_and(|next| name.base < next) {
            return Ok(());
        }
        if let Some(expected) = self.next_seq.filter(|&next| next < name.base) {
            self.survey.damage.push(Damage {
                file: SegmentName { base: expected, generation: 0 }.segment_file(),
                bytes: 0..0,
                seqs: expected..name.base,
                reason: MISSING,
            });
        }
        self.whole = header.whole;
        let mut found = SegmentSurvey {
            file: file_name,
            seqs: name.base..name.base,
            generation: name.generation,
            frames: 0,
            events: 0,
            bytes: 0,
            index_bytes: 0,
            append_ms: None,
            sealed: false,
        };
        self.frames(&*file, salt, newest, &mut found)?;
        let length = file.len()?;
        if newest && !found.sealed && length < header.file_bytes {
            let end = (length..header.file_bytes, found.seqs.end..found.seqs.end);
            self.lost(&found.file, end, "the end is missing");
        }
        self.side_file(disk, name, salt, &mut found)?;
        self.next_seq = Some(found.seqs.end);
        self.survey.segments.push(found);
        Ok(())
    }

    /// Whether the oldest and the newest segment are there, as `recovery` has it.
    fn ends(&mut self, disk: &dyn Disk, names: &[String]) -> io::Result<()> {
        let (Some(first), Some(last)) = (self.survey.segments.first(), self.survey.segments.last())
        else {
            return Ok(());
        };
        let mut missing = Vec::new();
        if self.whole && first.seqs.start > 0 {
            missing.push(0..first.seqs.start);
        }
        let end = last.seqs.end;
        let next = SegmentName { base: end, generation: 0 }.segment_file();
        if self.whole && last.sealed && !names.contains(&set_aside(&next)) {
            let prepared = prepared(disk, names, self.log_id.unwrap_or_default(), end)?;
            if prepared.iter().all(|prepared| prepared.name.base != end) {
                missing.push(end..end);
            }
        }
        self.survey.damage.extend(missing.into_iter().map(|seqs| Damage {
            file: SegmentName { base: seqs.start, generation: 0 }.segment_file(),
            bytes: 0..0,
            seqs,
            reason: MISSING,
        }));
        Ok(())
    }

    fn frames(
        &mut self,
        file: &dyn DiskFile,
        salt: u32,
        newest: bool,
        found: &mut SegmentSurvey,
    ) -> io::Result<()> {
        let mut scan = SegmentScan::new(file, salt)?;
        let mut synced_to = 0;
        let mut holes = Holes::since(found.seqs.start);
        let mut end = (0, false);
        while let Some(event) = scan.next()? {
            match event {
                FrameEvent::Frame { position, header, bytes, .. } => {
                    synced_to = synced_to.max(header.synced_to);
                    holes.frame(&header);
                    found.frames += 1;
                    found.bytes = position + header.frame_bytes();
                    found.seqs.end = found.seqs.end.max(header.next_seq());
                    found.sealed |= header.kind == FrameKind::Seal;
                    self.frame(salt, position, (&header, &bytes), found);
                }
                FrameEvent::Hole(range) => {
                    // Offsets that were in there are not missed a second time.
                    self.lanes.values_mut().for_each(|lane| lane.next = None);
                    holes.hole(range);
                }
                FrameEvent::End { position, torn } => end = (position, torn),
            }
        }
        // As in `recovery`: behind what was synced, bad bytes of the newest are a torn tail.
        for (hole, seqs) in holes.into_found() {
            if newest && hole.start >= synced_to {
                self.survey.torn_tail = Some((found.file.clone(), hole.start));
            } else {
                self.lost(&found.file, (hole, seqs), "the bytes are not a frame");
            }
        }
        let (position, torn) = end;
        if !found.sealed && !newest {
            self.damage(&found.file, position..file.len()?.max(position), "the end is missing");
        } else if !found.sealed && torn {
            self.survey.torn_tail = Some((found.file.clone(), position));
        }
        Ok(())
    }

    fn frame(
        &mut self,
        salt: u32,
        position: u64,
        (header, bytes): (&FrameHeader, &Bytes),
        found: &mut SegmentSurvey,
    ) {
        let body = bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        match header.kind {
            FrameKind::Catalog => match CatalogEntry::decode_all(body) {
                Some(entries) => entries.iter().for_each(|entry| self.catalog_entry(entry, found)),
                None => {
                    let end = position + header.frame_bytes();
                    self.damage(&found.file, position..end, "the catalog cannot be read");
                }
            },
            FrameKind::Events => {
                let (first, _) = found.append_ms.unwrap_or((header.append_ms, 0));
                found.append_ms = Some((first, header.append_ms));
                found.events += u64::from(header.count);
                self.records(salt, position, body, found);
            }
            FrameKind::Mark | FrameKind::Seal | FrameKind::Close => {}
        }
    }

    fn catalog_entry(&mut self, entry: &CatalogEntry, found: &SegmentSurvey) {
        // Behind the catalog that a segment begins with, it says that a lane goes on further on.
        if let CatalogEntry::Lane { lane, state } = entry
            && found.frames > 1
            && let Some(next) = &mut self.lanes.entry(*lane).or_default().next
        {
            *next = (*next).max(state.next.get());
        }
        self.catalog.apply(entry);
    }

    fn records(&mut self, salt: u32, position: u64, body: &[u8], found: &SegmentSurvey) {
        let mut rest = body;
        let mut at = position + FRAME_HEADER_BYTES as u64;
        while let Some(header) = RecordHeader::decode(salt, rest) {
            let bytes = header.record_bytes();
            let lane = self.lanes.entry(header.lane).or_default();
            lane.events += 1;
            lane.bytes += bytes as u64;
            let expected = lane.next.replace(header.offset + 1);
            let wrong = match expected {
                Some(expected) if found.generation == 0 => header.offset != expected,
                Some(expected) => header.offset < expected,
                None => false,
            };
            if wrong && self.survey.damage.is_empty() {
                self.damage(&found.file, at..at + bytes as u64, "the offset does not follow");
            }
            rest = rest.get(bytes..).unwrap_or_default();
            at += bytes as u64;
        }
    }

    fn side_file(
        &mut self,
        disk: &dyn Disk,
        name: SegmentName,
        salt: u32,
        found: &mut SegmentSurvey,
    ) -> io::Result<()> {
        let file: Arc<dyn DiskFile> = match disk.open(&name.index_file()) {
            Ok(file) => file,
            // It is built when it is needed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        found.index_bytes = file.len()?;
        let budget = FilterBudget::new(0);
        let opened = SideFile::open(Arc::clone(&file), name, salt, &budget);
        match opened.and_then(|side| side.check_pages().map(|()| side)) {
            Ok(side) if side.footer().next_seq == found.seqs.end => {}
            Ok(_) | Err(SideFileError::Damaged) => {
                let bytes = 0..found.index_bytes;
                self.damage(
                    &name.index_file(),
                    bytes,
                    "the side file is damaged; it can be rebuilt",
                );
            }
            Err(SideFileError::Io(error)) => return Err(error),
        }
        Ok(())
    }

    fn finish(mut self) -> Survey {
        let mut topics: BTreeMap<Topic, TopicSurvey> = BTreeMap::new();
        for (id, topic) in self.catalog.live_topics() {
            let mut found = TopicSurvey {
                definition: topic.definition.clone(),
                events: 0,
                bytes: 0,
                lanes: Vec::new(),
            };
            for partition in topic.definition.partitions.partitions() {
                let state = topic.lane(partition).unwrap_or_default();
                let lane = self.lanes.get(&Lane { topic: id, partition });
                let next = lane.and_then(|lane| lane.next).unwrap_or(0).max(state.next.get());
                found.events += lane.map_or(0, |lane| lane.events);
                found.bytes += lane.map_or(0, |lane| lane.bytes);
                found.lanes.push((state.start, Offset::new(next)));
            }
            topics.insert(topic.definition.topic.clone(), found);
        }
        self.survey.topics = topics.into_values().collect();
        self.survey
    }
}
