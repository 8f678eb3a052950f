//! The last bytes of a side file: what the segment holds, and where the sections stand.

use promethean_event::EventId;

use super::IdRange;
use crate::codec::{Fields, put_u32, put_u64};
use crate::segment::SegmentName;

const MAGIC: &[u8; 8] = b"PROMIDX\0";
const VERSION: u32 = 1;
pub(super) const FOOTER_BYTES: usize = 320;
const SECTIONS: usize = 10;

/// Where a section stands, and how many entries (or bytes) it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Section {
    pub(crate) start: u64,
    pub(crate) count: u64,
}

impl Section {
    pub(crate) const fn of(start: usize, count: usize) -> Self {
        Self { start: start as u64, count: count as u64 }
    }
}

/// The last bytes of a side file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) name: SegmentName,
    pub(crate) salt: u32,
    pub(crate) sealed: bool,
    pub(crate) next_seq: u64,
    pub(crate) end_position: u64,
    pub(crate) last_crc: u32,
    pub(crate) first_ms: u64,
    pub(crate) last_ms: u64,
    pub(crate) id_range: IdRange,
    pub(crate) sections: [Section; SECTIONS],
}

impl Footer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, VERSION);
        put_u32(&mut out, self.salt);
        put_u64(&mut out, self.name.base);
        put_u32(&mut out, self.name.generation);
        put_u32(&mut out, u32::from(self.sealed) | u32::from(self.id_range.has_others) << 1);
        put_u64(&mut out, self.next_seq);
        put_u64(&mut out, self.end_position);
        put_u64(&mut out, self.first_ms);
        put_u64(&mut out, self.last_ms);
        put_u32(&mut out, self.last_crc);
        out.extend_from_slice(self.id_range.least.as_bytes());
        out.extend_from_slice(self.id_range.greatest.as_bytes());
        for section in &self.sections {
            put_u64(&mut out, section.start);
            put_u64(&mut out, section.count);
        }
        out.resize(FOOTER_BYTES - 4, 0);
        let crc = crc32c::crc32c(&out);
        put_u32(&mut out, crc);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (checked, crc) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(checked) != u32::from_le_bytes(*crc) {
            return None;
        }
        let mut fields = Fields(checked);
        if fields.bytes(8)? != MAGIC || fields.u32()? != VERSION {
            return None;
        }
        let salt = fields.u32()?;
        let name = SegmentName { base: fields.u64()?, generation: fields.u32()? };
        let flags = fields.u32()?;
        let next_seq = fields.u64()?;
        let end_position = fields.u64()?;
        let first_ms = fields.u64()?;
        let last_ms = fields.u64()?;
        let last_crc = fields.u32()?;
        let least = EventId::from_bytes(fields.array()?);
        let greatest = EventId::from_bytes(fields.array()?);
        let mut sections = [Section::default(); SECTIONS];
        for section in &mut sections {
            *section = Section { start: fields.u64()?, count: fields.u64()? };
        }
        let id_range = IdRange { least, greatest, has_others: flags & 2 != 0 };
        Some(Self {
            name,
            salt,
            sealed: flags & 1 != 0,
            next_seq,
            end_position,
            last_crc,
            first_ms,
            last_ms,
            id_range,
            sections,
        })
    }
}
