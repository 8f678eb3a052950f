use std::collections::BTreeSet;

use promethean_schema::{CompareOptions, Mode, OpenObjects};
use serde::{Deserialize, Serialize};

/// What happens to an event whose payload does not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PayloadPolicy {
    /// It is refused.
    #[default]
    Enforce,
    /// It is counted and let through.
    Warn,
    /// Nobody looks.
    Off,
}

/// What it means that an event does not say by which version it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unversioned {
    /// The latest version when it is published. That is then written into its header, so that it
    /// still means the same when there is a later one.
    #[default]
    Latest,
    /// The oldest version, likewise.
    Oldest,
    /// It is refused.
    Refuse,
}

/// What happens to events of topics that have no schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unregistered {
    /// They are taken as they are.
    #[default]
    Allow,
    /// They are refused.
    Refuse,
}

/// What holds for the schemas and events of one topic.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TopicPolicy {
    /// What a new version must keep. Default: backward.
    pub compat: Mode,
    /// Whether an open object may hold anything under names that it does not declare, so that
    /// declaring one breaks. Default: no.
    pub strict: bool,
    /// What happens to events that do not match. Default: they are refused.
    pub payload: PayloadPolicy,
    /// What an event without a version is. Default: of the latest.
    pub unversioned: Unversioned,
    /// Versions in whose form events are also written, to `<topic>.v<version>`. Default: none.
    pub dual_write: BTreeSet<u32>,
}

impl TopicPolicy {
    pub(super) fn compare_options(&self) -> CompareOptions {
        let open_objects = if self.strict { OpenObjects::Strict } else { OpenObjects::Lenient };
        CompareOptions { open_objects, ..CompareOptions::default() }
    }
}

/// What holds where a topic says nothing of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RegistryPolicy {
    /// What happens to events of topics that have no schema. Default: they are taken.
    pub unregistered: Unregistered,
    /// The policy of topics that have none of their own.
    pub topics: TopicPolicy,
}
