use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::record::{FORM, Placed, hash};

/// How far a chain is, as the store knows beside the records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainHead {
    /// The chain.
    pub chain: String,
    /// The number of its newest record.
    pub n: u64,
    /// The hash of its newest record.
    pub sha256: String,
}

/// Where a chain is not what was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fault {
    /// The record is not the one that was written: the next one knows another.
    Changed {
        /// The chain.
        chain: String,
        /// The record's number.
        n: u64,
        /// Where it stands in the log.
        offset: u64,
    },
    /// Records are not there.
    Missing {
        /// The chain.
        chain: String,
        /// The number of the first one.
        from: u64,
        /// The number of the last one.
        to: u64,
        /// Where the next one stands in the log, or where it ends.
        offset: u64,
    },
    /// A record stands behind one that was written after it.
    OutOfOrder {
        /// The chain.
        chain: String,
        /// The record's number.
        n: u64,
        /// Where it stands in the log.
        offset: u64,
    },
    /// It is no record.
    Unreadable {
        /// Where it stands in the log.
        offset: u64,
    },
    /// Places of the log are damaged.
    Damaged {
        /// The first.
        from: u64,
        /// The first after them.
        to: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { chain, n, offset } => {
                write!(f, "record {n} of chain {chain}, at offset {offset}, was changed")
            }
            Self::Missing { chain, from, to, offset } if from == to => {
                write!(f, "record {from} of chain {chain} is missing, before offset {offset}")
            }
            Self::Missing { chain, from, to, offset } => {
                write!(
                    f,
                    "records {from} to {to} of chain {chain} are missing, before offset {offset}"
                )
            }
            Self::OutOfOrder { chain, n, offset } => {
                write!(f, "record {n} of chain {chain}, at offset {offset}, is out of order")
            }
            Self::Unreadable { offset } => write!(f, "what stands at offset {offset} is no record"),
            Self::Damaged { from, to } => {
                write!(f, "the log is damaged from offset {from} to {}", to.saturating_sub(1))
            }
        }
    }
}

/// What there is of a chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The chain.
    pub chain: String,
    /// The number of its oldest record that is there; above 1, the one before it is unknown.
    pub first: u64,
    /// The number of its newest record.
    pub last: u64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// How many records were seen.
    pub records: u64,
    /// All chains, by name.
    pub chains: Vec<Kept>,
    /// What is wrong, in the order of the log.
    pub faults: Vec<Fault>,
}

/// Walks the chains of an audit log. Decides by the bytes of the records, as they were stored.
#[derive(Debug, Default)]
pub struct Verifier {
    chains: BTreeMap<String, Seen>,
    faults: Vec<Fault>,
    records: u64,
    next: u64,
    /// Whether retention has removed the beginning of the log.
    begins_later: bool,
}

#[derive(Debug)]
struct Seen {
    first: u64,
    last: u64,
    offset: u64,
    hash: String,
}

impl Verifier {
    /// Retention has removed what stood before.
    pub fn begins_later(&mut self) {
        self.begins_later = true;
    }

    /// Places of the log that are damaged, up to the second.
    pub fn damaged(&mut self, from: u64, to: u64) {
        self.faults.push(Fault::Damaged { from, to });
    }

    /// The next record of the log, and where it stands.
    pub fn see(&mut self, offset: u64, record: &str) {
        self.records += 1;
        self.next = offset + 1;
        let Ok(placed) = serde_json::from_str::<Placed>(record) else {
            self.faults.push(Fault::Unreadable { offset });
            return;
        };
        let Placed { v, chain, n, prev, .. } = placed;
        // The first one has none before it, and only the first.
        if v != FORM || n == 0 || (n == 1) != prev.is_none() {
            self.faults.push(Fault::Changed { chain, n, offset });
            return;
        }
        let hash = hash(record.as_bytes());
        let Some(seen) = self.chains.get_mut(&chain) else {
            if n > 1 && !self.begins_later {
                // Retention takes the oldest of the whole log first.
                self.faults.push(Fault::Missing {
                    chain: chain.clone(),
                    from: 1,
                    to: n - 1,
                    offset,
                });
            }
            self.chains.insert(chain, Seen { first: n, last: n, offset, hash });
            return;
        };
        if n <= seen.last {
            self.faults.push(Fault::OutOfOrder { chain, n, offset });
            return;
        }
        if n > seen.last + 1 {
            let (from, to) = (seen.last + 1, n - 1);
            self.faults.push(Fault::Missing { chain, from, to, offset });
        } else if prev.as_ref() != Some(&seen.hash) {
            self.faults.push(Fault::Changed { chain, n: seen.last, offset: seen.offset });
        }
        *seen = Seen { first: seen.first, last: n, offset, hash };
    }

    /// What was found, held against how far the chains are.
    pub fn end(mut self, heads: &[ChainHead]) -> Verdict {
        for head in heads {
            let (chain, offset) = (head.chain.clone(), self.next);
            match self.chains.get(&head.chain) {
                Some(seen) if seen.last < head.n => {
                    let (from, to) = (seen.last + 1, head.n);
                    self.faults.push(Fault::Missing { chain, from, to, offset });
                }
                Some(seen) if seen.last == head.n && seen.hash != head.sha256 => {
                    let offset = seen.offset;
                    self.faults.push(Fault::Changed { chain, n: head.n, offset });
                }
                None if !self.begins_later => {
                    self.faults.push(Fault::Missing { chain, from: 1, to: head.n, offset });
                }
                // It is as far, or further: it is noted a little after the record. Or all of it is
                // older than what is kept.
                Some(_) | None => {}
            }
        }
        let kept =
            |(chain, seen): (String, Seen)| Kept { chain, first: seen.first, last: seen.last };
        let chains = self.chains.into_iter().map(kept).collect();
        Verdict { records: self.records, chains, faults: self.faults }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::*;

    fn chain(name: &str, numbers: std::ops::RangeInclusive<u64>) -> Vec<String> {
        let mut prev = (*numbers.start() > 1).then(|| "0".repeat(64));
        let record = |n| {
            let placed = Placed {
                v: FORM,
                chain: name.into(),
                n,
                prev: prev.clone(),
                record: Record::of("a"),
            };
            let text = serde_json::to_string(&placed).unwrap();
            prev = Some(hash(text.as_bytes()));
            text
        };
        numbers.map(record).collect()
    }

    fn verdict(records: &[String], heads: &[ChainHead]) -> Verdict {
        let mut verifier = Verifier::default();
        (0..).zip(records).for_each(|(offset, record)| verifier.see(offset, record));
        verifier.end(heads)
    }

    #[test]
    fn chains_of_several_hubs_stand_in_one_log() {
        let (a, b) = (chain("a", 1..=3), chain("b", 1..=2));
        let mixed = [&a[0], &b[0], &a[1], &b[1], &a[2]].map(Clone::clone);
        let verdict = verdict(&mixed, &[]);
        assert_eq!((verdict.records, verdict.chains.len(), verdict.faults), (5, 2, vec![]));
    }

    #[test]
    fn a_log_that_retention_has_shortened_begins_in_the_middle() {
        let mut verifier = Verifier::default();
        verifier.begins_later();
        (7..).zip(chain("a", 5..=6)).for_each(|(offset, record)| verifier.see(offset, &record));
        let gone = ChainHead { chain: "gone".into(), n: 3, sha256: "0".repeat(64) };
        let verdict = verifier.end(std::slice::from_ref(&gone));
        assert_eq!((verdict.chains[0].first, verdict.faults), (5, vec![]));
        // Without retention there is no reason for it.
        let verdict = super::Verifier::default().end(&[gone]);
        assert_eq!(verdict.faults.len(), 1);
    }

    #[test]
    fn the_end_of_a_chain_is_missed() {
        let records = chain("a", 1..=4);
        let head = |n: u64, record: &String| {
            [ChainHead { chain: "a".into(), n, sha256: hash(record.as_bytes()) }]
        };
        assert_eq!(verdict(&records, &head(4, &records[3])).faults, vec![]);
        // The note of it may be behind.
        assert_eq!(verdict(&records, &head(3, &records[2])).faults, vec![]);
        assert_eq!(
            verdict(&records[..2], &head(4, &records[3])).faults,
            vec![Fault::Missing { chain: "a".into(), from: 3, to: 4, offset: 2 }]
        );
        let mut last = records.clone();
        last[3] = last[3].replace("ann", "bob");
        assert_eq!(
            verdict(&last, &head(4, &records[3])).faults,
            vec![Fault::Changed { chain: "a".into(), n: 4, offset: 3 }]
        );
    }

    #[test]
    fn every_change_of_a_byte_shows() {
        let records = chain("a", 1..=3);
        let head = ChainHead { chain: "a".into(), n: 3, sha256: hash(records[2].as_bytes()) };
        for (at, record) in records.iter().enumerate() {
            for place in 0..record.len() {
                let mut bytes = record.clone().into_bytes();
                bytes[place] ^= 1;
                let Ok(text) = String::from_utf8(bytes) else { continue };
                let mut changed = records.clone();
                changed[at] = text;
                let found = verdict(&changed, std::slice::from_ref(&head)).faults;
                assert!(!found.is_empty(), "record {at}, byte {place}");
            }
        }
    }
}
