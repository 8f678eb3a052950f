//! Everything of a store goes into another kind of store, and back.

use std::sync::Arc;
use std::time::Duration;

use promethean::memory::MemoryStore;
use promethean::migration::{self, MigrateError, Migration, MigrationReport, Proof, Stage};
use promethean::store::{
    GroupSave, Lane, LaneBounds, LaneDelta, Put, Restore, Store, Stored, TopicDefinition, TopicId,
};
use promethean_delivery::{AttemptRecord, Change, ParkedKey, Span};
use promethean_event::{
    EventId, GroupName, Key, NewEvent, Offset, Partition, PartitionCount, Payload, Timestamp, Topic,
};
use serde_json::{Value, json};

use super::check::Check;
use super::factory::{EmbeddedFactory, StoreFactory};
use crate::log_simulation::SimClock;

checks!(
    everything_moves_there_and_back,
    a_target_that_is_in_use_is_refused,
    one_move_at_a_time,
    a_source_that_changes_is_noticed,
);

/// Not before the clock of any factory.
const BEGIN_MS: u64 = 1_700_000_000_000;

async fn define(store: &dyn Store, name: &str, partitions: u32) -> Check<TopicId> {
    let mut definition = TopicDefinition::new(Topic::new(name)?);
    definition.partitions = PartitionCount::new(partitions)?;
    definition.cleaning.age_ms_max = Some(1 << 40);
    Ok(store.define(definition).await?)
}

fn event(topic: &str, number: u64) -> Check<NewEvent> {
    let payload = Payload::of(&json!({ "number": number, "price": 1.5 }))?;
    let ts = Timestamp::from_millis(number);
    let mut event = NewEvent::new(EventId::generate(), ts, Topic::new(topic)?, payload);
    if !number.is_multiple_of(3) {
        event.key = Some(Key::new(format!("key-{}", number % 50))?);
    }
    event.headers.insert("x-number", &number.to_string())?;
    event.caused_by = vec![EventId::generate()];
    Ok(event)
}

/// A store with all that there can be: gaps, a start that is not zero, an end that nothing stands
/// before, a group in the middle of things, entries that name topics by number.
async fn filled() -> Check<Arc<dyn Store>> {
    let clock = SimClock::at(BEGIN_MS);
    let store = Arc::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    // So that numbers of topics are not those of the target.
    let gone = define(&*store, "gone", 1).await?;
    let orders = define(&*store, "orders.placed", 3).await?;
    define(&*store, "empty", 2).await?;
    store.remove(gone).await?;
    for number in 0..300 {
        store.append(event("orders.placed", number)?.into()).await?;
        clock.advance(number % 4);
    }
    let lane = Lane { topic: define(&*store, "sparse", 1).await?, partition: Partition::ZERO };
    let at = |number: u64| {
        let offset = Offset::new(7 + number * 3 + number % 2);
        let event = event("sparse", number)?.placed(Partition::ZERO, offset);
        let appended_at = Timestamp::from_millis(BEGIN_MS + 100 + number * 5);
        Check::Ok((lane, Stored { event, appended_at, bytes: 120 }))
    };
    store.restore((0..100).map(at).collect::<Check<_>>()?).await?;
    let bounds = LaneBounds { start: Offset::new(5), next: Offset::new(5_000) };
    store.place(vec![(lane, bounds)]).await?;
    group(&*store, orders).await?;
    let cursor = json!({ "topic": "orders.placed", "number": orders.get(), "next": 5, "end": 9 });
    let reach = json!({ "topic": orders.get(), "target": orders.get(), "next": 12 });
    let kept = [
        ("jobs", "x", json!({ "id": "x", "cursors": [cursor] })),
        ("snapshots", "orders.placed/0", reach),
        ("schemas", "orders.placed", json!({ "versions": [1, 2] })),
        ("requests", "r", json!({})),
    ];
    for (space, key, value) in kept {
        let (key, value) = (Key::new(key)?, Some(Payload::of(&value)?));
        store.put(vec![Put { space, key, value, expect: None }]).await?;
    }
    Ok(store)
}

async fn group(store: &dyn Store, orders: TopicId) -> Check {
    let lane = Lane { topic: orders, partition: Partition::new(1) };
    let attempt = AttemptRecord {
        offset: 31,
        count: 3,
        times: vec![1, 2, 3],
        not_before: 99,
        error: b"no stock".to_vec(),
        fingerprint: 5,
    };
    let first = vec![
        Change::Floor(20),
        Change::Horizon(60),
        Change::Acked(Span { from: 25, to: 30 }),
        Change::Attempted(attempt),
        Change::Parked(ParkedKey { key: 8, offset: 31 }),
        Change::Generation(4),
    ];
    for (version, changes) in [(1, first), (2, vec![Change::Floor(21)])] {
        let save = GroupSave {
            group: GroupName::new("shop")?,
            settings: (version == 1).then(|| Payload::of(&"settings")).transpose()?,
            lanes: vec![(lane, LaneDelta { version, changes })],
            dead_letters: Vec::new(),
            claims: Vec::new(),
        };
        store.save(save).await?;
    }
    Ok(())
}

fn between(from: &Arc<dyn Store>, to: &Arc<dyn Store>) -> Migration {
    Migration::new((Arc::clone(from), "here"), (Arc::clone(to), "there"))
}

/// Moves, and is cut off again and again before it is through.
async fn moved(from: &Arc<dyn Store>, to: &Arc<dyn Store>) -> Check<MigrationReport> {
    let migration = between(from, to);
    let plan = migration.plan().await?;
    ensure_same!((plan.begun, plan.topics.len()), (None, 3), "the plan");
    migration.begin().await?;
    for store in [from, to] {
        ensure!(migration::standing(&**store).await?.is_some(), "others may use it meanwhile");
    }
    let mut patience = Duration::from_millis(2);
    let report = loop {
        match tokio::time::timeout(patience, migration.run(&mut Proof::default(), |_| {})).await {
            Ok(report) => break report?,
            Err(_) => patience *= 2,
        }
    };
    ensure_same!(migration.plan().await?.begun, Some(Stage::Moving), "how far it is");
    ensure_same!(
        migration.run(&mut Proof::default(), |_| {}).await?,
        report,
        "once more, which adds nothing"
    );
    migration.end().await?;
    ensure!(migration::standing(&**from).await?.is_some(), "the source can still be used");
    ensure!(migration::standing(&**to).await?.is_none(), "the target cannot be used");
    Ok(report)
}

async fn everything_moves_there_and_back(factory: &dyn StoreFactory) -> Check {
    let (from, store) = (filled().await?, factory.open().await?);
    let there = moved(&from, &store).await?;
    let counts = (there.topics, there.events, there.groups, there.entries);
    ensure_same!(counts, (3, 400, 1, 3), "topics, events, groups, entries");
    let other = EmbeddedFactory::new(5);
    let directory = other.open().await?;
    ensure_same!(moved(&store, &directory).await?, there, "the same at the second place");
    let back: Arc<dyn Store> = Arc::new(MemoryStore::new());
    ensure_same!(moved(&directory, &back).await?, there, "the same on the way back");
    let group = back.group(GroupName::new("shop")?).await?.ok_or("the group is gone")?;
    let (_, state) = group.lanes.first().ok_or("the group has no lanes")?;
    ensure_same!((state.floor, state.horizon, state.generation), (21, 60, 4), "the cursor");
    let tries: Vec<u16> = state.attempts.iter().map(|attempt| attempt.count).collect();
    ensure_same!((tries, state.parked.len()), (vec![3], 1), "attempts and parked keys");
    let topics = back.topics();
    let orders = topics.get(&Topic::new("orders.placed")?).ok_or("the topic is gone")?.id;
    let jobs = back.entries("jobs").await?;
    let job: Value = jobs.first().ok_or("the job is gone")?.value.decode()?;
    ensure_same!(job.pointer("/cursors/0/number"), Some(&json!(orders.get())), "its topic");
    let snapshots = back.entries("snapshots").await?;
    let reach: Value = snapshots.first().ok_or("the snapshot's reach is gone")?.value.decode()?;
    let named = (reach.get("topic"), reach.get("target"));
    let number = json!(orders.get());
    ensure_same!(named, (Some(&number), Some(&number)), "the topics of a snapshot");
    let next = back.append(event("sparse", 1)?.into()).await?;
    let offset = next.receipts.first().map(|receipt| receipt.offset.get());
    ensure_same!(offset, Some(5_000), "what is appended goes behind all that was there");
    Ok(())
}

async fn a_target_that_is_in_use_is_refused(factory: &dyn StoreFactory) -> Check {
    let (from, to) = (filled().await?, factory.open().await?);
    define(&*to, "theirs", 1).await?;
    let migration = between(&from, &to);
    ensure!(matches!(migration.plan().await, Err(MigrateError::NotEmpty(_))), "it is planned");
    ensure!(matches!(migration.begin().await, Err(MigrateError::NotEmpty(_))), "it is begun");
    ensure!(migration::standing(&*from).await?.is_none(), "the source is closed");
    Ok(())
}

async fn one_move_at_a_time(factory: &dyn StoreFactory) -> Check {
    let (from, to) = (filled().await?, factory.open().await?);
    between(&from, &to).begin().await?;
    let other: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let other = Migration::new((Arc::clone(&from), "here"), (other, "elsewhere"));
    ensure!(matches!(other.plan().await, Err(MigrateError::Another { .. })), "two at once");
    ensure!(migration::abandon(&*from).await?, "there was nothing to give up");
    ensure_same!(other.plan().await?.begun, None, "another one, after the first was given up");
    Ok(())
}

/// Somebody writes to the source meanwhile: it is noticed, and the next run takes it over.
async fn a_source_that_changes_is_noticed(factory: &dyn StoreFactory) -> Check {
    let (from, to) = (filled().await?, factory.open().await?);
    let migration = between(&from, &to);
    migration.begin().await?;
    migration.run(&mut Proof::default(), |_| {}).await?;
    from.append(event("orders.placed", 1)?.into()).await?;
    let differs = match migration.verify(&mut Proof::default()).await {
        Err(MigrateError::Differs(differs)) => differs,
        other => return Err(format!("not noticed: {other:?}").into()),
    };
    ensure_same!(differs.len(), 1, "one partition differs: {differs:?}");
    migration.run(&mut Proof::default(), |_| {}).await?;
    Ok(())
}
