//! The events of a small commit, beside the end of their lane: whoever hears that the lane has grown
//! has them already, and need not ask for them. Latency is all they are for: whatever is missing here
//! is read as ever.

use mongodb::bson::raw::RawDocumentBuf;

use crate::clock::Stopwatch;
use crate::limits::{TAIL_BYTES_MAX, TAIL_EVENTS_MAX, TAIL_TIME};
use crate::plan::Plan;
use promethean::store::Lane;

/// The last events of a lane, as they were heard of.
#[derive(Debug)]
pub(crate) struct Tail {
    /// The offset of the first one.
    pub(crate) from: u64,
    documents: Vec<u8>,
    heard: Stopwatch,
}

impl Tail {
    /// Heard of this moment. `None` if it is none.
    pub(crate) fn heard(documents: &[u8]) -> Option<Self> {
        let first = split(documents)?.into_iter().next()?;
        let from = crate::document::unsigned(first.get_i64("offset").ok()?);
        Some(Self { from, documents: documents.to_vec(), heard: Stopwatch::start() })
    }

    /// The documents, unless they are too old to be relied on.
    pub(crate) fn fresh(&self) -> Option<Vec<RawDocumentBuf>> {
        if self.heard.elapsed() > TAIL_TIME {
            return None;
        }
        split(&self.documents)
    }
}

/// What is told of the events that a plan has for a lane: their documents, one behind the other. Nothing
/// if offsets are left out, as those of another store may be: whoever reads is told of gaps.
pub(crate) fn told(plan: &Plan, lane: Lane) -> Option<Vec<u8>> {
    if plan.events.len() > TAIL_EVENTS_MAX {
        return None;
    }
    let mut next = plan.lanes.get(&lane)?.before.next;
    let mut documents = Vec::new();
    for event in &plan.events {
        if (event.placing.topic, event.placing.partition) == (lane.topic, lane.partition) {
            if event.placing.offset.get() != next {
                return None;
            }
            next += 1;
            documents.extend_from_slice(event.document().as_bytes());
        }
    }
    (!documents.is_empty() && documents.len() <= TAIL_BYTES_MAX).then_some(documents)
}

/// Documents that stand one behind the other: each begins with its length, in four bytes.
fn split(mut bytes: &[u8]) -> Option<Vec<RawDocumentBuf>> {
    let mut documents = Vec::new();
    while let Some((length, _)) = bytes.split_first_chunk::<4>() {
        let length = usize::try_from(i32::from_le_bytes(*length)).ok()?;
        let (document, rest) = bytes.split_at_checked(length)?;
        documents.push(RawDocumentBuf::from_bytes(document.to_vec()).ok()?);
        bytes = rest;
    }
    bytes.is_empty().then_some(documents)
}

#[cfg(test)]
mod tests {
    use mongodb::bson::cstr;

    use super::*;

    #[test]
    fn what_is_told_together_is_heard_one_by_one() {
        let event = |offset: i64| {
            let mut document = RawDocumentBuf::new();
            document.append(cstr!("offset"), offset);
            document
        };
        let both = [event(7), event(8)];
        let bytes: Vec<u8> = both.iter().flat_map(|event| event.as_bytes().to_vec()).collect();
        let tail = Tail::heard(&bytes).unwrap();
        assert_eq!(tail.from, 7);
        assert_eq!(tail.fresh().unwrap(), both);
        for cut in [0, 1, 5, bytes.len() - 1] {
            assert!(Tail::heard(&bytes[..cut]).is_none_or(|tail| tail.fresh().is_none()), "{cut}");
        }
    }
}
