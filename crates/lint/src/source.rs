//! A file that was read, and the way from bytes to lines.

use std::sync::OnceLock;

use crate::facts::{Facts, Span};
use crate::language::{Language, Reader};
use crate::settings::Checked;

/// A file with its facts.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// From the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// `None` for the manifest.
    pub(crate) language: Option<Language>,
    /// What it says; unset until it is needed.
    facts: OnceLock<Facts>,
    /// Where lines begin; made when the first is asked for.
    lines: OnceLock<Vec<usize>>,
}

/// A place in a text: lines and columns from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl SourceFile {
    /// A file that is not parsed yet.
    pub(crate) fn new(path: String, text: String, language: Option<Language>) -> Self {
        Self { path, text, language, facts: OnceLock::new(), lines: OnceLock::new() }
    }

    /// The same with what it says.
    pub(crate) fn with_facts(self, facts: Facts) -> Self {
        Self { facts: OnceLock::from(facts), ..self }
    }

    /// What it says, if it was parsed.
    pub(crate) fn known(&self) -> Option<&Facts> {
        self.facts.get()
    }

    /// What it says, parsed now if need be.
    pub(crate) fn facts(&self, reader: &mut Reader, settings: &Checked<'_>) -> &Facts {
        self.facts.get_or_init(|| match self.language {
            Some(language) => reader.read(language, &self.text, settings),
            None => Facts::default(),
        })
    }

    /// The number of the line in which `at` stands, from 0, and where it begins.
    fn line_of(&self, at: usize) -> (usize, usize) {
        let lines = self.lines.get_or_init(|| {
            let ends = self.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
            std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect()
        });
        let number = lines.partition_point(|start| *start <= at).saturating_sub(1);
        (number, lines.get(number).copied().unwrap_or(0))
    }

    pub(crate) fn position(&self, at: usize) -> Position {
        let at = at.min(self.text.len());
        let (number, start) = self.line_of(at);
        let column = self.text.get(start..at).map_or(0, |before| before.chars().count()) + 1;
        Position { line: number + 1, column }
    }

    /// The line in which `at` stands, and where it begins.
    pub(crate) fn line_at(&self, at: usize) -> (usize, &str) {
        let at = at.min(self.text.len());
        let start =
            self.text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |nl| nl + 1);
        let rest = self.text.get(start..).unwrap_or("");
        (start, rest.lines().next().unwrap_or(""))
    }

    pub(crate) fn slice(&self, span: &Span) -> &str {
        self.text.get(span.clone()).unwrap_or("")
    }
}
