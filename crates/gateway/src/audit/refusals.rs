use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::{Value, json};

use super::record::{Outcome, Record, short};
use crate::limits::{AUDIT_REFUSALS_MAX, AUDIT_TOKENS_MAX};

/// What was refused since the last record of it, summed up: an attacker fills no disk by being
/// refused. And tokens that came or went otherwise than by a request.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Sums>);

#[derive(Debug, Default)]
struct Sums {
    refused: Refused,
    tokens: Tokens,
}

/// What becomes one record.
#[derive(Debug)]
pub(crate) enum Sum {
    Refused(Refused),
    Tokens(Tokens),
}

/// Who was refused what, and how often.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    lines: BTreeMap<Line, Count>,
    /// Refusals beyond as many lines as there may be.
    others: u64,
}

/// Which tokens came, and which went.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    added: Names,
    removed: Names,
}

/// As many as a record has room for, and how many more there were.
#[derive(Debug, Default)]
struct Names {
    names: BTreeSet<String>,
    others: u64,
}

/// Refusals of the same kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
    action: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Count {
    count: u64,
    first: u64,
    last: u64,
}

impl Refusals {
    /// A credential that was no good, and why; never the credential.
    pub(crate) fn unauthorized(&self, peer: IpAddr, why: &'static str, now_ms: u64) {
        let peer = Some(peer.to_string());
        self.count(Line { subject: None, peer, action: "authenticate", code: why }, now_ms);
    }

    /// Somebody wanted to do what is not allowed.
    pub(crate) fn forbidden(&self, subject: &str, action: &'static str, now_ms: u64) {
        let subject = Some(short(subject));
        self.count(Line { subject, peer: None, action, code: "forbidden" }, now_ms);
    }

    /// The server's static tokens are others than before.
    pub(crate) fn tokens(&self, added: Vec<String>, removed: Vec<String>) {
        let mut sums = self.lock();
        sums.tokens.added.extend(added);
        sums.tokens.removed.extend(removed);
    }

    fn count(&self, line: Line, now_ms: u64) {
        self.lock().refused.add(line, Count { count: 1, first: now_ms, last: now_ms });
    }

    /// What there is: refusals, then tokens.
    pub(crate) fn take(&self) -> Vec<Sum> {
        let Sums { refused, tokens } = std::mem::take(&mut *self.lock());
        let refused = (!refused.is_empty()).then_some(Sum::Refused(refused));
        let tokens = (!tokens.is_empty()).then_some(Sum::Tokens(tokens));
        refused.into_iter().chain(tokens).collect()
    }

    /// What could not be written. What has come meanwhile is added to it.
    pub(crate) fn put_back(&self, old: Sum) {
        let mut sums = self.lock();
        match old {
            Sum::Refused(old) => {
                let new = std::mem::replace(&mut sums.refused, old);
                new.lines.into_iter().for_each(|(line, count)| sums.refused.add(line, count));
                sums.refused.others += new.others;
            }
            Sum::Tokens(old) => {
                let new = std::mem::replace(&mut sums.tokens, old);
                sums.tokens.added.merge(new.added);
                sums.tokens.removed.merge(new.removed);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sum {
    pub(crate) fn record(&self, now_ms: u64) -> Record {
        let (action, outcome, about) = match self {
            Self::Refused(refused) => ("access", Outcome::Refused, refused.about()),
            Self::Tokens(tokens) => ("tokens", Outcome::Done, tokens.about()),
        };
        Record {
            at: now_ms,
            request: None,
            subject: None,
            peer: None,
            action: action.to_owned(),
            resource: None,
            outcome,
            status: None,
            code: None,
            about: Some(about),
        }
    }
}

impl Refused {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.others == 0
    }

    fn add(&mut self, line: Line, more: Count) {
        if let Some(known) = self.lines.get_mut(&line) {
            known.count += more.count;
            known.first = known.first.min(more.first);
            known.last = known.last.max(more.last);
        } else if self.lines.len() < AUDIT_REFUSALS_MAX {
            self.lines.insert(line, more);
        } else {
            self.others += more.count;
        }
    }

    fn about(&self) -> Value {
        #[derive(Serialize)]
        struct Row<'a> {
            #[serde(flatten)]
            line: &'a Line,
            #[serde(flatten)]
            count: Count,
        }
        let rows: Vec<Row<'_>> =
            self.lines.iter().map(|(line, count)| Row { line, count: *count }).collect();
        json!({ "refused": rows, "others": self.others })
    }
}

impl Tokens {
    fn is_empty(&self) -> bool {
        self.added.names.is_empty() && self.removed.names.is_empty()
    }

    fn about(&self) -> Value {
        let mut about = json!({ "added": self.added.names, "removed": self.removed.names });
        for (name, others) in
            [("others_added", self.added.others), ("others_removed", self.removed.others)]
        {
            if let Some(about) = about.as_object_mut().filter(|_| others > 0) {
                about.insert(name.to_owned(), others.into());
            }
        }
        about
    }
}

impl Names {
    fn extend(&mut self, names: impl IntoIterator<Item = String>) {
        for name in names.into_iter().map(|name| short(&name)) {
            if self.names.len() < AUDIT_TOKENS_MAX || self.names.contains(&name) {
                self.names.insert(name);
            } else {
                self.others += 1;
            }
        }
    }

    fn merge(&mut self, new: Self) {
        self.others += new.others;
        self.extend(new.names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{AUDIT_ABOUT_BYTES_MAX, SUBJECT_BYTES_MAX};

    /// The `about` of all records that there are now.
    fn records(refusals: &Refusals) -> Vec<Value> {
        refusals.take().iter().map(|sum| sum.record(1).about.unwrap()).collect()
    }

    #[test]
    fn refusals_are_summed_up_within_bounds() {
        let refusals = Refusals::default();
        assert!(refusals.take().is_empty());
        for number in 0..10_000_u64 {
            // The longest subjects that there are.
            let subject = format!("{:0>250}", number % 1_000);
            refusals.forbidden(&subject, "topic.admin", number);
        }
        let records = records(&refusals);
        let [about] = &records[..] else { panic!("{records:?}") };
        let rows = about["refused"].as_array().unwrap();
        assert_eq!(rows.len(), AUDIT_REFUSALS_MAX);
        let counted: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
        assert_eq!(counted + about["others"].as_u64().unwrap(), 10_000, "none is forgotten");
        assert!(about.to_string().len() <= AUDIT_ABOUT_BYTES_MAX, "{}", about.to_string().len());
        assert!(refusals.take().is_empty());
    }

    #[test]
    fn tokens_beyond_those_that_are_named_are_counted() {
        let refusals = Refusals::default();
        // The longest names that there are.
        let names = |from: usize, to: usize| {
            (from..to).map(|n| format!("{n:0>SUBJECT_BYTES_MAX$}")).collect::<Vec<_>>()
        };
        refusals.tokens(names(0, 100), names(0, 3));
        // Named already.
        refusals.tokens(names(0, 1), vec![]);
        let [old] = &refusals.take()[..] else { panic!() };
        let about = old.record(1).about.unwrap();
        assert_eq!(about["added"].as_array().unwrap().len(), AUDIT_TOKENS_MAX);
        assert_eq!(about["others_added"], 100 - AUDIT_TOKENS_MAX);
        assert_eq!(about["removed"].as_array().unwrap().len(), 3);
        assert_eq!(about.get("others_removed"), None);

        refusals.tokens(vec![], names(0, 100));
        refusals.tokens(names(0, 100), vec![]);
        let [full] = &records(&refusals)[..] else { panic!() };
        assert!(full.to_string().len() <= AUDIT_ABOUT_BYTES_MAX, "{}", full.to_string().len());
    }

    #[test]
    fn what_is_put_back_is_not_lost() {
        let refusals = Refusals::default();
        refusals.forbidden("ann", "a", 5);
        refusals.tokens(vec!["s".to_owned()], vec![]);
        let old = refusals.take();
        refusals.forbidden("ann", "a", 9);
        refusals.tokens(vec!["t".to_owned()], vec!["s".to_owned()]);
        old.into_iter().for_each(|sum| refusals.put_back(sum));
        let records = records(&refusals);
        let row = &records[0]["refused"][0];
        assert_eq!((&row["count"], &row["first"], &row["last"]), (&json!(2), &json!(5), &json!(9)));
        assert_eq!(records[1], json!({ "added": ["s", "t"], "removed": ["s"] }));
    }
}
