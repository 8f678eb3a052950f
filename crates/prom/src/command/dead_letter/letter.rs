use promethean_event::{Event, EventId, GroupName, Topic};
use serde::{Deserialize, Serialize};

/// A dead letter as the server shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Letter {
    pub(super) id: EventId,
    pub(super) state: String,
    pub(super) topic: Topic,
    pub(super) partition: u32,
    pub(super) offset: u64,
    pub(super) group: GroupName,
    pub(super) original: Option<Event>,
    pub(super) err: String,
    pub(super) reason: String,
    pub(super) fingerprint: String,
    pub(super) ts: u64,
    pub(super) attempts: u16,
    #[serde(default)]
    pub(super) times: Vec<u64>,
    #[serde(default)]
    pub(super) round: u16,
}

impl Letter {
    /// The end of its id: what a person copies.
    pub(super) fn short(&self) -> String {
        let id = self.id.to_string();
        id.chars().skip(id.len().saturating_sub(6)).collect()
    }

    /// The beginning of its fingerprint.
    pub(super) fn kind(&self) -> &str {
        self.fingerprint.get(..8).unwrap_or(&self.fingerprint)
    }
}
