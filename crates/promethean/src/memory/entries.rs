use std::collections::BTreeMap;

use promethean_event::Key;

use super::contents::Contents;
use crate::store::{Entry, HEARD_SPACES, Put, SaveError, is_space};

/// The small things that are kept, by space.
#[derive(Debug, Default)]
pub(super) struct Entries {
    spaces: BTreeMap<&'static str, BTreeMap<Key, Entry>>,
    /// The last version given. For all entries together, so that one that was removed and made
    /// again does not come back to an earlier version.
    version: u64,
}

impl Entries {
    pub(super) fn of(&self, space: &str) -> Vec<Entry> {
        let known = self.spaces.get(space);
        known.map(|entries| entries.values().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn spaces(&self) -> Vec<String> {
        let filled = self.spaces.iter().filter(|(_, entries)| !entries.is_empty());
        filled.map(|(space, _)| (*space).to_owned()).collect()
    }

    fn version(&self, put: &Put) -> u64 {
        let known = self.spaces.get(put.space).and_then(|entries| entries.get(&put.key));
        known.map_or(0, |entry| entry.version)
    }
}

impl Contents {
    pub(super) fn put(&mut self, puts: Vec<Put>) -> Result<(), SaveError> {
        self.refuse_if_closed()?;
        for put in &puts {
            if !is_space(put.space) {
                return Err(SaveError::BadSpace(put.space));
            }
            let version = self.entries.version(put);
            if put.expect.is_some_and(|expected| expected != version) {
                return Err(SaveError::Changed { key: put.key.clone(), version });
            }
        }
        if puts.iter().any(|put| HEARD_SPACES.contains(&put.space)) {
            self.recent.note_hubs();
        }
        for put in puts {
            let entries = self.entries.spaces.entry(put.space).or_default();
            match put.value {
                Some(value) => {
                    self.entries.version += 1;
                    let version = self.entries.version;
                    let entry = Entry { key: put.key.clone(), value, version };
                    entries.insert(put.key, entry);
                }
                None => {
                    self.entries.version += u64::from(entries.remove(&put.key).is_some());
                }
            }
        }
        Ok(())
    }
}
