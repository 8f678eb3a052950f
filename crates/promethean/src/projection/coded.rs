use std::fmt;
use std::sync::Arc;

use promethean_event::{Event, Payload};

use super::mapping::{Change, Mapping, Unmapped};

type Get<T> = Arc<dyn Fn(&Event) -> T + Send + Sync>;

/// A mapping in Rust. What is not given is as in a plain changelog: the key of the event, its
/// payload, no version.
#[derive(Clone, Default)]
pub struct Coded {
    key: Option<Get<Option<String>>>,
    document: Option<Get<Result<Payload, String>>>,
    tombstone: Option<Get<bool>>,
    version: Option<Get<Option<i64>>>,
}

impl Coded {
    /// The whole payload under the key of the event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another key than the event's. A tombstone has no payload to take it from.
    #[must_use]
    pub fn key(mut self, key: impl Fn(&Event) -> Option<String> + Send + Sync + 'static) -> Self {
        self.key = Some(Arc::new(key));
        self
    }

    /// Another document than the payload. Not asked for tombstones. An error parks the event.
    #[must_use]
    pub fn document<E: fmt::Display>(
        mut self,
        document: impl Fn(&Event) -> Result<Payload, E> + Send + Sync + 'static,
    ) -> Self {
        self.document =
            Some(Arc::new(move |event| document(event).map_err(|error| error.to_string())));
        self
    }

    /// Events that delete besides `null` and `_deleted: true`.
    #[must_use]
    pub fn tombstone(mut self, is: impl Fn(&Event) -> bool + Send + Sync + 'static) -> Self {
        self.tombstone = Some(Arc::new(is));
        self
    }

    /// Documents have versions: only newer ones count. An event without one is parked, unless it
    /// is a tombstone.
    #[must_use]
    pub fn version(mut self, of: impl Fn(&Event) -> Option<i64> + Send + Sync + 'static) -> Self {
        self.version = Some(Arc::new(of));
        self
    }
}

impl Mapping for Coded {
    fn change(&self, event: &Event) -> Result<Change, Unmapped> {
        let key = match &self.key {
            Some(key) => key(event),
            None => event.key.as_ref().map(|key| key.as_str().to_owned()),
        };
        let key = key.filter(|key| !key.is_empty()).ok_or(Unmapped::NoKey)?;
        let version = self.version.as_ref().and_then(|version| version(event));
        let is_tombstone = event.payload.is_tombstone()
            || self.tombstone.as_ref().is_some_and(|tombstone| tombstone(event));
        if is_tombstone {
            return Ok(Change::Delete { key, version });
        }
        if self.version.is_some() && version.is_none() {
            return Err(Unmapped::NoVersion);
        }
        let document = match &self.document {
            Some(document) => document(event).map_err(Unmapped::Unfit)?,
            None => event.payload.clone(),
        };
        Ok(Change::Put { key, document, version })
    }

    fn keeps_key(&self) -> bool {
        self.key.is_none()
    }

    fn has_versions(&self) -> bool {
        self.version.is_some()
    }

    /// Code has no text to compare: its author says when it has changed, with the projection's
    /// version.
    fn fingerprint(&self) -> String {
        format!(
            "rust key={} document={} tombstone={} version={}",
            self.key.is_some(),
            self.document.is_some(),
            self.tombstone.is_some(),
            self.version.is_some()
        )
    }
}

impl fmt::Debug for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fingerprint())
    }
}
