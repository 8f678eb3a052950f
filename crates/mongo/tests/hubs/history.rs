//! What consumers have seen, and whether that is as it must be. It knows nothing of how hubs work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// One thing that a consumer has seen, in the order in which it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// An event was handed to a consumer at a hub.
    Delivered { hub: usize, key: String, number: u64 },
    /// The ack of an event was confirmed.
    Confirmed { hub: usize, key: String, number: u64 },
    /// The ack of an event was refused, or nobody knows.
    Refused { hub: usize, key: String, number: u64 },
}

#[derive(Debug, Clone, Default)]
pub(crate) struct History(Arc<Mutex<Noted>>);

/// Everything that was seen, and what is asked for all the time.
#[derive(Debug, Default)]
struct Noted {
    all: Vec<Seen>,
    confirmed: usize,
    confirmed_at: BTreeMap<usize, usize>,
    delivered_at: BTreeMap<usize, usize>,
}

impl History {
    pub(crate) fn note(&self, seen: Seen) {
        let mut noted = self.0.lock().unwrap();
        match &seen {
            Seen::Delivered { hub, .. } => *noted.delivered_at.entry(*hub).or_default() += 1,
            Seen::Confirmed { hub, .. } => {
                *noted.confirmed_at.entry(*hub).or_default() += 1;
                noted.confirmed += 1;
            }
            Seen::Refused { .. } => {}
        }
        noted.all.push(seen);
    }

    pub(crate) fn all(&self) -> Vec<Seen> {
        self.0.lock().unwrap().all.clone()
    }

    pub(crate) fn confirmed(&self) -> usize {
        self.0.lock().unwrap().confirmed
    }

    pub(crate) fn violations(&self, published: &[(String, u64)]) -> Vec<String> {
        self.violations_but(published, None)
    }

    pub(crate) fn confirmed_at(&self, at: usize) -> usize {
        self.0.lock().unwrap().confirmed_at.get(&at).copied().unwrap_or(0)
    }

    pub(crate) fn delivered_at(&self, at: usize) -> usize {
        self.0.lock().unwrap().delivered_at.get(&at).copied().unwrap_or(0)
    }

    /// Events whose fate nobody knows: their ack was refused, or they were out at a hub that died.
    /// They may have been acked for good.
    pub(crate) fn unknown(&self, dead: Option<usize>) -> usize {
        let noted = self.0.lock().unwrap();
        let mut open: BTreeSet<(&str, u64)> = BTreeSet::new();
        for seen in &noted.all {
            match seen {
                Seen::Refused { key, number, .. } => drop(open.insert((key, *number))),
                Seen::Delivered { hub, key, number } if Some(*hub) == dead => {
                    open.insert((key, *number));
                }
                _ => {}
            }
        }
        for seen in &noted.all {
            if let Seen::Confirmed { key, number, .. } = seen {
                open.remove(&(key.as_str(), *number));
            }
        }
        open.len()
    }

    /// What is wrong with it, if everything that was published is done. One that has slept may hand
    /// on what it had before, as long as nothing of that is confirmed.
    pub(crate) fn violations_but(
        &self,
        published: &[(String, u64)],
        slept: Option<usize>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut of_key: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        for (key, number) in published {
            of_key.entry(key).or_default().insert(*number);
        }
        let all = self.all();
        let mut delivered: BTreeSet<(&str, u64)> = BTreeSet::new();
        let mut confirmed: BTreeMap<(&str, u64), usize> = BTreeMap::new();
        let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
        for seen in &all {
            match seen {
                Seen::Delivered { hub, key, number } => {
                    let (key, number) = (key.as_str(), *number);
                    delivered.insert((key, number));
                    let before = newest.entry(key).or_default();
                    if Some(*hub) != slept {
                        if confirmed.contains_key(&(key, number)) {
                            wrong.push(format!("{key}/{number} came to hub {hub} after its ack"));
                        }
                        let mut between = of_key.get(key).into_iter().flat_map(|numbers| {
                            numbers.range(*before + 1..number.max(*before + 1))
                        });
                        if between.any(|earlier| !confirmed.contains_key(&(key, *earlier))) {
                            wrong.push(format!("{key}/{number} came before one before it"));
                        }
                    }
                    *before = number.max(*before);
                }
                Seen::Confirmed { hub, key, number } => {
                    if let Some(first) = confirmed.insert((key, *number), *hub) {
                        wrong.push(format!("{key}/{number} confirmed at hubs {first} and {hub}"));
                    }
                }
                Seen::Refused { .. } => {}
            }
        }
        let lost = published.iter().filter(|(key, number)| !delivered.contains(&(key, *number)));
        wrong.extend(lost.map(|(key, number)| format!("{key}/{number} never came")));
        wrong
    }
}

#[test]
fn the_checker_finds_what_is_wrong() {
    let published = [("k".to_owned(), 1), ("k".to_owned(), 2)];
    let delivered = |number| Seen::Delivered { hub: 0, key: "k".into(), number };
    let confirmed = |hub, number| Seen::Confirmed { hub, key: "k".into(), number };
    let of = |all: &[Seen]| {
        let history = History::default();
        all.iter().for_each(|seen| history.note(seen.clone()));
        history.violations(&published)
    };
    let good = [delivered(1), confirmed(0, 1), delivered(2), confirmed(0, 2)];
    assert_eq!(of(&good), Vec::<String>::new());
    assert_eq!(of(&good[..2]).len(), 1, "one that was lost");
    let twice = [&good[..], &[confirmed(1, 2)]].concat();
    assert_eq!(of(&twice).len(), 1, "one that was confirmed twice");
    let again = [&good[..], &[delivered(1)]].concat();
    assert_eq!(of(&again).len(), 1, "one that came again after its ack");
    let turned = [delivered(2), confirmed(0, 2), delivered(1), confirmed(0, 1)];
    assert_eq!(of(&turned).len(), 1, "two that changed places");
}
