use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde_json::json;

use super::record::{Outcome, Record, short};
use crate::limits::AUDIT_REFUSALS_MAX;

/// What was refused since the last record of it, summed up: an attacker fills no disk by being
/// refused. And tokens that came or went otherwise than by a request.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Sums>);

/// What is summed up.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    lines: BTreeMap<Line, Count>,
    /// Refusals beyond as many lines as there may be.
    others: u64,
    tokens_added: BTreeSet<String>,
    tokens_removed: BTreeSet<String>,
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
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (all, new) in [(0, added), (1, removed)] {
            let all = if all == 0 { &mut sums.tokens_added } else { &mut sums.tokens_removed };
            let room = AUDIT_REFUSALS_MAX.saturating_sub(all.len());
            all.extend(new.into_iter().take(room));
        }
    }

    fn count(&self, line: Line, now_ms: u64) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sums.add(line, Count { count: 1, first: now_ms, last: now_ms });
    }

    /// What there is; nothing if there is none.
    pub(crate) fn take(&self) -> Option<Sums> {
        let sums = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        (!sums.is_empty()).then_some(sums)
    }

    /// What could not be written. It is added to what has come meanwhile.
    pub(crate) fn put_back(&self, old: Sums) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = std::mem::replace(&mut *sums, old);
        new.lines.into_iter().for_each(|(line, count)| sums.add(line, count));
        sums.others += new.others;
        sums.tokens_added.extend(new.tokens_added);
        sums.tokens_removed.extend(new.tokens_removed);
    }
}

impl Sums {
    fn is_empty(&self) -> bool {
        let tokens = self.tokens_added.is_empty() && self.tokens_removed.is_empty();
        self.lines.is_empty() && self.others == 0 && tokens
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

    /// As records: one of refusals, one of tokens.
    pub(crate) fn records(&self, now_ms: u64) -> Vec<Record> {
        let record = |action: &str, outcome, about| Record {
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
        };
        let mut records = Vec::new();
        if !self.lines.is_empty() || self.others > 0 {
            #[derive(Serialize)]
            struct Row<'a> {
                #[serde(flatten)]
                line: &'a Line,
                #[serde(flatten)]
                count: Count,
            }
            let rows: Vec<Row<'_>> =
                self.lines.iter().map(|(line, count)| Row { line, count: *count }).collect();
            let about = json!({ "refused": rows, "others": self.others });
            records.push(record("access", Outcome::Refused, about));
        }
        if !self.tokens_added.is_empty() || !self.tokens_removed.is_empty() {
            let about = json!({ "added": self.tokens_added, "removed": self.tokens_removed });
            records.push(record("tokens", Outcome::Done, about));
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::AUDIT_ABOUT_BYTES_MAX;

    #[test]
    fn refusals_are_summed_up_within_bounds() {
        let refusals = Refusals::default();
        assert!(refusals.take().is_none());
        for number in 0..10_000_u64 {
            // The longest subjects that there are.
            let subject = format!("{:0>250}", number % 1_000);
            refusals.forbidden(&subject, "topic.admin", number);
        }
        let sums = refusals.take().unwrap();
        let records = sums.records(1);
        assert_eq!((records.len(), sums.lines.len()), (1, AUDIT_REFUSALS_MAX));
        let about = records[0].about.clone().unwrap();
        let counted: u64 = about["refused"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["count"].as_u64().unwrap())
            .sum();
        assert_eq!(counted + about["others"].as_u64().unwrap(), 10_000, "none is forgotten");
        assert!(about.to_string().len() <= AUDIT_ABOUT_BYTES_MAX, "{}", about.to_string().len());
        assert!(refusals.take().is_none());
    }

    #[test]
    fn what_is_put_back_is_not_lost() {
        let refusals = Refusals::default();
        refusals.forbidden("ann", "a", 5);
        let old = refusals.take().unwrap();
        refusals.forbidden("ann", "a", 9);
        refusals.tokens(vec!["t".to_owned()], vec![]);
        refusals.put_back(old);
        let records = refusals.take().unwrap().records(10);
        let row = &records[0].about.as_ref().unwrap()["refused"][0];
        assert_eq!((&row["count"], &row["first"], &row["last"]), (&json!(2), &json!(5), &json!(9)));
        assert_eq!(records[1].about.as_ref().unwrap()["added"][0], "t");
    }
}
