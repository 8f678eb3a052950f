//! What has been handed to the log, in order, whether it is durable yet or not. New changes are
//! checked against it, so that the log never holds one that cannot be applied.

use std::collections::{BTreeMap, HashMap};

use promethean_delivery::{ApplyError, LaneDelta};
use promethean_event::{GroupName, Key, NewEvent, Offset};
use promethean_log::{Append, AppendError, Appended, Durability, Expectation, Lane, Log, Ticket};

use super::kept::Kept;
use crate::store;

/// The end of a topic of the system's, as it will be when everything handed over is written.
/// Every append is conditional on it: when one is refused, so are all that were handed over after
/// it, and none can be without those before it.
#[derive(Debug)]
pub(super) struct Sequence {
    lane: Lane,
    pub(super) next: u64,
    under_way: usize,
    /// One was refused, and others that were handed over later are still under way.
    broken: bool,
    /// How often that has been so.
    pub(super) breaks: u64,
}

/// An append that was handed over.
#[derive(Debug)]
pub(super) enum Promise {
    Ticket(Ticket<Result<Appended, AppendError>>),
    /// The log was fast.
    Kept,
}

impl Promise {
    /// Blocks until it is kept.
    pub(super) fn wait(self) -> Result<(), AppendError> {
        match self {
            Self::Ticket(ticket) => ticket.wait().map(drop),
            Self::Kept => Ok(()),
        }
    }
}

impl Sequence {
    pub(super) const fn new(lane: Lane, next: u64) -> Self {
        Self { lane, next, under_way: 0, broken: false, breaks: 0 }
    }

    /// Why nothing can be handed over now, if so.
    pub(super) fn refusal(&self) -> Option<store::AppendError> {
        self.broken.then(after_a_break)
    }

    /// Hands events to the log, the last `count` of which belong to this topic.
    pub(super) fn hand(
        &mut self,
        log: &Log,
        events: Vec<NewEvent>,
        count: u64,
    ) -> Result<Promise, AppendError> {
        let next = Offset::new(self.next);
        let expect = vec![Expectation { lane: self.lane, next }];
        let ticket = log.append(&Append { events, durability: Durability::Synced, expect });
        let promise = match ticket.try_take() {
            // Refused before anything else was handed over: as if it had never been.
            Some(Err(error)) => return Err(error),
            Some(Ok(_)) => Promise::Kept,
            None => Promise::Ticket(ticket),
        };
        self.next += count;
        self.under_way += 1;
        Ok(promise)
    }

    /// One that was handed over has been answered. True if what is handed over has to be taken
    /// from what is durable again, because the last one after a break was answered.
    pub(super) fn settle(&mut self, log: &Log, refused: bool) -> bool {
        self.under_way -= 1;
        if refused && !self.broken {
            self.broken = true;
            self.breaks += 1;
        }
        let mended = self.broken && self.under_way == 0;
        if mended {
            self.broken = false;
            self.next = log.lane(self.lane).map_or(self.next, |known| known.next.get());
        }
        mended
    }
}

pub(super) fn after_a_break() -> store::AppendError {
    store::AppendError::Unavailable("a change before this one was refused".to_owned())
}

/// Groups as they will be.
#[derive(Debug, Default)]
pub(super) struct HandedGroups(BTreeMap<GroupName, HandedGroup>);

#[derive(Debug, Default)]
struct HandedGroup {
    incarnation: u64,
    versions: HashMap<store::Lane, u64>,
}

impl HandedGroups {
    pub(super) fn of(kept: &Kept) -> Self {
        let groups = kept.groups.iter().map(|(name, group)| {
            let versions = group.lanes.iter().map(|(lane, state)| (*lane, state.version));
            let (incarnation, versions) = (group.incarnation, versions.collect());
            (name.clone(), HandedGroup { incarnation, versions })
        });
        Self(groups.collect())
    }

    /// The incarnation of a group, if it is there.
    pub(super) fn incarnation(&self, name: &GroupName) -> Option<u64> {
        self.0.get(name).map(|group| group.incarnation)
    }

    /// Leaves out what was handed over already.
    pub(super) fn fresh(
        &self,
        name: &GroupName,
        lanes: Vec<(store::Lane, LaneDelta)>,
    ) -> Result<Vec<(store::Lane, LaneDelta)>, ApplyError> {
        let known = self.0.get(name);
        let mut versions: HashMap<store::Lane, u64> = HashMap::new();
        let mut fresh = Vec::with_capacity(lanes.len());
        for (lane, delta) in lanes {
            let before = || known.and_then(|group| group.versions.get(&lane)).copied();
            let have = versions.entry(lane).or_insert_with(|| before().unwrap_or_default());
            if delta.version <= *have {
                continue;
            }
            if delta.version != *have + 1 {
                return Err(ApplyError { have: *have, found: delta.version });
            }
            *have = delta.version;
            fresh.push((lane, delta));
        }
        Ok(fresh)
    }

    pub(super) fn note(
        &mut self,
        name: &GroupName,
        incarnation: u64,
        lanes: &[(store::Lane, LaneDelta)],
    ) {
        let group = self.0.entry(name.clone()).or_default();
        group.incarnation = incarnation;
        group.versions.extend(lanes.iter().map(|(lane, delta)| (*lane, delta.version)));
    }

    pub(super) fn remove(&mut self, name: &GroupName) {
        self.0.remove(name);
    }
}

/// Entries as they will be: versions by space and key.
#[derive(Debug, Default)]
pub(super) struct HandedEntries(HashMap<(String, Key), u64>);

impl HandedEntries {
    pub(super) fn of(kept: &Kept) -> Self {
        let spaces = kept.entries.iter();
        let versions = spaces.flat_map(|(space, entries)| {
            entries.values().map(|entry| ((space.clone(), entry.key.clone()), entry.version))
        });
        Self(versions.collect())
    }

    /// The version of an entry; 0 if it is not there.
    pub(super) fn version(&self, space: &str, key: &Key) -> u64 {
        self.0.get(&(space.to_owned(), key.clone())).copied().unwrap_or(0)
    }

    pub(super) fn note(&mut self, space: &str, key: &Key, version: Option<u64>) {
        let place = (space.to_owned(), key.clone());
        match version {
            Some(version) => self.0.insert(place, version),
            None => self.0.remove(&place),
        };
    }
}
