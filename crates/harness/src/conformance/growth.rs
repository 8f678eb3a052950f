use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use promethean::store::{Append, Growth, Lane, Store, TopicDefinition};
use promethean_event::{Partition, Topic};

use super::check::Check;
use super::factory::StoreFactory;
use super::scene::{Scene, advance, beginning, event, group};

checks!(
    growth_before_the_wait_is_told_at_once,
    growth_during_the_wait_wakes,
    only_lanes_that_grew_are_told,
    changes_of_state_wake_nobody,
    changes_of_topics_are_told,
    no_wake_up_is_lost_under_load,
    closing_wakes,
);

/// Only so that a lost wake-up fails instead of hanging: nothing depends on how long it is.
const PATIENCE: Duration = Duration::from_secs(10);

async fn patiently(growth: impl Future<Output = Growth>) -> Check<Growth> {
    let growth = tokio::time::timeout(PATIENCE, growth).await;
    growth.map_err(|_| "a wake-up was lost".into())
}

/// A mark that stands for now.
async fn now(store: &dyn Store) -> Check<u64> {
    let mut mark = 0;
    while let Some(growth) = store.grown(mark).now_or_never() {
        ensure!(growth.mark > mark, "growth without a new mark");
        mark = growth.mark;
    }
    Ok(mark)
}

async fn growth_before_the_wait_is_told_at_once(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let mark = now(&*scene.store).await?;
    scene.publish(0..3).await?;
    let growth = patiently(scene.store.grown(mark)).await?;
    let lanes = growth.lanes.ok_or("one lane grew, and could not be told")?;
    let lanes: Vec<_> = lanes.into_iter().map(|(lane, end)| (lane, end.get())).collect();
    ensure_same!(lanes, [(scene.lane(), 3)], "the lanes that grew");
    ensure!(!growth.topics_changed && !growth.closed, "something that did not happen");
    let again = scene.store.grown(growth.mark).now_or_never();
    ensure!(again.is_none(), "told again: {again:?}");
    Ok(())
}

async fn growth_during_the_wait_wakes(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    for number in 0..20 {
        let mark = now(&*scene.store).await?;
        let mut waiting = scene.store.grown(mark);
        ensure!((&mut waiting).now_or_never().is_none(), "woken before anything grew");
        scene.publish(number..number + 1).await?;
        let growth = patiently(waiting).await?;
        ensure!(growth.mark > mark, "a mark that does not rise");
    }
    Ok(())
}

async fn only_lanes_that_grew_are_told(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let mut topics = Vec::new();
    for number in 0..10 {
        let topic = Topic::new(&format!("topic.{number}"))?;
        let id = scene.store.define(TopicDefinition::new(topic.clone())).await?;
        topics.push((topic, Lane { topic: id, partition: Partition::ZERO }));
    }
    let mark = now(&*scene.store).await?;
    let mut expected = Vec::new();
    for (topic, lane) in topics.iter().step_by(3) {
        let events = vec![event(topic, None, 1)?, event(topic, None, 2)?];
        scene.store.append(Append { events, ..Append::default() }).await?;
        expected.push((*lane, 2));
    }
    let growth = patiently(scene.store.grown(mark)).await?;
    let lanes = growth.lanes.ok_or("four lanes grew, and could not be told")?;
    let mut lanes: Vec<_> = lanes.into_iter().map(|(lane, end)| (lane, end.get())).collect();
    lanes.sort_unstable();
    ensure_same!(lanes, expected, "the lanes that grew");
    Ok(())
}

async fn changes_of_state_wake_nobody(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let name = group("g")?;
    let mark = now(&*scene.store).await?;
    scene.store.save(beginning(&name)?).await?;
    for version in 1..=20 {
        scene.store.save(advance(&name, scene.lane(), version, version)).await?;
    }
    let growth = scene.store.grown(mark).now_or_never();
    ensure!(growth.is_none(), "saves are told as growth: {growth:?}");
    let mut save = advance(&name, scene.lane(), 21, 21);
    save.dead_letters.push(scene.event(1)?);
    scene.store.save(save).await?;
    let lanes = patiently(scene.store.grown(mark)).await?.lanes;
    let lanes: Vec<_> = lanes.into_iter().flatten().map(|(lane, _)| lane).collect();
    ensure_same!(lanes, [scene.lane()], "a dead letter is growth");
    Ok(())
}

async fn changes_of_topics_are_told(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let mark = now(&*scene.store).await?;
    let waiting = scene.store.grown(mark);
    let topic = Topic::new("another")?;
    let id = scene.store.define(TopicDefinition::new(topic.clone())).await?;
    let growth = patiently(waiting).await?;
    ensure!(growth.topics_changed, "a new topic is not told");
    ensure!(scene.store.topics().get(&topic).is_some(), "told before it can be seen");
    let waiting = scene.store.grown(growth.mark);
    scene.store.remove(id).await?;
    ensure!(patiently(waiting).await?.topics_changed, "a removed topic is not told");
    Ok(())
}

async fn no_wake_up_is_lost_under_load(factory: &dyn StoreFactory) -> Check {
    const EVENTS: u64 = 500;
    let scene = Scene::new(factory).await?;
    let lane = scene.lane();
    let reader = Arc::clone(&scene.store);
    let mut mark = now(&*scene.store).await?;
    let waiting = tokio::spawn(async move {
        let mut seen = 0;
        while seen < EVENTS {
            let growth = patiently(reader.grown(mark)).await?;
            mark = growth.mark;
            // Only what growth tells counts: one that is not told of is not looked at.
            let ends = growth.lanes.into_iter().flatten();
            seen = ends
                .filter(|(grown, _)| *grown == lane)
                .map(|(_, end)| end.get())
                .max()
                .ok_or("woken by nothing")?;
        }
        Check::Ok(())
    });
    for number in 0..EVENTS {
        let answer = scene.store.append(scene.event(number)?.into());
        if number % 3 == 0 {
            answer.await?;
        } else {
            tokio::task::yield_now().await;
        }
    }
    waiting.await?
}

async fn closing_wakes(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let mark = now(&*scene.store).await?;
    let mut waiting = scene.store.grown(mark);
    ensure!((&mut waiting).now_or_never().is_none(), "woken before anything happened");
    scene.store.close().await;
    ensure!(patiently(waiting).await?.closed, "closing is not told");
    ensure!(patiently(scene.store.grown(mark)).await?.closed, "closed before the wait");
    Ok(())
}
