//! Compatibility: is every value that is valid under the writer's schema valid under the reader's?
//!
//! Both schemas become predicates of one algebra ([`term`]), and the question becomes whether
//! *writer and not reader* has a value ([`search`]). If it has, the value is the counter-example,
//! shown only after the validator has confirmed it on both sides. If it has none, that is a proof.
//! If the search cannot tell, the answer says which construct is to blame. There is no guess.

pub(crate) mod exact;
pub(crate) mod lower;
pub(crate) mod regex;
pub(crate) mod search;
pub(crate) mod term;

mod breaks;
mod finding;
mod history;
mod locate;
mod same;

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::document::Document;
use crate::limits;
use crate::validate::{CompileError, Formats, Validator};
pub use finding::{Finding, Rule};
pub use history::{HistoryReport, Mode, PairReport, UnknownMode, check_history};
use lower::LowerOptions;
use search::{Outcome, Search};
use term::{Lit, Pool};

/// What is taken for granted of objects that do not say what else they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OpenObjects {
    /// Writers put nothing under a name that only the reader declares. Adding an optional property
    /// is then compatible, which is what people expect. The default.
    #[default]
    Lenient,
    /// Anything may stand under an undeclared name: pure set inclusion. Adding a typed optional
    /// property to an open object is then incompatible, because an old event may hold that name
    /// with another type.
    Strict,
}

/// What a `default` in the reader's schema means for a required property.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RequiredDefaults {
    /// Nothing: the property must be there. The default.
    #[default]
    Ignore,
    /// The reader fills it in, so it may be absent.
    Fill,
}

/// The policy of a comparison. The default is lenient on open objects and takes `format` and
/// `default` as notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompareOptions {
    /// See [`OpenObjects`].
    pub open_objects: OpenObjects,
    /// See [`RequiredDefaults`].
    pub required_defaults: RequiredDefaults,
    /// Whether `format` is a condition.
    pub formats: Formats,
}

impl CompareOptions {
    /// Pure set inclusion.
    pub fn strict() -> Self {
        Self { open_objects: OpenObjects::Strict, ..Self::default() }
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// Proven: every value of the writer is one of the reader.
    Compatible {
        /// What would break if [`OpenObjects::Strict`] had been asked for; empty if nothing.
        notes: Vec<Finding>,
    },
    /// There are values of the writer that the reader refuses.
    Incompatible {
        /// At least one, each with such a value.
        findings: Vec<Finding>,
    },
    /// Neither was shown.
    Undecided {
        /// What made it so.
        construct: String,
        /// Where it stands, as far as is known; in the reader's schema if it is in both.
        pointer: String,
    },
}

impl Verdict {
    /// Whether it was proven that nothing breaks.
    pub fn is_compatible(&self) -> bool {
        matches!(self, Self::Compatible { .. })
    }

    /// The findings of an incompatible pair; none otherwise.
    pub fn findings(&self) -> &[Finding] {
        match self {
            Self::Incompatible { findings } => findings,
            _ => &[],
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compatible { .. } => f.write_str("compatible"),
            Self::Incompatible { .. } => f.write_str("incompatible"),
            Self::Undecided { construct, .. } => write!(f, "undecided: {construct}"),
        }
    }
}

/// Why two schemas could not be compared at all. Documents that were read have none of these; it
/// is kept apart from a verdict so that a defect of ours never looks like one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A schema that could be read could not be compiled with `format` asserted.
    #[error("a schema cannot be compiled with the formats asserted")]
    Compile(#[from] CompileError),
    /// No thread could be started.
    #[error("no thread could be started for the comparison")]
    Thread(#[from] std::io::Error),
    /// The comparison broke off: a defect of ours.
    #[error("the comparison broke off; please report both schemas")]
    Panicked,
}

/// Decides whether `reader` accepts everything that `writer` allows.
///
/// Bounded in steps, memory and depth by [`crate::limits`]; what does not end within them is
/// [`Verdict::Undecided`]. Backward compatibility of a new version is
/// `compare(new, old)`, forward compatibility `compare(old, new)`.
///
/// # Errors
/// See [`CompareError`].
pub fn compare(
    reader: &Document,
    writer: &Document,
    options: &CompareOptions,
) -> Result<Verdict, CompareError> {
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new()
            .name("schema-compare".to_owned())
            .stack_size(limits::COMPARE_STACK_BYTES)
            .spawn_scoped(scope, || Ok(Comparison::new(reader, writer, *options)?.run()))?;
        worker.join().map_err(|_| CompareError::Panicked)?
    })
}

/// A pair and everything that is needed to confirm a counter-example.
struct Comparison<'a> {
    reader: &'a Document,
    writer: &'a Document,
    options: CompareOptions,
    asserting: Option<(Validator, Validator)>,
}

/// What one search says.
enum Answer {
    /// Proven empty.
    Proof,
    /// Confirmed counter-examples.
    Examples(Vec<Value>),
    /// The construct to blame.
    Doubt(String),
}

/// How many values that the validator does not confirm are passed over before giving up.
const UNCONFIRMED_MAX: usize = 4;

impl<'a> Comparison<'a> {
    fn new(
        reader: &'a Document,
        writer: &'a Document,
        options: CompareOptions,
    ) -> Result<Self, CompareError> {
        let compile = |document: &Document| {
            Validator::compile(document.value(), document.dialect(), Formats::Assert)
        };
        let asserting = match options.formats {
            Formats::Annotate => None,
            Formats::Assert => Some((compile(reader)?, compile(writer)?)),
        };
        Ok(Self { reader, writer, options, asserting })
    }

    fn run(&self) -> Verdict {
        // What holds of all the writer's values holds of those that a lenient reading leaves, and
        // is the quicker to prove: there, what has not changed is one term on both sides.
        let strict = self.answer(OpenObjects::Strict);
        let answer = match (self.options.open_objects, &strict) {
            (OpenObjects::Lenient, Answer::Examples(_) | Answer::Doubt(_)) => {
                self.answer(OpenObjects::Lenient)
            }
            _ => return self.verdict(strict, Vec::new()),
        };
        let notes = match (&answer, &strict) {
            (Answer::Proof, Answer::Examples(examples)) => self.strict_notes(examples),
            _ => Vec::new(),
        };
        self.verdict(answer, notes)
    }

    fn verdict(&self, answer: Answer, notes: Vec<Finding>) -> Verdict {
        let answer = match answer {
            Answer::Doubt(construct) => self.answer_by_values().unwrap_or(Answer::Doubt(construct)),
            answer => answer,
        };
        match answer {
            Answer::Examples(examples) => {
                Verdict::Incompatible { findings: finding::findings(self, &examples) }
            }
            Answer::Doubt(construct) => {
                let pointer = locate::construct(self.reader, &construct)
                    .or_else(|| locate::construct(self.writer, &construct));
                Verdict::Undecided { construct, pointer: pointer.unwrap_or_default() }
            }
            Answer::Proof => Verdict::Compatible { notes },
        }
    }

    /// What the lenient reading takes for granted.
    fn strict_notes(&self, examples: &[Value]) -> Vec<Finding> {
        let mut notes = finding::findings(self, examples);
        notes.iter_mut().for_each(Finding::assume_lenient);
        notes
    }

    fn reader_validator(&self) -> &Validator {
        self.asserting.as_ref().map_or_else(|| self.reader.validator(), |(reader, _)| reader)
    }

    fn writer_validator(&self) -> &Validator {
        self.asserting.as_ref().map_or_else(|| self.writer.validator(), |(_, writer)| writer)
    }

    /// Whether the validator agrees that a value tells the two apart.
    fn confirms(&self, value: &Value) -> bool {
        self.writer_validator().is_valid(value) && !self.reader_validator().is_valid(value)
    }

    /// Where the writer's schema lists its values there is nothing to prove: each is tried.
    fn answer_by_values(&self) -> Option<Answer> {
        let writer = self.writer.value().as_object()?;
        let one = writer.get("const").filter(|_| self.writer.dialect().knows("const"));
        let values = match (one, writer.get("enum")) {
            (Some(value), _) => std::slice::from_ref(value),
            (None, Some(Value::Array(values))) => values,
            (None, _) => return None,
        };
        let refused: Vec<_> = values.iter().filter(|value| self.confirms(value)).cloned().collect();
        if refused.is_empty() {
            return Some(Answer::Proof);
        }
        // A lenient reading may pass over a value that the validator does not.
        let plain = self.options.open_objects == OpenObjects::Strict
            && self.options.required_defaults != RequiredDefaults::Fill;
        plain.then_some(Answer::Examples(refused))
    }

    fn answer(&self, open_objects: OpenObjects) -> Answer {
        let mut pool = Pool::new();
        let Some((reader, writer)) = self.lower(open_objects, &mut pool) else {
            return Answer::Doubt("a reference that cannot be followed".to_owned());
        };
        let answer = self.search(&mut pool, (writer, reader));
        if open_objects == OpenObjects::Strict || !matches!(answer, Answer::Doubt(_)) {
            return answer;
        }
        // Under a negation the lenient reading takes objects away from the wrong side, and lets
        // in what the writer never allowed. So the writer is held to its own word as well.
        let Some((_, plain)) = self.lower(OpenObjects::Strict, &mut pool) else {
            return answer;
        };
        let writer = pool.all(vec![plain, writer]);
        self.search(&mut pool, (writer, reader))
    }

    fn search(&self, pool: &mut Pool, (writer, reader): (Lit, Lit)) -> Answer {
        let mut search = Search::new(pool, self.reader.dialect());
        match self.first_example(&mut search, &[writer, !reader]) {
            Answer::Examples(mut examples) => {
                breaks::more_examples(self, &mut search, (writer, reader), &mut examples);
                Answer::Examples(examples)
            }
            other => other,
        }
    }

    fn lower(&self, open_objects: OpenObjects, pool: &mut Pool) -> Option<(Lit, Lit)> {
        let reader_options = LowerOptions {
            formats: self.options.formats,
            defaults_fill_required: self.options.required_defaults == RequiredDefaults::Fill,
            absent_unless_declared: Vec::new(),
        };
        let writer_options = LowerOptions {
            formats: self.options.formats,
            defaults_fill_required: false,
            absent_unless_declared: match open_objects {
                OpenObjects::Strict => Vec::new(),
                OpenObjects::Lenient => locate::property_names(self.reader),
            },
        };
        let (reader, mut known) =
            lower::lower(self.reader, &reader_options, pool, HashMap::new()).ok()?;
        // What is the same on both sides is one term, so that recursive parts that did not change
        // need no proof. Only where both sides are read in the same way, of course.
        let alike = writer_options.absent_unless_declared.is_empty()
            && !reader_options.defaults_fill_required;
        let same = if alike { same::places(self.reader, self.writer) } else { BTreeSet::new() };
        known.retain(|place, _| same.contains(place.as_str()));
        let (writer, _) = lower::lower(self.writer, &writer_options, pool, known).ok()?;
        Some((reader, writer))
    }

    /// The first value of a state that the validator confirms.
    fn first_example(&self, search: &mut Search<'_>, state: &[Lit]) -> Answer {
        let mut state = state.to_vec();
        let mut construct = None;
        for _ in 0..UNCONFIRMED_MAX {
            match search.decide(state.iter().copied()) {
                Outcome::Found(value) if self.confirms(&value) => {
                    return Answer::Examples(vec![Value::clone(&value)]);
                }
                Outcome::Found(value) => {
                    let blamed = search.doubts.iter().next().cloned();
                    construct = Some(blamed.unwrap_or_else(|| {
                        format!("a value on which the validator decides otherwise: {value}")
                    }));
                    state.push(!lower::exactly(search.pool, &value));
                }
                // An unconfirmed value was passed over: that nothing else was found is no proof.
                Outcome::Empty => return construct.map_or(Answer::Proof, Answer::Doubt),
                Outcome::Unknown(why) => {
                    return Answer::Doubt(construct.unwrap_or_else(|| why.to_string()));
                }
            }
        }
        Answer::Doubt(construct.unwrap_or_else(|| search::BUDGET.to_owned()))
    }
}
