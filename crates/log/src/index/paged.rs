//! Bytes in pages, each with a checksum, so that any part of a large file can be read and trusted
//! without reading the rest.

use std::io;
use std::sync::Arc;

use crate::codec::salted_crc;
use crate::disk::DiskFile;

const PAGE_BYTES: usize = 4096;
/// What a page holds beside its checksum.
pub(crate) const PAYLOAD_BYTES: usize = PAGE_BYTES - 4;

/// Lays `bytes` out in pages.
pub(crate) fn paginate(salt: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 512 + PAGE_BYTES);
    for (number, payload) in bytes.chunks(PAYLOAD_BYTES).enumerate() {
        let start = out.len();
        out.extend_from_slice(payload);
        out.resize(start + PAYLOAD_BYTES, 0);
        let crc = salted_crc(page_salt(salt, number as u64), out.get(start..).unwrap_or_default());
        out.extend_from_slice(&crc.to_le_bytes());
    }
    out
}

/// Depends on the place of the page, so that swapped pages are noticed.
const fn page_salt(salt: u32, number: u64) -> u32 {
    salt ^ (number as u32).wrapping_mul(0x9e37_79b1)
}

/// What went wrong when pages were read.
#[derive(Debug)]
pub(crate) enum PageError {
    Io(io::Error),
    /// The checksum of a page is wrong, or the file ends too early.
    Damaged,
}

impl From<io::Error> for PageError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged,
            _ => Self::Io(error),
        }
    }
}

/// Reads parts of a paged file.
#[derive(Debug, Clone)]
pub(crate) struct PagedFile {
    file: Arc<dyn DiskFile>,
    salt: u32,
}

impl PagedFile {
    pub(crate) const fn new(file: Arc<dyn DiskFile>, salt: u32) -> Self {
        Self { file, salt }
    }

    /// Checks all pages of the file but its last `rest` bytes.
    pub(crate) fn check(&self, rest: u64) -> Result<(), PageError> {
        let paged = self.file.len()?.saturating_sub(rest);
        let pages = paged / PAGE_BYTES as u64;
        if paged % PAGE_BYTES as u64 != 0 {
            return Err(PageError::Damaged);
        }
        for page in 0..pages {
            self.read(page * PAYLOAD_BYTES as u64, PAYLOAD_BYTES)?;
        }
        Ok(())
    }

    /// `count` bytes from `start`, as they were before pagination.
    pub(crate) fn read(&self, start: u64, count: usize) -> Result<Vec<u8>, PageError> {
        let first = start / PAYLOAD_BYTES as u64;
        let skip = (start % PAYLOAD_BYTES as u64) as usize;
        let pages = (skip + count).div_ceil(PAYLOAD_BYTES);
        let mut raw = vec![0; pages * PAGE_BYTES];
        let read = self.file.read_at(&mut raw, first * PAGE_BYTES as u64)?;
        raw.truncate(read);
        let mut out = Vec::with_capacity(pages * PAYLOAD_BYTES);
        for (number, page) in (first..).zip(raw.chunks(PAGE_BYTES)) {
            let (payload, crc) = page.split_last_chunk::<4>().ok_or(PageError::Damaged)?;
            if payload.len() != PAYLOAD_BYTES
                || salted_crc(page_salt(self.salt, number), payload) != u32::from_le_bytes(*crc)
            {
                return Err(PageError::Damaged);
            }
            out.extend_from_slice(payload);
        }
        if out.len() < skip + count {
            return Err(PageError::Damaged);
        }
        out.truncate(skip + count);
        out.drain(..skip);
        Ok(out)
    }
}
