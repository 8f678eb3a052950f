use crate::codec::Fields;

/// Bytes before a frame's body.
pub(crate) const FRAME_HEADER_BYTES: usize = 48;

const MAGIC: [u8; 3] = *b"PFR";

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// Events of one commit.
    Events,
    /// Topics and where they stand.
    Catalog,
    /// Nothing but the news that all before it is synced.
    Mark,
    /// The end of a segment: nothing follows.
    Seal,
    /// The end of a log that was closed: nothing follows, and it is taken away before anything is
    /// written.
    Close,
}

impl FrameKind {
    const fn code(self) -> u8 {
        match self {
            Self::Events => 1,
            Self::Catalog => 2,
            Self::Mark => 3,
            Self::Seal => 4,
            Self::Close => 5,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Events),
            2 => Some(Self::Catalog),
            3 => Some(Self::Mark),
            4 => Some(Self::Seal),
            5 => Some(Self::Close),
            _ => None,
        }
    }
}

/// The first bytes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) kind: FrameKind,
    pub(crate) body_bytes: u32,
    /// Records in an events frame, entries in a catalog frame.
    pub(crate) count: u32,
    /// The seq of the first event, or of the next one if the frame has none.
    pub(crate) first_seq: u64,
    pub(crate) append_ms: u64,
    /// All bytes of the segment before this position were synced when the frame was written.
    pub(crate) synced_to: u64,
    /// Checksum of the frame before, or the salt for the first one.
    pub(crate) previous_crc: u32,
    /// Where the frame stands: one that is found elsewhere came there with a misplaced block.
    pub(crate) position: u32,
}

impl FrameHeader {
    /// Writes the header into the first bytes of `frame`, whose body is in place, and gives its
    /// checksum.
    pub(crate) fn seal(&self, salt: u32, frame: &mut [u8]) -> u32 {
        let mut head = [0u8; FRAME_HEADER_BYTES];
        self.put(&mut head);
        let body = frame.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        let crc = checksum(salt, &head, body);
        if let Some(place) = head.last_chunk_mut() {
            *place = crc.to_le_bytes();
        }
        if let Some(place) = frame.first_chunk_mut() {
            *place = head;
        }
        crc
    }

    fn put(&self, head: &mut [u8; FRAME_HEADER_BYTES]) {
        head[0..3].copy_from_slice(&MAGIC);
        head[3] = self.kind.code();
        head[4..8].copy_from_slice(&self.body_bytes.to_le_bytes());
        head[8..12].copy_from_slice(&self.count.to_le_bytes());
        head[12..16].copy_from_slice(&self.previous_crc.to_le_bytes());
        head[16..24].copy_from_slice(&self.first_seq.to_le_bytes());
        head[24..32].copy_from_slice(&self.append_ms.to_le_bytes());
        head[32..40].copy_from_slice(&self.synced_to.to_le_bytes());
        head[40..44].copy_from_slice(&self.position.to_le_bytes());
    }

    /// Reads a header without checking the frame; `None` if it cannot be one.
    pub(crate) fn peek(head: &[u8]) -> Option<Self> {
        let mut fields = Fields(head);
        if fields.array()? != MAGIC {
            return None;
        }
        let kind = FrameKind::from_code(fields.u8()?)?;
        let body_bytes = fields.u32()?;
        let count = fields.u32()?;
        let previous_crc = fields.u32()?;
        let first_seq = fields.u64()?;
        let append_ms = fields.u64()?;
        let synced_to = fields.u64()?;
        let position = fields.u32()?;
        Some(Self {
            kind,
            body_bytes,
            count,
            first_seq,
            append_ms,
            synced_to,
            previous_crc,
            position,
        })
    }

    /// The checksum that a header names as that of the frame before, whatever else of it is damaged.
    pub(crate) fn names(head: &[u8]) -> Option<u32> {
        Fields(head.get(12..)?).u32()
    }

    /// Checks a whole frame (header and body) and gives its checksum; `None` if it is not valid.
    /// The one sum covers every byte. That records have sums of their own is for those who read a
    /// record without the rest of its frame.
    pub(crate) fn check(&self, salt: u32, frame: &[u8]) -> Option<u32> {
        let (head, body) = frame.split_first_chunk::<FRAME_HEADER_BYTES>()?;
        let body = body.get(..self.body_bytes as usize)?;
        let stored = u32::from_le_bytes(*head.last_chunk()?);
        (checksum(salt, head, body) == stored).then_some(stored)
    }

    /// The seq after the last event of the frame.
    pub(crate) const fn next_seq(&self) -> u64 {
        match self.kind {
            FrameKind::Events => self.first_seq + self.count as u64,
            FrameKind::Catalog | FrameKind::Mark | FrameKind::Seal | FrameKind::Close => {
                self.first_seq
            }
        }
    }

    /// Header and body together.
    pub(crate) const fn frame_bytes(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + self.body_bytes as u64
    }
}

fn checksum(salt: u32, head: &[u8; FRAME_HEADER_BYTES], body: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(salt, &head[..FRAME_HEADER_BYTES - 4]);
    crc32c::crc32c_append(crc, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_and_notices_every_flipped_bit() {
        let header = FrameHeader {
            kind: FrameKind::Catalog,
            body_bytes: 5,
            count: 1,
            first_seq: 3,
            append_ms: 4,
            synced_to: 2,
            previous_crc: 77,
            position: 64,
        };
        let mut frame = vec![0; FRAME_HEADER_BYTES];
        frame.extend_from_slice(b"hello");
        let crc = header.seal(9, &mut frame);
        assert_eq!(FrameHeader::peek(&frame), Some(header));
        assert_eq!(header.check(9, &frame), Some(crc));
        assert_eq!(header.check(8, &frame), None, "salt of another segment");
        for bit in 0..frame.len() * 8 {
            let mut bad = frame.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let passes = FrameHeader::peek(&bad).and_then(|header| header.check(9, &bad));
            assert_eq!(passes, None, "bit {bit}");
        }
    }
}
