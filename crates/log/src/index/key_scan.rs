use super::side_file::{SideFile, SideFileError};
use crate::codec::Fields;

/// What is read at once of a run of bytes whose end is not known.
const RUN_BYTES: usize = 4096;

type Result<T, E = SideFileError> = std::result::Result<T, E>;

/// A key and the positions of its events, newest first.
#[derive(Debug, Clone)]
pub(crate) struct KeyEntry {
    /// Topic number, big-endian, and key.
    pub(crate) composite: Vec<u8>,
    pub(crate) positions: Vec<u32>,
    /// Whether the newest of them is a tombstone.
    pub(crate) tombstone: bool,
}

/// Goes through the keys of a side file in order.
#[derive(Debug, Clone)]
pub(crate) struct KeyScan<'a> {
    file: &'a SideFile,
    position: u64,
    composite: Vec<u8>,
    window: Vec<u8>,
    window_start: u64,
}

impl<'a> KeyScan<'a> {
    pub(super) fn at(file: &'a SideFile, position: u64) -> Self {
        let window = Vec::new();
        Self { file, position, composite: Vec::new(), window, window_start: position }
    }

    pub(crate) fn next(&mut self) -> Result<Option<KeyEntry>> {
        let [_, _, _, keys, ..] = self.file.footer().sections;
        let end = keys.start + keys.count;
        if self.position >= end {
            return Ok(None);
        }
        let mut span = RUN_BYTES as u64;
        loop {
            let at = (self.position - self.window_start) as usize;
            let bytes = self.window.get(at..).unwrap_or_default();
            let mut fields = Fields(bytes);
            if let Some(entry) = decode_key(&mut fields, &self.composite) {
                self.position += (bytes.len() - fields.0.len()) as u64;
                self.composite.clone_from(&entry.composite);
                return Ok(Some(entry));
            }
            if self.window_start + self.window.len() as u64 >= end && at == 0 && !bytes.is_empty() {
                return Err(SideFileError::Damaged);
            }
            self.window_start = self.position;
            self.window = self.file.read(self.position, span.min(end - self.position) as usize)?;
            span *= 8;
        }
    }
}

fn decode_key(fields: &mut Fields<'_>, before: &[u8]) -> Option<KeyEntry> {
    let same = fields.varint()? as usize;
    let length = fields.varint()? as usize;
    let suffix = fields.bytes(length)?;
    let mut composite = before.get(..same)?.to_vec();
    composite.extend_from_slice(suffix);
    let tombstone = Fields(fields.0).varint()? & 1 == 1;
    let positions = decode_postings(fields, usize::MAX)?;
    Some(KeyEntry { composite, positions, tombstone })
}

pub(super) fn decode_postings(fields: &mut Fields<'_>, max: usize) -> Option<Vec<u32>> {
    let count = fields.varint()? >> 1;
    let mut position = fields.varint()? as u32;
    let mut positions = vec![position];
    for _ in 1..count.min(max as u64) {
        position = position.checked_sub(fields.varint()? as u32)?;
        positions.push(position);
    }
    Some(positions)
}
