//! The embedded store on a disk that fails: whatever call it is that fails, and however, groups and
//! their dead letters go together, what was answered is there, and nothing is there without what
//! was handed over before it.

use std::sync::Arc;

use promethean::store::{
    GroupSave, Lane, LaneDelta, PageLimit, Read, SaveError, Store, TopicDefinition, TopicId,
};
use promethean_delivery::Change;
use promethean_event::{
    EventId, GroupName, NewEvent, Offset, Partition, Payload, Timestamp, Topic,
};
use promethean_harness::conformance::factory::EmbeddedFactory;
use promethean_harness::conformance::{Check, Ending, StoreFactory};
use promethean_harness::log_simulation::{Fault, FaultKind};

use crate::conformance::wait_for;

const ROUNDS: u64 = 8;
const TOGETHER: u64 = 3;

/// What a group was told.
#[derive(Debug)]
struct Told {
    name: GroupName,
    /// The last save that was answered.
    answered: u64,
    /// The last save that was handed over.
    handed: u64,
    refused: u64,
}

struct Place {
    store: Arc<dyn Store>,
    lane: Lane,
    letters: Lane,
}

#[test]
fn any_call_may_fail() {
    let mut fired = 0;
    let mut refused = 0;
    for kind in FaultKind::ALL {
        for at_call in (1..200).step_by(2) {
            let (hit, count) = wait_for(one_fault(Fault { at_call, kind }))
                .unwrap_or_else(|violation| panic!("{kind:?} at call {at_call}: {violation}"));
            fired += u64::from(hit);
            refused += count;
        }
    }
    println!("{fired} faults, {refused} refused saves");
    assert!(fired > 200 && refused > 100, "{fired} faults, {refused} refused saves");
}

#[test]
fn a_full_disk_refuses_and_goes_on_when_there_is_room() {
    wait_for(async {
        for seed in 0..20 {
            full_disk(seed).await.unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        }
    });
}

async fn one_fault(fault: Fault) -> Check<(bool, u64)> {
    let factory = EmbeddedFactory::new(fault.at_call);
    let place = begin(&factory).await?;
    let mut groups = [told("one")?, told("two")?];
    factory.disk().arm(Some(fault));
    for _ in 0..ROUNDS {
        for group in &mut groups {
            step(&place, group).await?;
        }
    }
    let hit = factory.disk().fired().is_some();
    factory.disk().arm(None);
    let refused = groups.iter().map(|group| group.refused).sum();
    let Place { store, lane, letters } = place;
    let store = factory.reopen(store, Ending::Crashed).await?.ok_or("it did not survive")?;
    verify(&Place { store, lane, letters }, &groups).await?;
    Ok((hit, refused))
}

async fn full_disk(seed: u64) -> Check {
    let factory = EmbeddedFactory::new(seed);
    let place = begin(&factory).await?;
    let mut groups = [told("one")?, told("two")?];
    for round in 0..ROUNDS {
        if round == 2 {
            let disk = factory.disk();
            disk.set_capacity(disk.used() + 500 * seed);
        }
        for group in &mut groups {
            step(&place, group).await?;
        }
    }
    factory.disk().set_capacity(u64::MAX);
    verify(&place, &groups).await?;
    for group in &mut groups {
        let before = group.refused;
        step(&place, group).await?;
        assert_eq!(group.refused, before, "there is room again");
        assert_eq!(group.answered, group.handed);
    }
    verify(&place, &groups).await?;
    let Place { store, lane, letters } = place;
    let store = factory.reopen(store, Ending::Crashed).await?.ok_or("it did not survive")?;
    verify(&Place { store, lane, letters }, &groups).await
}

async fn begin(factory: &EmbeddedFactory) -> Check<Place> {
    let store = factory.open().await?;
    let lane_of = |topic: TopicId| Lane { topic, partition: Partition::ZERO };
    let lane = lane_of(store.define(TopicDefinition::new(Topic::new("orders")?)).await?);
    let letters = lane_of(store.define(TopicDefinition::new(Topic::new("dlq.orders")?)).await?);
    for name in ["one", "two"] {
        let settings = Some(Payload::of(name)?);
        let (lanes, dead_letters) = (Vec::new(), Vec::new());
        let group = GroupName::new(name)?;
        let claims = Vec::new();
        store.save(GroupSave { group, settings, lanes, dead_letters, claims }).await?;
    }
    Ok(Place { store, lane, letters })
}

fn told(name: &str) -> Check<Told> {
    Ok(Told { name: GroupName::new(name)?, answered: 0, handed: 0, refused: 0 })
}

/// A few saves at once, beginning where the store says that the group stands.
async fn step(place: &Place, group: &mut Told) -> Check {
    let now = version(place, &group.name).await?;
    let mut answers = Vec::new();
    for version in now + 1..=now + TOGETHER {
        group.handed = group.handed.max(version);
        answers.push((version, place.store.save(save(place, &group.name, version)?)));
    }
    let mut broken = false;
    for (version, answer) in answers {
        match answer.await {
            Ok(()) if broken => return Err("a save went through after a refused one".into()),
            Ok(()) => group.answered = version,
            Err(SaveError::OutOfOrder(_)) if broken => group.refused += 1,
            Err(SaveError::Append(_)) => {
                broken = true;
                group.refused += 1;
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok(())
}

/// Some have none, so that they may use the room that is kept for the system.
const fn has_letter(version: u64) -> bool {
    !version.is_multiple_of(4)
}

fn save(place: &Place, group: &GroupName, version: u64) -> Check<GroupSave> {
    let delta = LaneDelta { version, changes: vec![Change::Floor(version)] };
    let mut dead_letters = Vec::new();
    if has_letter(version) {
        let id = EventId::derived("letter", format!("{group} {version}").as_bytes());
        let payload = Payload::of(&(group.as_str(), version))?;
        let topic = Topic::new("dlq.orders")?;
        dead_letters.push(NewEvent::new(id, Timestamp::from_millis(1), topic, payload));
    }
    let (group, lanes) = (group.clone(), vec![(place.lane, delta)]);
    Ok(GroupSave { group, settings: None, lanes, dead_letters, claims: Vec::new() })
}

async fn version(place: &Place, group: &GroupName) -> Check<u64> {
    let record = place.store.group(group.clone()).await?.ok_or("a group is gone")?;
    let state = record.lanes.iter().find(|(lane, _)| *lane == place.lane);
    Ok(state.map_or(0, |(_, state)| state.version))
}

async fn verify(place: &Place, groups: &[Told]) -> Check {
    let limit = PageLimit { events: 10_000, bytes: usize::MAX };
    let read = Read::From { lane: place.letters, from: Offset::ZERO, limit };
    let page = place.store.read(read).await?;
    let mut letters = Vec::new();
    for stored in &page.events {
        letters.push(stored.event.payload.decode::<(String, u64)>()?);
    }
    for group in groups {
        let reached = version(place, &group.name).await?;
        if reached < group.answered || reached > group.handed {
            return Err(format!("{group:?} stands at {reached}").into());
        }
        let mine = letters.iter().filter(|(name, _)| name == group.name.as_str());
        let mine: Vec<u64> = mine.map(|(_, version)| *version).collect();
        if !mine.iter().copied().eq((1..=reached).filter(|version| has_letter(*version))) {
            return Err(format!("{group:?} at {reached} with the letters {mine:?}").into());
        }
    }
    Ok(())
}
