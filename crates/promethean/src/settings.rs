//! What a group is: kept with the group, so that it is the same after a restart and for every
//! member.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use promethean_delivery::{GroupOptions, MemberOptions, OptionsError};
use promethean_event::{Event, Pattern, PatternError};
use serde::{Deserialize, Serialize};

use crate::decode::Reads;
use crate::limits::{GROUP_PATTERNS_MAX, HORIZON_EVENTS, SAVES_IN_FLIGHT};

/// Who may get an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Any member with room.
    #[default]
    Shared,
    /// The one member that owns the partition.
    Partitioned,
}

/// What order is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ordered {
    /// One event of a key out at a time, and never a later one before an earlier one.
    #[default]
    Key,
    /// None.
    None,
}

/// What happens to later events of the key of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Park {
    /// They go on without it.
    #[default]
    Event,
    /// They wait behind it until the dead letter is replayed or discarded.
    Key,
}

/// How a group delivers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GroupSettings {
    /// The topics it reads.
    pub topics: Vec<Pattern>,
    /// Who may get an event. Default: shared.
    pub mode: Mode,
    /// What order is kept. Default: by key.
    pub ordered: Ordered,
    /// What a dead letter does to its key. Default: nothing.
    pub park: Park,
    /// How long a consumer may work on an event before it goes to another. Default: 30 s.
    pub ack_timeout_ms: u32,
    /// How long it may do so with all extensions. Default: 10 min.
    pub processing_ms_max: u32,
    /// Deliveries of one event before it is a dead letter. Default: 5.
    pub max_attempts: u16,
    /// Delay before the second delivery; doubles with each further one. Default: 200 ms.
    pub backoff_ms: u32,
    /// Longest such delay. Default: 60 s.
    pub backoff_ms_max: u32,
    /// How long a member may finish what it has of a partition that it loses. Default: 10 s.
    pub drain_ms: u32,
    /// Retention and compaction keep what the group has not finished. Default: no.
    pub hold: bool,
    /// The name of the filter, if there is one: members must agree on it.
    pub filter: Option<String>,
    /// The form in which it gets events. Default: as they were written.
    pub reads_as: Reads,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            topics: Vec::new(),
            mode: Mode::Shared,
            ordered: Ordered::Key,
            park: Park::Event,
            ack_timeout_ms: 30_000,
            processing_ms_max: 600_000,
            max_attempts: 5,
            backoff_ms: 200,
            backoff_ms_max: 60_000,
            drain_ms: 10_000,
            hold: false,
            filter: None,
            reads_as: Reads::Written,
        }
    }
}

/// Why settings are refused.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// No topic at all.
    #[error("the group reads no topic; name at least one, such as \"orders.*\"")]
    NoTopics,
    /// Too many patterns.
    #[error("the group names {0} topics; {GROUP_PATTERNS_MAX} at most: use a pattern")]
    TooManyTopics(usize),
    /// A pattern that is none.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The system's topics are not for groups.
    #[error("{0} is a topic of the system; groups read users' topics")]
    System(Pattern),
    /// Values that contradict each other.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A member that could never get anything.
    #[error("{0} is 0, so that nothing would ever be delivered; choose 1 or more")]
    NoRoom(&'static str),
    /// A time that is too long to be meant.
    #[error("{name} of {given:?} is too long; choose at most 49 days")]
    TooLong {
        /// Which time.
        name: &'static str,
        /// What was given.
        given: Duration,
    },
}

impl GroupSettings {
    /// What is wrong with them, if anything.
    pub fn check(&self) -> Result<(), SettingsError> {
        match self.topics.len() {
            0 => return Err(SettingsError::NoTopics),
            1..=GROUP_PATTERNS_MAX => {}
            count => return Err(SettingsError::TooManyTopics(count)),
        }
        if let Some(system) = self.topics.iter().find(|p| p.to_string().starts_with('$')) {
            return Err(SettingsError::System(system.clone()));
        }
        self.for_delivery().check()?;
        Ok(())
    }

    /// Whether the group reads a topic. Dead letters are read by those who name them.
    pub fn reads(&self, topic: &promethean_event::Topic) -> bool {
        use promethean_delivery::dead_letter::is_dead_letter_topic;
        let is_dead = is_dead_letter_topic(topic);
        let named = |p: &&Pattern| !is_dead || p.to_string().starts_with("dlq");
        !topic.is_system() && self.topics.iter().filter(named).any(|p| p.matches(topic))
    }

    pub(crate) fn for_delivery(&self) -> GroupOptions {
        use promethean_delivery as delivery;
        GroupOptions {
            mode: match self.mode {
                Mode::Shared => delivery::Mode::Shared,
                Mode::Partitioned => delivery::Mode::Partitioned,
            },
            ordered: match self.ordered {
                Ordered::Key => delivery::Ordered::Key,
                Ordered::None => delivery::Ordered::None,
            },
            park: match self.park {
                Park::Event => delivery::Park::Event,
                Park::Key => delivery::Park::Key,
            },
            lease_ms: self.ack_timeout_ms,
            lease_ms_max: self.processing_ms_max.max(self.ack_timeout_ms),
            max_attempts: self.max_attempts,
            backoff_ms: self.backoff_ms,
            backoff_ms_max: self.backoff_ms_max.max(self.backoff_ms),
            saves_in_flight: SAVES_IN_FLIGHT,
            horizon_events: HORIZON_EVENTS,
            drain_ms: self.drain_ms,
            ..GroupOptions::default()
        }
    }
}

/// What is wrong with the wishes of a member, if anything. No credit is fine: it comes later.
pub(crate) fn check_member(options: &MemberOptions) -> Result<(), SettingsError> {
    let room = [("max_in_flight", options.max_in_flight), ("batch_size", options.batch_size)];
    match room.into_iter().find(|(_, events)| *events == 0) {
        Some((name, _)) => Err(SettingsError::NoRoom(name)),
        None => Ok(()),
    }
}

/// Milliseconds of a time, if they fit.
pub(crate) fn millis(name: &'static str, given: Duration) -> Result<u32, SettingsError> {
    u32::try_from(given.as_millis()).map_err(|_| SettingsError::TooLong { name, given })
}

/// Which events a group wants; the others are passed over, and its cursor with them.
#[derive(Clone)]
pub struct Filter {
    name: Arc<str>,
    wants: Arc<dyn Fn(&Event) -> bool + Send + Sync>,
}

impl Filter {
    /// A filter of the caller's. The name is kept with the group: members with another one are
    /// refused. It must give the same answer for the same event, always.
    pub fn new(name: &str, wants: impl Fn(&Event) -> bool + Send + Sync + 'static) -> Self {
        Self { name: name.into(), wants: Arc::new(wants) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the group wants the event.
    pub fn wants(&self, event: &Event) -> bool {
        (self.wants)(event)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use promethean_event::Topic;

    use super::*;

    fn reading(patterns: &[&str]) -> GroupSettings {
        let topics = patterns.iter().map(|p| Pattern::new(p).unwrap()).collect();
        GroupSettings { topics, ..GroupSettings::default() }
    }

    #[test]
    fn what_a_group_reads() {
        let all = reading(&["**"]);
        assert!(all.reads(&Topic::new("a.b").unwrap()));
        assert!(!all.reads(&Topic::new("dlq.a.b").unwrap()), "dead letters must be named");
        assert!(!all.reads(&Topic::system("$groups").unwrap()));
        assert!(reading(&["dlq.**"]).reads(&Topic::new("dlq.a.b").unwrap()));
    }

    #[test]
    fn bad_settings_say_what_to_do() {
        assert!(matches!(reading(&[]).check(), Err(SettingsError::NoTopics)));
        assert!(matches!(reading(&["$groups"]).check(), Err(SettingsError::System(_))));
        let none = GroupSettings { max_attempts: 0, ..reading(&["a"]) };
        assert!(none.check().unwrap_err().to_string().contains("choose 1 to"));
        let no_lease = GroupSettings { ack_timeout_ms: 0, ..reading(&["a"]) };
        assert!(no_lease.check().is_err());
        assert!(millis("ack_timeout", Duration::from_secs(u64::MAX)).is_err());
    }

    #[test]
    fn settings_survive_as_json() {
        let settings = GroupSettings { mode: Mode::Partitioned, ..reading(&["a", "b.*"]) };
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<GroupSettings>(&text).unwrap(), settings);
        // Settings of an earlier version have fewer fields.
        let old: GroupSettings = serde_json::from_str(r#"{"topics":["a"]}"#).unwrap();
        assert_eq!(old, reading(&["a"]));
    }
}
