use crate::codec::{Fields, put_u32, put_u64};

use super::SegmentName;

/// Bytes before the first frame.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 64;

const MAGIC: &[u8; 8] = b"PROMSEG\0";
const VERSION: u32 = 1;

/// The first bytes of a segment: what it is, and which part of which log it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) log_id: [u8; 16],
    pub(crate) name: SegmentName,
    pub(crate) created_ms: u64,
    /// Length of the file when it was made; it gets shorter only when it is sealed.
    pub(crate) file_bytes: u64,
    /// Whether the log was kept whole when the segment was made: a segment of it that is missing
    /// is missed, also the oldest and the newest (`FORMAT.md`, section 6).
    pub(crate) whole: bool,
}

/// The flag of [`SegmentHeader::whole`].
const WHOLE: u32 = 1;

/// Why bytes are not the header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// Not ours, or damaged.
    Damaged,
    /// Ours, of a version that this build does not know.
    Version(u32),
}

impl SegmentHeader {
    /// The header's bytes and the salt of the segment.
    pub(crate) fn encode(&self) -> (Vec<u8>, u32) {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES as usize);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, VERSION);
        put_u32(&mut out, self.name.generation);
        out.extend_from_slice(&self.log_id);
        put_u64(&mut out, self.name.base);
        put_u64(&mut out, self.created_ms);
        put_u64(&mut out, self.file_bytes);
        put_u32(&mut out, if self.whole { WHOLE } else { 0 });
        let salt = crc32c::crc32c(&out);
        put_u32(&mut out, salt);
        (out, salt)
    }

    /// The header and the salt.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Self, u32), BadHeader> {
        Self::fields(bytes).unwrap_or(Err(BadHeader::Damaged))
    }

    fn fields(bytes: &[u8]) -> Option<Result<(Self, u32), BadHeader>> {
        let checked = bytes.get(..SEGMENT_HEADER_BYTES as usize - 4)?;
        let mut fields = Fields(bytes);
        if fields.bytes(8)? != MAGIC {
            return None;
        }
        let version = fields.u32()?;
        // The version is looked at before the checksum: a later one may check other bytes.
        if version != VERSION {
            return Some(Err(BadHeader::Version(version)));
        }
        let generation = fields.u32()?;
        let log_id = fields.array()?;
        let base = fields.u64()?;
        let created_ms = fields.u64()?;
        let file_bytes = fields.u64()?;
        // Flags that this build does not know are none of its business.
        let whole = fields.u32()? & WHOLE != 0;
        let salt = Fields(bytes.get(SEGMENT_HEADER_BYTES as usize - 4..)?).u32()?;
        if crc32c::crc32c(checked) != salt {
            return None;
        }
        let name = SegmentName { base, generation };
        Some(Ok((Self { log_id, name, created_ms, file_bytes, whole }, salt)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_and_notices_every_flipped_bit() {
        let name = SegmentName { base: 7, generation: 2 };
        for whole in [false, true] {
            let header =
                SegmentHeader { log_id: [9; 16], name, created_ms: 5, file_bytes: 6, whole };
            assert_eq!(SegmentHeader::decode(&header.encode().0).map(|read| read.0), Ok(header));
        }
        let header =
            SegmentHeader { log_id: [9; 16], name, created_ms: 5, file_bytes: 6, whole: true };
        let (bytes, salt) = header.encode();
        assert_eq!(bytes.len() as u64, SEGMENT_HEADER_BYTES);
        assert_eq!(SegmentHeader::decode(&bytes), Ok((header, salt)));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_later_version_is_told_apart_from_damage() {
        let name = SegmentName { base: 0, generation: 0 };
        let header =
            SegmentHeader { log_id: [0; 16], name, created_ms: 0, file_bytes: 0, whole: true };
        let mut bytes = header.encode().0;
        bytes[8] = 9;
        assert_eq!(SegmentHeader::decode(&bytes), Err(BadHeader::Version(9)));
    }
}
