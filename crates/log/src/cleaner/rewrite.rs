use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::CleanError;
use super::plan::Plan;
use crate::disk::DiskFile;
use crate::engine::{Engine, Segment};
use crate::error::{AppendError, ReadError};
use crate::index::{SegmentIndex, SideFile, build};
use crate::limits::FRAME_BYTES_TARGET;
use crate::segment::{
    FRAME_HEADER_BYTES, FrameEvent, FrameHeader, FrameKind, RECORD_HEADER_BYTES, Record,
    SegmentHeader, SegmentName, SegmentScan,
};

/// Why a run was not written again.
pub(super) enum Stopped {
    /// A segment of it could not be read.
    Source(SegmentName, ReadError),
    /// Anything else.
    Here(CleanError),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Here(error.into())
    }
}

/// Writes the run again without what is dead. `None` if nothing is left and nothing is before it: but
/// the first segment of all stays, if only to say that what it held was cleaned, and is not missing.
pub(super) fn rewrite(engine: &Engine, run: &Plan) -> Result<Option<Arc<Segment>>, Stopped> {
    let Some(first) = run.segments.first() else {
        return Ok(None);
    };
    let generation = run.segments.iter().map(|segment| segment.name.generation).max().unwrap_or(0);
    let name = SegmentName { base: first.name.base, generation: generation + 1 };
    let unfinished = format!("{}.tmp", name.segment_file());
    let disk = &*engine.site.disk;
    let file = disk.create(&unfinished)?;
    let written = match copy(engine, run, name, &file) {
        Ok(copied) if copied.events == 0 && run.is_oldest && name.base > 0 => {
            disk.remove(&unfinished)?;
            return Ok(None);
        }
        Ok(copied) => publish(engine, run, name, (&unfinished, file), copied.salt)
            .map(Some)
            .map_err(Stopped::Here),
        Err(error) => Err(error),
    };
    // Left behind, it would be in the way of the next try, and of everybody on a disk that is full.
    written.inspect_err(|_| drop(disk.remove(&unfinished)))
}

struct Copied {
    salt: u32,
    events: u64,
}

fn copy(
    engine: &Engine,
    run: &Plan,
    name: SegmentName,
    file: &Arc<dyn DiskFile>,
) -> Result<Copied, Stopped> {
    let created_ms = run.segments.first().map_or(0, |segment| segment.append_ms.start);
    let (log_id, whole) = (engine.site.log_id, engine.site.whole);
    let (head, salt) = SegmentHeader { log_id, name, created_ms, file_bytes: 0, whole }.encode();
    file.write_at(&head, 0)?;
    let mut out = Output {
        file,
        salt,
        chain: salt,
        position: head.len() as u64,
        frame: vec![0; FRAME_HEADER_BYTES],
        first: None,
        next_seq: 0,
        count: 0,
        events: 0,
    };
    for (number, segment) in run.segments.iter().enumerate() {
        // Whoever closes the log waits for this.
        if engine.site.upkeep.stopping() {
            return Err(Stopped::Here(AppendError::Closed.into()));
        }
        copy_segment(run, number, segment, &mut out)?;
    }
    out.flush()?;
    out.empty(FrameKind::Seal, run.end_seq(), run.end_ms())?;
    file.sync_data()?;
    Ok(Copied { salt, events: out.events })
}

impl Plan {
    fn end_ms(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.append_ms.end)
    }
}

fn copy_segment(
    run: &Plan,
    number: usize,
    segment: &Segment,
    out: &mut Output<'_>,
) -> Result<(), Stopped> {
    let unread = |error| Stopped::Source(segment.name, error);
    let file = || segment.name.segment_file();
    let damaged = |position| unread(ReadError::Damaged { file: file(), position });
    let failed = |error: io::Error| unread(error.into());
    let mut scan = SegmentScan::new(&*segment.file, segment.salt).map_err(failed)?;
    let mut first = number == 0;
    while let Some(event) = scan.next().map_err(failed)? {
        match event {
            FrameEvent::Frame { position, header, bytes, .. } => match header.kind {
                // The catalog at the start of the first one says where lanes stood; changes in
                // between have long become part of that of the newest segment.
                FrameKind::Catalog if std::mem::take(&mut first) => out.catalog(&header, &bytes)?,
                FrameKind::Events => copy_frame(run, number, position, (&bytes, out))?,
                FrameKind::Catalog | FrameKind::Mark | FrameKind::Seal | FrameKind::Close => {}
            },
            FrameEvent::Hole(range) => return Err(damaged(range.start)),
            FrameEvent::End { position, .. } => return Err(damaged(position)),
        }
    }
    Ok(())
}

fn copy_frame(
    run: &Plan,
    number: usize,
    position: u64,
    (bytes, out): (&Bytes, &mut Output<'_>),
) -> io::Result<()> {
    let mut start = FRAME_HEADER_BYTES;
    while let Some(record) = Record::unchecked(bytes, start) {
        let at = position as u32 + start as u32;
        let dead =
            run.verdicts.get(number).is_some_and(|verdict| verdict.is_dead(&record.header(), at));
        if !dead {
            out.push(&record)?;
        }
        start += record.bytes();
    }
    Ok(())
}

/// The new segment, frame by frame. A frame holds events of one append time whose seqs follow each
/// other, as it does in a segment that was not cleaned: searches by time and seq rely on it.
struct Output<'a> {
    file: &'a Arc<dyn DiskFile>,
    salt: u32,
    chain: u32,
    position: u64,
    frame: Vec<u8>,
    /// Seq and append time of the frame's first event.
    first: Option<(u64, u64)>,
    next_seq: u64,
    count: u32,
    events: u64,
}

impl Output<'_> {
    fn push(&mut self, record: &Record) -> io::Result<()> {
        let header = record.header();
        let continues = self.first.is_some_and(|(_, append_ms)| {
            append_ms == header.append_ms
                && self.next_seq == header.seq
                && self.frame.len() < FRAME_BYTES_TARGET
        });
        if !continues {
            self.flush()?;
            self.first = Some((header.seq, header.append_ms));
        }
        debug_assert_eq!(header.record_bytes(), RECORD_HEADER_BYTES + record.body().len());
        self.frame.extend_from_slice(&header.encode(self.salt));
        self.frame.extend_from_slice(record.body());
        self.next_seq = header.seq + 1;
        self.count += 1;
        self.events += 1;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some((first_seq, append_ms)) = self.first.take() else {
            return Ok(());
        };
        let mut frame = std::mem::replace(&mut self.frame, vec![0; FRAME_HEADER_BYTES]);
        let header = self.header(FrameKind::Events, first_seq, append_ms);
        let header = FrameHeader { count: std::mem::take(&mut self.count), ..header };
        self.write(header, &mut frame)
    }

    fn catalog(&mut self, header: &FrameHeader, bytes: &Bytes) -> io::Result<()> {
        let mut frame = bytes.to_vec();
        let new = self.header(FrameKind::Catalog, header.first_seq, header.append_ms);
        self.write(FrameHeader { count: header.count, ..new }, &mut frame)
    }

    fn empty(&mut self, kind: FrameKind, seq: u64, append_ms: u64) -> io::Result<()> {
        let header = self.header(kind, seq, append_ms);
        self.write(header, &mut [0; FRAME_HEADER_BYTES])
    }

    const fn header(&self, kind: FrameKind, first_seq: u64, append_ms: u64) -> FrameHeader {
        FrameHeader {
            kind,
            body_bytes: 0,
            count: 0,
            first_seq,
            append_ms,
            synced_to: 0,
            previous_crc: self.chain,
            position: self.position as u32,
        }
    }

    fn write(&mut self, header: FrameHeader, frame: &mut [u8]) -> io::Result<()> {
        let body_bytes = (frame.len() - FRAME_HEADER_BYTES) as u32;
        self.chain = FrameHeader { body_bytes, ..header }.seal(self.salt, frame);
        self.file.write_at(frame, self.position)?;
        self.position += frame.len() as u64;
        Ok(())
    }
}

/// Indexes the new segment and gives it its name; from then on it replaces the run.
fn publish(
    engine: &Engine,
    run: &Plan,
    name: SegmentName,
    (unfinished, file): (&str, Arc<dyn DiskFile>),
    salt: u32,
) -> Result<Arc<Segment>, CleanError> {
    let disk = &*engine.site.disk;
    let side = build(disk, &*file, name, salt)?;
    let side = SideFile::open(side, name, salt, &engine.filters);
    let side = side.map_err(|error| error.of(name))?;
    disk.rename(unfinished, &name.segment_file())?;
    disk.sync_dir()?;
    let footer = side.footer();
    Ok(Arc::new(Segment {
        name,
        salt,
        next_seq: run.end_seq(),
        end_position: footer.end_position,
        append_ms: footer.first_ms..footer.last_ms.max(run.end_ms()),
        index: SegmentIndex::Side(side),
        file,
        holes: Vec::new(),
    }))
}
