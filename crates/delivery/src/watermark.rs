//! Ranges of finished offsets beyond the floor. The floor itself is the lowest offset that is not
//! finished, so that it never passes an event that nobody acked (pitfalls 1 and 2).

use alloc::vec::Vec;

/// Offsets from `from` up to, not including, `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first offset.
    pub from: u64,
    /// The offset after the last one.
    pub to: u64,
}

impl Span {
    /// How many offsets it holds.
    pub const fn count(self) -> u64 {
        self.to.saturating_sub(self.from)
    }
}

/// Spans that are sorted, not empty, and do not touch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpanSet(Vec<Span>);

impl SpanSet {
    /// No offset at all.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Takes spans that are already sorted, not empty and apart; `None` if they are not.
    pub fn from_sorted(spans: Vec<Span>) -> Option<Self> {
        let full = spans.iter().all(|span| span.from < span.to);
        let apart = spans.iter().zip(spans.iter().skip(1)).all(|(one, next)| one.to < next.from);
        (full && apart).then_some(Self(spans))
    }

    /// The spans, lowest first.
    pub fn spans(&self) -> &[Span] {
        &self.0
    }

    /// Whether there is nothing in it.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the offset is in it.
    pub fn contains(&self, offset: u64) -> bool {
        let at = self.0.partition_point(|span| span.to <= offset);
        self.0.get(at).is_some_and(|span| span.from <= offset)
    }

    /// Adds the offsets of `span`, joining what touches.
    pub fn insert(&mut self, span: Span) {
        if span.from >= span.to {
            return;
        }
        // Acks mostly come in order: the last span grows, or one is added behind it.
        match self.0.last_mut() {
            None => return self.0.push(span),
            Some(last) if last.to < span.from => return self.0.push(span),
            Some(last) if last.from <= span.from => {
                last.to = last.to.max(span.to);
                return;
            }
            Some(_) => {}
        }
        let first = self.0.partition_point(|have| have.to < span.from);
        let after = self.0.partition_point(|have| have.from <= span.to);
        let touched = self.0.get(first..after).unwrap_or_default();
        let joined = Span {
            from: touched.first().map_or(span.from, |t| t.from.min(span.from)),
            to: touched.last().map_or(span.to, |t| t.to.max(span.to)),
        };
        self.0.splice(first..after, [joined]);
    }

    /// Takes out every offset below `floor`.
    pub fn cut_below(&mut self, floor: u64) {
        let gone = self.0.partition_point(|span| span.to <= floor);
        self.0.drain(..gone);
        if let Some(first) = self.0.first_mut() {
            first.from = first.from.max(floor);
        }
    }

    /// Takes out every offset from `end` on.
    pub fn cut_above(&mut self, end: u64) {
        let kept = self.0.partition_point(|span| span.from < end);
        self.0.truncate(kept);
        if let Some(last) = self.0.last_mut() {
            last.to = last.to.min(end);
        }
    }

    /// Takes out everything.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// If a span begins at or below `floor`, takes it out and gives the offset after it.
    pub fn floor_after(&mut self, floor: u64) -> u64 {
        let mut floor = floor;
        while let Some(first) = self.0.first().copied() {
            if first.from > floor {
                break;
            }
            floor = floor.max(first.to);
            self.0.remove(0);
        }
        floor
    }

    /// Takes out the spans.
    pub(crate) fn take(&mut self) -> Vec<Span> {
        core::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    proptest! {
        /// Pitfall 1: acks in any order give the same set, and the floor stops at the first hole.
        #[test]
        fn agrees_with_a_set(spans in prop::collection::vec((0u64..200, 0u64..12), 0..60), cut in 0u64..200) {
            let mut set = SpanSet::new();
            let mut model = BTreeSet::new();
            for (from, count) in spans {
                set.insert(Span { from, to: from + count });
                model.extend(from..from + count);
            }
            prop_assert!(SpanSet::from_sorted(set.spans().to_vec()).is_some());
            for offset in 0..220 {
                prop_assert_eq!(set.contains(offset), model.contains(&offset));
            }
            let mut floored = set.clone();
            let floor = floored.floor_after(0);
            prop_assert_eq!(floor, (0..).find(|o| !model.contains(o)).unwrap_or(0));
            let mut below = set.clone();
            below.cut_above(cut);
            prop_assert!(SpanSet::from_sorted(below.spans().to_vec()).is_some());
            for offset in 0..220 {
                prop_assert_eq!(below.contains(offset), offset < cut && model.contains(&offset));
            }
            set.cut_below(cut);
            prop_assert!(SpanSet::from_sorted(set.spans().to_vec()).is_some());
            for offset in 0..220 {
                prop_assert_eq!(set.contains(offset), offset >= cut && model.contains(&offset));
            }
        }
    }
}
