use promethean::store::{GapReason, Lane, PageLimit, Read, ReadError, TopicId};
use promethean_event::{Headers, Key, NewEvent, Offset, Partition, SessionId, Tag};

use super::check::Check;
use super::factory::StoreFactory;
use super::scene::{Scene, numbers};

checks!(
    every_field_comes_back,
    pages_follow_each_other,
    backward_pages_come_to_the_beginning,
    limits_hold_but_one_event_is_given,
    the_end_is_empty_and_beyond_it_is_an_error,
    unknown_lanes_are_named,
    readers_at_many_places_do_not_disturb_each_other,
);

async fn every_field_comes_back(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let plain = scene.event(1)?;
    let mut headers = Headers::new();
    headers.insert("x-schema-version", "3")?;
    headers.insert("traceparent", "00-äö-01")?;
    let full = NewEvent {
        sid: Some(SessionId::generate()),
        key: Some(Key::new("käse:1")?),
        headers,
        caused_by: vec![plain.id],
        tags: vec![Tag::new("urgent")?],
        payload: promethean_event::Payload::parse(&br#"{"b":1.10,"a":[null,"\u00e4"]}"#[..])?,
        ..scene.event(2)?
    };
    scene.publish_all(vec![plain.clone(), full.clone()]).await?;
    let events = scene.all().await?;
    let found: Vec<_> = events.iter().map(|stored| stored.event.clone()).collect();
    let placed = |event: NewEvent, offset| event.placed(Partition::ZERO, Offset::new(offset));
    ensure_same!(found, [placed(plain, 0), placed(full, 1)], "the events");
    ensure!(events.iter().all(|stored| stored.bytes > 0), "events without a size");
    Ok(())
}

async fn pages_follow_each_other(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    // Enough for several segments, so that some is in memory and some is not.
    for first in (0..600).step_by(20) {
        let events: Result<Vec<_>, _> = (first..first + 20).map(|n| scene.event(n)).collect();
        scene.publish_all(events?).await?;
    }
    for events in [1, 3, 64, 100, 1000] {
        let (mut next, mut seen) = (Offset::ZERO, Vec::new());
        while next.get() < 600 {
            let limit = PageLimit { events, ..PageLimit::default() };
            let read = Read::From { lane: scene.lane(), from: next, limit };
            let page = scene.store.read(read).await?;
            ensure!(page.events.len() <= events, "a page of more than {events}");
            ensure!(page.gaps.is_empty(), "a gap where nothing is missing: {:?}", page.gaps);
            seen.extend(numbers(&page.events)?);
            ensure_same!(page.next.get(), seen.len() as u64, "where the page ends");
            next = page.next;
        }
        ensure!(seen.iter().copied().eq(0..600), "pages of {events} give {seen:?}");
    }
    Ok(())
}

async fn backward_pages_come_to_the_beginning(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    scene.publish(0..100).await?;
    let (mut next, mut seen) = (Offset::new(u64::MAX), Vec::new());
    while next > Offset::ZERO {
        let limit = PageLimit { events: 9, ..PageLimit::default() };
        let page =
            scene.store.read(Read::Before { lane: scene.lane(), before: next, limit }).await?;
        ensure!(page.events.len() <= 9 && page.next < next, "a page that leads nowhere");
        ensure!(page.gaps.is_empty(), "a gap where nothing is missing: {:?}", page.gaps);
        seen.extend(numbers(&page.events)?);
        next = page.next;
    }
    ensure!(seen.iter().copied().eq((0..100).rev()), "backward: {seen:?}");
    Ok(())
}

async fn limits_hold_but_one_event_is_given(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    scene.publish(0..10).await?;
    for limit in [PageLimit { events: 0, bytes: 0 }, PageLimit { events: 5, bytes: 1 }] {
        let lane = scene.lane();
        let forward = scene.store.read(Read::From { lane, from: Offset::new(4), limit }).await?;
        ensure_same!(numbers(&forward.events)?, [4], "one event forward, within {limit:?}");
        let backward = Read::Before { lane, before: Offset::new(4), limit };
        let backward = scene.store.read(backward).await?;
        ensure_same!(numbers(&backward.events)?, [3], "one event backward, within {limit:?}");
    }
    Ok(())
}

async fn the_end_is_empty_and_beyond_it_is_an_error(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    scene.publish(0..3).await?;
    let read = |from| {
        let limit = PageLimit::default();
        scene.store.read(Read::From { lane: scene.lane(), from: Offset::new(from), limit })
    };
    let end = read(3).await?;
    ensure!(end.events.is_empty() && end.gaps.is_empty(), "something at the end");
    ensure_same!(end.next.get(), 3, "where the end is");
    let beyond = read(4).await;
    let Err(ReadError::BeyondEnd { wanted, next }) = beyond else {
        return Err(format!("a read beyond the end: {beyond:?}").into());
    };
    ensure_same!((wanted.get(), next.get()), (4, 3), "what it says");
    Ok(())
}

async fn unknown_lanes_are_named(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let lanes = [
        Lane { topic: TopicId::new(999), partition: Partition::ZERO },
        Lane { topic: scene.id, partition: Partition::new(1) },
    ];
    for lane in lanes {
        let limit = PageLimit::default();
        let forward = scene.store.read(Read::From { lane, from: Offset::ZERO, limit }).await;
        let backward = Read::Before { lane, before: Offset::new(9), limit };
        let backward = scene.store.read(backward).await;
        let bounds = scene.store.bounds(lane).await;
        let unknown = |error| matches!(error, Some(ReadError::UnknownLane));
        ensure!(unknown(forward.err()), "reading an unknown lane");
        ensure!(unknown(backward.err()), "reading an unknown lane backward");
        ensure!(unknown(bounds.err()), "bounds of an unknown lane");
    }
    Ok(())
}

async fn readers_at_many_places_do_not_disturb_each_other(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    scene.publish(0..300).await?;
    // More than a store may keep open readers for.
    let mut places: Vec<u64> = (0..50).map(|place| place * 5).collect();
    for round in 0..3 {
        for place in &mut places {
            let limit = PageLimit { events: 4, ..PageLimit::default() };
            let read = Read::From { lane: scene.lane(), from: Offset::new(*place), limit };
            let page = scene.store.read(read).await?;
            let expected = *place..*place + 4;
            ensure!(numbers(&page.events)?.into_iter().eq(expected), "round {round} at {place}");
            *place = page.next.get();
        }
    }
    let page = scene.store.read(Read::From {
        lane: scene.lane(),
        from: Offset::ZERO,
        limit: PageLimit::default(),
    });
    let corrupt = page.await?.gaps.into_iter().any(|gap| gap.reason == GapReason::Corrupt);
    ensure!(!corrupt, "damage in a store that nobody damaged");
    Ok(())
}
