use promethean::store::{Append, Cleaning, Durability, GroupSave, Put, SaveError, TopicDefinition};
use promethean_event::{Key, Payload, Topic};

use super::check::Check;
use super::factory::{Ending, StoreFactory};
use super::scene::{Scene, advance, beginning, event, floor, group, numbers, read_lane};

checks!(
    events_and_topics_survive,
    groups_survive,
    a_removed_group_does_not_come_back,
    entries_survive_with_their_versions,
    what_was_under_way_is_there_whole_or_not_at_all,
);

const ENDINGS: [Ending; 2] = [Ending::Closed, Ending::Crashed];

/// The scene after an ending; `None` if the store does not survive it.
async fn again(factory: &dyn StoreFactory, scene: Scene, ending: Ending) -> Check<Option<Scene>> {
    let Scene { store, topic, id } = scene;
    let store = factory.reopen(store, ending).await?;
    Ok(store.map(|store| Scene { store, topic, id }))
}

async fn events_and_topics_survive(factory: &dyn StoreFactory) -> Check {
    for ending in ENDINGS {
        let scene = Scene::with(factory, 2, Cleaning::default()).await?;
        let mut events = Vec::new();
        for number in 0..200 {
            let event = scene.keyed(&format!("k{}", number % 9), number)?;
            events.push((event.clone(), scene.publish_all(vec![event]).await?));
        }
        let removed = scene.store.define(TopicDefinition::new(Topic::new("gone")?)).await?;
        scene.store.remove(removed).await?;
        let definition = scene.store.topics().get(&scene.topic).cloned();
        let Some(scene) = again(factory, scene, ending).await? else { return Ok(()) };
        ensure_same!(scene.store.topics().get(&scene.topic).cloned(), definition, "the topic");
        ensure_same!(scene.store.topics().users().count(), 1, "the users' topics");
        for (event, first) in events {
            let found = scene.store.find(scene.id, event.id).await?.ok_or("an event is lost")?;
            let receipt = first.receipts.first().ok_or("no receipt")?;
            let expected = event.clone().placed(receipt.lane.partition, receipt.offset);
            ensure_same!(found.event, expected, "an event after {ending:?}");
            let again = scene.publish_all(vec![event]).await?;
            ensure!(again.receipts.iter().all(|r| r.duplicate), "an id was forgotten");
        }
    }
    Ok(())
}

async fn groups_survive(factory: &dyn StoreFactory) -> Check {
    let mut scene = Scene::new(factory).await?;
    let dlq = Topic::new("dlq.orders.placed")?;
    let dlq_id = scene.store.define(TopicDefinition::new(dlq.clone())).await?;
    let letters = promethean::store::Lane { topic: dlq_id, ..scene.lane() };
    let names = [group("one")?, group("two")?];
    for name in &names {
        scene.store.save(beginning(name)?).await?;
    }
    // Each round ends somewhere else between two checkpoints.
    let mut version = 0;
    for round in 0..12 {
        for _ in 0..round {
            version += 1;
            for name in &names {
                let mut save = advance(name, scene.lane(), version, version * 2);
                save.dead_letters.push(event(&dlq, None, version)?);
                scene.store.save(save).await?;
            }
        }
        let settings = Some(Payload::of(&round)?);
        let [first, _] = &names;
        scene.store.save(GroupSave { settings, ..beginning(first)? }).await?;
        let before = scene.store.group(first.clone()).await?;
        let ending = if round % 3 == 0 { Ending::Closed } else { Ending::Crashed };
        let Some(reopened) = again(factory, scene, ending).await? else { return Ok(()) };
        scene = reopened;
        ensure_same!(scene.store.groups().await?, names, "the groups after {ending:?}");
        ensure_same!(scene.store.group(first.clone()).await?, before, "a group after {ending:?}");
        for name in &names {
            let found = floor(&*scene.store, name, scene.lane()).await?;
            ensure_same!(found, Some(version * 2), "the floor after {ending:?}");
        }
        let found = read_lane(&*scene.store, letters).await?.len() as u64;
        ensure_same!(found, version * 2, "the dead letters after {ending:?}");
    }
    Ok(())
}

async fn a_removed_group_does_not_come_back(factory: &dyn StoreFactory) -> Check {
    let mut scene = Scene::new(factory).await?;
    let name = group("g")?;
    for round in 0..10 {
        scene.store.save(beginning(&name)?).await?;
        for version in 1..=round {
            scene.store.save(advance(&name, scene.lane(), version, version + round)).await?;
        }
        let ending = if round % 2 == 0 { Ending::Closed } else { Ending::Crashed };
        if round % 3 == 0 {
            // In the same life.
            scene.store.remove_group(name.clone()).await?;
        } else {
            let Some(reopened) = again(factory, scene, ending).await? else { return Ok(()) };
            scene = reopened;
            let found = floor(&*scene.store, &name, scene.lane()).await?;
            ensure_same!(found, Some(2 * round), "round {round}");
            scene.store.remove_group(name.clone()).await?;
        }
        let Some(reopened) = again(factory, scene, ending).await? else { return Ok(()) };
        scene = reopened;
        ensure!(scene.store.group(name.clone()).await?.is_none(), "back in round {round}");
        let late = scene.store.save(advance(&name, scene.lane(), round + 1, 99)).await;
        ensure!(matches!(late, Err(SaveError::UnknownGroup(_))), "a late save: {late:?}");
    }
    Ok(())
}

async fn entries_survive_with_their_versions(factory: &dyn StoreFactory) -> Check {
    for ending in ENDINGS {
        let scene = Scene::new(factory).await?;
        for round in 0..3 {
            for number in 0..20 {
                let key = Key::new(format!("key {number}"))?;
                let keep = number % 5 != round;
                let value = if keep { Some(Payload::of(&(number * round))?) } else { None };
                scene.store.put(vec![Put { space: "tokens", key, value, expect: None }]).await?;
            }
        }
        let before = scene.store.entries("tokens").await?;
        let Some(scene) = again(factory, scene, ending).await? else { return Ok(()) };
        ensure_same!(scene.store.entries("tokens").await?, before, "entries after {ending:?}");
        let first = before.into_iter().next().ok_or("no entry")?;
        let (space, value, expect) = ("tokens", None, Some(first.version));
        scene.store.put(vec![Put { space, key: first.key, value, expect }]).await?;
    }
    Ok(())
}

/// Nobody waits for the last answers: after the crash each batch, and each save with its dead
/// letter, is there as a whole or not at all, and in the order of the calls.
async fn what_was_under_way_is_there_whole_or_not_at_all(factory: &dyn StoreFactory) -> Check {
    for waited in 0..12 {
        let scene = Scene::new(factory).await?;
        let dlq = Topic::new("dlq.orders.placed")?;
        let dlq_id = scene.store.define(TopicDefinition::new(dlq.clone())).await?;
        let letters = promethean::store::Lane { topic: dlq_id, ..scene.lane() };
        let name = group("g")?;
        scene.store.save(beginning(&name)?).await?;
        for version in 1..=12 {
            let mut save = advance(&name, scene.lane(), version, version);
            save.dead_letters.push(event(&dlq, None, version)?);
            let events = vec![scene.event(version)?, scene.event(version)?];
            let append = Append { events, durability: Durability::Synced, ..Append::default() };
            let (saved, appended) = (scene.store.save(save), scene.store.append(append));
            if version == waited {
                saved.await?;
                appended.await?;
            }
        }
        let Some(scene) = again(factory, scene, Ending::Crashed).await? else { return Ok(()) };
        let reached = floor(&*scene.store, &name, scene.lane()).await?.unwrap_or(0);
        ensure!(reached >= waited, "a save that was answered is lost: {reached} of {waited}");
        let found = numbers(&read_lane(&*scene.store, letters).await?)?;
        ensure!(found.iter().copied().eq(1..=reached), "{found:?} with the floor at {reached}");
        let events = numbers(&scene.all().await?)?;
        ensure!(events.len() % 2 == 0, "half a batch: {events:?}");
        ensure!(events.len() as u64 >= 2 * waited && events.is_sorted(), "lost: {events:?}");
    }
    Ok(())
}
