//! What a new version would do: to its predecessors, to what is stored, to those who read.

use std::fmt;

use promethean_event::{GroupName, Offset, Partition, Topic};
use promethean_schema::{Finding, Mode};
use serde::Serialize;
use serde_json::Value;

use super::hop::Hop;
use crate::decode::{Reads, WhyUnreadable};

/// What registering a schema would do.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// The topic.
    pub topic: Topic,
    /// The version that it is, or would be.
    pub version: u32,
    /// Whether it is registered already, so that nothing would be done.
    pub exists: bool,
    /// What the topic asks of new versions.
    pub compat: Mode,
    /// The versions that it was compared with.
    pub compared: Vec<Compared>,
    /// What it was tried on.
    pub tried: Tried,
    /// The groups that read the topic, and what becomes of them.
    pub readers: Vec<ReaderPlan>,
    /// How events of the version before would become events of this one.
    pub up: Option<Hop>,
    /// How events of this one would become events of the version before.
    pub down: Option<Hop>,
    /// What speaks against it; empty if nothing does.
    pub objections: Vec<Objection>,
}

/// A comparison with an earlier version.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Compared {
    /// The earlier version.
    pub version: u32,
    /// Whether the new version was to read what the earlier one wrote; otherwise the reverse.
    pub backward: bool,
    /// Whether every event that the one writes is good for the other, as it is.
    pub compatible: bool,
    /// What the lenient reading of open objects takes for granted.
    pub notes: Vec<Finding>,
}

/// What casters and schemas were tried on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Tried {
    /// Values drawn from the schemas, and their examples.
    pub drawn: usize,
    /// Events that are really stored.
    pub stored: usize,
    /// Stored events that do not even match the version that they were written by.
    pub stored_invalid: usize,
    /// Stored events that could not be read by the new version.
    pub stored_broken: usize,
}

/// A group that reads the topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReaderPlan {
    /// The group.
    pub group: GroupName,
    /// The form in which it gets events.
    pub reads: Reads,
    /// What becomes of it.
    pub fate: ReaderFate,
}

/// What becomes of a group when there is a new version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReaderFate {
    /// It gets what it gets now.
    Good,
    /// It gets events as they were written, and would get new ones that are not good for the
    /// version before.
    AtRisk,
    /// New events could not be brought to the version that it reads.
    Breaks,
}

/// What speaks against a version.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "objection", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Objection {
    /// Events of one version are not good for the other.
    Incompatible {
        /// The earlier version.
        version: u32,
        /// Whether the new version was to read what the earlier one wrote; otherwise the reverse.
        backward: bool,
        /// Rule, places, counter-example and what to do.
        findings: Vec<Finding>,
    },
    /// Nobody knows whether they are.
    Undecided {
        /// The earlier version.
        version: u32,
        /// As for `Incompatible`.
        backward: bool,
        /// What made it so.
        construct: String,
        /// Where it stands.
        pointer: String,
    },
    /// Stored events would have no way to the new version. Cannot be forced.
    MissingUpcaster {
        /// The version before.
        from: u32,
        /// The new one.
        to: u32,
    },
    /// A caster makes something that is not good.
    CastFails {
        /// The version it was tried from.
        from: u32,
        /// The version it was to come to.
        to: u32,
        /// A value that shows it.
        value: Value,
        /// What went wrong.
        reason: String,
    },
    /// A group declares a version that its events could not be brought to any more.
    BreaksGroup {
        /// The group.
        group: GroupName,
        /// The version it reads.
        reads: u32,
        /// Where the missing caster would begin.
        from: u32,
        /// Where it would end.
        to: u32,
    },
    /// A stored event could not be read by the new version.
    BreaksEvent {
        /// Its partition.
        partition: Partition,
        /// Its place.
        offset: Offset,
        /// Why.
        #[serde(serialize_with = "as_text")]
        reason: WhyUnreadable,
    },
}

fn as_text<S: serde::Serializer>(reason: &WhyUnreadable, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(reason)
}

impl Objection {
    /// Whether it stands even against force: what is stored would be lost.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::MissingUpcaster { .. })
    }
}

impl Plan {
    /// Whether nothing speaks against it.
    pub fn is_good(&self) -> bool {
        self.objections.is_empty()
    }

    /// Whether it can be done against objections.
    pub fn can_be_forced(&self) -> bool {
        !self.objections.iter().any(Objection::is_final)
    }
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = |backward: &bool| if *backward { "written by" } else { "for readers of" };
        match self {
            Self::Incompatible { version, backward, findings } => {
                write!(f, "not compatible with events {} version {version}", way(backward))?;
                match findings.first() {
                    Some(first) => write!(
                        f,
                        ": {} {} at {} (line {}; there line {}), for example {}; {}",
                        first.rule.id(),
                        first.message,
                        first.pointer,
                        first.reader_line,
                        first.writer_line,
                        first.counter_example,
                        first.fix
                    ),
                    None => Ok(()),
                }
            }
            Self::Undecided { version, backward, construct, pointer } => write!(
                f,
                "undecided for events {} version {version}: {construct} at {pointer:?}; \
                 simplify it, or register by force",
                way(backward)
            ),
            Self::MissingUpcaster { from, to } => {
                write!(f, "no caster from {from} to {to}: give one, even one without operations")
            }
            Self::CastFails { from, to, value, reason } => {
                write!(f, "the casters from {from} to {to} fail on {value}: {reason}")
            }
            Self::BreaksGroup { group, reads, from, to } => write!(
                f,
                "group {group} reads version {reads}, and there is no caster from {from} to {to}"
            ),
            Self::BreaksEvent { partition, offset, reason } => {
                write!(f, "the stored event {offset} of partition {partition} {reason}")
            }
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {} of {}", self.version, self.topic)?;
        for (index, objection) in self.objections.iter().enumerate() {
            write!(f, "{}{objection}", if index == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}
