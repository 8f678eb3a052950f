//! Groups: their settings, cursors, attempts, parked keys and released dead letters.

use promethean_delivery::{Change, LaneDelta, LaneState};
use promethean_event::GroupName;

use super::error::MigrateError;
use super::places::Places;
use crate::store::{GroupRecord, GroupSave, Store};

/// Changes in one save: it has to fit into one record.
const CHANGES_AT_ONCE: usize = 256;

/// Takes over all groups; those that are the same already stay. Gives how many there are.
pub(super) async fn take_over(
    from: &dyn Store,
    to: &dyn Store,
    places: &Places,
) -> Result<u64, MigrateError> {
    let (mut count, names) = (0, from.groups().await?);
    for name in to.groups().await? {
        if !names.contains(&name) {
            to.remove_group(name).await?;
        }
    }
    for name in names {
        let Some(record) = from.group(name.clone()).await? else { continue };
        count += 1;
        let wanted = placed(record, places);
        let there = to.group(name.clone()).await?.map(ordered);
        if there.as_ref() != Some(&wanted) {
            if there.is_some() {
                to.remove_group(name.clone()).await?;
            }
            save(to, &name, wanted).await?;
        }
    }
    Ok(count)
}

/// A group as it is in the target: lanes by their numbers there. How often it was saved is left out.
pub(super) fn placed(record: GroupRecord, places: &Places) -> GroupRecord {
    let lanes = record.lanes.into_iter();
    let lanes = lanes.filter_map(|(lane, state)| Some((places.lane(lane)?, state))).collect();
    ordered(GroupRecord { settings: record.settings, lanes })
}

/// Lanes in order, and without the number of their last save.
pub(super) fn ordered(mut record: GroupRecord) -> GroupRecord {
    record.lanes.iter_mut().for_each(|(_, state)| state.version = 0);
    // A lane that nothing was saved of is as good as none.
    record.lanes.retain(|(_, state)| *state != LaneState::default());
    record.lanes.sort_by_key(|(lane, _)| *lane);
    record
}

async fn save(to: &dyn Store, name: &GroupName, group: GroupRecord) -> Result<(), MigrateError> {
    let begin = GroupSave {
        group: name.clone(),
        settings: Some(group.settings),
        lanes: Vec::new(),
        dead_letters: Vec::new(),
        claims: Vec::new(),
    };
    to.save(begin).await?;
    for (lane, state) in group.lanes {
        let all = changes(&state);
        for (version, piece) in (1..).zip(all.chunks(CHANGES_AT_ONCE)) {
            let delta = LaneDelta { version, changes: piece.to_vec() };
            let step = GroupSave {
                group: name.clone(),
                settings: None,
                lanes: vec![(lane, delta)],
                dead_letters: Vec::new(),
                claims: Vec::new(),
            };
            to.save(step).await?;
        }
    }
    Ok(())
}

/// What makes this state out of nothing. In an order in which no step undoes another.
fn changes(state: &LaneState) -> Vec<Change> {
    let LaneState { version: _, epoch, generation, floor, horizon, .. } = *state;
    let mut changes = vec![Change::Seek { epoch, floor, horizon }, Change::Generation(generation)];
    changes.extend(state.acked.spans().iter().copied().map(Change::Acked));
    changes.extend(state.released.iter().copied().map(Change::Released));
    changes.extend(state.attempts.iter().cloned().map(Change::Attempted));
    changes.extend(state.parked.iter().copied().map(Change::Parked));
    changes
}

#[cfg(test)]
mod tests {
    use promethean_delivery::{AttemptRecord, ParkedKey, ReleasedEvent, Span};

    use super::*;

    #[test]
    fn a_state_is_made_out_of_nothing() {
        let mut wanted = LaneState { epoch: 3, generation: 7, floor: 40, ..LaneState::default() };
        wanted.horizon = 90;
        wanted.acked.insert(Span { from: 42, to: 44 });
        wanted.acked.insert(Span { from: 50, to: 51 });
        let attempt = |offset| AttemptRecord {
            offset,
            count: 2,
            times: vec![5, 6],
            not_before: 9,
            error: b"no".to_vec(),
            fingerprint: 1,
        };
        // One behind the cursor stays because its event was released.
        wanted.attempts = vec![attempt(12), attempt(41), attempt(45)];
        wanted.released = vec![ReleasedEvent { offset: 12, key: Some(8), round: 2 }];
        wanted.parked = vec![ParkedKey { key: 8, offset: 30 }, ParkedKey { key: 9, offset: 60 }];
        let mut made = LaneState::default();
        for (version, piece) in (1..).zip(changes(&wanted).chunks(2)) {
            made.apply(&LaneDelta { version, changes: piece.to_vec() }).unwrap();
        }
        made.version = 0;
        assert_eq!(made, wanted);
    }
}
