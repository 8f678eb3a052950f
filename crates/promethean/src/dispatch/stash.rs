use std::collections::VecDeque;
use std::sync::Arc;

use crate::store::EventPage;

/// Events of a lane that were read and are not delivered yet. A page goes when the last of its
/// events has gone out; what must be delivered again is read again.
#[derive(Debug, Default)]
pub(crate) struct Stash {
    pages: VecDeque<Kept>,
}

#[derive(Debug)]
struct Kept {
    page: Arc<EventPage>,
    to: u64,
    /// Events that are still to go out, one bit each.
    waiting: Vec<u64>,
    left: usize,
}

impl Stash {
    /// Keeps the events of a page before `to` that are at these places.
    pub(crate) fn keep(
        &mut self,
        page: &Arc<EventPage>,
        to: u64,
        wanted: impl Iterator<Item = usize>,
    ) {
        let waiting = vec![0; page.len().div_ceil(64)];
        let mut kept = Kept { page: Arc::clone(page), to, waiting, left: 0 };
        for index in wanted {
            if let Some(word) = kept.waiting.get_mut(index / 64) {
                *word |= 1 << (index % 64);
                kept.left += 1;
            }
        }
        if kept.left > 0 {
            self.pages.push_back(kept);
        }
    }

    /// The event at an offset, which goes out now: `take` is given its page and place there.
    pub(crate) fn take(&mut self, offset: u64, take: impl FnOnce(&Arc<EventPage>, usize)) -> bool {
        let is_first = self.pages.front().is_some_and(|kept| offset < kept.to);
        let at = if is_first { 0 } else { self.pages.partition_point(|kept| kept.to <= offset) };
        let Some(kept) = self.pages.get_mut(at) else {
            return false;
        };
        let Some(index) = kept.page.find(offset) else {
            return false;
        };
        take(&kept.page, index);
        let bit = 1 << (index % 64);
        if let Some(word) = kept.waiting.get_mut(index / 64)
            && *word & bit != 0
        {
            *word &= !bit;
            kept.left -= 1;
            if kept.left == 0 {
                self.pages.remove(at);
            }
        }
        true
    }

    pub(crate) fn clear(&mut self) {
        self.pages.clear();
    }
}

#[cfg(test)]
mod tests {
    use promethean_event::{EventId, NewEvent, Offset, Partition, Payload, Timestamp, Topic};

    use super::*;
    use crate::store::{Page, Stored};

    fn page(offsets: &[u64]) -> Arc<EventPage> {
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
        let page = Page { events: offsets.iter().map(event).collect(), gaps: Vec::new(), next };
        Arc::new(page.into())
    }

    #[test]
    fn events_are_found_with_and_without_gaps_and_go_once() {
        let mut stash = Stash::default();
        let (dense, sparse) = (page(&[0, 1, 2]), page(&[5, 9, 70]));
        stash.keep(&dense, 3, 0..3);
        stash.keep(&sparse, 71, [0, 2].into_iter());
        for offset in [70, 1, 5, 0] {
            let mut found = None;
            assert!(
                stash.take(offset, |page, index| found = page.outline(index).map(|of| of.offset))
            );
            assert_eq!(found, Some(offset));
        }
        let mut gone = |offset| !stash.take(offset, |_, _| {});
        assert!(gone(5), "all of its page have gone");
        assert!(gone(6) && gone(99));
        // The same one twice does not count twice.
        assert!(stash.take(0, |_, _| {}));
        assert!(stash.take(2, |_, _| {}));
        assert!(stash.pages.is_empty());
    }
}
