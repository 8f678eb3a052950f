use promethean::store::{LaneBounds, Page, Put, Read, Restore, Store, Stored};
use promethean_event::{Key, Offset, Partition, Payload, Timestamp};

use super::check::Check;
use super::factory::{Ending, StoreFactory};
use super::scene::{Scene, event};

checks!(
    events_come_back_at_their_places_and_times,
    what_is_there_already_is_passed_over,
    lanes_start_and_end_where_they_are_told_to,
    nothing_goes_back,
    what_was_restored_survives,
    spaces_with_entries_are_told,
);

/// Later than the clock of any factory.
const LATER_MS: u64 = 4_000_000_000_000;

fn restore(store: &dyn Store) -> Check<&dyn Restore> {
    store.restoring().ok_or_else(|| "it takes up nothing of other stores".into())
}

/// Offsets with times, or from and to.
type Pairs = Vec<(u64, u64)>;

/// Events at these offsets of the only lane, each ten milliseconds after the one before.
fn at(scene: &Scene, offsets: &[u64]) -> Check<Vec<Stored>> {
    let stored = |(number, offset): (u64, &u64)| {
        let event = event(&scene.topic, Some("key"), *offset)?;
        let event = event.placed(Partition::ZERO, Offset::new(*offset));
        let appended_at = Timestamp::from_millis(LATER_MS + number * 10);
        Check::Ok(Stored { event, appended_at, bytes: 100 })
    };
    (0..).zip(offsets).map(stored).collect()
}

async fn take_up(scene: &Scene, events: &[Stored]) -> Check {
    let events = events.iter().map(|stored| (scene.lane(), stored.clone())).collect();
    Ok(restore(&*scene.store)?.restore(events).await?)
}

async fn page(scene: &Scene) -> Check<Page> {
    let limit = promethean::store::PageLimit::default();
    let from = Offset::ZERO;
    let mut whole = Page { next: from, ..Page::default() };
    let end = scene.store.bounds(scene.lane()).await?.next;
    while whole.next < end {
        let read = Read::From { lane: scene.lane(), from: whole.next, limit };
        let page = scene.store.read(read).await?;
        ensure!(page.next > whole.next, "a page that leads nowhere");
        whole.events.extend(page.events);
        whole.gaps.extend(page.gaps);
        whole.next = page.next;
    }
    Ok(whole)
}

fn shown(page: &Page) -> (Pairs, Pairs) {
    let events = page.events.iter().map(|stored| {
        (stored.event.offset.get(), stored.appended_at.millis().saturating_sub(LATER_MS))
    });
    let gaps = page.gaps.iter().map(|gap| (gap.from.get(), gap.to.get()));
    (events.collect(), gaps.collect())
}

async fn events_come_back_at_their_places_and_times(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let events = at(&scene, &[0, 1, 4, 5, 9])?;
    take_up(&scene, &events).await?;
    let found = page(&scene).await?;
    let places = vec![(0, 0), (1, 10), (4, 20), (5, 30), (9, 40)];
    ensure_same!(shown(&found), (places, vec![(2, 4), (6, 9)]), "places, times and gaps");
    for (found, given) in found.events.iter().zip(&events) {
        ensure_same!(found.event, given.event, "the event");
    }
    let time = Timestamp::from_millis(LATER_MS + 15);
    ensure_same!(scene.store.offset_at(scene.lane(), time).await?.get(), 4, "found by time");
    let known = scene.store.find(scene.id, nth(&events, 3)?.event.id).await?;
    ensure_same!(known.map(|known| known.event.offset.get()), Some(5), "found by id");
    let key = vec![Key::new("key")?];
    let latest = scene.store.latest(scene.id, key).await?.pop().flatten();
    ensure_same!(latest.map(|known| known.event.offset.get()), Some(9), "the newest of its key");
    let next = scene.store.append(scene.event(1)?.into()).await?;
    ensure_same!(nth(&next.receipts, 0)?.offset.get(), 10, "what is appended goes behind");
    let again = event_again(nth(&events, 2)?);
    let again = scene.store.append(again.into()).await?;
    ensure!(nth(&again.receipts, 0)?.duplicate, "an id that was restored is not known");
    Ok(())
}

fn nth<T>(of: &[T], at: usize) -> Check<&T> {
    of.get(at).ok_or_else(|| "fewer than there should be".into())
}

fn event_again(stored: &Stored) -> promethean_event::NewEvent {
    promethean::store::unplaced(stored.event.clone())
}

async fn what_is_there_already_is_passed_over(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let events = at(&scene, &[2, 3, 7])?;
    take_up(&scene, events.get(..2).unwrap_or_default()).await?;
    take_up(&scene, &events).await?;
    take_up(&scene, &events).await?;
    let (found, _) = shown(&page(&scene).await?);
    ensure_same!(found, [(2, 0), (3, 10), (7, 20)], "each of them once");
    Ok(())
}

async fn lanes_start_and_end_where_they_are_told_to(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    take_up(&scene, &at(&scene, &[6, 7])?).await?;
    let bounds = LaneBounds { start: Offset::new(5), next: Offset::new(12) };
    restore(&*scene.store)?.place(vec![(scene.lane(), bounds)]).await?;
    ensure_same!(scene.store.bounds(scene.lane()).await?, bounds, "where the lane is");
    let found = page(&scene).await?;
    let (events, gaps) = shown(&found);
    ensure_same!(events, [(6, 0), (7, 10)], "the events");
    ensure_same!(gaps, [(0, 5), (5, 6), (8, 12)], "what is missing");
    let limit = promethean::store::PageLimit::default();
    let before = Read::Before { lane: scene.lane(), before: Offset::new(12), limit };
    let (events, gaps) = shown(&scene.store.read(before).await?);
    ensure_same!(events, [(7, 10), (6, 0)], "the events, newest first");
    ensure_same!(gaps, [(8, 12), (5, 6), (0, 5)], "what is missing, newest first");
    let behind = Read::From { lane: scene.lane(), from: Offset::new(9), limit };
    let (events, gaps) = shown(&scene.store.read(behind).await?);
    ensure_same!((events, gaps), (vec![], vec![(9, 12)]), "behind the last event");
    let next = scene.store.append(scene.event(1)?.into()).await?;
    ensure_same!(nth(&next.receipts, 0)?.offset.get(), 12, "what is appended goes there");
    Ok(())
}

async fn nothing_goes_back(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    scene.publish(0..5).await?;
    let restore = restore(&*scene.store)?;
    for (start, next) in [(0, 4), (6, 5)] {
        let bounds = LaneBounds { start: Offset::new(start), next: Offset::new(next) };
        let placed = restore.place(vec![(scene.lane(), bounds)]).await;
        ensure!(placed.is_err(), "a lane goes from {start} to {next}");
    }
    ensure_same!(scene.store.bounds(scene.lane()).await?.next.get(), 5, "the end");
    Ok(())
}

async fn what_was_restored_survives(factory: &dyn StoreFactory) -> Check {
    for ending in [Ending::Closed, Ending::Crashed] {
        let mut scene = Scene::new(factory).await?;
        take_up(&scene, &at(&scene, &[1, 2, 5])?).await?;
        let bounds = LaneBounds { start: Offset::new(1), next: Offset::new(8) };
        restore(&*scene.store)?.place(vec![(scene.lane(), bounds)]).await?;
        let Some(store) = factory.reopen(scene.store, ending).await? else { return Ok(()) };
        scene.store = store;
        ensure_same!(scene.store.bounds(scene.lane()).await?, bounds, "where the lane is");
        let (events, gaps) = shown(&page(&scene).await?);
        ensure_same!(events, [(1, 0), (2, 10), (5, 20)], "the events");
        ensure_same!(gaps, [(0, 1), (3, 5), (6, 8)], "what is missing");
    }
    Ok(())
}

async fn spaces_with_entries_are_told(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let restore = restore(&*scene.store)?;
    ensure!(restore.spaces().await?.is_empty(), "an empty store has spaces");
    let put = |space, value: Option<&str>| {
        let value = value.map(Payload::of).transpose()?;
        Check::Ok(Put { space, key: Key::new("a")?, value, expect: None })
    };
    scene.store.put(vec![put("tokens", Some("1"))?, put("schemas", Some("1"))?]).await?;
    scene.store.put(vec![put("tokens", None)?]).await?;
    ensure_same!(restore.spaces().await?, ["schemas"], "spaces with something in them");
    Ok(())
}
