//! Findings known before: a file of fingerprints that are not reported again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::report::Report;

/// The version of the file's form.
const FORM: u32 = 1;

/// Known findings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Baseline {
    known: BTreeMap<String, Known>,
}

/// What a reader of the file sees of a known finding; only the fingerprint counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    rule: String,
    path: String,
    subject: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    findings: BTreeMap<String, Known>,
}

/// Why a baseline could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BaselineError {
    /// Not a baseline at all.
    #[error("the baseline is not one; write it anew")]
    Form(#[from] serde_json::Error),
    /// Written by a newer version.
    #[error("the baseline has form {0}, this version reads form {FORM}")]
    Version(u32),
}

impl Baseline {
    /// All findings of a report.
    pub fn of(report: &Report) -> Self {
        let known = report.findings.iter().map(|finding| {
            let known = Known {
                rule: finding.name.to_owned(),
                path: finding.path.clone(),
                subject: finding.subject.clone(),
            };
            (finding.fingerprint.clone(), known)
        });
        Self { known: known.collect() }
    }

    /// Reads the text of a baseline file.
    pub fn parse(text: &str) -> Result<Self, BaselineError> {
        let document: Document = serde_json::from_str(text)?;
        if document.version != FORM {
            return Err(BaselineError::Version(document.version));
        }
        Ok(Self { known: document.findings })
    }

    /// The text of the file: sorted, one finding per line, so that it merges well.
    pub fn to_text(&self) -> String {
        let mut lines: Vec<(&Known, &String)> =
            self.known.iter().map(|(print, known)| (known, print)).collect();
        lines.sort_by_key(|(known, print)| (&known.path, &known.rule, &known.subject, *print));
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let line = |(known, print): &(&Known, &String)| {
            let (rule, path, subject) =
                (quoted(&known.rule), quoted(&known.path), quoted(&known.subject));
            let print = quoted(print);
            format!("    {print}: {{\"rule\": {rule}, \"path\": {path}, \"subject\": {subject}}}")
        };
        let lines: Vec<String> = lines.iter().map(line).collect();
        let body =
            if lines.is_empty() { String::new() } else { format!("\n{}\n  ", lines.join(",\n")) };
        format!("{{\n  \"version\": {FORM},\n  \"findings\": {{{body}}}\n}}\n")
    }

    /// Takes the known findings out of a report and returns how many entries of the baseline were
    /// not met: those can be deleted.
    pub fn apply(&self, report: &mut Report) -> usize {
        let before = report.findings.len();
        report.findings.retain(|finding| !self.known.contains_key(&finding.fingerprint));
        let taken = before - report.findings.len();
        report.known += taken;
        self.known.len().saturating_sub(taken)
    }
}
