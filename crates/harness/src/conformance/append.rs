use promethean::store::{
    Append, AppendError, Durability, Expectation, Lane, SaveError, TopicDefinition, TopicId,
};
use promethean_event::{Offset, Partition, PartitionCount, Topic};

use super::check::Check;
use super::factory::StoreFactory;
use super::scene::{Scene, event, numbers, read_lane};

checks!(
    receipts_tell_where_events_stand,
    a_batch_over_topics_is_all_or_nothing,
    a_run_is_in_order_and_each_of_it_is_answered_for_itself,
    nothing_and_unknown_topics_are_refused,
    expectations_hold_or_refuse,
    definitions_are_kept_and_partitions_fixed,
    a_removed_topic_is_gone_and_its_name_is_free,
    the_stores_own_topics_are_out_of_reach,
    a_closed_store_takes_no_writes_and_can_be_read,
);

async fn receipts_tell_where_events_stand(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    for number in 0..3 {
        let events = vec![scene.event(2 * number)?, scene.event(2 * number + 1)?];
        let appended = scene.publish_all(events).await?;
        ensure_same!(appended.durability, Durability::Synced, "synced is the default");
        let offsets: Vec<_> = appended.receipts.iter().map(|r| r.offset.get()).collect();
        ensure_same!(offsets, [2 * number, 2 * number + 1], "offsets are dense and in order");
        let in_lane = |r: &promethean::store::Receipt| r.lane == scene.lane() && !r.duplicate;
        ensure!(appended.receipts.iter().all(in_lane), "receipts name another lane");
    }
    ensure_same!(numbers(&scene.all().await?)?, [0, 1, 2, 3, 4, 5], "what was published");
    Ok(())
}

async fn a_batch_over_topics_is_all_or_nothing(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let other = Topic::new("orders.paid")?;
    let other_id = scene.store.define(TopicDefinition::new(other.clone())).await?;
    let good = vec![scene.event(1)?, event(&other, None, 2)?];
    let first = good.first().cloned().ok_or("no event")?;
    scene.publish_all(good).await?;
    let mut conflict = scene.event(9)?;
    conflict.id = first.id;
    let refused = vec![scene.event(3)?, event(&other, None, 4)?, conflict];
    let result = scene.store.append(Append { events: refused, ..Append::default() }).await;
    ensure!(matches!(result, Err(AppendError::IdConflict { .. })), "a conflict: {result:?}");
    let lane = Lane { topic: other_id, partition: Partition::ZERO };
    ensure_same!(numbers(&scene.all().await?)?, [1], "part of a refused batch is there");
    ensure_same!(numbers(&read_lane(&*scene.store, lane).await?)?, [2], "part of a refused batch");
    // And what comes after it stands right behind.
    let appended = scene.publish_all(vec![scene.event(5)?]).await?;
    let offset = appended.receipts.first().map(|receipt| receipt.offset.get());
    ensure_same!(offset, Some(1), "a refused batch left a hole");
    Ok(())
}

async fn a_run_is_in_order_and_each_of_it_is_answered_for_itself(
    factory: &dyn StoreFactory,
) -> Check {
    let scene = Scene::new(factory).await?;
    let first = scene.event(0)?;
    scene.publish_all(vec![first.clone()]).await?;
    let mut conflict = scene.event(9)?;
    conflict.id = first.id;
    let one = |events| Append { events, ..Append::default() };
    let unknown = event(&Topic::new("no.such")?, None, 1)?;
    let own = event(&Topic::system("topics")?, None, 1)?;
    let run = [
        one(vec![scene.event(1)?]),
        one(vec![scene.event(2)?, conflict]),
        one(vec![scene.event(3)?, scene.event(4)?]),
        one(vec![unknown]),
        one(vec![own]),
        one(vec![first]),
        one(vec![scene.event(5)?]),
    ];
    // Others at the same time do not come between the events of one batch.
    let (outcomes, later) = tokio::join!(
        scene.store.append_run(run.into_iter().collect()),
        scene.store.append(one(vec![scene.event(6)?])),
    );
    later?;
    let offsets: Vec<Option<Vec<u64>>> = outcomes
        .iter()
        .map(|outcome| outcome.as_ref().ok())
        .map(|appended| Some(appended?.receipts.iter().map(|r| r.offset.get()).collect()))
        .collect();
    let taken = |place: usize| offsets.get(place).cloned().flatten().unwrap_or_default();
    ensure_same!((taken(0), taken(5)), (vec![1], vec![0]), "the first, and one that was there");
    let together = taken(2).iter().zip(taken(2).iter().skip(1)).all(|(a, b)| a + 1 == *b);
    ensure!(taken(2).len() == 2 && together, "a batch of two: {outcomes:?}");
    for place in [1, 3, 4] {
        ensure!(matches!(offsets.get(place), Some(None)), "{place} was not refused: {outcomes:?}");
    }
    let stored = numbers(&scene.all().await?)?;
    let of_run: Vec<_> = stored.iter().copied().filter(|number| *number != 6).collect();
    ensure_same!(of_run, [0, 1, 3, 4, 5], "what was taken, in order: {stored:?}");
    ensure_same!(stored.len(), 6, "the other publisher");
    Ok(())
}

async fn nothing_and_unknown_topics_are_refused(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let nothing = scene.store.append(Append::default()).await;
    ensure!(matches!(nothing, Err(AppendError::Empty)), "an empty batch: {nothing:?}");
    let unknown = event(&Topic::new("no.such")?, None, 1)?;
    let events = vec![scene.event(1)?, unknown];
    let result = scene.store.append(Append { events, ..Append::default() }).await;
    ensure!(matches!(result, Err(AppendError::UnknownTopic(_))), "unknown topic: {result:?}");
    ensure!(scene.all().await?.is_empty(), "part of a refused batch is there");
    Ok(())
}

async fn expectations_hold_or_refuse(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let expecting = |number, next, lane| -> Check<Append> {
        let expect = vec![Expectation { lane, next: Offset::new(next) }];
        Ok(Append { events: vec![scene.event(number)?], expect, ..Append::default() })
    };
    scene.store.append(expecting(0, 0, scene.lane())?).await?;
    let late = scene.store.append(expecting(1, 0, scene.lane())?).await;
    let Err(AppendError::OffsetMismatch { expected, actual, lane }) = late else {
        return Err(format!("an expectation that does not hold: {late:?}").into());
    };
    ensure_same!((expected.get(), actual.get(), lane), (0, 1, scene.lane()), "what it was");
    let nowhere = Lane { topic: TopicId::new(999), partition: Partition::ZERO };
    let result = scene.store.append(expecting(2, 0, nowhere)?).await;
    ensure!(matches!(result, Err(AppendError::UnknownLane(_))), "unknown lane: {result:?}");
    scene.store.append(expecting(3, 1, scene.lane())?).await?;
    ensure_same!(numbers(&scene.all().await?)?, [0, 3], "what was let through");
    Ok(())
}

async fn definitions_are_kept_and_partitions_fixed(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    let again = scene.store.define(TopicDefinition::new(scene.topic.clone())).await?;
    ensure_same!(again, scene.id, "the same definition again");
    let mut more = TopicDefinition::new(scene.topic.clone());
    more.partitions = PartitionCount::new(4)?;
    let result = scene.store.define(more).await;
    ensure!(matches!(result, Err(SaveError::PartitionsFixed { .. })), "partitions: {result:?}");
    let mut changed = TopicDefinition::new(scene.topic.clone());
    changed.cleaning.age_ms_max = Some(5);
    ensure_same!(scene.store.define(changed.clone()).await?, scene.id, "another cleaning");
    let table = scene.store.topics();
    let entry = table.get(&scene.topic).ok_or("the topic is not in the table")?;
    ensure_same!(entry.definition, changed, "the definition");
    ensure_same!(table.users().count(), 1, "users' topics");
    Ok(())
}

async fn a_removed_topic_is_gone_and_its_name_is_free(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    scene.publish(0..3).await?;
    scene.store.remove(scene.id).await?;
    ensure!(scene.store.topics().get(&scene.topic).is_none(), "still in the table");
    ensure!(scene.store.bounds(scene.lane()).await.is_err(), "still has bounds");
    let result = scene.store.append(scene.event(9)?.into()).await;
    ensure!(matches!(result, Err(AppendError::UnknownTopic(_))), "still writable: {result:?}");
    let id = scene.store.define(TopicDefinition::new(scene.topic.clone())).await?;
    ensure!(id != scene.id, "a number was given twice");
    let lane = Lane { topic: id, partition: Partition::ZERO };
    ensure!(read_lane(&*scene.store, lane).await?.is_empty(), "the old events are back");
    scene.store.remove(scene.id).await?;
    ensure!(scene.store.topics().get(&scene.topic).is_some(), "removed twice, the new one went");
    Ok(())
}

async fn the_stores_own_topics_are_out_of_reach(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    for name in ["$deltas", "$groups", "$entries"] {
        let topic = Topic::system(name)?;
        let defined = scene.store.define(TopicDefinition::new(topic.clone())).await;
        ensure!(defined.is_err(), "{name} could be defined");
        let appended = scene.store.append(event(&topic, None, 1)?.into()).await;
        ensure!(appended.is_err(), "{name} could be written");
    }
    Ok(())
}

async fn a_closed_store_takes_no_writes_and_can_be_read(factory: &dyn StoreFactory) -> Check {
    let scene = Scene::new(factory).await?;
    scene.publish(0..3).await?;
    scene.store.close().await;
    let result = scene.store.append(scene.event(9)?.into()).await;
    ensure!(matches!(result, Err(AppendError::Closed)), "closed: {result:?}");
    let result = scene.store.define(TopicDefinition::new(Topic::new("late")?)).await;
    ensure!(result.is_err(), "a topic was defined after closing");
    ensure_same!(numbers(&scene.all().await?)?, [0, 1, 2], "what is read after closing");
    Ok(())
}
