//! Policies over versions: which pairs are compared, and what they say together.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{CompareError, CompareOptions, Verdict, compare};
use crate::document::Document;

/// What a new version must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Nothing.
    None,
    /// The new version reads what the last one wrote. The default.
    #[default]
    Backward,
    /// The new version reads what every version wrote.
    BackwardTransitive,
    /// The last version reads what the new one writes.
    Forward,
    /// Every version reads what the new one writes.
    ForwardTransitive,
    /// Backward and forward.
    Full,
    /// Both, for every version.
    FullTransitive,
}

/// All modes with their names.
const NAMES: [(&str, Mode); 7] = [
    ("none", Mode::None),
    ("backward", Mode::Backward),
    ("backward_transitive", Mode::BackwardTransitive),
    ("forward", Mode::Forward),
    ("forward_transitive", Mode::ForwardTransitive),
    ("full", Mode::Full),
    ("full_transitive", Mode::FullTransitive),
];

/// A mode that does not exist.
#[derive(Debug, thiserror::Error)]
#[error(
    "unknown compatibility mode {0:?}: use none, backward, forward, full, or one with _transitive"
)]
pub struct UnknownMode(String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        let wanted = text.to_ascii_lowercase().replace('-', "_");
        let found = NAMES.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, mode)| *mode).ok_or_else(|| UnknownMode(text.to_owned()))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, mode)| mode == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl Mode {
    /// Whether new versions read what older ones wrote.
    pub fn is_backward(self) -> bool {
        matches!(
            self,
            Self::Backward | Self::BackwardTransitive | Self::Full | Self::FullTransitive
        )
    }

    /// Whether older versions read what new ones write.
    pub fn is_forward(self) -> bool {
        matches!(self, Self::Forward | Self::ForwardTransitive | Self::Full | Self::FullTransitive)
    }

    /// Whether that holds for all versions, not only the last.
    pub fn is_transitive(self) -> bool {
        matches!(self, Self::BackwardTransitive | Self::ForwardTransitive | Self::FullTransitive)
    }
}

/// The verdict on one pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairReport {
    /// Which earlier version: its index in the history, the oldest being 0.
    pub version: usize,
    /// Whether the new version was the reader (backward) or the writer (forward).
    pub backward: bool,
    /// What was found.
    pub verdict: Verdict,
}

/// The verdicts on a new version.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryReport {
    /// What was asked for.
    pub mode: Mode,
    /// All pairs that were compared, the latest version first.
    pub pairs: Vec<PairReport>,
}

impl HistoryReport {
    /// The verdicts taken together: one break breaks, one doubt leaves doubt.
    pub fn verdict(&self) -> Verdict {
        let verdicts = || self.pairs.iter().map(|pair| &pair.verdict);
        let findings: Vec<_> = verdicts().flat_map(|v| v.findings().iter().cloned()).collect();
        if verdicts().any(|v| matches!(v, Verdict::Incompatible { .. })) {
            return Verdict::Incompatible { findings };
        }
        if let Some(doubt) = verdicts().find(|v| matches!(v, Verdict::Undecided { .. })) {
            return doubt.clone();
        }
        let notes = verdicts().flat_map(|verdict| match verdict {
            Verdict::Compatible { notes } => notes.clone(),
            _ => Vec::new(),
        });
        Verdict::Compatible { notes: notes.collect() }
    }
}

/// Compares a new version with those before it, oldest first, as the mode asks.
///
/// # Errors
/// See [`CompareError`].
pub fn check_history(
    new: &Document,
    history: &[Document],
    mode: Mode,
    options: &CompareOptions,
) -> Result<HistoryReport, CompareError> {
    let depth = if mode.is_transitive() { usize::MAX } else { 1 };
    let mut pairs = Vec::new();
    for (version, old) in history.iter().enumerate().rev().take(depth) {
        if mode.is_backward() {
            let verdict = compare(new, old, options)?;
            pairs.push(PairReport { version, backward: true, verdict });
        }
        if mode.is_forward() {
            let verdict = compare(old, new, options)?;
            pairs.push(PairReport { version, backward: false, verdict });
        }
    }
    Ok(HistoryReport { mode, pairs })
}
