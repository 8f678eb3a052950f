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
    /// The first place of the page that it is about, and the offset after the last.
    first: usize,
    to: u64,
    /// Events that are still to go out, one bit each, from the first place on.
    waiting: Vec<u64>,
    left: u32,
}

impl Kept {
    /// Events go out: those that waited do so no more.
    fn take(&mut self, index: usize, count: usize) {
        let first = index.saturating_sub(self.first);
        for (number, word) in words(first, count) {
            if let Some(waiting) = self.waiting.get_mut(number) {
                self.left -= (*waiting & word).count_ones();
                *waiting &= !word;
            }
        }
    }
}

/// The words that `count` bits from one on lie in, and the bits of each.
fn words(first: usize, count: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = first + count;
    (first / 64..end.div_ceil(64)).map(move |word| {
        let (low, high) = (first.max(word * 64) % 64, (end - word * 64).min(64));
        (word, (u64::MAX >> (64 - (high - low))) << low)
    })
}

impl Stash {
    /// Keeps the events of a page from a place on and before `to`, but for those at the places
    /// that are left out.
    pub(crate) fn keep(
        &mut self,
        page: &Arc<EventPage>,
        (first, to): (usize, u64),
        left_out: impl Iterator<Item = usize>,
    ) {
        let count = page.first_from(to).saturating_sub(first);
        let mut waiting = vec![0; count.div_ceil(64)];
        for (word, (_, bits)) in waiting.iter_mut().zip(words(0, count)) {
            *word = bits;
        }
        let mut kept = Kept { page: Arc::clone(page), first, to, waiting, left: count as u32 };
        for index in left_out {
            kept.take(index, 1);
        }
        if kept.left > 0 {
            self.pages.push_back(kept);
        }
    }

    /// Events that follow each other go out now: `take` is given their pages, their first places
    /// there, and how many they are. Gives the first one that is not here.
    pub(crate) fn take(
        &mut self,
        (mut from, to): (u64, u64),
        mut take: impl FnMut(&Arc<EventPage>, usize, usize),
    ) -> Option<u64> {
        while from < to {
            let is_first = self.pages.front().is_some_and(|kept| from < kept.to);
            let at = if is_first { 0 } else { self.pages.partition_point(|kept| kept.to <= from) };
            let Some((kept, index)) =
                self.pages.get_mut(at).and_then(|kept| kept.page.find(from).map(|at| (kept, at)))
            else {
                return Some(from);
            };
            let wanted = usize::try_from(to.min(kept.to) - from).unwrap_or(usize::MAX);
            let count = kept.page.run(index).min(wanted);
            take(&kept.page, index, count);
            kept.take(index, count);
            if kept.left == 0 {
                self.pages.remove(at);
            }
            from += count as u64;
        }
        None
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
        stash.keep(&dense, (0, 3), std::iter::empty());
        stash.keep(&sparse, (0, 71), [1].into_iter());
        for offset in [70, 1, 5, 0] {
            let mut found = None;
            let take = |page: &Arc<EventPage>, index: usize, count| {
                found = page.found().get(index).map(|of| (of.offset, count));
            };
            assert_eq!(stash.take((offset, offset + 1), take), None);
            assert_eq!(found, Some((offset, 1)));
        }
        let mut gone = |offset| stash.take((offset, offset + 1), |_, _, _| {}) == Some(offset);
        assert!(gone(5), "all of its page have gone");
        assert!(gone(6) && gone(99));
        // The same one twice does not count twice.
        assert_eq!(stash.take((0, 1), |_, _, _| {}), None);
        assert_eq!(stash.take((2, 3), |_, _, _| {}), None);
        assert!(stash.pages.is_empty());
    }

    #[test]
    fn runs_go_over_pages_and_stop_at_what_is_not_there() {
        let mut stash = Stash::default();
        let (first, second) = (page(&Vec::from_iter(0..200)), page(&[200, 201, 203]));
        stash.keep(&first, (10, 150), std::iter::empty());
        stash.keep(&first, (150, 200), std::iter::empty());
        stash.keep(&second, (0, 204), std::iter::empty());
        let mut taken = Vec::new();
        let missing = stash.take((60, 204), |_, index, count| taken.push((index, count)));
        assert_eq!(missing, Some(202));
        assert_eq!(taken, [(60, 90), (150, 50), (0, 2)]);
        assert_eq!(stash.pages.len(), 2, "one has gone as a whole");
        assert_eq!(stash.take((10, 60), |_, _, _| {}), None);
        assert_eq!(stash.take((203, 204), |_, _, _| {}), None);
        assert!(stash.pages.is_empty());
    }

    #[test]
    fn words_cover_the_bits_and_no_others() {
        for (first, count) in [(0, 1), (0, 64), (3, 61), (3, 62), (63, 1), (63, 130), (64, 64)] {
            let bits = words(first, count).flat_map(|(word, bits)| {
                (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
            });
            assert_eq!(Vec::from_iter(bits), Vec::from_iter(first..first + count));
        }
    }
}
