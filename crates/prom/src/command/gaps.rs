//! What is not there any more, in words. A topic that keeps the newest of each key has a gap almost
//! everywhere: of each partition and reason there is one line, however many gaps.

use std::collections::BTreeMap;

use crate::output::{self, Output};

/// Run that were met, until they are told.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// By topic, partition and reason.
    lanes: BTreeMap<(String, u64, String), Run>,
}

/// All gaps of a partition that have one reason.
#[derive(Debug, Clone, Copy)]
struct Run {
    count: u64,
    events: u64,
    first: u64,
    last: u64,
}

impl Gaps {
    /// Keeps a gap; what is none is given back, as it came.
    fn keep(&mut self, gap: &serde_json::Value) -> Option<String> {
        let number = |name: &str| gap.get(name).and_then(serde_json::Value::as_u64);
        let text = |name: &str| gap.get(name).and_then(serde_json::Value::as_str);
        let members =
            (text("topic"), number("partition"), number("from"), number("to"), text("reason"));
        let (Some(topic), Some(partition), Some(first), Some(to), Some(reason)) = members else {
            return Some(gap.to_string());
        };
        let last = to.saturating_sub(1).max(first);
        let lane = (topic.to_owned(), partition, reason.to_owned());
        let run = self.lanes.entry(lane).or_insert(Run { count: 0, events: 0, first, last });
        run.count += 1;
        run.events += last - first + 1;
        run.first = run.first.min(first);
        run.last = run.last.max(last);
        None
    }

    /// The lines for what was met since they were last asked for.
    fn lines(&mut self) -> Vec<String> {
        let lanes = std::mem::take(&mut self.lanes);
        let line = |((topic, partition, reason), run): ((String, u64, String), Run)| {
            let Run { count, events, first, last } = run;
            let among = match count {
                1 => String::new(),
                _ => format!("{} in {count} gaps among ", output::grouped(events)),
            };
            format!("{topic}/{partition}, {among}offsets {first} to {last} ({reason})")
        };
        lanes.into_iter().map(line).collect()
    }

    /// Meets a gap.
    pub(super) fn meet(&mut self, gap: &serde_json::Value, output: &Output) {
        if let Some(unknown) = self.keep(gap) {
            output.progress(&format!("missing: {unknown}"));
        }
    }

    /// Says what was met.
    pub(super) fn tell(&mut self, output: &Output) {
        for line in self.lines() {
            output.progress(&format!("missing: {line}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_gap_is_told_with_its_offsets_and_many_in_one_line() {
        let mut gaps = Gaps::default();
        let gap = |partition: u64, from: u64, to: u64, reason: &str| {
            json!({
                "topic": "a.b", "partition": partition, "from": from, "to": to, "reason": reason,
            })
        };
        assert_eq!(gaps.keep(&gap(2, 5, 9, "trimmed")), None);
        assert_eq!(gaps.lines(), ["a.b/2, offsets 5 to 8 (trimmed)"]);
        assert_eq!(gaps.lines(), Vec::<String>::new(), "told once");
        for (from, to) in [(0, 1_000), (1_003, 1_005), (1_007, 1_008)] {
            gaps.keep(&gap(0, from, to, "compacted"));
        }
        gaps.keep(&gap(0, 1_010, 1_011, "damaged"));
        assert_eq!(
            gaps.lines(),
            [
                "a.b/0, 1\u{202f}003 in 3 gaps among offsets 0 to 1007 (compacted)",
                "a.b/0, offsets 1010 to 1010 (damaged)",
            ]
        );
        assert_eq!(gaps.keep(&json!({ "id": 1 })).as_deref(), Some(r#"{"id":1}"#));
    }
}
