//! What a rule has to say about a place.

use std::collections::HashMap;

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::facts::Span;
use crate::rules::Rule;
use crate::source::SourceFile;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Probably wrong.
    Warning,
    /// Wrong.
    Error,
}

impl Severity {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One finding.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The stable id of the rule: `PROM-L001`.
    pub rule: &'static str,
    /// Its name: `topic-name`.
    pub name: &'static str,
    /// How bad it is, by the settings.
    pub severity: Severity,
    /// The file, from the root, with `/`.
    pub path: String,
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// The line in which it ends.
    pub end_line: usize,
    /// The column after its last character.
    pub end_column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
    /// The topic, header or file that it is about.
    pub subject: String,
    /// The same for the same problem after lines were moved: 16 hexadecimal digits.
    pub fingerprint: String,
    /// The source line.
    #[serde(skip)]
    pub excerpt: Option<Excerpt>,
}

/// The line of a finding, with the bytes that it is about.
#[derive(Debug, Clone)]
pub struct Excerpt {
    /// The line, without its end.
    pub line: String,
    /// Where it begins, in bytes.
    pub start: usize,
    /// Where it ends, in bytes; the end of the line where it goes on.
    pub end: usize,
}

/// A finding before it has a place for people and a fingerprint.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) file: usize,
    pub(crate) span: Span,
    pub(crate) subject: String,
    pub(crate) message: String,
    pub(crate) help: String,
}

/// Counts equal problems in one file, so that each has a fingerprint of its own.
#[derive(Debug, Default)]
pub(crate) struct Fingerprints(HashMap<u64, u32>);

impl Fingerprints {
    /// By rule, file, subject and source line without white space: moving lines, or indenting
    /// them, changes nothing; of equal ones in a file the order counts.
    fn of(&mut self, rule: &str, file: &SourceFile, draft: &Draft) -> String {
        let (_, line) = file.line_at(draft.span.start);
        let line: String = line.split_whitespace().collect();
        // About the manifest: the subject says it, and the line may say anything.
        let line = if file.language.is_none() { String::new() } else { line };
        let parts = [rule, &file.path, &draft.subject, &line];
        let hash = xxh3_64(parts.join("\0").as_bytes());
        let count = self.0.entry(hash).or_default();
        *count += 1;
        let own = xxh3_64(format!("{hash:016x}:{count}").as_bytes());
        format!("{own:016x}")
    }
}

impl Draft {
    pub(crate) fn finished(
        self,
        rule: &'static Rule,
        severity: Severity,
        file: &SourceFile,
        fingerprints: &mut Fingerprints,
    ) -> Finding {
        let fingerprint = fingerprints.of(rule.id, file, &self);
        let start = file.position(self.span.start);
        let end = file.position(self.span.end.max(self.span.start));
        let (line_start, line) = file.line_at(self.span.start);
        let excerpt = (!file.text.is_empty()).then(|| Excerpt {
            line: line.to_owned(),
            start: self.span.start.saturating_sub(line_start).min(line.len()),
            end: self.span.end.saturating_sub(line_start).min(line.len()),
        });
        Finding {
            rule: rule.id,
            name: rule.name,
            severity,
            path: file.path.clone(),
            line: start.line,
            column: start.column,
            end_line: end.line,
            end_column: end.column,
            message: self.message,
            help: self.help,
            subject: self.subject,
            fingerprint,
            excerpt,
        }
    }
}
