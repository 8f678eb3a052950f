use std::collections::BTreeMap;

use promethean_event::Key;

use super::contents::Contents;
use crate::store::{Entry, Put, SaveError, space_topic};

/// The small things that are kept, by space.
#[derive(Debug, Default)]
pub(super) struct Entries(BTreeMap<&'static str, Space>);

#[derive(Debug, Default)]
struct Space {
    entries: BTreeMap<Key, Entry>,
    /// The last version given. For all keys together, so that an entry that was removed and made
    /// again does not come back to an earlier version.
    version: u64,
}

impl Entries {
    pub(super) fn of(&self, space: &str) -> Vec<Entry> {
        let known = self.0.get(space);
        known.map(|space| space.entries.values().cloned().collect()).unwrap_or_default()
    }

    fn version(&self, put: &Put) -> u64 {
        let known = self.0.get(put.space).and_then(|space| space.entries.get(&put.key));
        known.map_or(0, |entry| entry.version)
    }
}

impl Contents {
    pub(super) fn put(&mut self, puts: Vec<Put>) -> Result<(), SaveError> {
        self.refuse_if_closed()?;
        for put in &puts {
            if space_topic(put.space).is_none() {
                return Err(SaveError::BadSpace(put.space));
            }
            let version = self.entries.version(put);
            if put.expect.is_some_and(|expected| expected != version) {
                return Err(SaveError::Changed { key: put.key.clone(), version });
            }
        }
        for put in puts {
            let space = self.entries.0.entry(put.space).or_default();
            match put.value {
                Some(value) => {
                    space.version += 1;
                    let entry = Entry { key: put.key.clone(), value, version: space.version };
                    space.entries.insert(put.key, entry);
                }
                None => {
                    space.version += u64::from(space.entries.remove(&put.key).is_some());
                }
            }
        }
        Ok(())
    }
}
