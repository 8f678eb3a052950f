//! Views of a server, as they are. Looking back: `past.rs`.

use promethean_event::{Position, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::bus::Bus;
use crate::code::Code;
use crate::error::{GroupError, ReadError};
use crate::http::{Ask, segment};

/// The views of a server, now and as they were. Needs the right to read their topics. A cheap
/// handle.
#[derive(Debug, Clone)]
pub struct Views {
    pub(crate) bus: Bus,
}

/// What a view has under a key.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Document {
    /// The key.
    #[serde(rename = "_key")]
    pub key: String,
    /// Event time of the event that wrote it last.
    #[serde(rename = "_ts")]
    pub ts: Timestamp,
    /// Where that event stands.
    #[serde(rename = "_pos")]
    pub position: Position,
    /// Its version, in a view with versions.
    #[serde(rename = "_v", default)]
    pub version: Option<i64>,
    /// Its own members. What is no object is the member `value`.
    #[serde(flatten)]
    pub members: Map<String, Value>,
}

impl Document {
    /// Reads its own members as a type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_value(Value::Object(self.members.clone()))
    }
}

/// Some documents, and where to go on.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct DocumentPage {
    /// The documents.
    pub documents: Vec<Document>,
    /// The token of the next page, if there is one.
    pub next: Option<String>,
}

/// How a document is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Wanted {
    /// Waits, two seconds at most, until this event is in the view: for reading one's own writes.
    pub min_position: Option<Position>,
    /// In the form of this version of the topic's schema. Default: as the view has it.
    pub version: Option<u32>,
}

impl Wanted {
    /// Not before this event is in the view.
    #[must_use]
    pub fn after(mut self, position: Position) -> Self {
        self.min_position = Some(position);
        self
    }

    /// In a version of the topic's schema.
    #[must_use]
    pub const fn in_version(mut self, version: u32) -> Self {
        self.version = Some(version);
        self
    }
}

impl Bus {
    /// The views of the server.
    pub fn views(&self) -> Views {
        Views { bus: self.clone() }
    }
}

/// A resource of a view.
pub(crate) fn path(view: &str, resource: &str, key: Option<&str>) -> String {
    let key = key.map(|key| format!("/{}", segment(key))).unwrap_or_default();
    format!("/views/{}/{resource}{key}", segment(view))
}

impl Views {
    /// The document of a key; `None` if it has none.
    pub async fn get(&self, view: &str, key: &str) -> Result<Option<Document>, ReadError> {
        self.get_with(view, key, &Wanted::default()).await
    }

    /// The same, with wishes.
    pub async fn get_with(
        &self,
        view: &str,
        key: &str,
        wanted: &Wanted,
    ) -> Result<Option<Document>, ReadError> {
        let position = wanted.min_position.as_ref().map(ToString::to_string);
        let version = wanted.version.map(|version| version.to_string());
        let mut query = Vec::new();
        query.extend(position.as_deref().map(|position| ("min_position", position)));
        query.extend(version.as_deref().map(|version| ("version", version)));
        let ask = Ask::get(&path(view, "snap", Some(key)), &query);
        match self.bus.inner.http.ask(ask).await {
            Ok(document) => Ok(Some(document)),
            Err(GroupError::Refused(refusal)) if refusal.code == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Documents by declared fields, such as `[("status", "alive"), ("pid.ge", "100")]`; also
    /// `sort`, `limit`, and `page` with the token of the page before.
    pub async fn list(
        &self,
        view: &str,
        query: &[(&str, &str)],
    ) -> Result<DocumentPage, ReadError> {
        self.bus.inner.http.ask(Ask::get(&path(view, "list", None), query)).await
    }
}
