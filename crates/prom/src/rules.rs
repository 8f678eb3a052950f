//! What a topic is, as the CLI, the manifest and the server speak of it.

use serde::{Deserialize, Serialize};

use crate::output;

/// The rules of a topic, as the server has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rules {
    pub(crate) partitions: u32,
    /// Events older than this go; none: never.
    pub(crate) retention_ms: Option<u64>,
    /// The oldest go while a partition has more than this; none: never.
    pub(crate) retention_bytes: Option<u64>,
    /// Only the newest event of each key stays.
    pub(crate) compaction: Option<Compaction>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Compaction {
    /// Events younger than this stay.
    pub(crate) age_ms_min: u64,
    /// Tombstones stay this long.
    pub(crate) tombstone_ms: u64,
}

impl Compaction {
    /// At once; tombstones stay a day, so that readers who keep up see the removal.
    pub(crate) const USUAL: Self = Self { age_ms_min: 0, tombstone_ms: 86_400_000 };
}

impl Default for Rules {
    fn default() -> Self {
        Self { partitions: 1, retention_ms: None, retention_bytes: None, compaction: None }
    }
}

/// One difference between two sets of rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Difference {
    pub(crate) rule: &'static str,
    pub(crate) from: String,
    pub(crate) to: String,
    /// Whether events may be removed that would have stayed.
    pub(crate) destroys: bool,
}

impl Rules {
    /// What would change. That of partitions cannot be made; whoever asks says so.
    pub(crate) fn differences(&self, wanted: &Self) -> Vec<Difference> {
        let mut found = Vec::new();
        let mut note = |rule, from: String, to: String, destroys| {
            if from != to {
                found.push(Difference { rule, from, to, destroys });
            }
        };
        note("partitions", self.partitions.to_string(), wanted.partitions.to_string(), false);
        let (old, new) = (self.retention_ms, wanted.retention_ms);
        note("retention", age(old), age(new), is_less(old, new));
        let (old, new) = (self.retention_bytes, wanted.retention_bytes);
        note("retention_bytes", size(old), size(new), is_less(old, new));
        let destroys = self.compaction.is_none() && wanted.compaction.is_some();
        note("compaction", compacted(self.compaction), compacted(wanted.compaction), destroys);
        found
    }

    /// What stays, in a few words.
    pub(crate) fn keeps(&self) -> String {
        let mut words = Vec::new();
        if self.compaction.is_some() {
            words.push("newest of each key".to_owned());
        }
        words.extend(self.retention_ms.map(output::span));
        words.extend(
            self.retention_bytes.map(|bytes| format!("{} a partition", output::bytes(bytes))),
        );
        if words.is_empty() { "everything".to_owned() } else { words.join(", ") }
    }
}

fn is_less(old: Option<u64>, new: Option<u64>) -> bool {
    new.is_some_and(|new| old.is_none_or(|old| new < old))
}

fn age(millis: Option<u64>) -> String {
    millis.map_or("forever".to_owned(), output::span)
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or("no limit".to_owned(), output::bytes)
}

fn compacted(compaction: Option<Compaction>) -> String {
    match compaction {
        None => "off".to_owned(),
        Some(Compaction { age_ms_min, tombstone_ms }) => format!(
            "latest (after {}, tombstones {})",
            output::span(age_ms_min),
            output::span(tombstone_ms)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_removes_events_is_told_apart() {
        let all = Rules::default();
        let day = Rules { retention_ms: Some(86_400_000), ..Rules::default() };
        let hour = Rules { retention_ms: Some(3_600_000), ..Rules::default() };
        let destroys = |from: &Rules, to: &Rules| from.differences(to).iter().any(|d| d.destroys);
        assert!(destroys(&all, &day) && destroys(&day, &hour));
        assert!(!destroys(&hour, &day) && !destroys(&day, &all));
        assert!(all.differences(&all).is_empty());
        let compaction = Some(Compaction { age_ms_min: 0, tombstone_ms: 0 });
        let compacted = Rules { compaction, ..Rules::default() };
        assert!(destroys(&all, &compacted) && !destroys(&compacted, &all));
        assert_eq!(all.differences(&hour)[0].to, "1 h");
    }
}
