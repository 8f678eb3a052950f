//! What a projection is, in both of its kinds, with everything checked.

use std::fmt;
use std::sync::Arc;

use promethean_event::{GroupName, GroupNameError, Topic, TopicError};

use super::delegated::Carry;
use super::limits::{BATCH_BYTES, BATCH_EVENTS, TOPICS_MAX, VIEWS_MAX};
use super::mapping::Mapping;
use super::stamp::Order;
use super::transaction::Apply;
use super::view::{View, ViewDefinitionError};
use crate::projection::feed::BatchLimit;

/// What is wrong with a projection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// Its name.
    #[error(transparent)]
    Name(#[from] GroupNameError),
    /// A view.
    #[error(transparent)]
    View(#[from] ViewDefinitionError),
    /// A topic's name.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// No topics, or too many.
    #[error("a projection reads 1 to {TOPICS_MAX} topics, not {0}")]
    Topics(usize),
    /// No views, too many, or one of them twice.
    #[error("a projection has 1 to {VIEWS_MAX} views, each once, not {0}")]
    Views(usize),
}

/// What happens to events without a key, or without the version that a view needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unkeyed {
    /// They are counted, and become dead letters of the projection. Default.
    #[default]
    Park,
    /// They are counted.
    Count,
}

#[derive(Clone)]
pub(crate) enum Kind {
    Changelog { mapping: Arc<dyn Mapping>, unkeyed: Unkeyed },
    Transactional { apply: Apply },
    Delegated { carry: Carry },
}

/// A projection that has been checked.
#[derive(Clone)]
pub(crate) struct Definition {
    /// Its name, also that of the group of its dead letters.
    pub(crate) name: GroupName,
    pub(crate) topics: Vec<Topic>,
    pub(crate) views: Vec<View>,
    pub(crate) version: u32,
    pub(crate) grave_ms: u64,
    pub(crate) batch: BatchLimit,
    pub(crate) kind: Kind,
}

/// What a definition is made of, unchecked.
pub(crate) struct Draft {
    pub(crate) name: String,
    pub(crate) topics: Vec<String>,
    pub(crate) views: Vec<View>,
    pub(crate) version: u32,
    pub(crate) grave_ms: u64,
    pub(crate) batch_events: Option<usize>,
}

impl Draft {
    pub(crate) fn finish(self, kind: Kind) -> Result<Definition, DefinitionError> {
        let name = GroupName::new(&self.name)?;
        if self.topics.is_empty() || self.topics.len() > TOPICS_MAX {
            return Err(DefinitionError::Topics(self.topics.len()));
        }
        let mut topics =
            self.topics.iter().map(|topic| Topic::new(topic)).collect::<Result<Vec<_>, _>>()?;
        topics.sort();
        topics.dedup();
        let mut names: Vec<&String> = self.views.iter().map(|view| &view.name).collect();
        names.sort();
        names.dedup();
        // One that writes by itself has no views of ours.
        let is_short = names.is_empty() && !matches!(kind, Kind::Delegated { .. });
        if names.len() != self.views.len() || is_short || names.len() > VIEWS_MAX {
            return Err(DefinitionError::Views(self.views.len()));
        }
        for view in &self.views {
            view.check()?;
        }
        let events = self.batch_events.unwrap_or(BATCH_EVENTS).clamp(1, BATCH_EVENTS);
        Ok(Definition {
            name,
            topics,
            views: self.views,
            version: self.version,
            grave_ms: self.grave_ms,
            batch: BatchLimit { events, bytes: BATCH_BYTES },
            kind,
        })
    }
}

impl Definition {
    /// By what writes to a key are ordered.
    pub(crate) fn order(&self) -> Order {
        match &self.kind {
            Kind::Transactional { .. } | Kind::Delegated { .. } => Order::Sequence,
            Kind::Changelog { mapping, .. } if mapping.has_versions() => Order::Version,
            Kind::Changelog { mapping, .. } if !mapping.keeps_key() => Order::Rank,
            Kind::Changelog { .. } => Order::Offset,
        }
    }

    /// Whether the newest event of each key is all that matters.
    pub(crate) fn is_by_key(&self) -> bool {
        self.order() == Order::Offset
    }

    /// Whether what it writes is its own affair.
    pub(crate) const fn is_delegated(&self) -> bool {
        matches!(self.kind, Kind::Delegated { .. })
    }

    /// A text that is another one when the same events would give other documents. How documents
    /// are indexed is not part of it.
    pub(crate) fn fingerprint(&self) -> String {
        let mut text = format!("v{}", self.version);
        for topic in &self.topics {
            text.push('\n');
            text.push_str(topic.as_str());
        }
        for view in &self.views {
            text.push_str("\nview ");
            text.push_str(&view.name);
        }
        if let Kind::Changelog { mapping, .. } = &self.kind {
            text.push('\n');
            text.push_str(&mapping.fingerprint());
        }
        format!("{:016x}", xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
    }

    pub(crate) fn view_at(&self, name: &str) -> Option<usize> {
        self.views.iter().position(|view| view.name == name)
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition")
            .field("name", &self.name)
            .field("topics", &self.topics)
            .field("views", &self.views)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}
