use crate::error::ReadError;
use crate::log::Log;
use crate::recovery::Damage;
use crate::segment::{FrameEvent, FrameKind, SegmentScan};

/// What was found when a segment was read through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scrubbed {
    /// How many segments there are that can be.
    pub segments: usize,
    /// Bytes that are not what was written.
    pub damage: Vec<Damage>,
}

impl Log {
    /// Reads a segment through that nobody writes any more, to see whether it still is what was
    /// written: the one at `place`, counted round. What is read seldom would otherwise be found to be
    /// damaged when it is wanted, and its copies are gone.
    pub fn scrub(&self, place: u64) -> Result<Scrubbed, ReadError> {
        let sealed = self.sealed();
        let segments = sealed.len();
        let place = place.checked_rem(segments as u64).unwrap_or(0) as usize;
        let mut scrubbed = Scrubbed { segments, ..Scrubbed::default() };
        let Some(segment) = sealed.get(place) else {
            return Ok(scrubbed);
        };
        let mut damaged = |bytes, seq: u64, reason| {
            let file = segment.name.segment_file();
            scrubbed.damage.push(Damage { file, bytes, seqs: seq..seq, reason });
        };
        let mut seq = segment.name.base;
        let mut scan = SegmentScan::new(&*segment.file, segment.salt)?;
        while let Some(event) = scan.next()? {
            match event {
                FrameEvent::Frame { header, .. } if header.kind == FrameKind::Seal => {
                    seq = header.first_seq;
                }
                FrameEvent::Frame { header, .. } => seq = header.next_seq(),
                FrameEvent::Hole(bytes) => damaged(bytes, seq, "the bytes are not a frame"),
                FrameEvent::End { position, .. } => {
                    damaged(position..segment.file.len()?, seq, "the end is missing");
                }
            }
        }
        Ok(scrubbed)
    }
}
