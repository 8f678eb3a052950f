use std::collections::VecDeque;
use std::sync::Arc;

use crate::store::{Page, Stored};

/// One event of a page that is kept by all who hold one of its events.
#[derive(Debug, Clone)]
pub(crate) struct EventRef {
    page: Arc<Page>,
    index: usize,
}

impl EventRef {
    /// The event at an offset of a page, if it is there.
    pub(crate) fn find(page: &Arc<Page>, offset: u64) -> Option<Self> {
        let first = page.events.first()?.event.offset.get();
        // Nearly always nothing is missing, and the place is known without a search.
        let guess = usize::try_from(offset.checked_sub(first)?).ok()?;
        let at = |index: usize| page.events.get(index).map(|e| e.event.offset.get());
        let index = if at(guess) == Some(offset) {
            guess
        } else {
            page.events.binary_search_by_key(&offset, |e| e.event.offset.get()).ok()?
        };
        Some(Self { page: Arc::clone(page), index })
    }

    pub(crate) fn get(&self) -> Option<&Stored> {
        self.page.events.get(self.index)
    }
}

/// Events of a lane that were read and are not delivered yet. A page goes when the last of its
/// events has gone out; what must be delivered again is read again.
#[derive(Debug, Default)]
pub(crate) struct Stash {
    pages: VecDeque<Kept>,
}

#[derive(Debug)]
struct Kept {
    page: Arc<Page>,
    to: u64,
    /// Events that are still to go out, one bit each.
    waiting: Vec<u64>,
    left: usize,
}

impl Stash {
    /// Keeps the events of a page before `to` for which `wanted` is true.
    pub(crate) fn keep(&mut self, page: &Arc<Page>, to: u64, wanted: impl Iterator<Item = u64>) {
        let mut kept = Kept {
            page: Arc::clone(page),
            to,
            waiting: vec![0; page.events.len().div_ceil(64)],
            left: 0,
        };
        for offset in wanted {
            if let Some(event) = EventRef::find(page, offset)
                && let Some(word) = kept.waiting.get_mut(event.index / 64)
            {
                *word |= 1 << (event.index % 64);
                kept.left += 1;
            }
        }
        if kept.left > 0 {
            self.pages.push_back(kept);
        }
    }

    /// The event at an offset, which goes out now.
    pub(crate) fn take(&mut self, offset: u64) -> Option<EventRef> {
        let at = self.pages.partition_point(|kept| kept.to <= offset);
        let kept = self.pages.get_mut(at)?;
        let event = EventRef::find(&kept.page, offset)?;
        let word = kept.waiting.get_mut(event.index / 64)?;
        let bit = 1 << (event.index % 64);
        if *word & bit != 0 {
            *word &= !bit;
            kept.left -= 1;
            if kept.left == 0 {
                self.pages.remove(at);
            }
        }
        Some(event)
    }

    pub(crate) fn clear(&mut self) {
        self.pages.clear();
    }
}

#[cfg(test)]
mod tests {
    use promethean_event::{EventId, NewEvent, Offset, Partition, Payload, Timestamp, Topic};

    use super::*;

    fn page(offsets: &[u64]) -> Arc<Page> {
        let event = |&offset: &u64| Stored {
            event: NewEvent::new(
                EventId::generate(),
                Timestamp::from_millis(0),
                Topic::new("t").unwrap(),
                Payload::null(),
            )
            .placed(Partition::new(0), Offset::new(offset)),
            appended_at: Timestamp::from_millis(0),
            bytes: 1,
        };
        let next = Offset::new(offsets.last().map_or(0, |last| last + 1));
        Arc::new(Page { events: offsets.iter().map(event).collect(), gaps: Vec::new(), next })
    }

    #[test]
    fn events_are_found_with_and_without_gaps_and_go_once() {
        let mut stash = Stash::default();
        let (dense, sparse) = (page(&[0, 1, 2]), page(&[5, 9, 70]));
        stash.keep(&dense, 3, [0, 1, 2].into_iter());
        stash.keep(&sparse, 71, [5, 70].into_iter());
        for offset in [70, 1, 5, 0] {
            let event = stash.take(offset).unwrap();
            assert_eq!(event.get().unwrap().event.offset.get(), offset);
        }
        assert!(stash.take(5).is_none(), "all of its page have gone");
        assert!(stash.take(6).is_none() && stash.take(99).is_none());
        // The same one twice does not count twice.
        assert!(stash.take(0).is_some());
        assert!(stash.take(2).is_some());
        assert!(stash.pages.is_empty());
    }
}
