//! What a run gave.

use serde::Serialize;

use crate::finding::{Finding, Severity};
use crate::settings::CallKind;
use crate::sites::TopicUse;
use crate::source::SourceFile;

/// The result of a run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// By path, line and column.
    pub findings: Vec<Finding>,
    /// Every place where a topic is named.
    pub sites: Vec<Site>,
    /// How many files were read.
    pub files: usize,
    /// How many findings a baseline took out.
    pub known: usize,
}

/// A place where a topic is named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct Site {
    /// The file, from the root, with `/`.
    pub path: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What the call does with the topic.
    pub kind: CallKind,
    /// The name of the call.
    pub call: String,
    /// The topic; `None` where only running the program would tell.
    pub topic: Option<String>,
}

impl Site {
    pub(crate) fn new(site: &TopicUse, file: &SourceFile) -> Option<Self> {
        let start = file.position(site.span.start);
        Some(Self {
            path: file.path.clone(),
            line: start.line,
            column: start.column,
            kind: site.kind,
            call: site.call.clone(),
            topic: site.topic.clone(),
        })
    }
}

/// How many findings there are of each severity.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Errors.
    pub error: usize,
    /// Warnings.
    pub warning: usize,
    /// Notes.
    pub note: usize,
}

impl Report {
    /// Findings by severity.
    pub fn counts(&self) -> Counts {
        let count = |wanted| self.findings.iter().filter(|of| of.severity == wanted).count();
        Counts {
            error: count(Severity::Error),
            warning: count(Severity::Warning),
            note: count(Severity::Note),
        }
    }

    /// Whether any finding is at least this bad: then `prom lint` ends with status 100.
    pub fn fails(&self, threshold: Severity) -> bool {
        self.findings.iter().any(|finding| finding.severity >= threshold)
    }
}
