//! Goes through a history without knowing anything of the bus.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::history::Line;

/// What was found.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Events whose publisher was told that they are durable.
    pub published: u64,
    /// Deliveries.
    pub delivered: u64,
    /// Deliveries of events that had been delivered before.
    pub again: u64,
    /// Acks that were confirmed.
    pub acked: u64,
    /// Broken promises, in words.
    pub violations: Vec<String>,
}

#[derive(Default)]
struct Books {
    verdict: Verdict,
    invoked: HashSet<(u32, u64)>,
    published: BTreeMap<u64, (u32, u64)>,
    delivered: HashMap<u64, (u32, u64)>,
    /// Offsets of a key, as far as they were delivered.
    by_key: HashMap<u32, Vec<u64>>,
    /// Said to be done, ever.
    done: HashSet<u64>,
    /// The last offset of each key that was delivered since the last start.
    last_now: HashMap<u32, u64>,
    acked: HashSet<u64>,
    stored: BTreeMap<u64, (u32, u64)>,
    caught_up: Option<u64>,
}

/// Checks a whole history.
pub fn check(history: &[Line]) -> Verdict {
    let mut books = Books::default();
    for line in history {
        books.note(line);
    }
    books.close();
    books.verdict
}

impl Books {
    fn violation(&mut self, text: String) {
        self.verdict.violations.push(text);
    }

    fn note(&mut self, line: &Line) {
        match *line {
            Line::Begun { cursor } => self.begun(cursor),
            Line::Publishing { publisher, number, .. } => {
                self.invoked.insert((publisher, number));
            }
            Line::Published { publisher, number, offset } => {
                self.verdict.published += 1;
                if let Some(other) = self.published.insert(offset, (publisher, number)) {
                    self.violation(format!("offset {offset} was given twice, before to {other:?}"));
                }
            }
            Line::Delivered { publisher, number, key, offset, .. } => {
                self.delivered((publisher, number), key, offset);
            }
            Line::Done { offset } => {
                self.done.insert(offset);
            }
            Line::Acked { offset } => {
                self.verdict.acked += 1;
                self.acked.insert(offset);
            }
            Line::CaughtUp { end } => self.caught_up = Some(end),
            Line::Stored { publisher, number, offset, .. } => {
                self.stored.insert(offset, (publisher, number));
            }
        }
    }

    /// The cursor never passes what nobody said was done.
    fn begun(&mut self, cursor: u64) {
        self.last_now.clear();
        for offset in 0..cursor {
            if !self.done.contains(&offset) {
                self.violation(format!("the cursor is at {cursor}, but {offset} was never done"));
            }
        }
    }

    fn delivered(&mut self, name: (u32, u64), key: u32, offset: u64) {
        self.verdict.delivered += 1;
        if !self.invoked.contains(&name) {
            self.violation(format!("{name:?} at {offset} was delivered, but never published"));
        }
        match self.delivered.insert(offset, name) {
            Some(before) => {
                self.verdict.again += 1;
                if before != name {
                    self.violation(format!("offset {offset} was {before:?} and is {name:?}"));
                }
            }
            None => self.by_key.entry(key).or_default().push(offset),
        }
        if self.acked.contains(&offset) {
            self.violation(format!("{offset} came again after its ack was confirmed"));
        }
        // Nobody fails here, so that one process sees the events of a key in order; and whatever
        // of the key came before is done, in this process or in one that was killed.
        if let Some(last) = self.last_now.insert(key, offset)
            && last >= offset
        {
            self.violation(format!("{offset} of key {key} came after {last}"));
        }
        let earlier = self.by_key.get(&key).map(Vec::as_slice).unwrap_or_default();
        let open = earlier.iter().find(|&&at| at < offset && !self.done.contains(&at)).copied();
        if let Some(before) = open {
            self.violation(format!("{offset} of key {key} came before {before} was done"));
        }
    }

    fn close(&mut self) {
        let Some(end) = self.caught_up else {
            return self.violation("the group never caught up".to_owned());
        };
        if self.stored.len() as u64 != end || self.stored.keys().copied().ne(0..end) {
            self.violation(format!("{} offsets are stored, not 0 to {end}", self.stored.len()));
        }
        for (offset, name) in self.published.clone() {
            if self.stored.get(&offset) != Some(&name) {
                let found = self.stored.get(&offset).copied();
                self.violation(format!("{name:?} was durable at {offset}, but there is {found:?}"));
            }
        }
        for offset in 0..end {
            if !self.done.contains(&offset) {
                self.violation(format!("{offset} was never handled"));
            }
        }
        self.order_of_publishers();
    }

    /// What a publisher published later stands later.
    fn order_of_publishers(&mut self) {
        let mut last: HashMap<u32, u64> = HashMap::new();
        let mut broken = Vec::new();
        for (offset, &(publisher, number)) in &self.stored {
            if let Some(before) = last.insert(publisher, number)
                && before >= number
            {
                broken.push(format!("publisher {publisher}: {number} at {offset} after {before}"));
            }
        }
        self.verdict.violations.extend(broken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story() -> Vec<Line> {
        let (publisher, key) = (0, 0);
        let mut lines = vec![Line::Begun { cursor: 0 }];
        for number in 0..2 {
            lines.push(Line::Publishing { publisher, number, key });
            lines.push(Line::Published { publisher, number, offset: number });
        }
        for offset in 0..2 {
            let number = offset;
            lines.push(Line::Delivered { publisher, number, key, offset, attempt: 1 });
            lines.push(Line::Done { offset });
            lines.push(Line::Acked { offset });
        }
        lines.push(Line::Begun { cursor: 2 });
        lines.push(Line::CaughtUp { end: 2 });
        for number in 0..2 {
            lines.push(Line::Stored { publisher, number, key, offset: number });
        }
        lines
    }

    #[test]
    fn a_good_history_is_good() {
        assert_eq!(check(&story()).violations, Vec::<String>::new());
    }

    /// Each of these is a broken promise, and is seen.
    #[test]
    fn bad_histories_are_seen() {
        let good = story();
        let without = |bad: &dyn Fn(&Line) -> bool| -> Vec<Line> {
            good.iter().filter(|line| !bad(line)).cloned().collect()
        };
        let lost = without(&|line| matches!(line, Line::Stored { offset: 1, .. }));
        let skipped = without(&|line| {
            matches!(
                line,
                Line::Delivered { offset: 0, .. }
                    | Line::Done { offset: 0 }
                    | Line::Acked { offset: 0 }
            )
        });
        let phantom = without(&|line| matches!(line, Line::Publishing { number: 1, .. }));
        let mut twice = good.clone();
        let again = Line::Delivered { publisher: 0, number: 0, key: 0, offset: 0, attempt: 2 };
        twice.insert(good.len() - 3, again);
        let mut overtaken = good.clone();
        overtaken
            .retain(|line| !matches!(line, Line::Done { offset: 0 } | Line::Acked { offset: 0 }));
        overtaken.push(Line::Done { offset: 0 });
        for bad in [lost, skipped, phantom, twice, overtaken, Vec::new()] {
            assert!(!check(&bad).violations.is_empty(), "{bad:#?}");
        }
    }
}
