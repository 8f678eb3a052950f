use promethean::store::{Append, Cleaning};
use promethean_event::Key;

use super::check::Check;
use super::factory::StoreFactory;
use super::scene::{Scene, numbers, read_lane};

checks!(
    a_key_stays_in_its_partition,
    append_times_never_go_back,
    calls_in_order_are_stored_in_order
);

async fn a_key_stays_in_its_partition(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::with(factory, 5, Cleaning::default()).await?;
    let mut expected: Vec<Vec<u64>> = vec![Vec::new(); 5];
    let table = scene.store.topics();
    let entry = table.get(&scene.topic).ok_or("no such topic")?;
    for number in 0..60 {
        let key = format!("key {}", number % 11);
        let event = scene.keyed(&key, number)?;
        let key = Key::new(key)?;
        let partition = entry.definition.partitions.partition_of(Some(&key), &event.id);
        if let Some(lane) = expected.get_mut(partition.get() as usize) {
            lane.push(number);
        }
        scene.store.append(event.into()).await?;
    }
    for (lane, expected) in entry.lanes().zip(expected) {
        let found = numbers(&read_lane(&*scene.store, lane).await?)?;
        ensure_same!(found, expected, "the events of {lane:?}");
    }
    Ok(())
}

async fn append_times_never_go_back(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    for number in 0..10 {
        scene.publish(number..number + 1).await?;
        factory.pass(number);
    }
    let times: Vec<_> = scene.all().await?.iter().map(|stored| stored.appended_at).collect();
    ensure!(times.is_sorted(), "append times go back: {times:?}");
    Ok(())
}

/// Futures that nobody has polled yet were started when they were made.
async fn calls_in_order_are_stored_in_order(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let mut answers = Vec::new();
    for number in 0..50 {
        answers.push(scene.store.append(Append::from(scene.event(number)?)));
    }
    let last = answers.pop();
    // Most of them are dropped: that does not take the requests back.
    drop(answers);
    if let Some(last) = last {
        last.await?;
    }
    ensure_same!(numbers(&scene.all().await?)?, (0..50).collect::<Vec<_>>(), "order of calls");
    Ok(())
}
