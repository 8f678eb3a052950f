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

/// Whether it tells of hubs alone, which a store may do at any time: it begins to hear of them when it
/// can. One that tells of nothing at all is a mistake.
fn is_of_hubs_alone(growth: &Growth) -> Check<bool> {
    let is_of_more =
        growth.lanes.as_ref().is_none_or(|lanes| !lanes.is_empty()) || growth.topics_changed;
    ensure!(is_of_more || growth.hubs_changed || growth.closed, "woken by nothing: {growth:?}");
    Ok(!is_of_more && !growth.closed)
}

/// The next growth that is of more than hubs.
async fn heard(store: &dyn Store, mut mark: u64) -> Check<Growth> {
    loop {
        let growth = patiently(store.grown(mark)).await?;
        ensure!(growth.mark > mark || growth.closed, "growth without a new mark: {growth:?}");
        if !is_of_hubs_alone(&growth)? {
            return Ok(growth);
        }
        mark = growth.mark;
    }
}

/// What has grown already, hubs aside.
fn heard_already(store: &dyn Store, mut mark: u64) -> Check<Option<Growth>> {
    while let Some(growth) = store.grown(mark).now_or_never() {
        if !is_of_hubs_alone(&growth)? {
            return Ok(Some(growth));
        }
        mark = growth.mark;
    }
    Ok(None)
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

/// Does something while one waits; what that one is told first, hubs aside.
async fn heard_during(
    store: &dyn Store,
    mark: u64,
    doing: impl Future<Output = Check>,
) -> Check<Growth> {
    let mut waiting = store.grown(mark);
    let early = (&mut waiting).now_or_never();
    let is_early = early.as_ref().map(is_of_hubs_alone).transpose()? == Some(false);
    ensure!(!is_early, "woken before anything happened: {early:?}");
    doing.await?;
    let growth = match early {
        Some(of_hubs) => of_hubs,
        None => patiently(waiting).await?,
    };
    if is_of_hubs_alone(&growth)? { heard(store, growth.mark).await } else { Ok(growth) }
}

async fn growth_before_the_wait_is_told_at_once(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let mark = now(&*scene.store).await?;
    scene.publish(0..3).await?;
    let growth = heard(&*scene.store, mark).await?;
    let lanes = growth.lanes.ok_or("one lane grew, and could not be told")?;
    let lanes: Vec<_> = lanes.into_iter().map(|(lane, end)| (lane, end.get())).collect();
    ensure_same!(lanes, [(scene.lane(), 3)], "the lanes that grew");
    ensure!(!growth.topics_changed && !growth.closed, "something that did not happen");
    let again = heard_already(&*scene.store, growth.mark)?;
    ensure!(again.is_none(), "told again: {again:?}");
    Ok(())
}

async fn growth_during_the_wait_wakes(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    for number in 0..20 {
        let mark = now(&*scene.store).await?;
        let publishing = async { scene.publish(number..number + 1).await.map(drop) };
        let growth = heard_during(&*scene.store, mark, publishing).await?;
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
    let growth = heard(&*scene.store, mark).await?;
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
    let growth = heard_already(&*scene.store, mark)?;
    ensure!(growth.is_none(), "saves are told as growth: {growth:?}");
    let mut save = advance(&name, scene.lane(), 21, 21);
    save.dead_letters.push(scene.event(1)?);
    scene.store.save(save).await?;
    let lanes = heard(&*scene.store, mark).await?.lanes;
    let lanes: Vec<_> = lanes.into_iter().flatten().map(|(lane, _)| lane).collect();
    ensure_same!(lanes, [scene.lane()], "a dead letter is growth");
    Ok(())
}

async fn changes_of_topics_are_told(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let mark = now(&*scene.store).await?;
    let topic = Topic::new("another")?;
    let defining = async {
        scene.store.define(TopicDefinition::new(topic.clone())).await?;
        Ok(())
    };
    let growth = heard_during(&*scene.store, mark, defining).await?;
    ensure!(growth.topics_changed, "a new topic is not told");
    let topics = scene.store.topics();
    let id = topics.get(&topic).ok_or("told before it can be seen")?.id;
    let removing = async { Ok(scene.store.remove(id).await?) };
    let growth = heard_during(&*scene.store, growth.mark, removing).await?;
    ensure!(growth.topics_changed, "a removed topic is not told");
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
            // Only what growth tells counts: one that is not told of is not looked at.
            let growth = heard(&*reader, mark).await?;
            mark = growth.mark;
            let ends = growth.lanes.into_iter().flatten();
            let of_lane = ends.filter(|(grown, _)| *grown == lane).map(|(_, end)| end.get());
            seen = of_lane.max().ok_or("woken by another lane, or by topics")?;
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
    let closing = async {
        scene.store.close().await;
        Ok(())
    };
    let growth = heard_during(&*scene.store, mark, closing).await?;
    ensure!(growth.closed, "closing is not told");
    ensure!(patiently(scene.store.grown(mark)).await?.closed, "closed before the wait");
    Ok(())
}
