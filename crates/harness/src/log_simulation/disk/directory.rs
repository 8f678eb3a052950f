use std::collections::BTreeMap;
use std::sync::Arc;

use crate::log_simulation::random::Random;

/// A file whatever its name.
pub(super) type FileNumber = usize;

/// Which unsynced changes of names survive a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameFate {
    /// The first few, in order: a journaling file system.
    Prefix,
    /// Any of them: all that POSIX promises.
    Subset,
}

#[derive(Debug, Clone)]
enum Change {
    Link { name: Arc<str>, file: FileNumber },
    Rename { from: Arc<str>, to: Arc<str>, file: FileNumber },
    Unlink { name: Arc<str> },
}

/// Names as readers see them, and as a crash surely keeps them.
#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    live: BTreeMap<Arc<str>, FileNumber>,
    durable: BTreeMap<Arc<str>, FileNumber>,
    pending: Vec<Change>,
}

impl Directory {
    pub(super) fn find(&self, name: &str) -> Option<FileNumber> {
        self.live.get(name).copied()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, FileNumber)> {
        self.live.iter().map(|(name, &file)| (&**name, file))
    }

    pub(super) fn link(&mut self, name: &str, file: FileNumber) {
        let name: Arc<str> = name.into();
        self.live.insert(Arc::clone(&name), file);
        self.pending.push(Change::Link { name, file });
    }

    /// The file that lost its name, if the new one was taken.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> Option<FileNumber> {
        let (from, file) = self.live.remove_entry(from)?;
        let to: Arc<str> = to.into();
        let replaced = self.live.insert(Arc::clone(&to), file);
        self.pending.push(Change::Rename { from, to, file });
        replaced
    }

    pub(super) fn unlink(&mut self, name: &str) -> Option<FileNumber> {
        let (name, file) = self.live.remove_entry(name)?;
        self.pending.push(Change::Unlink { name });
        Some(file)
    }

    pub(super) fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            self.keep(change);
        }
    }

    /// A sync that fails: the first few changes made it, the rest are still to be synced. Unlike
    /// pages of files, a journal does not forget them: it tries again, or refuses everything.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        let made = random.index(self.pending.len() + 1);
        let rest = self.pending.split_off(made);
        for change in std::mem::replace(&mut self.pending, rest) {
            self.keep(change);
        }
    }

    pub(super) fn crash(&mut self, fate: NameFate, random: &mut Random) {
        let pending = std::mem::take(&mut self.pending);
        let made = match fate {
            NameFate::Prefix => random.index(pending.len() + 1),
            NameFate::Subset => pending.len(),
        };
        for change in pending.into_iter().take(made) {
            if fate == NameFate::Prefix || random.chance(500) {
                self.keep(change);
            }
        }
        self.live.clone_from(&self.durable);
    }

    fn keep(&mut self, change: Change) {
        match change {
            Change::Link { name, file } => {
                self.durable.insert(name, file);
            }
            Change::Rename { from, to, file } => {
                if self.durable.get(&from) == Some(&file) {
                    self.durable.remove(&from);
                }
                self.durable.insert(to, file);
            }
            Change::Unlink { name } => {
                self.durable.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Directory) -> Vec<(&str, FileNumber)> {
        directory.entries().collect()
    }

    #[test]
    fn synced_names_survive() {
        let mut directory = Directory::default();
        directory.link("a", 0);
        directory.link("b", 1);
        directory.rename("b", "c");
        directory.sync();
        directory.unlink("a");
        directory.sync();
        directory.crash(NameFate::Subset, &mut Random::new(1));
        assert_eq!(names(&directory), [("c", 1)]);
    }

    #[test]
    fn unsynced_names_survive_as_a_prefix_or_as_any_subset() {
        let outcomes = |fate| {
            (0..200)
                .map(|seed| {
                    let mut directory = Directory::default();
                    directory.link("a", 0);
                    directory.link("b", 1);
                    directory.crash(fate, &mut Random::new(seed));
                    directory.entries().map(|(name, _)| name.to_owned()).collect::<String>()
                })
                .collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(Vec::from_iter(outcomes(NameFate::Prefix)), ["", "a", "ab"]);
        assert_eq!(Vec::from_iter(outcomes(NameFate::Subset)), ["", "a", "ab", "b"]);
    }

    #[test]
    fn a_failed_sync_may_keep_a_part_and_the_next_one_the_rest() {
        let outcomes = (0..100).map(|seed| {
            let mut directory = Directory::default();
            directory.link("a", 0);
            directory.fail_sync(&mut Random::new(seed));
            let mut retried = directory.clone();
            retried.sync();
            retried.crash(NameFate::Subset, &mut Random::new(seed));
            assert_eq!(retried.find("a"), Some(0));
            directory.crash(NameFate::Prefix, &mut Random::new(seed));
            directory.find("a").is_some()
        });
        assert_eq!(outcomes.collect::<std::collections::BTreeSet<_>>().len(), 2);
    }
}
