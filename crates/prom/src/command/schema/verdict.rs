//! What a check found, as one document and in words.

use std::fmt::Write;

use promethean_schema::{Finding, HistoryReport, Verdict};
use serde::Serialize;
use serde_json::Value;

use crate::command::Status;

/// The document of `prom schema check`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Checked {
    /// `compatible`, `incompatible` or `undecided`.
    pub(super) verdict: &'static str,
    pub(super) findings: Vec<Shown>,
    /// What nobody could tell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) undecided: Vec<Doubt>,
    /// What was taken for granted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<Shown>,
    /// How many schemas were looked at, and how many of them have not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) schemas: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unchanged: Option<usize>,
}

/// One finding.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Shown {
    pub(super) rule: &'static str,
    pub(super) pointer: String,
    pub(super) message: String,
    /// An event that shows it, which may be `null`; none where the finding is not about events.
    pub(super) counter_example: Option<Value>,
    pub(super) example_pointer: String,
    pub(super) fix: String,
    /// Whose readers break: `backward` means the new ones, `forward` the old ones.
    pub(super) direction: &'static str,
    #[serde(flatten)]
    pub(super) pair: Pair,
    pub(super) reader_line: usize,
    pub(super) writer_pointer: String,
    pub(super) writer_line: usize,
}

/// Which two schemas.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Pair {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) topic: String,
    /// Where the reader's schema is from.
    pub(super) reader: String,
    /// Where the writer's is from.
    pub(super) writer: String,
}

/// What nobody could tell.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Doubt {
    pub(super) construct: String,
    pub(super) pointer: String,
    pub(super) direction: &'static str,
    #[serde(flatten)]
    pub(super) pair: Pair,
}

/// The word for a direction.
pub(super) const fn direction(backward: bool) -> &'static str {
    if backward { "backward" } else { "forward" }
}

impl Pair {
    /// The new schema reads what the old one wrote, or the reverse.
    pub(super) fn new(topic: &str, old: &str, new: &str, backward: bool) -> Self {
        let (reader, writer) = if backward { (new, old) } else { (old, new) };
        Self { topic: topic.to_owned(), reader: reader.to_owned(), writer: writer.to_owned() }
    }
}

impl Shown {
    fn of(finding: &Finding, backward: bool, pair: &Pair) -> Self {
        Self {
            rule: finding.rule.id(),
            pointer: finding.pointer.clone(),
            message: finding.message.clone(),
            counter_example: Some(finding.counter_example.clone()),
            example_pointer: finding.example_pointer.clone(),
            fix: finding.fix.clone(),
            direction: direction(backward),
            pair: pair.clone(),
            reader_line: finding.reader_line,
            writer_pointer: finding.writer_pointer.clone(),
            writer_line: finding.writer_line,
        }
    }
}

impl Checked {
    /// Adds the verdict on one pair.
    pub(super) fn add(&mut self, verdict: &Verdict, backward: bool, pair: &Pair) {
        let shown = |finding: &Finding| Shown::of(finding, backward, pair);
        match verdict {
            Verdict::Compatible { notes } => self.notes.extend(notes.iter().map(shown)),
            Verdict::Incompatible { findings } => self.findings.extend(findings.iter().map(shown)),
            Verdict::Undecided { construct, pointer } => self.undecided.push(Doubt {
                construct: construct.clone(),
                pointer: pointer.clone(),
                direction: direction(backward),
                pair: pair.clone(),
            }),
        }
    }

    /// Adds all pairs of a history; `name` names the versions by their place in it.
    pub(super) fn add_history(
        &mut self,
        report: &HistoryReport,
        new: &str,
        name: impl Fn(usize) -> String,
    ) {
        for pair in &report.pairs {
            let names = Pair::new("", &name(pair.version), new, pair.backward);
            self.add(&pair.verdict, pair.backward, &names);
        }
    }

    /// Sums up: one break breaks, one doubt leaves doubt.
    pub(super) fn summed(mut self) -> Self {
        self.verdict = match (self.findings.is_empty(), self.undecided.is_empty()) {
            (false, _) => "incompatible",
            (true, false) => "undecided",
            (true, true) => "compatible",
        };
        self
    }

    pub(super) fn status(&self) -> Status {
        match self.verdict {
            "incompatible" => Status::FoundProblems,
            "undecided" => Status::Partial,
            _ => Status::Done,
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |text: String| {
            let written = writeln!(out, "{text}");
            debug_assert!(written.is_ok(), "writing to a string");
        };
        for finding in &self.findings {
            shown(finding, "error", &mut line);
        }
        for doubt in &self.undecided {
            let Doubt { construct, pointer, pair, direction } = doubt;
            line(format!("{}: undecided ({direction}): {construct} at {pointer:?}", pair.reader));
            line(format!("  pair     readers of {}, events of {}", pair.reader, pair.writer));
            line("  fix      simplify the construct, or have people look at it".to_owned());
        }
        for note in &self.notes {
            shown(note, "note", &mut line);
        }
        let mut sum = format!("{}: {} errors", self.verdict, self.findings.len());
        if !self.undecided.is_empty() {
            sum.push_str(&format!(", {} undecided", self.undecided.len()));
        }
        if let (Some(schemas), Some(unchanged)) = (self.schemas, self.unchanged) {
            sum.push_str(&format!(" in {schemas} schemas ({unchanged} unchanged)"));
        }
        line(sum);
        out
    }
}

fn shown(finding: &Shown, kind: &str, line: &mut impl FnMut(String)) {
    let Shown { rule, message, pair, .. } = finding;
    line(format!("{}:{}: {kind} {rule} {message}", pair.reader, finding.reader_line));
    let writer = if finding.writer_line > 0 {
        format!("{}:{}", pair.writer, finding.writer_line)
    } else {
        pair.writer.clone()
    };
    line(format!(
        "  pair     readers of {}, events of {writer} ({})",
        pair.reader, finding.direction
    ));
    if let Some(example) = &finding.counter_example {
        line(format!("  example  {example}"));
    }
    line(format!("  fix      {}", finding.fix));
}
