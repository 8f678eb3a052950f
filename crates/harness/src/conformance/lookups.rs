use promethean::store::{Cleaning, KeyQuery, Lane, ReadError, TopicDefinition, TopicId};
use promethean_event::{EventId, Key, Partition, Payload, Timestamp, Topic};

use super::check::Check;
use super::factory::StoreFactory;
use super::scene::{Scene, numbers};

checks!(
    ids_are_found_in_their_topic_only,
    latest_tells_newest_gone_and_never_was,
    history_is_newest_first,
    keys_are_listed_in_order_and_in_pages,
    an_offset_is_found_by_its_time,
    unknown_topics_are_named,
);

async fn ids_are_found_in_their_topic_only(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::with(factory, 3, Cleaning::default()).await?;
    let other = Topic::new("other")?;
    let other_id = scene.store.define(TopicDefinition::new(other.clone())).await?;
    let mut events = Vec::new();
    for number in 0..200 {
        let event = scene.event(number)?;
        events.push(event.clone());
        scene.publish_all(vec![event]).await?;
    }
    for (number, event) in events.iter().enumerate() {
        let found = scene.store.find(scene.id, event.id).await?.ok_or("an event is not found")?;
        ensure_same!(numbers(&[found])?, [number as u64], "what the id finds");
        ensure!(scene.store.find(other_id, event.id).await?.is_none(), "found in another topic");
    }
    ensure!(scene.store.find(scene.id, EventId::generate()).await?.is_none(), "found nobody");
    Ok(())
}

async fn latest_tells_newest_gone_and_never_was(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::with(factory, 3, Cleaning::default()).await?;
    for number in 0..120 {
        let key = format!("k{}", number % 12);
        scene.store.append(scene.keyed(&key, number)?.into()).await?;
    }
    let mut gone = scene.keyed("k5", 0)?;
    gone.payload = Payload::null();
    scene.store.append(gone.into()).await?;
    let keys = ["k3", "nobody", "k5", "k11", "k3"].map(Key::new);
    let keys: Result<Vec<_>, _> = keys.into_iter().collect();
    let found = scene.store.latest(scene.id, keys?).await?;
    let shown: Vec<_> =
        found.iter().map(|f| f.as_ref().map(|s| s.event.payload.as_str().to_owned())).collect();
    let expected = [Some("111"), None, Some("null"), Some("119"), Some("111")];
    ensure_same!(shown, expected.map(|text| text.map(str::to_owned)).to_vec(), "the newest");
    Ok(())
}

async fn history_is_newest_first(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    for number in 0..200 {
        let key = if number % 7 == 0 { "mine" } else { "other" };
        scene.store.append(scene.keyed(key, number)?.into()).await?;
    }
    let mine = Key::new("mine")?;
    let history = scene.store.history(scene.id, mine.clone(), 1000).await?;
    let expected: Vec<u64> = (0..200).rev().filter(|number| number % 7 == 0).collect();
    ensure_same!(numbers(&history)?, expected, "the history");
    let newest = scene.store.history(scene.id, mine, 3).await?;
    ensure_same!(numbers(&newest)?, [196, 189, 182], "the newest three");
    Ok(())
}

async fn keys_are_listed_in_order_and_in_pages(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::with(factory, 3, Cleaning::default()).await?;
    for number in 0..90_u64 {
        let key = format!("{}:{:02}", if number % 3 == 0 { "a" } else { "b" }, number % 45);
        scene.store.append(scene.keyed(&key, number)?.into()).await?;
    }
    scene.store.append(scene.event(1000)?.into()).await?;
    for (prefix, count) in [("", 45), ("a:", 15), ("b:", 30), ("c", 0)] {
        let (mut after, mut seen, mut more) = (None, Vec::new(), true);
        while more {
            let (topic, prefix) = (scene.id, prefix.to_owned());
            let page = scene.store.keys(KeyQuery { topic, prefix, after, max: 7 }).await?;
            ensure!(page.events.len() <= 7, "a page of more than 7");
            ensure!(!page.events.is_empty() || !page.more, "an empty page with more behind it");
            after = page.events.last().and_then(|stored| stored.event.key.clone());
            more = page.more;
            seen.extend(page.events);
        }
        let keys: Vec<_> = seen.iter().filter_map(|s| s.event.key.clone()).collect();
        ensure!(keys.is_sorted(), "keys out of order: {keys:?}");
        ensure_same!(keys.len(), count, "keys that begin with {prefix:?}");
        ensure!(keys.iter().all(|key| key.as_str().starts_with(prefix)), "a key too many");
        // Each key was used twice: the second one counts.
        ensure!(numbers(&seen)?.iter().all(|number| *number >= 45), "not the newest of a key");
    }
    Ok(())
}

async fn an_offset_is_found_by_its_time(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    for number in 0..100 {
        scene.publish(number..number + 1).await?;
        factory.pass(10);
    }
    let events = scene.all().await?;
    for stored in events.iter().step_by(9) {
        let time = stored.appended_at;
        let expected = events.iter().find(|other| other.appended_at >= time);
        let found = scene.store.offset_at(scene.lane(), time).await?;
        ensure_same!(Some(found), expected.map(|e| e.event.offset), "the offset at {time}");
    }
    let begin = scene.store.offset_at(scene.lane(), Timestamp::from_millis(0)).await?;
    ensure_same!(begin.get(), 0, "the offset at the beginning of time");
    let end = events.last().map_or(Timestamp::default(), |last| last.appended_at.plus_millis(1));
    let found = scene.store.offset_at(scene.lane(), end).await?;
    ensure_same!(found.get(), 100, "the offset after everything");
    Ok(())
}

async fn unknown_topics_are_named(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let (topic, key) = (TopicId::new(999), Key::new("a")?);
    let lane = Lane { topic, partition: Partition::ZERO };
    let query = KeyQuery { topic, prefix: String::new(), after: None, max: 1 };
    let errors = [
        scene.store.find(topic, EventId::generate()).await.err(),
        scene.store.latest(topic, vec![key.clone()]).await.err(),
        scene.store.latest(topic, Vec::new()).await.err(),
        scene.store.history(topic, key, 1).await.err(),
        scene.store.keys(query).await.err(),
        scene.store.offset_at(lane, Timestamp::from_millis(0)).await.err(),
    ];
    let unknown = |error: &Option<_>| matches!(error, Some(ReadError::UnknownLane));
    ensure!(errors.iter().all(unknown), "looking in an unknown topic: {errors:?}");
    Ok(())
}
