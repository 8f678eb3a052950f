use std::collections::BTreeMap;

use promethean_delivery::{LaneDelta, LaneState};
use promethean_event::{GroupName, Key, Payload};

use crate::store::{Entry, GroupRecord, Lane, SaveError, TopicTable};

/// What is durable, but for the events. Changed only in the order of the log.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) groups: BTreeMap<GroupName, KeptGroup>,
    pub(super) entries: BTreeMap<String, BTreeMap<Key, Entry>>,
    /// All deltas before this place of `$deltas` are in `groups`.
    pub(super) applied: u64,
    /// Bytes of all deltas that were applied since the store was opened.
    pub(super) applied_bytes: u64,
}

#[derive(Debug, Clone)]
pub(super) struct KeptGroup {
    pub(super) incarnation: u64,
    pub(super) settings: Payload,
    pub(super) lanes: BTreeMap<Lane, LaneState>,
}

/// A change of a group, with its place in `$deltas`.
#[derive(Debug)]
pub(super) struct GroupChange {
    pub(super) place: u64,
    pub(super) group: GroupName,
    pub(super) incarnation: u64,
    pub(super) settings: Option<Payload>,
    pub(super) lanes: Vec<(Lane, LaneDelta)>,
    pub(super) removed: bool,
    /// Bytes of its record.
    pub(super) bytes: u64,
}

/// A change of an entry, with its place in `$entries`.
#[derive(Debug)]
pub(super) struct EntryChange {
    pub(super) place: u64,
    pub(super) space: String,
    pub(super) key: Key,
    pub(super) value: Option<Payload>,
}

impl Kept {
    /// Brings a group forward. What is in it already, or belongs to an earlier group of the same
    /// name, changes nothing; nor does what belongs to a topic that is gone.
    pub(super) fn apply(
        &mut self,
        change: &GroupChange,
        table: &TopicTable,
    ) -> Result<(), SaveError> {
        self.applied = self.applied.max(change.place + 1);
        self.applied_bytes += change.bytes;
        let begins = change.incarnation == change.place + 1;
        let known = self.groups.get(&change.group).map(|group| group.incarnation);
        match (known, &change.settings) {
            (Some(known), _) if known > change.incarnation => return Ok(()),
            (Some(known), _) if known == change.incarnation => {}
            (_, Some(settings)) if begins => {
                let (incarnation, settings) = (change.incarnation, settings.clone());
                let group = KeptGroup { incarnation, settings, lanes: BTreeMap::new() };
                self.groups.insert(change.group.clone(), group);
            }
            _ => return Ok(()),
        }
        if change.removed {
            self.groups.remove(&change.group);
            return Ok(());
        }
        let Some(group) = self.groups.get_mut(&change.group) else { return Ok(()) };
        if let Some(settings) = &change.settings {
            group.settings = settings.clone();
        }
        for (lane, delta) in &change.lanes {
            if table.by_id(lane.topic).is_some() {
                group.lanes.entry(*lane).or_default().apply(delta)?;
            }
        }
        Ok(())
    }

    pub(super) fn apply_entry(&mut self, change: EntryChange) {
        let EntryChange { place, space, key, value } = change;
        let entries = self.entries.entry(space).or_default();
        match value {
            Some(value) => {
                entries.insert(key.clone(), Entry { key, value, version: place + 1 });
            }
            None => {
                entries.remove(&key);
            }
        }
    }

    pub(super) fn group(&self, name: &GroupName, table: &TopicTable) -> Option<GroupRecord> {
        let group = self.groups.get(name)?;
        let lanes = group.live_lanes(table).map(|(lane, state)| (lane, state.clone())).collect();
        Some(GroupRecord { settings: group.settings.clone(), lanes })
    }

    pub(super) fn entries_of(&self, space: &str) -> Vec<Entry> {
        let entries = self.entries.get(space);
        entries.map(|entries| entries.values().cloned().collect()).unwrap_or_default()
    }
}

impl KeptGroup {
    /// The lanes whose topics are still there.
    pub(super) fn live_lanes<'a>(
        &'a self,
        table: &'a TopicTable,
    ) -> impl Iterator<Item = (Lane, &'a LaneState)> {
        let live = |lane: &Lane| table.by_id(lane.topic).is_some();
        self.lanes.iter().map(|(lane, state)| (*lane, state)).filter(move |(lane, _)| live(lane))
    }
}

#[cfg(test)]
mod tests {
    use promethean_delivery::Change;
    use promethean_event::{Partition, Topic};

    use super::*;
    use crate::store::{TopicDefinition, TopicEntry, TopicId};

    const LANE: Lane = Lane { topic: TopicId::new(7), partition: Partition::ZERO };

    fn table() -> TopicTable {
        let definition = TopicDefinition::new(Topic::new("orders").unwrap());
        TopicTable::from_iter([TopicEntry { id: LANE.topic, definition }])
    }

    fn change(place: u64, incarnation: u64, version: u64) -> GroupChange {
        let delta = LaneDelta { version, changes: vec![Change::Floor(place)] };
        GroupChange {
            place,
            group: GroupName::new("g").unwrap(),
            incarnation,
            settings: (incarnation == place + 1).then(Payload::null),
            lanes: vec![(LANE, delta)],
            removed: false,
            bytes: 0,
        }
    }

    fn removal(place: u64, incarnation: u64) -> GroupChange {
        GroupChange { removed: true, lanes: Vec::new(), ..change(place, incarnation, 0) }
    }

    fn floor(kept: &Kept) -> Option<u64> {
        let group = kept.groups.values().next()?;
        group.lanes.get(&LANE).map(|state| state.floor)
    }

    /// Going through the deltas once more from any place, whatever a checkpoint held already, comes
    /// to the same end: no group comes back, and none is mixed with an earlier one of its name.
    #[test]
    fn deltas_may_be_gone_through_again_from_any_place() {
        let all = [
            change(0, 1, 1),
            change(1, 1, 2),
            removal(2, 1),
            change(3, 4, 1),
            change(4, 4, 2),
            removal(5, 4),
        ];
        let table = table();
        for end in 0..=all.len() {
            let mut expected = Kept::default();
            all.iter().take(end).for_each(|change| expected.apply(change, &table).unwrap());
            for from in 0..=end {
                let mut kept = Kept::default();
                all.iter().take(end).for_each(|change| kept.apply(change, &table).unwrap());
                let again = all.iter().take(end).skip(from);
                again.for_each(|change| kept.apply(change, &table).unwrap());
                assert_eq!(floor(&kept), floor(&expected), "{from} to {end}");
                assert_eq!(kept.groups.len(), expected.groups.len(), "{from} to {end}");
            }
        }
    }

    #[test]
    fn what_belongs_to_an_earlier_group_or_to_none_changes_nothing() {
        let (table, mut kept) = (table(), Kept::default());
        kept.apply(&change(8, 3, 1), &table).unwrap();
        assert!(kept.groups.is_empty(), "a delta without a beginning");
        kept.apply(&change(9, 10, 1), &table).unwrap();
        kept.apply(&change(10, 3, 2), &table).unwrap();
        kept.apply(&removal(11, 3), &table).unwrap();
        assert_eq!(floor(&kept), Some(9));
    }
}
