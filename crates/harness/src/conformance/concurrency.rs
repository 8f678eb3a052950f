use std::collections::BTreeSet;
use std::sync::Arc;

use promethean::store::{Append, Cleaning, Lane, PageLimit, Read, Store, TopicDefinition};
use promethean_event::{Offset, Partition, Topic};

use super::check::Check;
use super::factory::StoreFactory;
use super::scene::{Scene, advance, beginning, event, floor, group, numbers, read_lane};

checks!(
    publishers_lose_nothing_and_keep_their_order,
    a_batch_over_topics_is_seen_whole,
    groups_do_not_disturb_each_other,
    cleaning_goes_on_beside_everything,
);

async fn publishers_lose_nothing_and_keep_their_order(factory: &dyn StoreFactory) -> Check {
    const PUBLISHERS: u64 = 16;
    const EACH: u64 = 50;
    let scene = Scene::with(factory, 4, Cleaning::default()).await?;
    let mut publishers = Vec::new();
    for publisher in 0..PUBLISHERS {
        let (store, topic) = (Arc::clone(&scene.store), scene.topic.clone());
        publishers.push(tokio::spawn(async move {
            let key = format!("publisher {publisher}");
            for number in 0..EACH {
                let event = event(&topic, Some(&key), publisher * EACH + number)?;
                store.append(event.into()).await?;
            }
            Check::Ok(())
        }));
    }
    for publisher in publishers {
        publisher.await??;
    }
    let mut seen = BTreeSet::new();
    let table = scene.store.topics();
    for lane in table.get(&scene.topic).ok_or("no such topic")?.lanes() {
        let mut last = std::collections::BTreeMap::new();
        for number in numbers(&read_lane(&*scene.store, lane).await?)? {
            ensure!(seen.insert(number), "{number} is there twice");
            let before = last.insert(number / EACH, number);
            ensure!(before.is_none_or(|before| before < number), "{number} after {before:?}");
        }
    }
    ensure_same!(seen.len() as u64, PUBLISHERS * EACH, "events of all publishers");
    Ok(())
}

/// Whoever sees one event of a batch in one topic finds the others in theirs.
async fn a_batch_over_topics_is_seen_whole(factory: &dyn StoreFactory) -> Check {
    const BATCHES: u64 = 200;
    let scene = Scene::new(factory).await?;
    let other = Topic::new("other")?;
    let other_id = scene.store.define(TopicDefinition::new(other.clone())).await?;
    let other_lane = Lane { topic: other_id, partition: Partition::ZERO };
    let (reader, lane) = (Arc::clone(&scene.store), scene.lane());
    let watching = tokio::spawn(async move {
        let (mut mark, mut seen) = (0, 0);
        while seen < BATCHES {
            mark = reader.grown(mark).await.mark;
            // The second topic first: what is there must be in the first one, asked later.
            let second = reader.bounds(other_lane).await?.next;
            let first = reader.bounds(lane).await?.next;
            ensure!(first >= second, "half a batch: {first} and {second}");
            let limit = PageLimit::default();
            let from = Offset::new(seen);
            let page = reader.read(Read::From { lane: other_lane, from, limit }).await?;
            seen += page.events.len() as u64;
        }
        Check::Ok(())
    });
    for number in 0..BATCHES {
        let events = vec![scene.event(number)?, event(&other, None, number)?];
        scene.store.append(Append { events, ..Append::default() }).await?;
    }
    watching.await?
}

async fn groups_do_not_disturb_each_other(factory: &dyn StoreFactory) -> Check {
    const GROUPS: u64 = 10;
    const SAVES: u64 = 60;
    let scene = Scene::new(factory).await?;
    let lane = scene.lane();
    let mut members = Vec::new();
    for number in 0..GROUPS {
        let store = Arc::clone(&scene.store);
        members.push(tokio::spawn(async move {
            let name = group(&format!("group-{number}"))?;
            store.save(beginning(&name)?).await?;
            for version in 1..=SAVES {
                store.save(advance(&name, lane, version, version + number)).await?;
                if version % 20 == number % 20 {
                    let other = group(&format!("group-{number}-short"))?;
                    store.save(beginning(&other)?).await?;
                    store.remove_group(other).await?;
                }
            }
            Check::Ok(())
        }));
    }
    for member in members {
        member.await??;
    }
    ensure_same!(scene.store.groups().await?.len() as u64, GROUPS, "groups that are left");
    for number in 0..GROUPS {
        let found = floor(&*scene.store, &group(&format!("group-{number}"))?, lane).await?;
        ensure_same!(found, Some(SAVES + number), "the floor of group {number}");
    }
    Ok(())
}

async fn cleaning_goes_on_beside_everything(factory: &dyn StoreFactory) -> Check {
    let compaction = Some(promethean::store::Compaction::default());
    let scene = Scene::with(factory, 1, Cleaning { compaction, ..Cleaning::default() }).await?;
    let store: Arc<dyn Store> = Arc::clone(&scene.store);
    let cleaning = tokio::spawn(async move {
        for _ in 0..10 {
            store.clean(Vec::new()).await?;
            tokio::task::yield_now().await;
        }
        Check::Ok(())
    });
    let name = group("g")?;
    scene.store.save(beginning(&name)?).await?;
    for number in 0..600 {
        scene.store.append(scene.keyed(&format!("k{}", number % 5), number)?.into()).await?;
        if number % 10 == 0 {
            let version = number / 10 + 1;
            scene.store.save(advance(&name, scene.lane(), version, number)).await?;
        }
    }
    cleaning.await??;
    scene.store.clean(Vec::new()).await?;
    let newest: BTreeSet<u64> = numbers(&scene.all().await?)?.into_iter().collect();
    ensure!((595..600).all(|number| newest.contains(&number)), "the newest are gone");
    ensure_same!(floor(&*scene.store, &name, scene.lane()).await?, Some(590), "the floor");
    Ok(())
}
