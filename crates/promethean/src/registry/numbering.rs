//! Numbers for schemas over all topics, for tools that want one: the same document has the same
//! number. A number is given when it is first asked for, and never again to another.

use promethean_event::{Key, Topic};

use super::record::encode;
use super::registration::RegisterError;
use super::schemas::Schemas;
use super::subject::SchemaVersion;
use crate::limits::REGISTER_ATTEMPTS_MAX;
use crate::store::{Put, ReadError, SaveError};

/// The space of the numbers, by fingerprint.
const NUMBERS: &str = "schema-numbers";
/// The key of the number that is given next; no fingerprint has this form.
const NEXT: &str = "next";

impl Schemas {
    /// The number of a schema, by its fingerprint.
    pub async fn number(&self, fingerprint: &str) -> Result<u32, RegisterError> {
        let store = &self.registry.store;
        let _turn = self.registry.writing.lock().await;
        for _ in 0..REGISTER_ATTEMPTS_MAX {
            let entries = store.entries(NUMBERS).await?;
            let number = |wanted: &str| {
                let entry = entries.iter().find(|entry| entry.key.as_str() == wanted)?;
                entry.value.decode::<u32>().ok().map(|number| (number, entry.version))
            };
            if let Some((known, _)) = number(fingerprint) {
                return Ok(known);
            }
            let (next, version) = number(NEXT).unwrap_or((1, 0));
            let put = |name: &str, value: u32, expect: u64| {
                let key = Key::new(name).map_err(|_| RegisterError::TooLarge)?;
                let value = Some(encode(&value).ok_or(RegisterError::TooLarge)?);
                Ok::<_, RegisterError>(Put { space: NUMBERS, key, value, expect: Some(expect) })
            };
            let puts = vec![put(fingerprint, next, 0)?, put(NEXT, next + 1, version)?];
            match store.put(puts).await {
                Ok(()) => return Ok(next),
                // Another one was faster: it may have been for the same schema.
                Err(SaveError::Changed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(RegisterError::Contended)
    }

    /// The schemas with a number: one document, in each topic that has it.
    pub async fn numbered(&self, number: u32) -> Result<Vec<(Topic, SchemaVersion)>, ReadError> {
        let entries = self.registry.store.entries(NUMBERS).await?;
        let named = entries.iter().filter(|entry| entry.key.as_str() != NEXT);
        let mut named = named.filter(|entry| entry.value.decode::<u32>().ok() == Some(number));
        let Some(entry) = named.next() else {
            return Ok(Vec::new());
        };
        let catalog = self.registry.catalog().await?;
        let mut found = Vec::new();
        for topic in catalog.topics() {
            let Some(Ok(subject)) = catalog.subject(&topic) else {
                continue;
            };
            let versions = subject.versions.values().map(|version| subject.tell(version));
            let same = versions.filter(|version| version.fingerprint == entry.key.as_str());
            found.extend(same.map(|version| (topic.clone(), version)));
        }
        Ok(found)
    }
}
