use std::fmt;

use promethean_event::{
    Event, EventId, GroupName, NewEvent, Pattern, Payload, Position, SCHEMA_VERSION, Topic,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dead_letter::REPLAY_FOR;
use crate::expression::{EVENT_NAMES, EventValues, Formula, FormulaError};

/// Whether an event is wanted.
pub type EventFilter = Box<dyn Fn(&Event) -> bool + Send + Sync>;
/// Makes a filter of an expression; filters are the edge's.
pub type CompileFilter = fn(&str) -> Result<EventFilter, String>;

/// What is to be replayed, and to whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct ReplaySpec {
    /// Topic or pattern to read.
    pub from: Pattern,
    /// Who gets it.
    pub to: ReplayTarget,
    /// Only events for which this is true.
    pub filter: Option<String>,
    /// The new payload, by an expression; `null` leaves the event out.
    pub map: Option<String>,
    /// Only what was appended at or after this time, epoch milliseconds.
    pub since: Option<u64>,
    /// Only what was appended before this time.
    pub until: Option<u64>,
    /// So many events in a second at most.
    pub rate: Option<u32>,
}

/// A replay as it is written: a name that is not known would otherwise replay everything.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    from: Pattern,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<Topic>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    group: Option<GroupName>,
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    map: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<u32>,
}

impl TryFrom<Written> for ReplaySpec {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let to = match (written.to.clone(), written.group.clone()) {
            (Some(topic), None) => ReplayTarget::To(topic),
            (None, Some(group)) => ReplayTarget::Group(group),
            _ => return Err("say either to, a topic, or group"),
        };
        let Written { from, filter, map, since, until, rate, .. } = written;
        Ok(Self { from, to, filter, map, since, until, rate })
    }
}

impl From<ReplaySpec> for Written {
    fn from(spec: ReplaySpec) -> Self {
        let ReplaySpec { from, to, filter, map, since, until, rate } = spec;
        let (to, group) = match to {
            ReplayTarget::To(topic) => (Some(topic), None),
            ReplayTarget::Group(group) => (None, Some(group)),
        };
        Self { from, to, group, filter, map, since, until, rate }
    }
}

/// Who gets what is replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayTarget {
    /// Another topic.
    To(Topic),
    /// One group once more, in the topics that it reads; other groups pass it over.
    Group(GroupName),
}

impl fmt::Display for ReplayTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::To(topic) => topic.fmt(f),
            Self::Group(group) => write!(f, "group {group}"),
        }
    }
}

/// What is wrong with a replay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The filter.
    #[error("where: {0}")]
    Filter(String),
    /// The map.
    #[error("map: {0}")]
    Map(#[from] FormulaError),
    /// The target is among the sources.
    #[error("{0} is itself among the topics that are read; choose another one")]
    Circular(Topic),
    /// No topic is there to read.
    #[error("no topic matches {0}")]
    NoSource(Pattern),
    /// A system topic.
    #[error("{0} is a topic of the system")]
    System(Topic),
    /// Times that leave nothing.
    #[error("until is not after since, so that there is nothing between them")]
    Empty,
    /// A rate of nothing.
    #[error("rate is 1 or more events in a second")]
    Rate,
}

/// A replay whose expressions were checked.
pub(super) struct Compiled {
    pub(super) spec: ReplaySpec,
    filter: Option<EventFilter>,
    map: Option<Formula>,
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

impl ReplaySpec {
    pub(super) fn compile(self, filters: CompileFilter) -> Result<Compiled, SpecError> {
        if let ReplayTarget::To(topic) = &self.to {
            if topic.is_system() {
                return Err(SpecError::System(topic.clone()));
            }
            if self.from.matches(topic) {
                return Err(SpecError::Circular(topic.clone()));
            }
        }
        if self.rate == Some(0) {
            return Err(SpecError::Rate);
        }
        if let (Some(since), Some(until)) = (self.since, self.until)
            && until <= since
        {
            return Err(SpecError::Empty);
        }
        let filter = self.filter.as_deref().map(filters).transpose().map_err(SpecError::Filter)?;
        let map = self.map.as_deref().map(|map| Formula::compile(map, EVENT_NAMES)).transpose()?;
        Ok(Compiled { spec: self, filter, map })
    }
}

impl Compiled {
    /// What becomes of an event; `None` if it is not wanted.
    pub(super) fn copy(&self, event: &Event) -> Result<Option<NewEvent>, String> {
        // What was published for one group alone is not everybody's history.
        if event.headers.get(REPLAY_FOR).is_some() {
            return Ok(None);
        }
        if self.filter.as_ref().is_some_and(|wants| !wants(event)) {
            return Ok(None);
        }
        let payload = match &self.map {
            None => event.payload.clone(),
            Some(map) => {
                let values = EventValues::of(event).map_err(|error| error.to_string())?;
                match values.evaluate(map)? {
                    Value::Null => return Ok(None),
                    value => Payload::of(&value).map_err(|error| error.to_string())?,
                }
            }
        };
        let topic = match &self.spec.to {
            ReplayTarget::To(topic) => topic.clone(),
            ReplayTarget::Group(_) => event.topic.clone(),
        };
        let mut copy = NewEvent::new(self.id_of(event), event.ts, topic, payload);
        copy.key = event.key.clone();
        copy.sid = event.sid;
        copy.tags = event.tags.clone();
        for (name, value) in event.headers.iter() {
            // A new payload is held to the schema of where it goes.
            if self.map.is_none() || name != SCHEMA_VERSION {
                copy.headers.insert(name, value).map_err(|error| error.to_string())?;
            }
        }
        if let ReplayTarget::Group(group) = &self.spec.to {
            copy.headers.set(REPLAY_FOR, group.as_str()).map_err(|error| error.to_string())?;
        }
        copy.caused_by = vec![event.id];
        Ok(Some(copy))
    }

    /// The same for the same source, target and map: a second run adds nothing.
    fn id_of(&self, event: &Event) -> EventId {
        let map = self.spec.map.as_deref().unwrap_or_default();
        let place = Position::of(event);
        let name = format!("{}\n{place}\n{}\n{map}", self.spec.to, event.id);
        EventId::derived("promethean replay", name.as_bytes())
    }
}
