use std::collections::BTreeMap;
use std::time::Duration;

use promethean::event::{Offset, Topic};
use promethean::snapshot::{Compactor, Followed, Following, snapshot_topic, source_offset};
use promethean::store::{PageLimit, Read, Stored};

use super::scenario::{Scenario, TOPIC, event};

fn topic() -> Topic {
    Topic::new(TOPIC).unwrap()
}

async fn snapshot(scenario: &Scenario) -> Vec<Stored> {
    let topics = scenario.bus.topics();
    let entry = topics.get(&snapshot_topic(&topic()).unwrap()).unwrap();
    let mut events = Vec::new();
    for lane in entry.lanes() {
        let limit = PageLimit { events: 100_000, bytes: 1 << 30 };
        let read = Read::From { lane, from: Offset::ZERO, limit };
        events.extend(scenario.bus.store().read(read).await.unwrap().events);
    }
    events
}

/// Pitfalls 30, 31, 32 and 33: all keys, by position, deletions as deletions, and only what has
/// changed.
#[tokio::test]
async fn a_snapshot_has_what_has_changed_and_where_it_comes_from() {
    let scenario = Scenario::with_partitions(3).await;
    let compactor = Compactor::new(scenario.bus.clone(), topic());
    for n in 0..100 {
        scenario.publish(&format!("k{}", n % 10), &n.to_string()).await;
    }
    scenario.publish("gone", "1").await;
    scenario.publish("gone", "null").await;
    scenario.bus.publish(event(None, "1")).await.unwrap();
    let first = compactor.run().await.unwrap();
    assert_eq!(first.published, 10, "what was never in it need not be deleted");
    assert_eq!(compactor.run().await.unwrap().published, 0);
    // An older event time does not make it older.
    let newer = event(Some("k3"), "\"newer\"");
    let earlier = promethean::event::Timestamp::from_millis(1);
    scenario.bus.publish(newer).at(earlier).await.unwrap();
    scenario.publish("k4", "null").await;
    scenario.bus.publish(event(None, "1")).await.unwrap();
    let second = compactor.run().await.unwrap();
    assert_eq!((second.read, second.published, second.unkeyed), (3, 2, 1));
    for stored in snapshot(&scenario).await {
        let key = stored.event.key.clone().unwrap();
        let offset = source_offset(&stored.event).unwrap();
        let history = scenario.bus.history(&topic(), key, 100).await.unwrap();
        let source = history.iter().find(|source| source.event.offset == offset).unwrap();
        assert_eq!(source.event.payload, stored.event.payload);
        assert_eq!(source.event.partition, stored.event.partition);
    }
    assert_eq!(snapshot(&scenario).await.len(), 12);
}

/// A crash between the events and the note of how far they reach: read in other portions, an older
/// state must not come after a newer one.
#[tokio::test]
async fn an_older_state_never_comes_last() {
    let scenario = Scenario::new().await;
    let compactor = Compactor::new(scenario.bus.clone(), topic());
    scenario.publish("a", "1").await;
    compactor.run().await.unwrap();
    let forgotten = scenario.bus.store().entries("snapshots").await.unwrap();
    for n in 0..3_000 {
        scenario.publish(if n % 1000 == 0 { "a" } else { "b" }, &n.to_string()).await;
    }
    compactor.run().await.unwrap();
    // As if the notes of the last run had not been kept.
    let puts = forgotten.into_iter().map(|entry| promethean::store::Put {
        space: "snapshots",
        key: entry.key,
        value: Some(entry.value),
        expect: None,
    });
    scenario.bus.store().put(puts.collect()).await.unwrap();
    assert_eq!(compactor.run().await.unwrap().published, 0);
    let newest = scenario
        .bus
        .latest_by_key(&snapshot_topic(&topic()).unwrap(), vec!["a".parse().unwrap()])
        .await
        .unwrap();
    assert_eq!(newest[0].as_ref().unwrap().payload.as_str(), "2000");
}

/// What one who follows knows.
#[derive(Default)]
struct Known {
    states: BTreeMap<String, String>,
    /// The last offset of each key.
    last: BTreeMap<String, Offset>,
    events: usize,
}

impl Known {
    fn take(&mut self, followed: Followed) {
        let (stored, offset) = match followed {
            Followed::State { stored, offset } => (stored, offset),
            Followed::Event(stored) => {
                self.events += 1;
                let offset = stored.event.offset;
                (stored, offset)
            }
            Followed::Live => return,
            Followed::Missing(gap) => panic!("{gap:?}"),
        };
        let key = stored.event.key.clone().unwrap().as_str().to_owned();
        let before = self.last.insert(key.clone(), offset);
        assert!(before.is_none_or(|before| before < offset), "{key}: {before:?}, {offset}");
        match stored.event.payload.is_tombstone() {
            true => self.states.remove(&key),
            false => self.states.insert(key, stored.event.payload.as_str().to_owned()),
        };
    }

    async fn take_all(&mut self, following: &mut Following) {
        while let Some(followed) = following.next_now().await.unwrap() {
            self.take(followed);
        }
    }
}

/// Pitfall 34: a snapshot, then what came after it, while events arrive and the compactor works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn following_misses_nothing_and_repeats_nothing() {
    let scenario = Scenario::with_partitions(3).await;
    let compactor = Compactor::new(scenario.bus.clone(), topic());
    let mut without = scenario.bus.follow(&topic()).await.unwrap();
    let mut expected = BTreeMap::new();
    let mut followers: Vec<(Following, Known)> = Vec::new();
    for n in 0..2_000_u32 {
        let key = format!("k{}", n.wrapping_mul(2_654_435_761) % 60);
        match n % 7 {
            0 => {
                scenario.publish(&key, "null").await;
                expected.remove(&key);
            }
            _ => {
                scenario.publish(&key, &n.to_string()).await;
                expected.insert(key, n.to_string());
            }
        }
        if n % 97 == 0 {
            compactor.run().await.unwrap();
        }
        if n % 83 == 0 {
            let following = scenario.bus.follow(&topic()).await.unwrap();
            followers.push((following, Known::default()));
        }
        // Some steps of each, so that snapshots are read while they change.
        for (following, known) in &mut followers {
            if n % 3 == 0
                && let Some(followed) = following.next_now().await.unwrap()
            {
                known.take(followed);
            }
        }
    }
    for (mut following, mut known) in followers {
        known.take_all(&mut following).await;
        assert_eq!(known.states, expected);
    }
    let mut known = Known::default();
    known.take_all(&mut without).await;
    assert_eq!((known.states, known.events), (expected, 2_000), "without a snapshot: everything");
}

#[tokio::test(start_paused = true)]
async fn a_compactor_works_by_itself_and_following_waits() {
    let scenario = Scenario::new().await;
    scenario.publish("a", "1").await;
    let compacting = Compactor::new(scenario.bus.clone(), topic()).start(Duration::from_secs(30));
    compacting.done().wait_for(|done| done.published == 1).await.unwrap();
    let mut following = scenario.bus.follow(&topic()).await.unwrap();
    assert!(matches!(following.next().await.unwrap(), Some(Followed::State { .. })));
    assert_eq!(following.next().await.unwrap(), Some(Followed::Live));
    let (next, _) = tokio::join!(following.next(), scenario.publish("a", "2"));
    assert!(matches!(next.unwrap(), Some(Followed::Event(_))));
    compacting.done().wait_for(|done| done.published == 2).await.unwrap();
    scenario.bus.close().await;
    assert_eq!(following.next().await.unwrap(), None);
}

/// Another topic of the same name has other offsets and other keys: states of the first one are not
/// taken for its own. And a snapshot that was removed is made anew as a whole.
#[tokio::test]
async fn a_snapshot_is_of_the_topic_that_is_there() {
    let scenario = Scenario::new().await;
    let compactor = Compactor::new(scenario.bus.clone(), topic());
    for n in 0..5 {
        scenario.publish("a", &n.to_string()).await;
    }
    scenario.publish("only before", "1").await;
    compactor.run().await.unwrap();
    scenario.bus.remove_topic(&topic()).await.unwrap();
    scenario.publish("a", "\"anew\"").await;
    scenario.publish("b", "2").await;
    let mut following = scenario.bus.follow(&topic()).await.unwrap();
    let mut known = Known::default();
    known.take_all(&mut following).await;
    assert_eq!(known.states.len(), 2, "before it is made: {:?}", known.states);
    compactor.run().await.unwrap();
    assert_eq!(compactor.run().await.unwrap().published, 0);
    let states = async || {
        let mut known = Known::default();
        known.take_all(&mut scenario.bus.follow(&topic()).await.unwrap()).await;
        (known.states.into_iter().collect::<Vec<_>>(), known.events)
    };
    let expected: Vec<(String, String)> =
        [("a", "\"anew\""), ("b", "2")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    assert_eq!(states().await, (expected.clone(), 0));

    scenario.bus.remove_topic(&snapshot_topic(&topic()).unwrap()).await.unwrap();
    assert_eq!(states().await, (expected.clone(), 2), "without it: everything");
    assert_eq!(compactor.run().await.unwrap().published, 2);
    assert_eq!(states().await, (expected, 0));
}

/// What is in a snapshot is taken for the state of a key, and hides the events before it.
#[tokio::test]
async fn nobody_else_writes_into_a_snapshot() {
    use promethean::PublishError;
    let scenario = Scenario::new().await;
    let name = snapshot_topic(&topic()).unwrap();
    let forged = || {
        let mut forged = event(Some("a"), "\"forged\"");
        forged.topic = name.clone();
        forged.headers.insert("x-source-offset", "1000").unwrap();
        forged
    };
    scenario.publish("a", "1").await;
    // Before there is a snapshot the name is free, but means nothing.
    scenario.bus.publish(forged()).await.unwrap();
    Compactor::new(scenario.bus.clone(), topic()).run().await.unwrap();
    let refused = scenario.bus.publish(forged()).await;
    assert!(matches!(refused, Err(PublishError::System(_))), "{refused:?}");
    scenario.publish("a", "2").await;
    let mut following = scenario.bus.follow(&topic()).await.unwrap();
    let mut seen = Vec::new();
    while let Some(followed) = following.next_now().await.unwrap() {
        match followed {
            Followed::State { stored, .. } | Followed::Event(stored) => {
                seen.push(stored.event.payload.as_str().to_owned());
            }
            Followed::Live | Followed::Missing(_) => {}
        }
    }
    assert_eq!(seen, ["1", "2"]);
}

/// Ids of states can be guessed: one that is taken does not keep the compactor from its work.
#[tokio::test]
async fn a_taken_id_does_not_stop_the_compactor() {
    let (first, other) = (Scenario::new().await, Scenario::new().await);
    let same = event(Some("a"), "1");
    first.bus.publish(same.clone()).await.unwrap();
    Compactor::new(first.bus.clone(), topic()).run().await.unwrap();
    let guessed = snapshot(&first).await[0].event.id;

    let mut taken = event(Some("a"), "\"mine\"");
    taken.topic = snapshot_topic(&topic()).unwrap();
    taken.id = guessed;
    other.bus.publish(same).await.unwrap();
    other.bus.publish(taken).await.unwrap();
    let compacted = Compactor::new(other.bus.clone(), topic()).run().await.unwrap();
    assert_eq!(compacted.published, 1);
    let states = snapshot(&other).await;
    assert_eq!(states.last().unwrap().event.payload.as_str(), "1");
    assert_eq!(source_offset(&states.last().unwrap().event), Some(Offset::ZERO));
}
