//! What consumers have seen, and whether that is as it must be. It knows nothing of how hubs work.

use std::collections::BTreeMap;
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
pub(crate) struct History(Arc<Mutex<Vec<Seen>>>);

impl History {
    pub(crate) fn note(&self, seen: Seen) {
        self.0.lock().unwrap().push(seen);
    }

    pub(crate) fn all(&self) -> Vec<Seen> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn confirmed(&self) -> usize {
        let is_confirmed = |seen: &&Seen| matches!(seen, Seen::Confirmed { .. });
        self.all().iter().filter(is_confirmed).count()
    }

    pub(crate) fn violations(&self, published: &[(String, u64)]) -> Vec<String> {
        self.violations_but(published, None)
    }

    pub(crate) fn confirmed_at(&self, at: usize) -> usize {
        let here = |seen: &&Seen| matches!(seen, Seen::Confirmed { hub, .. } if *hub == at);
        self.all().iter().filter(here).count()
    }

    pub(crate) fn delivered_at(&self, at: usize) -> usize {
        let here = |seen: &&Seen| matches!(seen, Seen::Delivered { hub, .. } if *hub == at);
        self.all().iter().filter(here).count()
    }

    /// Events whose fate nobody knows: their ack was refused, or they were out at a hub that died.
    /// They may have been acked for good.
    pub(crate) fn unknown(&self, dead: Option<usize>) -> usize {
        let all = self.all();
        let is_confirmed = |wanted: &(&String, u64)| {
            all.iter().any(|seen| {
                matches!(seen, Seen::Confirmed { key, number, .. } if (key, *number) == *wanted)
            })
        };
        let open = all.iter().filter_map(|seen| match seen {
            Seen::Refused { key, number, .. } => Some((key, *number)),
            Seen::Delivered { hub, key, number } if Some(*hub) == dead => Some((key, *number)),
            _ => None,
        });
        let open: std::collections::BTreeSet<_> = open.filter(|seen| !is_confirmed(seen)).collect();
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
        let mut confirmed: BTreeMap<(String, u64), usize> = BTreeMap::new();
        let mut newest: BTreeMap<String, u64> = BTreeMap::new();
        let all = self.all();
        for seen in all.iter().cloned() {
            match seen {
                Seen::Delivered { hub, key, number } if Some(hub) == slept => {
                    let before = newest.entry(key).or_default();
                    *before = number.max(*before);
                }
                Seen::Delivered { hub, key, number } => {
                    if confirmed.contains_key(&(key.clone(), number)) {
                        wrong.push(format!("{key}/{number} came to hub {hub} after its ack"));
                    }
                    let before = newest.entry(key.clone()).or_default();
                    let skips = published
                        .iter()
                        .filter(|(other, earlier)| *other == key && *earlier < number)
                        .any(|(key, earlier)| {
                            !confirmed.contains_key(&(key.clone(), *earlier)) && *earlier > *before
                        });
                    if skips {
                        wrong.push(format!("{key}/{number} came before one before it"));
                    }
                    *before = number.max(*before);
                }
                Seen::Confirmed { hub, key, number } => {
                    if let Some(first) = confirmed.insert((key.clone(), number), hub) {
                        wrong.push(format!("{key}/{number} confirmed at hubs {first} and {hub}"));
                    }
                }
                Seen::Refused { .. } => {}
            }
        }
        let was_delivered = |event: &&(String, u64)| {
            all.iter().any(|seen| {
                matches!(seen, Seen::Delivered { key, number, .. }
                    if (key, number) == (&event.0, &event.1))
            })
        };
        let lost = published.iter().filter(|event| !was_delivered(event));
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
