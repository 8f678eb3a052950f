use crate::error::ReadError;
use crate::log::Log;
use crate::recovery::Damage;
use crate::segment::{FrameEvent, Holes, SegmentScan};

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
        let mut holes = Holes::since(segment.name.base);
        let mut end = None;
        let mut scan = SegmentScan::new(&*segment.file, segment.salt)?;
        while let Some(event) = scan.next()? {
            match event {
                FrameEvent::Frame { header, .. } => holes.frame(&header),
                FrameEvent::Hole(bytes) => holes.hole(bytes),
                FrameEvent::End { position, .. } => end = Some(position..segment.file.len()?),
            }
        }
        let next_seq = holes.next_seq();
        let mut damaged = |bytes, seqs, reason| {
            let file = segment.name.segment_file();
            scrubbed.damage.push(Damage { file, bytes, seqs, reason });
        };
        for (bytes, seqs) in holes.into_found() {
            damaged(bytes, seqs, "the bytes are not a frame");
        }
        if let Some(bytes) = end {
            damaged(bytes, next_seq..segment.next_seq.max(next_seq), "the end is missing");
        }
        Ok(scrubbed)
    }
}
