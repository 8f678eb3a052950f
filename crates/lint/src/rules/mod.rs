//! The rules, one file each. A rule's file is also its documentation: `DOC` is what
//! `prom lint --explain RULE` shows. Ids are never used again for something else.

mod topic_name;

mod header_name;

mod unregistered_topic;

mod unused_topic;

mod unused_version;

mod missing_upcaster;

mod version_suffix;

mod dlq_owner;

mod dynamic_topic;

mod parse_error;

mod system_topic;

use promethean_event::Pattern;
use serde::Serialize;

use crate::catalogue::Catalogue;
use crate::facts::Span;
use crate::finding::Draft;
use crate::settings::{CallKind, Checked, Level};
use crate::sites::{Sites, TopicUse};
use crate::source::SourceFile;

pub(crate) const UNREGISTERED_TOPIC: &str = unregistered_topic::RULE.name;

/// Every rule, by id.
pub(crate) const RULES: &[Rule] = &[
    topic_name::RULE,
    header_name::RULE,
    unregistered_topic::RULE,
    unused_topic::RULE,
    unused_version::RULE,
    missing_upcaster::RULE,
    version_suffix::RULE,
    dlq_owner::RULE,
    dynamic_topic::RULE,
    parse_error::RULE,
    system_topic::RULE,
];

/// One rule.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    /// One sentence.
    pub(crate) summary: &'static str,
    pub(crate) default: Level,
    pub(crate) reach: Reach,
    pub(crate) doc: &'static str,
    pub(crate) check: fn(&Context<'_>) -> Vec<Draft>,
}

/// What a rule has to see to be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Each place alone.
    Place,
    /// All of the code.
    WholeProject,
}

/// What rules judge.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) settings: &'a Checked<'a>,
    pub(crate) catalogue: &'a Catalogue,
    /// The manifest is the last.
    pub(crate) files: &'a [SourceFile],
    pub(crate) sites: &'a Sites,
}

impl Context<'_> {
    /// Places whose topic is known.
    fn named(&self) -> impl Iterator<Item = (&TopicUse, &str)> {
        let topics = self.sites.topics.iter();
        topics.filter_map(|site| Some((site, site.topic.as_deref()?)))
    }

    /// Where the manifest declares a topic.
    fn declared(&self, topic: &str) -> (usize, Span) {
        (self.files.len().saturating_sub(1), self.catalogue.declared_at(topic))
    }

    /// ` (3 calls have names that are not known)`, where that matters.
    fn doubt(&self) -> String {
        match self.sites.topics.iter().filter(|site| site.topic.is_none()).count() {
            0 => String::new(),
            1 => " (but 1 call names a topic that is not known)".to_owned(),
            count => format!(" (but {count} calls name topics that are not known)"),
        }
    }
}

/// The pattern that a reader's name is, if it has wildcards.
fn pattern(
    site: &TopicUse,
    topic: &str,
) -> Option<Result<Pattern, promethean_event::PatternError>> {
    (site.kind == CallKind::Subscribe && topic.contains('*')).then(|| Pattern::new(topic))
}

fn draft(site: &TopicUse, topic: &str, message: String, help: impl Into<String>) -> Draft {
    Draft {
        file: site.file,
        span: site.span.clone(),
        subject: topic.to_owned(),
        message,
        help: help.into(),
    }
}

/// A rule as its users see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RuleDescription {
    /// `PROM-L001`
    pub id: &'static str,
    /// `topic-name`
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Its level unless the settings say otherwise.
    pub default: Level,
    /// What, why, examples, and how to mend it, as Markdown.
    pub doc: &'static str,
}

impl RuleDescription {
    const fn new(rule: &Rule) -> Self {
        let Rule { id, name, summary, default, doc, .. } = rule;
        Self { id, name, summary, default: *default, doc }
    }
}

/// All rules, by id.
pub fn rules() -> impl ExactSizeIterator<Item = RuleDescription> {
    RULES.iter().map(RuleDescription::new)
}

/// The rule with this name or id, whatever its case; `Err` has the name that comes nearest.
pub fn explain(rule: &str) -> Result<RuleDescription, &'static str> {
    find(rule).map(RuleDescription::new).ok_or_else(|| nearest(rule))
}

pub(crate) fn find(key: &str) -> Option<&'static Rule> {
    let same = |known: &str| known.eq_ignore_ascii_case(key);
    RULES.iter().find(|rule| same(rule.name) || same(rule.id))
}

/// The rule whose name is most like `key`.
pub(crate) fn nearest(key: &str) -> &'static str {
    let names = RULES.iter().map(|rule| rule.name);
    names.min_by_key(|name| distance(name, key)).unwrap_or_default()
}

/// Levenshtein distance over bytes.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.bytes().enumerate() {
        let mut diagonal = index;
        let mut before = index + 1;
        for (cell, other) in row.iter_mut().skip(1).zip(right.bytes()) {
            let changed = diagonal + usize::from(letter != other);
            diagonal = *cell;
            *cell = changed.min(diagonal + 1).min(before + 1);
            before = *cell;
        }
        if let Some(first) = row.first_mut() {
            *first = index + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_are_unique_and_documented() {
        for (index, rule) in RULES.iter().enumerate() {
            assert_eq!(rule.id, format!("PROM-L{:03}", index + 1));
            for part in ["## Why", "## Bad", "## Good", "## How to fix"] {
                assert!(rule.doc.contains(part), "{} lacks {part}", rule.name);
            }
            assert!(rule.doc.starts_with(&format!("# {} ({})\n", rule.name, rule.id)));
            assert!(rule.summary.ends_with('.'));
            assert_eq!(RULES.iter().filter(|other| other.name == rule.name).count(), 1);
        }
    }

    #[test]
    fn explains_by_name_and_id() {
        assert_eq!(explain("topic-name").unwrap().id, "PROM-L001");
        assert_eq!(explain("prom-l009").unwrap().name, "dynamic-topic");
        assert_eq!(explain("unused-topics"), Err("unused-topic"));
    }
}
