//! The `[lint]` table of the manifest, as plain data, and the same checked once.

use std::collections::{BTreeMap, HashMap};

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::finding::Severity;
use crate::rules;

/// The `[lint]` table. Every field has a default; unknown keys are refused.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// What a topic name must match, whole. Default `^[a-z0-9]+(\.[a-z0-9]+)*(\.v[0-9]+)?$`;
    /// anchors are added where they are missing.
    pub topic_pattern: String,
    /// How the name of a header of one's own begins. Default `x-`.
    pub header_prefix: String,
    /// Headers that need no prefix. Default content-type, traceparent, tracestate, correlation-id.
    pub header_allow: Vec<String>,
    /// Files and directories to read, from the root. Default: the root itself.
    pub paths: Vec<String>,
    /// Globs of files to read, from the root; none means all. Default none.
    pub include: Vec<String>,
    /// Globs of files to leave out. Default none.
    pub exclude: Vec<String>,
    /// Calls that name a topic, beside the built-in ones; the same name replaces a built-in one.
    pub calls: Vec<CallRule>,
    /// Level per rule, by name or id. Default: each rule's own.
    pub severity: BTreeMap<String, Level>,
    /// Short for `severity.unregistered-topic`. Default unset.
    pub unregistered: Option<Level>,
    /// Topics that need not be registered, as patterns (`internal.**`). Default none.
    pub unregistered_allow: Vec<String>,
    /// The file of findings known before, from the root. The caller reads it and applies it with
    /// [`Baseline`](crate::Baseline). Default none.
    pub baseline: Option<String>,
}

/// The topic names of the design notes, with the end anchor that they lack.
pub const TOPIC_PATTERN: &str = r"^[a-z0-9]+(\.[a-z0-9]+)*(\.v[0-9]+)?$";

impl Default for Settings {
    fn default() -> Self {
        let allow = ["content-type", "traceparent", "tracestate", "correlation-id"];
        Self {
            topic_pattern: TOPIC_PATTERN.to_owned(),
            header_prefix: "x-".to_owned(),
            header_allow: allow.map(str::to_owned).to_vec(),
            paths: Vec::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            calls: Vec::new(),
            severity: BTreeMap::new(),
            unregistered: None,
            unregistered_allow: Vec::new(),
            baseline: None,
        }
    }
}

/// What a rule counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Not checked.
    Off,
    /// Shown; does not fail a run.
    Note,
    /// Shown; fails a run unless only errors are to.
    #[serde(alias = "warn")]
    Warning,
    /// Fails a run.
    Error,
}

impl Level {
    /// What its findings are, unless it is off.
    pub fn severity(self) -> Option<Severity> {
        match self {
            Self::Off => None,
            Self::Note => Some(Severity::Note),
            Self::Warning => Some(Severity::Warning),
            Self::Error => Some(Severity::Error),
        }
    }
}

/// A function, method or macro that takes a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallRule {
    /// Its name, without receiver: `publish`, `myPublish`.
    pub name: String,
    /// What it does with the topic. Default publish.
    #[serde(default)]
    pub kind: CallKind,
    /// Which argument is the topic, from 0. Default: 0 for methods; for plain functions and macros
    /// the first of the first two that is a text, since `publish(bus, topic)` exists too.
    #[serde(default)]
    pub argument: Option<usize>,
    /// Where the argument is an object of options, the property that holds the topic.
    #[serde(default)]
    pub property: Option<String>,
    /// Only calls on these receivers (`bus`, `this.bus`, or `""` for none); empty means any.
    /// Default empty.
    #[serde(default)]
    pub receivers: Vec<String>,
}

/// What a call does with its topic.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum CallKind {
    /// Writes to it.
    #[default]
    Publish,
    /// Reads from it; patterns are allowed.
    Subscribe,
    /// Declares it, with its type or schema.
    Define,
}

/// Where a name is too common to be ours on any receiver: called plainly, or on these.
const OWN: &[&str] = &["", "prom", "promethean", "client"];

const BUILT_IN: &[(&str, CallKind, Option<usize>)] = &[
    ("publish", CallKind::Publish, None),
    ("subscribe", CallKind::Subscribe, None),
    ("subscribeNormalized", CallKind::Subscribe, Some(1)),
    ("consume", CallKind::Subscribe, None),
    ("stream", CallKind::Subscribe, None),
    ("tail", CallKind::Subscribe, None),
    ("topic", CallKind::Define, None),
    ("define_topic", CallKind::Define, None),
    ("defineTopic", CallKind::Define, None),
];

/// Why settings are not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// `topic_pattern` is not a regular expression.
    #[error("lint.topic_pattern is not a regular expression")]
    TopicPattern(#[source] Box<regex::Error>),
    /// The names of `calls` are too many or too long.
    #[error("the names in lint.calls cannot be searched for")]
    Calls(#[source] Box<regex::Error>),
    /// A key of `severity` is neither the name nor the id of a rule.
    #[error("lint.severity.{given:?} is no rule; did you mean {nearest:?}?")]
    UnknownRule {
        /// What was written.
        given: String,
        /// The rule with the most similar name.
        nearest: &'static str,
    },
    /// An entry of `unregistered_allow` is not a topic pattern.
    #[error("lint.unregistered_allow has a bad pattern")]
    AllowPattern(#[source] promethean_event::PatternError),
    /// A glob of `include` or `exclude`.
    #[error("lint glob {glob:?} cannot be read")]
    Glob {
        /// The glob.
        glob: String,
        /// What is wrong with it.
        #[source]
        source: Box<ignore::Error>,
    },
}

/// Settings that were checked: what the rest of the crate works with.
#[derive(Debug)]
pub(crate) struct Checked<'a> {
    pub(crate) given: &'a Settings,
    pub(crate) topic: Regex,
    pub(crate) calls: HashMap<String, CallRule>,
    pub(crate) levels: HashMap<&'static str, Level>,
    pub(crate) unregistered_allow: Vec<promethean_event::Pattern>,
    /// The names of the calls: a file without any of them names no topic by itself.
    words: Regex,
}

impl<'a> Checked<'a> {
    pub(crate) fn new(given: &'a Settings) -> Result<Self, SettingsError> {
        // Whole names only, whatever the pattern says: an unanchored one accepts nearly anything.
        let topic = Regex::new(&format!("^(?:{})$", given.topic_pattern))
            .map_err(|error| SettingsError::TopicPattern(Box::new(error)))?;
        let built_in = BUILT_IN.iter().map(|&(name, kind, argument)| CallRule {
            name: name.to_owned(),
            kind,
            argument,
            property: None,
            receivers: match kind {
                CallKind::Define => OWN.iter().map(|&own| own.to_owned()).collect(),
                _ => Vec::new(),
            },
        });
        let calls: HashMap<String, CallRule> = built_in
            .chain(given.calls.iter().cloned())
            .map(|call| (call.name.clone(), call))
            .collect();
        let words = words(calls.keys())?;
        let allow = given.unregistered_allow.iter();
        let unregistered_allow = allow
            .map(|pattern| promethean_event::Pattern::new(pattern))
            .collect::<Result<_, _>>()
            .map_err(SettingsError::AllowPattern)?;
        Ok(Self { given, topic, calls, levels: levels(given)?, unregistered_allow, words })
    }

    /// Whether a call may stand in `text`. Cheap: most files of a project have none.
    pub(crate) fn may_call(&self, text: &str) -> bool {
        self.words.is_match(text)
    }

    /// Whether `name` is the name of a call that declares a topic.
    pub(crate) fn defines(&self, name: &str) -> bool {
        self.calls.get(name).is_some_and(|call| call.kind == CallKind::Define)
    }

    pub(crate) fn level(&self, rule: &str) -> Level {
        self.levels.get(rule).copied().unwrap_or(Level::Off)
    }
}

/// Any of the names, as a whole word.
fn words<'n>(names: impl Iterator<Item = &'n String>) -> Result<Regex, SettingsError> {
    let mut names: Vec<String> = names.map(|name| regex::escape(name)).collect();
    names.sort();
    Regex::new(&format!(r"(?-u:\b)(?:{})(?-u:\b)", names.join("|")))
        .map_err(|error| SettingsError::Calls(Box::new(error)))
}

fn levels(given: &Settings) -> Result<HashMap<&'static str, Level>, SettingsError> {
    let mut levels: HashMap<_, _> =
        rules::RULES.iter().map(|rule| (rule.name, rule.default)).collect();
    if let Some(level) = given.unregistered {
        levels.insert(rules::UNREGISTERED_TOPIC, level);
    }
    for (key, &level) in &given.severity {
        let Some(rule) = rules::find(key) else {
            return Err(SettingsError::UnknownRule {
                given: key.clone(),
                nearest: rules::nearest(key),
            });
        };
        levels.insert(rule.name, level);
    }
    Ok(levels)
}
