use promethean::store::{Append, AppendError, Cleaning};
use promethean_event::Timestamp;

use super::check::Check;
use super::factory::StoreFactory;
use super::scene::{Scene, numbers};

checks!(
    the_same_id_answers_with_the_first_place,
    the_same_id_twice_in_a_batch_is_stored_once,
    the_event_time_may_differ_and_nothing_else,
    an_id_that_expired_may_come_again,
);

async fn the_same_id_answers_with_the_first_place(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::with(factory, 3, Cleaning::default()).await?;
    let mut events = Vec::new();
    for number in 0..20 {
        let event = scene.event(number)?;
        events.push((event.clone(), scene.publish_all(vec![event]).await?));
    }
    for (event, first) in events {
        let again = scene.publish_all(vec![event.clone()]).await?;
        let (first, again) = (first.receipts.first().copied(), again.receipts.first().copied());
        let (first, again) = first.zip(again).ok_or("no receipt")?;
        ensure_same!((again.lane, again.offset), (first.lane, first.offset), "the first place");
        ensure!(again.duplicate && !first.duplicate, "a duplicate is not called so");
        let found = scene.store.find(scene.id, event.id).await?.ok_or("not found by its id")?;
        ensure_same!(found.event.offset, first.offset, "what is found by the id");
    }
    Ok(())
}

async fn the_same_id_twice_in_a_batch_is_stored_once(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let event = scene.event(1)?;
    let appended = scene.publish_all(vec![event.clone(), event]).await?;
    let duplicates: Vec<_> = appended.receipts.iter().map(|r| r.duplicate).collect();
    ensure_same!(duplicates, [false, true], "which of them is a duplicate");
    ensure_same!(numbers(&scene.all().await?)?, [1], "what is stored");
    Ok(())
}

async fn the_event_time_may_differ_and_nothing_else(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let event = scene.keyed("a", 1)?;
    scene.publish_all(vec![event.clone()]).await?;
    let mut later = event.clone();
    later.ts = Timestamp::from_millis(77);
    scene.publish_all(vec![later]).await?;
    let mut keyless = event.clone();
    keyless.key = None;
    let mut other = scene.keyed("a", 2)?;
    other.id = event.id;
    let mut header = event.clone();
    header.headers.insert("x-try", "2")?;
    for changed in [keyless, other, header] {
        let result = scene.store.append(Append::from(changed)).await;
        let Err(AppendError::IdConflict { id, .. }) = result else {
            return Err(format!("the same id with other content: {result:?}").into());
        };
        ensure_same!(id, event.id, "the id in the error");
    }
    ensure_same!(numbers(&scene.all().await?)?, [1], "what is stored");
    Ok(())
}

async fn an_id_that_expired_may_come_again(factory: &dyn StoreFactory) -> Check {
    let cleaning = Cleaning { age_ms_max: Some(1000), ..Cleaning::default() };
    let scene = Scene::with(factory, 1, cleaning).await?;
    let event = scene.event(1)?;
    scene.publish_all(vec![event.clone()]).await?;
    if !factory.pass(5000) {
        return Ok(());
    }
    scene.store.clean(Vec::new()).await?;
    let appended = scene.publish_all(vec![event]).await?;
    let receipt = appended.receipts.first().map(|r| (r.offset.get(), r.duplicate));
    ensure_same!(receipt, Some((1, false)), "an id whose event has expired");
    Ok(())
}
