//! What is kept, and where. One entry per topic says which versions there are and what holds for
//! them; it is small and is read often. One entry per version has the document and the hops to the
//! version before; it is read when it has changed. Both change together, all or nothing, and only
//! if the topic's entry is still what the change was made from: that is what makes racing
//! registrars safe.

use promethean_event::{Key, Payload, Timestamp, Topic};
use promethean_schema::Dialect;
use serde::{Deserialize, Serialize};

use super::evolution::Evolution;
use super::hop::Hop;
use super::policy::TopicPolicy;

/// The space of the entries of topics.
pub(super) const TOPICS: &str = "schema-topics";
/// The space of the entries of versions.
pub(super) const VERSIONS: &str = "schema-versions";
/// The key of what holds for all topics; no topic has this name.
pub(super) const ALL_TOPICS: &str = "*";

/// What is kept of a topic.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct TopicRecord {
    /// The number of the next version. Never goes back, so that no number is given twice.
    pub(super) next: u32,
    pub(super) policy: Option<TopicPolicy>,
    pub(super) versions: Vec<VersionHead>,
    /// The change from one version to another that is under way, or was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) evolution: Option<Evolution>,
}

/// What is kept of a version with its topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VersionHead {
    pub(super) version: u32,
    pub(super) fingerprint: String,
    pub(super) registered_at: Timestamp,
    /// No new events of this version.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) retired: bool,
    /// Why it was registered against objections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) forced: Option<String>,
}

/// What is kept of a version by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct VersionRecord {
    pub(super) document: String,
    pub(super) dialect: String,
    /// From the version before; the first has none.
    pub(super) up: Option<Hop>,
    /// To the version before.
    pub(super) down: Option<Hop>,
}

/// The key of a topic's entry; a topic's name is always good as a key.
pub(super) fn topic_key(topic: &Topic) -> Option<Key> {
    Key::new(topic.as_str()).ok()
}

/// The key of a version's entry.
pub(super) fn version_key(topic: &Topic, version: u32) -> Option<Key> {
    Key::from_parts([topic.as_str(), &version.to_string()]).ok()
}

/// The JSON form of something to keep; `None` if it is larger than an entry may be.
pub(super) fn encode<T: Serialize>(value: &T) -> Option<Payload> {
    Payload::of(value).ok()
}

/// The same for all documents that say the same in one dialect.
pub(super) fn fingerprint(canonical: &str, dialect: Dialect) -> String {
    let text = format!("{}\n{canonical}", dialect.uri());
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(text.as_bytes()))
}
