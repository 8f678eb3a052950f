use std::collections::BTreeMap;

use promethean::store::{
    Cleaning, Compaction, GapReason, KeyQuery, Lane, PageLimit, Read, Store, Stored,
};
use promethean_event::{Offset, Payload};

use super::check::Check;
use super::factory::StoreFactory;
use super::scene::{Scene, numbers, read_lane};

checks!(
    what_is_too_old_goes_and_is_called_expired,
    the_oldest_go_when_there_is_too_much,
    compaction_keeps_the_newest_of_each_key,
    holds_keep_what_the_rules_let_go,
    tombstones_never_bring_back_what_they_hide,
    a_reader_on_its_way_is_told_what_went,
);

async fn what_is_too_old_goes_and_is_called_expired(factory: &dyn StoreFactory) -> Check {
    let cleaning = Cleaning { age_ms_max: Some(1000), ..Cleaning::default() };
    let scene = Scene::with(factory, 1, cleaning).await?;
    scene.publish(0..5).await?;
    if !factory.pass(5000) {
        return Ok(());
    }
    scene.publish(5..8).await?;
    scene.store.clean(Vec::new()).await?;
    let bounds = scene.store.bounds(scene.lane()).await?;
    ensure_same!((bounds.start.get(), bounds.next.get()), (5, 8), "where the lane starts");
    for from in [0, 3] {
        let (lane, limit) = (scene.lane(), PageLimit::default());
        let read = Read::From { lane, from: Offset::new(from), limit };
        let page = scene.store.read(read).await?;
        let gaps: Vec<_> =
            page.gaps.iter().map(|gap| (gap.from.get(), gap.to.get(), gap.reason)).collect();
        ensure_same!(gaps, [(from, 5, GapReason::Expired)], "what a reader is told");
        ensure_same!(numbers(&page.events)?, [5, 6, 7], "what is left");
    }
    let (lane, before) = (scene.lane(), Offset::new(8));
    let backward = Read::Before { lane, before, limit: PageLimit::default() };
    let page = scene.store.read(backward).await?;
    let gaps: Vec<_> = page.gaps.iter().map(|gap| (gap.from.get(), gap.to.get())).collect();
    ensure_same!((gaps, page.next.get()), (vec![(0, 5)], 0), "what a backward reader is told");
    Ok(())
}

async fn the_oldest_go_when_there_is_too_much(factory: &dyn StoreFactory) -> Check {
    let cleaning = Cleaning { bytes_max: Some(8 * 1024), ..Cleaning::default() };
    let scene = Scene::with(factory, 1, cleaning).await?;
    scene.publish(0..1000).await?;
    scene.store.clean(Vec::new()).await?;
    let left = numbers(&scene.all().await?)?;
    ensure!(left.len() < 1000, "nothing went");
    ensure!(left.iter().copied().eq(1000 - left.len() as u64..1000), "not the oldest went");
    let bounds = scene.store.bounds(scene.lane()).await?;
    ensure_same!(bounds.start.get(), 1000 - left.len() as u64, "where the lane starts");
    Ok(())
}

/// The state of a lane: the newest event of each key, by offset.
async fn newest(store: &dyn Store, lane: Lane) -> Check<BTreeMap<String, Stored>> {
    let events = read_lane(store, lane).await?;
    let keyed = events.into_iter().filter_map(|stored| {
        let key = stored.event.key.as_ref()?.as_str().to_owned();
        Some((key, stored))
    });
    Ok(keyed.collect())
}

async fn compaction_keeps_the_newest_of_each_key(factory: &dyn StoreFactory) -> Check {
    let cleaning = Cleaning { compaction: Some(Compaction::default()), ..Cleaning::default() };
    let scene = Scene::with(factory, 1, cleaning).await?;
    for number in 0..800 {
        let key = format!("k{}", number % 13);
        let event =
            if number % 50 == 7 { scene.event(number)? } else { scene.keyed(&key, number)? };
        scene.store.append(event.into()).await?;
    }
    let before = newest(&*scene.store, scene.lane()).await?;
    scene.store.clean(Vec::new()).await?;
    let after = scene.all().await?;
    ensure!(after.len() < 800, "nothing was compacted");
    ensure_same!(newest(&*scene.store, scene.lane()).await?, before, "the newest of each key");
    let keyless = after.iter().filter(|stored| stored.event.key.is_none()).count();
    ensure_same!(keyless, 16, "events without a key");
    let bounds = scene.store.bounds(scene.lane()).await?;
    ensure_same!((bounds.start.get(), bounds.next.get()), (0, 800), "compaction moves no bounds");
    let page = scene.store.read(Read::From {
        lane: scene.lane(),
        from: Offset::ZERO,
        limit: PageLimit { events: 1000, ..PageLimit::default() },
    });
    let compacted = |gap: &promethean::store::Gap| gap.reason == GapReason::Compacted;
    ensure!(page.await?.gaps.iter().all(compacted), "a gap of compaction has another reason");
    let query = KeyQuery { topic: scene.id, prefix: String::new(), after: None, max: 100 };
    let keys = scene.store.keys(query).await?;
    ensure!(keys.events.iter().eq(before.values()), "the keys after compaction");
    Ok(())
}

async fn holds_keep_what_the_rules_let_go(factory: &dyn StoreFactory) -> Check {
    let compaction = Some(Compaction::default());
    let cleaning = Cleaning { age_ms_max: Some(1000), bytes_max: Some(1), compaction };
    let scene = Scene::with(factory, 1, cleaning).await?;
    for number in 0..400 {
        scene.store.append(scene.keyed("same", number)?.into()).await?;
    }
    factory.pass(5000);
    let hold = (scene.lane(), Offset::new(150));
    let higher = (scene.lane(), Offset::new(390));
    scene.store.clean(vec![higher, hold]).await?;
    let left = numbers(&scene.all().await?)?;
    let held: Vec<u64> = left.into_iter().filter(|number| *number >= 150).collect();
    ensure!(held.into_iter().eq(150..400), "something that was held is gone");
    Ok(())
}

async fn tombstones_never_bring_back_what_they_hide(factory: &dyn StoreFactory) -> Check {
    let cleaning = Cleaning { compaction: Some(Compaction::default()), ..Cleaning::default() };
    let scene = Scene::with(factory, 1, cleaning).await?;
    for round in 0..6_u64 {
        for number in 0..60 {
            let key = format!("k{}", number % 20);
            let mut event = scene.keyed(&key, round * 100 + number)?;
            if number % 20 < 10 && number >= 40 {
                event.payload = Payload::null();
            }
            scene.store.append(event.into()).await?;
        }
        scene.store.clean(Vec::new()).await?;
        let state = newest(&*scene.store, scene.lane()).await?;
        for number in 0..20 {
            let newest = state.get(&format!("k{number}"));
            let gone = newest.is_none_or(|stored| stored.event.payload.is_tombstone());
            ensure_same!(gone, number < 10, "whether k{number} is gone in round {round}");
        }
    }
    Ok(())
}

async fn a_reader_on_its_way_is_told_what_went(factory: &dyn StoreFactory) -> Check {
    let cleaning = Cleaning { age_ms_max: Some(1000), ..Cleaning::default() };
    let scene = Scene::with(factory, 1, cleaning).await?;
    scene.publish(0..300).await?;
    let read = |from, events| {
        let limit = PageLimit { events, ..PageLimit::default() };
        scene.store.read(Read::From { lane: scene.lane(), from: Offset::new(from), limit })
    };
    ensure_same!(read(0, 10).await?.next.get(), 10, "the first page");
    if !factory.pass(5000) {
        return Ok(());
    }
    scene.publish(300..301).await?;
    scene.store.clean(Vec::new()).await?;
    let page = read(10, 10).await?;
    ensure_same!(numbers(&page.events)?, [300], "what is left for one who was on his way");
    ensure_same!(page.gaps.len(), 1, "he is told that the rest is gone");
    Ok(())
}
