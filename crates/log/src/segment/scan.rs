use std::io;
use std::ops::Range;

use bytes::Bytes;

use super::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use super::header::SEGMENT_HEADER_BYTES;
use crate::disk::DiskFile;
use crate::limits::FRAME_BYTES_MAX;

/// Reads at least this much at a time.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Goes through the frames of a segment from front to back. Used wherever a whole segment is read:
/// at open, to build a side file, to clean, to verify.
#[derive(Debug)]
pub(crate) struct SegmentScan<'a> {
    file: &'a dyn DiskFile,
    salt: u32,
    end: u64,
    position: u64,
    /// What the next frame must name as the one before it; `None` behind damage.
    chain: Option<u32>,
    window: Bytes,
    window_start: u64,
    done: bool,
}

/// What a scan comes upon.
#[derive(Debug)]
pub(crate) enum FrameEvent {
    /// A valid frame.
    Frame {
        position: u64,
        header: FrameHeader,
        crc: u32,
        /// Header and body.
        bytes: Bytes,
    },
    /// Bytes that are no frame although valid frames follow.
    Hole(Range<u64>),
    /// No valid frame follows. `torn` if the bytes look like the start of one.
    End { position: u64, torn: bool },
}

impl<'a> SegmentScan<'a> {
    /// A scan of the whole segment, whose header is good and gave this salt.
    pub(crate) fn new(file: &'a dyn DiskFile, salt: u32) -> io::Result<Self> {
        Ok(Self {
            file,
            salt,
            end: file.len()?,
            position: SEGMENT_HEADER_BYTES,
            chain: Some(salt),
            window: Bytes::new(),
            window_start: 0,
            done: false,
        })
    }

    /// The next thing, or `None` after the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<FrameEvent>> {
        if self.done {
            return Ok(None);
        }
        if let Some(found) = self.frame_at(self.position)? {
            return Ok(Some(self.pass(found)));
        }
        let start = self.position;
        if let Some(next) = self.frame_after(start)? {
            self.position = next;
            self.chain = None;
            return Ok(Some(FrameEvent::Hole(start..next)));
        }
        self.done = true;
        let torn = self.looks_cut_off(start)?;
        Ok(Some(FrameEvent::End { position: start, torn }))
    }

    fn pass(&mut self, (header, crc, bytes): (FrameHeader, u32, Bytes)) -> FrameEvent {
        let position = self.position;
        self.position += header.frame_bytes();
        self.chain = Some(crc);
        // The last frame of a segment or of a closed log: whatever follows is of no concern.
        self.done = matches!(header.kind, FrameKind::Seal | FrameKind::Close);
        FrameEvent::Frame { position, header, crc, bytes }
    }

    fn peek(&mut self, position: u64) -> io::Result<Option<FrameHeader>> {
        let head = self.bytes(position, FRAME_HEADER_BYTES)?;
        Ok(FrameHeader::peek(&head).filter(|header| {
            // A catalog is as long as it has to be.
            let long = header.kind == FrameKind::Catalog;
            u64::from(header.position) == position
                && (long || header.frame_bytes() <= FRAME_BYTES_MAX)
                && position.saturating_add(header.frame_bytes()) <= self.end
        }))
    }

    /// Whether a frame seems to begin at `position`, whole or not: the file may have lost its end.
    /// One whose first bytes are damaged is known by the checksum of the frame before, which nothing
    /// else names.
    fn looks_cut_off(&mut self, position: u64) -> io::Result<bool> {
        let head = self.bytes(position, FRAME_HEADER_BYTES)?;
        let short = head.len() < FRAME_HEADER_BYTES && head.iter().any(|&byte| byte != 0);
        let follows = self.chain.is_some() && self.chain == FrameHeader::names(&head);
        Ok(short || follows || FrameHeader::peek(&head).is_some())
    }

    /// The valid frame at `position`, if there is one and it continues the chain.
    fn frame_at(&mut self, position: u64) -> io::Result<Option<(FrameHeader, u32, Bytes)>> {
        let Some(header) = self.peek(position)? else {
            return Ok(None);
        };
        if self.chain.is_some_and(|chain| chain != header.previous_crc) {
            return Ok(None);
        }
        let bytes = self.bytes(position, header.frame_bytes() as usize)?;
        Ok(header.check(self.salt, &bytes).map(|crc| (header, crc, bytes)))
    }

    /// Where the next valid frame behind a bad one starts. Up to the end of the file: any number of
    /// frames may be bad in a row.
    fn frame_after(&mut self, bad: u64) -> io::Result<Option<u64>> {
        let chain = self.chain.take();
        let mut position = bad + 1;
        let mut found = None;
        while position < self.end && found.is_none() {
            let span = CHUNK_BYTES.min((self.end - position) as usize);
            let bytes = self.bytes(position, span)?;
            for start in candidates(&bytes) {
                if self.frame_at(position + start as u64)?.is_some() {
                    found = Some(position + start as u64);
                    break;
                }
            }
            // Two bytes again, in case the chunk ends within a magic number.
            position += (span.saturating_sub(2)).max(1) as u64;
        }
        self.chain = chain;
        Ok(found)
    }

    /// `count` bytes at `position`, fewer at the end of the file.
    fn bytes(&mut self, position: u64, count: usize) -> io::Result<Bytes> {
        if let Some(bytes) = self.windowed(position, count) {
            return Ok(bytes);
        }
        let span = count.max(CHUNK_BYTES).min(self.end.saturating_sub(position) as usize);
        let mut buffer = Vec::new();
        self.file.append_at(&mut buffer, position, span)?;
        self.window = buffer.into();
        self.window_start = position;
        Ok(self.windowed(position, count).unwrap_or_else(|| self.window.clone()))
    }

    fn windowed(&self, position: u64, count: usize) -> Option<Bytes> {
        let start = usize::try_from(position.checked_sub(self.window_start)?).ok()?;
        let end = start.checked_add(count)?;
        (end <= self.window.len()).then(|| self.window.slice(start..end))
    }
}

/// Where a frame's magic number stands.
fn candidates(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = bytes.get(from..)?;
            let start = from + rest.iter().position(|&byte| byte == b'P')?;
            from = start + 1;
            if bytes.get(start..start + 3) == Some(b"PFR") {
                return Some(start);
            }
        }
    })
}
