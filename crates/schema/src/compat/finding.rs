//! What breaks, in words: a stable rule, the places on both sides, an example, and a fix.

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::{Comparison, locate};
use crate::limits::FINDINGS_MAX;
use crate::pointer;
use crate::validate::Mismatch;

/// A kind of breaking change. Its identifier never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// `PROM-S101`
    TypeNarrowed,
    /// `PROM-S102`
    ValueRemoved,
    /// `PROM-S103`
    RangeNarrowed,
    /// `PROM-S104`
    RequiredAdded,
    /// `PROM-S105`
    ObjectClosed,
    /// `PROM-S106`
    MultipleChanged,
    /// `PROM-S107`
    LengthNarrowed,
    /// `PROM-S108`
    PatternNarrowed,
    /// `PROM-S109`
    FormatAdded,
    /// `PROM-S110`
    ItemCountNarrowed,
    /// `PROM-S111`
    ItemsClosed,
    /// `PROM-S112`
    ContainsNarrowed,
    /// `PROM-S113`
    UniqueAdded,
    /// `PROM-S114`
    PropertyCountNarrowed,
    /// `PROM-S115`
    NamesNarrowed,
    /// `PROM-S116`
    DependencyAdded,
    /// `PROM-S117`
    BranchRemoved,
    /// `PROM-S118`
    BranchesOverlap,
    /// `PROM-S119`
    ExclusionWidened,
    /// `PROM-S120`
    Forbidden,
    /// `PROM-S121`
    OpenPropertyTyped,
    /// `PROM-S199`
    Other,
}

/// Identifier, title and fix of every rule.
const TEXTS: [(Rule, &str, &str, &str); 22] = [
    (
        Rule::TypeNarrowed,
        "PROM-S101",
        "type narrowed",
        "list the old type too, or convert old events with an upcaster",
    ),
    (
        Rule::ValueRemoved,
        "PROM-S102",
        "allowed value removed",
        "keep the old values in the enum, or map them with an upcaster",
    ),
    (
        Rule::RangeNarrowed,
        "PROM-S103",
        "number range narrowed",
        "keep the wider bound, or check the range in the reader's code",
    ),
    (
        Rule::RequiredAdded,
        "PROM-S104",
        "required property added",
        "make it optional, or add a default and an upcaster that fills it in",
    ),
    (
        Rule::ObjectClosed,
        "PROM-S105",
        "object closed to a property it had",
        "declare the property, or allow additional properties again",
    ),
    (
        Rule::MultipleChanged,
        "PROM-S106",
        "multipleOf narrowed",
        "use a divisor of the old multipleOf",
    ),
    (Rule::LengthNarrowed, "PROM-S107", "string length narrowed", "keep the wider bound"),
    (
        Rule::PatternNarrowed,
        "PROM-S108",
        "pattern narrowed",
        "widen the pattern until it matches the example",
    ),
    (
        Rule::FormatAdded,
        "PROM-S109",
        "format added or changed",
        "drop the format, or treat formats as notes",
    ),
    (Rule::ItemCountNarrowed, "PROM-S110", "array length narrowed", "keep the wider bound"),
    (Rule::ItemsClosed, "PROM-S111", "items no longer allowed", "allow further items again"),
    (Rule::ContainsNarrowed, "PROM-S112", "contains narrowed", "widen contains or its counts"),
    (
        Rule::UniqueAdded,
        "PROM-S113",
        "uniqueItems added",
        "drop uniqueItems, or remove duplicates with an upcaster",
    ),
    (
        Rule::PropertyCountNarrowed,
        "PROM-S114",
        "number of properties narrowed",
        "keep the wider bound",
    ),
    (
        Rule::NamesNarrowed,
        "PROM-S115",
        "property names narrowed",
        "widen propertyNames until it accepts the example",
    ),
    (
        Rule::DependencyAdded,
        "PROM-S116",
        "dependency added",
        "drop the dependency, or fill the property in with an upcaster",
    ),
    (
        Rule::BranchRemoved,
        "PROM-S117",
        "no branch accepts the value",
        "keep a branch for the old form",
    ),
    (
        Rule::BranchesOverlap,
        "PROM-S118",
        "more than one branch of oneOf accepts the value",
        "make the branches exclusive, or use anyOf",
    ),
    (
        Rule::ExclusionWidened,
        "PROM-S119",
        "not excludes more than before",
        "narrow the schema under not",
    ),
    (
        Rule::Forbidden,
        "PROM-S120",
        "value forbidden",
        "allow it again, or remove it with an upcaster",
    ),
    (
        Rule::OpenPropertyTyped,
        "PROM-S121",
        "property declared on an open object",
        "close the old schema before the property is added, or rely on the lenient reading of open objects",
    ),
    (
        Rule::Other,
        "PROM-S199",
        "reader refuses the value",
        "compare the schemas at the places shown",
    ),
];

impl Rule {
    /// The identifier.
    pub fn id(self) -> &'static str {
        self.texts().0
    }

    /// The rule in a few words.
    pub fn title(self) -> &'static str {
        self.texts().1
    }

    /// What to do about it.
    pub fn fix(self) -> &'static str {
        self.texts().2
    }

    fn texts(self) -> (&'static str, &'static str, &'static str) {
        let row = TEXTS.iter().find(|(rule, ..)| *rule == self);
        row.map_or(("PROM-S199", "", ""), |(_, id, title, fix)| (id, title, fix))
    }

    fn of(mismatch: &Mismatch) -> Self {
        let inside = |key: &str| mismatch.schema_pointer.split('/').any(|step| step == key);
        match mismatch.keyword.as_str() {
            "type" => Self::TypeNarrowed,
            "enum" | "const" => Self::ValueRemoved,
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => Self::RangeNarrowed,
            "required" if inside("dependentRequired") || inside("dependencies") => {
                Self::DependencyAdded
            }
            "required" => Self::RequiredAdded,
            "additionalProperties" | "unevaluatedProperties" => Self::ObjectClosed,
            "multipleOf" => Self::MultipleChanged,
            "minLength" | "maxLength" => Self::LengthNarrowed,
            "pattern" => Self::PatternNarrowed,
            "format" => Self::FormatAdded,
            "minItems" | "maxItems" => Self::ItemCountNarrowed,
            "additionalItems" | "unevaluatedItems" => Self::ItemsClosed,
            "contains" | "minContains" | "maxContains" => Self::ContainsNarrowed,
            "uniqueItems" => Self::UniqueAdded,
            "minProperties" | "maxProperties" => Self::PropertyCountNarrowed,
            "propertyNames" => Self::NamesNarrowed,
            "anyOf" => Self::BranchRemoved,
            "oneOf" if mismatch.expected.contains("more than one") => Self::BranchesOverlap,
            "oneOf" => Self::BranchRemoved,
            "not" => Self::ExclusionWidened,
            "falseSchema" => Self::Forbidden,
            _ => Self::Other,
        }
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}

/// One way in which a pair breaks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Which rule.
    pub rule: Rule,
    /// Where the reader refuses: a pointer to the keyword in its schema.
    pub pointer: String,
    /// The line of that pointer, from 1.
    pub reader_line: usize,
    /// What the writer's schema says of the same part.
    pub writer_pointer: String,
    /// The line of that pointer, from 1.
    pub writer_line: usize,
    /// What breaks, in one sentence.
    pub message: String,
    /// A value that the writer's schema allows and the reader's refuses. The validator confirmed
    /// both.
    pub counter_example: Value,
    /// Where in the counter-example.
    pub example_pointer: String,
    /// What to do.
    pub fix: String,
}

impl Finding {
    /// Turns the finding into a note on what the lenient reading takes for granted.
    pub(super) fn assume_lenient(&mut self) {
        self.message = format!(
            "taken for granted: writers put nothing under names they do not declare. Under strict: {}",
            self.message
        );
    }
}

/// The findings that counter-examples show, without repetitions.
pub(super) fn findings(comparison: &Comparison<'_>, examples: &[Value]) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for example in examples {
        for mismatch in comparison.reader_validator().mismatches(example) {
            let finding = describe(comparison, example, &mismatch);
            let known = found.iter().any(|f| {
                f.rule == finding.rule
                    && f.pointer == finding.pointer
                    && f.message == finding.message
            });
            if !known && found.len() < FINDINGS_MAX {
                found.push(finding);
            }
        }
    }
    found.sort_by(|a, b| {
        (a.reader_line, &a.pointer, a.rule).cmp(&(b.reader_line, &b.pointer, b.rule))
    });
    found
}

fn describe(comparison: &Comparison<'_>, example: &Value, mismatch: &Mismatch) -> Finding {
    let mut rule = Rule::of(mismatch);
    let writer_pointer = locate::schema_for(comparison.writer, &mismatch.pointer);
    let typed = !matches!(rule, Rule::RequiredAdded | Rule::ObjectClosed | Rule::DependencyAdded);
    if typed
        && !mismatch.pointer.is_empty()
        && !locate::is_declared(comparison.writer, &mismatch.pointer)
    {
        rule = Rule::OpenPropertyTyped;
    }
    let place = if mismatch.pointer.is_empty() { "the event" } else { &mismatch.pointer };
    let name = pointer::steps(&mismatch.pointer).last().unwrap_or_default();
    let message = match rule {
        Rule::OpenPropertyTyped => format!(
            "{}: {name:?} could hold anything before; now {place} {}",
            rule.title(),
            mismatch.expected
        ),
        _ => format!("{}: {place} {}", rule.title(), mismatch.expected),
    };
    Finding {
        rule,
        reader_line: comparison.reader.line_of(&mismatch.schema_pointer),
        pointer: mismatch.schema_pointer.clone(),
        writer_line: comparison.writer.line_of(&writer_pointer),
        writer_pointer,
        message,
        counter_example: example.clone(),
        example_pointer: mismatch.pointer.clone(),
        fix: rule.fix().to_owned(),
    }
}
