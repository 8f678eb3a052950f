use promethean::store::{AppendError, GroupSave, Lane, LaneDelta, SaveError, TopicDefinition};
use promethean_delivery::{AttemptRecord, Change, Span};
use promethean_event::{Partition, Payload, Topic};

use super::check::Check;
use super::factory::StoreFactory;
use super::scene::{Scene, advance, beginning, event, floor, group, numbers, read_lane};

checks!(
    a_group_begins_with_settings,
    deltas_are_applied_in_order_and_once,
    a_delta_that_comes_too_early_changes_nothing,
    all_of_a_state_comes_back,
    a_dead_letter_and_the_advance_are_one_step,
    the_same_save_again_adds_nothing,
    calls_in_order_are_saves_in_order,
    a_removed_group_stays_away,
    lanes_of_a_removed_topic_go,
);

async fn a_group_begins_with_settings(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let name = group("projector")?;
    ensure!(scene.store.group(name.clone()).await?.is_none(), "a group that never was");
    let early = scene.store.save(advance(&name, scene.lane(), 1, 1)).await;
    ensure!(matches!(early, Err(SaveError::UnknownGroup(_))), "a save before settings: {early:?}");
    scene.store.save(beginning(&name)?).await?;
    let record = scene.store.group(name.clone()).await?.ok_or("the group is not there")?;
    ensure_same!(record.settings.as_str(), r#"{"mode":"shared"}"#, "its settings");
    ensure!(record.lanes.is_empty(), "a new group has lanes");
    let settings = Some(Payload::of("other")?);
    scene.store.save(GroupSave { settings, ..beginning(&name)? }).await?;
    scene.store.save(beginning(&group("another")?)?).await?;
    let names = scene.store.groups().await?;
    ensure_same!(names, [group("another")?, name.clone()], "the names of all groups");
    let record = scene.store.group(name).await?.ok_or("the group is not there")?;
    ensure_same!(record.settings.as_str(), r#""other""#, "its changed settings");
    Ok(())
}

async fn deltas_are_applied_in_order_and_once(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let name = group("g")?;
    scene.store.save(beginning(&name)?).await?;
    for version in 1..=20 {
        scene.store.save(advance(&name, scene.lane(), version, version * 10)).await?;
        ensure_same!(
            floor(&*scene.store, &name, scene.lane()).await?,
            Some(version * 10),
            "the floor after save {version}"
        );
    }
    // One that was applied already, whatever it says now.
    scene.store.save(advance(&name, scene.lane(), 7, 9999)).await?;
    let now = floor(&*scene.store, &name, scene.lane()).await?;
    ensure_same!(now, Some(200), "the floor after an old delta");
    Ok(())
}

async fn a_delta_that_comes_too_early_changes_nothing(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let name = group("g")?;
    scene.store.save(beginning(&name)?).await?;
    scene.store.save(advance(&name, scene.lane(), 1, 10)).await?;
    let mut early = advance(&name, scene.lane(), 3, 30);
    early.dead_letters.push(scene.event(1)?);
    early.settings = Some(Payload::of("changed")?);
    let result = scene.store.save(early).await;
    ensure!(matches!(result, Err(SaveError::OutOfOrder(_))), "a delta too early: {result:?}");
    let record = scene.store.group(name.clone()).await?.ok_or("the group is gone")?;
    ensure!(record.settings.as_str() != r#""changed""#, "settings of a refused save");
    ensure_same!(floor(&*scene.store, &name, scene.lane()).await?, Some(10), "the floor");
    ensure!(scene.all().await?.is_empty(), "a dead letter of a refused save");
    scene.store.save(advance(&name, scene.lane(), 2, 20)).await?;
    ensure_same!(floor(&*scene.store, &name, scene.lane()).await?, Some(20), "the floor");
    Ok(())
}

async fn all_of_a_state_comes_back(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::with(factory, 3, promethean::store::Cleaning::default()).await?;
    let name = group("g")?;
    scene.store.save(beginning(&name)?).await?;
    let record = AttemptRecord {
        offset: 12,
        count: 2,
        times: vec![5, 6],
        error: b"boom".to_vec(),
        ..AttemptRecord::default()
    };
    let changes = vec![
        Change::Seek { epoch: 3, floor: 10, horizon: 50 },
        Change::Acked(Span { from: 20, to: 30 }),
        Change::Attempted(record),
        Change::Generation(4),
    ];
    let mut lanes = Vec::new();
    let mut expected = Vec::new();
    let table = scene.store.topics();
    for lane in table.get(&scene.topic).ok_or("no such topic")?.lanes() {
        let delta = LaneDelta { version: 1, changes: changes.clone() };
        let mut state = promethean::store::LaneState::default();
        state.apply(&delta)?;
        lanes.push((lane, delta));
        expected.push((lane, state));
    }
    scene.store.save(GroupSave { lanes, ..advance(&name, scene.lane(), 0, 0) }).await?;
    let mut found = scene.store.group(name).await?.ok_or("the group is gone")?.lanes;
    found.sort_by_key(|(lane, _)| *lane);
    ensure_same!(found, expected, "the states of the lanes");
    Ok(())
}

async fn a_dead_letter_and_the_advance_are_one_step(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let dlq = Topic::new("dlq.orders.placed")?;
    let dlq_id = scene.store.define(TopicDefinition::new(dlq.clone())).await?;
    let lane = Lane { topic: dlq_id, partition: Partition::ZERO };
    let name = group("g")?;
    scene.store.save(beginning(&name)?).await?;
    let letter = event(&dlq, Some("k"), 1)?;
    let mut save = advance(&name, scene.lane(), 1, 5);
    save.dead_letters.push(letter.clone());
    scene.store.save(save).await?;
    ensure_same!(numbers(&read_lane(&*scene.store, lane).await?)?, [1], "the dead letters");
    ensure_same!(floor(&*scene.store, &name, scene.lane()).await?, Some(5), "the floor");
    // Refused together, too: for a topic that is not there, and for an id that is taken.
    let mut taken = event(&dlq, Some("k"), 2)?;
    taken.id = letter.id;
    for bad in [event(&Topic::new("dlq.nowhere")?, None, 3)?, taken] {
        let mut save = advance(&name, scene.lane(), 2, 6);
        save.dead_letters = vec![event(&dlq, None, 4)?, bad];
        let result = scene.store.save(save).await;
        let refused = matches!(
            result,
            Err(SaveError::Append(AppendError::UnknownTopic(_) | AppendError::IdConflict { .. }))
        );
        ensure!(refused, "a dead letter that cannot be stored: {result:?}");
        ensure_same!(floor(&*scene.store, &name, scene.lane()).await?, Some(5), "the floor");
        let letters = numbers(&read_lane(&*scene.store, lane).await?)?;
        ensure_same!(letters, [1], "dead letters of a refused save");
    }
    // And the group goes on afterwards.
    scene.store.save(advance(&name, scene.lane(), 2, 7)).await?;
    ensure_same!(floor(&*scene.store, &name, scene.lane()).await?, Some(7), "the floor");
    Ok(())
}

async fn the_same_save_again_adds_nothing(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let name = group("g")?;
    scene.store.save(beginning(&name)?).await?;
    let mut save = advance(&name, scene.lane(), 1, 5);
    save.dead_letters.push(scene.event(1)?);
    for _ in 0..3 {
        scene.store.save(save.clone()).await?;
    }
    save.dead_letters.clear();
    scene.store.save(save).await?;
    ensure_same!(numbers(&scene.all().await?)?, [1], "the dead letters");
    ensure_same!(floor(&*scene.store, &name, scene.lane()).await?, Some(5), "the floor");
    Ok(())
}

/// Futures that nobody has polled yet were started when they were made.
async fn calls_in_order_are_saves_in_order(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let names = [group("one")?, group("two")?];
    let mut answers = Vec::new();
    for name in &names {
        answers.push(scene.store.save(beginning(name)?));
    }
    for version in 1..=50 {
        for name in &names {
            answers.push(scene.store.save(advance(name, scene.lane(), version, version)));
        }
    }
    let last = answers.pop();
    drop(answers);
    if let Some(last) = last {
        last.await?;
    }
    for name in &names {
        ensure_same!(floor(&*scene.store, name, scene.lane()).await?, Some(50), "the floor");
    }
    Ok(())
}

async fn a_removed_group_stays_away(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let name = group("g")?;
    scene.store.remove_group(name.clone()).await?;
    scene.store.save(beginning(&name)?).await?;
    for version in 1..=5 {
        scene.store.save(advance(&name, scene.lane(), version, version)).await?;
    }
    scene.store.remove_group(name.clone()).await?;
    ensure!(scene.store.group(name.clone()).await?.is_none(), "the group is still there");
    ensure!(scene.store.groups().await?.is_empty(), "its name is still there");
    let late = scene.store.save(advance(&name, scene.lane(), 6, 6)).await;
    ensure!(matches!(late, Err(SaveError::UnknownGroup(_))), "a late save: {late:?}");
    // Another one of the same name begins anew.
    scene.store.save(beginning(&name)?).await?;
    ensure_same!(floor(&*scene.store, &name, scene.lane()).await?, Some(0), "the new group");
    scene.store.save(advance(&name, scene.lane(), 1, 3)).await?;
    ensure_same!(floor(&*scene.store, &name, scene.lane()).await?, Some(3), "the new group");
    Ok(())
}

async fn lanes_of_a_removed_topic_go(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let other = scene.store.define(TopicDefinition::new(Topic::new("other")?)).await?;
    let other = Lane { topic: other, partition: Partition::ZERO };
    let name = group("g")?;
    scene.store.save(beginning(&name)?).await?;
    scene.store.save(advance(&name, scene.lane(), 1, 5)).await?;
    scene.store.save(advance(&name, other, 1, 6)).await?;
    scene.store.remove(scene.id).await?;
    // A last word that was under way.
    scene.store.save(advance(&name, scene.lane(), 2, 7)).await?;
    scene.store.save(advance(&name, scene.lane(), 9, 9)).await?;
    let lanes = scene.store.group(name).await?.ok_or("the group is gone")?.lanes;
    let lanes: Vec<_> = lanes.into_iter().map(|(lane, state)| (lane, state.floor)).collect();
    ensure_same!(lanes, [(other, 6)], "the lanes that are left");
    Ok(())
}
