use std::time::Duration;

use promethean::event::{Key, Pattern};
use promethean::{
    Bus, DeadLetterQuery, Decoded, Filter, GroupError, Hop, PayloadPolicy, Reads, Replay,
    SCHEMA_VERSION, Start, TopicPolicy, WhyUnreadable,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{beat, both, down, event, first, heartbeat, operations, register, schema, second, up};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Old {
    host: String,
    mem_mb: f64,
}
promethean::topic! { Old => "heartbeat.received", version = 1 }

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct New {
    host: String,
    mem_mib: f64,
}
promethean::topic! { New => "heartbeat.received", version = 2 }

fn old(mem: u32) -> Value {
    json!({"host": "a", "mem_mb": mem})
}

fn new(mem: u32) -> Value {
    json!({"host": "a", "mem_mib": mem})
}

/// Events of both versions, stored before anybody reads.
async fn mixed() -> Bus {
    let bus = Bus::memory();
    both(&bus).await;
    for (version, payload) in [("1", old(4)), ("2", new(4)), ("1", old(6))] {
        let mut event = beat(Some(version), &payload);
        event.key = Some(Key::new("a").unwrap());
        bus.publish(event).await.unwrap();
    }
    bus
}

/// Readers of either version get all events, whoever wrote them.
#[tokio::test]
async fn typed_readers_get_their_version() {
    let bus = mixed().await;
    let mut stream = bus.subscribe::<New>("new").from(Start::Earliest).stream().await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let delivered = stream.next().await.unwrap().unwrap();
        assert_eq!(delivered.event().headers.get(SCHEMA_VERSION), Some("2"));
        seen.push(delivered.payload().unwrap().mem_mib);
        // Asked twice, answered twice.
        assert_eq!(delivered.payload().unwrap().mem_mib, *seen.last().unwrap());
        delivered.ack().await.unwrap();
    }
    assert_eq!(seen, [2.0, 4.0, 3.0]);
    // 98: a newer event comes down to an older reader by a caster, not by another label.
    let (sender, mut received) = mpsc::channel(10);
    let _consumer = bus
        .subscribe::<Old>("old")
        .from(Start::Earliest)
        .handle(move |delivered| {
            let sender = sender.clone();
            async move {
                sender.send(delivered.payload()?.mem_mb).await?;
                Ok(())
            }
        })
        .await
        .unwrap();
    for expected in [4.0, 8.0, 6.0] {
        assert_eq!(received.recv().await, Some(expected));
    }
}

/// 99, 100: every way of reading decodes in the same way, and none changes what is stored.
#[tokio::test]
async fn every_reader_sees_the_same_and_the_log_stays() {
    let bus = mixed().await;
    let topic = heartbeat();
    let reader = bus.reader(Reads::Latest).await.unwrap();
    let expected = [2.0, 4.0, 3.0];
    let memory = |decoded: Decoded| {
        let event = decoded.event().unwrap().unwrap();
        assert_eq!(event.headers.get(SCHEMA_VERSION), Some("2"));
        event.payload.decode::<New>().unwrap().mem_mib
    };
    let mut replayed = Vec::new();
    let mut ids = Vec::new();
    let pattern = Pattern::new("heartbeat.*").unwrap();
    let mut replay = reader.replay(Replay::of(pattern)).await.unwrap();
    while let Some(step) = replay.next().await.unwrap() {
        if let Decoded::Event(stored) = &step {
            ids.push(stored.event.id);
        }
        replayed.push(memory(step));
    }
    assert_eq!(replayed, expected);
    for (id, expected) in ids.iter().zip(expected) {
        assert_eq!(memory(reader.find(&topic, *id).await.unwrap().unwrap()), expected);
    }
    let key = Key::new("a").unwrap();
    let latest = reader.latest_by_key(&topic, vec![key.clone()]).await.unwrap();
    let latest = latest[0].clone().unwrap().unwrap();
    assert_eq!(latest.payload.decode::<New>().unwrap().mem_mib, 3.0);
    let history = reader.history(&topic, key, 9).await.unwrap();
    assert_eq!(history.into_iter().map(memory).collect::<Vec<_>>(), [3.0, 4.0, 2.0]);
    let (partition, from) = (promethean::event::Partition::new(0), promethean::event::Offset::ZERO);
    let (read, next) = reader
        .read(&topic, partition, from, promethean::store::PageLimit::default())
        .await
        .unwrap();
    assert_eq!(read.into_iter().map(memory).collect::<Vec<_>>(), expected);
    assert_eq!(next.get(), 3);
    let kept = bus.find(&topic, ids[0]).await.unwrap().unwrap().event;
    assert_eq!(kept.payload.as_str(), r#"{"host":"a","mem_mb":4}"#);
    assert_eq!(kept.headers.get(SCHEMA_VERSION), Some("1"));
}

/// 96, 110: what cannot be brought to the version of the group is a dead letter at once, with a
/// clear reason, and what comes after it goes on. 100: its original is decoded like all else.
#[tokio::test(start_paused = true)]
async fn an_event_without_a_way_is_a_dead_letter_at_once() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    register(&bus, schema(&second()).up(up())).await;
    let group = bus.subscribe_to(["heartbeat.*"], "old").from(Start::Earliest);
    let mut stream = group.reads(Reads::Version(1)).stream().await.unwrap();
    bus.publish(beat(Some("2"), &new(4))).await.unwrap();
    bus.publish(beat(Some("1"), &old(4))).await.unwrap();
    // In the bus's own time: a retry would take longer.
    let next = tokio::time::timeout(Duration::from_millis(50), stream.next());
    let delivered = next.await.expect("not retried").unwrap().unwrap();
    assert_eq!(delivered.event().offset.get(), 1);
    delivered.ack().await.unwrap();
    let letters = bus.dead_letters(&DeadLetterQuery::waiting()).await.unwrap();
    assert_eq!(letters.len(), 1);
    let letter = &letters[0].letter;
    assert_eq!((letter.attempts, letter.reason.as_str()), (1, "permanent"));
    assert!(letter.err.contains("there is no caster from 2 to 1"), "{}", letter.err);
    let original = letter.original.as_ref().unwrap();
    assert_eq!(original.headers.get(SCHEMA_VERSION), Some("2"), "as it was written");
    let reader = bus.reader(Reads::Version(1)).await.unwrap();
    let decoded = reader.dead_letters(&DeadLetterQuery::waiting()).await.unwrap();
    assert!(decoded[0].1.is_some());
    // With the caster it can be replayed, and the original is told in the reader's form.
    bus.schemas().recast(&heartbeat(), 2, None, Some(down())).await.unwrap();
    let decoded = reader.dead_letters(&DeadLetterQuery::waiting()).await.unwrap();
    let original = decoded[0].0.letter.original.as_ref().unwrap();
    assert_eq!(original.payload.decode::<Value>().unwrap(), json!({"host": "a", "mem_mb": 8.0}));
    let replay = promethean::ReplayDeadLetters::new(DeadLetterQuery::waiting());
    bus.replay_dead_letters(&replay).await.unwrap();
    let again = stream.next().await.unwrap().unwrap();
    assert_eq!(again.event().payload.decode::<Value>().unwrap()["mem_mb"], json!(8.0));
}

/// 110: a payload that is not of the handler's type is not tried five times.
#[tokio::test(start_paused = true)]
async fn what_is_not_of_the_type_is_a_dead_letter_at_once() {
    let bus = Bus::memory();
    let consumer = bus
        .subscribe::<New>("new")
        .from(Start::Earliest)
        .handle(|delivered| async move {
            delivered.payload()?;
            Ok(())
        })
        .await
        .unwrap();
    bus.publish(beat(None, &json!({"host": "a"}))).await.unwrap();
    let letters = loop {
        let letters = bus.dead_letters(&DeadLetterQuery::waiting()).await.unwrap();
        if !letters.is_empty() {
            break letters;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(letters[0].letter.attempts, 1);
    assert!(letters[0].letter.err.contains("mem_mib"), "{}", letters[0].letter.err);
    consumer.stop().await.unwrap();
}

/// 97: an event from before its topic had versions is of the oldest one, not of the latest.
#[tokio::test]
async fn events_from_before_the_registry_are_of_the_oldest_version() {
    let bus = Bus::memory();
    let early = bus.publish(beat(None, &old(4))).await.unwrap();
    both(&bus).await;
    let reader = bus.reader(Reads::Latest).await.unwrap();
    let found = reader.find(&heartbeat(), early.id).await.unwrap().unwrap();
    let event = found.event().unwrap().unwrap();
    assert_eq!(event.payload.decode::<New>().unwrap().mem_mib, 2.0);
}

/// A dead letter from before its topic had versions is published again as what it was.
#[tokio::test(start_paused = true)]
async fn a_dead_letter_without_a_version_is_replayed_as_what_it_was() {
    let bus = Bus::memory();
    let group = bus.subscribe_to(["heartbeat.*"], "g").from(Start::Earliest);
    let mut stream = group.stream().await.unwrap();
    bus.publish(beat(None, &old(4))).await.unwrap();
    stream.next().await.unwrap().unwrap().park("not now").await.unwrap();
    both(&bus).await;
    let replay = promethean::ReplayDeadLetters::new(DeadLetterQuery::waiting());
    let report =
        bus.replay_dead_letters(&replay.to(promethean::ReplayTo::AllGroups)).await.unwrap();
    assert_eq!(report.replayed.len(), 1);
    let again = stream.next().await.unwrap().unwrap();
    assert_eq!(again.event().headers.get(SCHEMA_VERSION), Some("1"));
}

/// 98: a version that nobody here knows is an error, not the latest under another name.
#[tokio::test(start_paused = true)]
async fn an_unknown_version_is_unreadable() {
    let bus = Bus::memory();
    let strange = bus.publish(beat(Some("7"), &new(4))).await.unwrap();
    register(&bus, schema(&first()).sample(promethean::Sample::None)).await;
    let reader = bus.reader(Reads::Latest).await.unwrap();
    let found = reader.find(&heartbeat(), strange.id).await.unwrap().unwrap();
    let error = found.event().unwrap_err();
    assert_eq!(error.reason, WhyUnreadable::UnknownVersion(7));
    let group = bus.subscribe_to(["heartbeat.*"], "g").reads(Reads::Latest);
    let mut stream = group.from(Start::Earliest).stream().await.unwrap();
    bus.publish(beat(Some("1"), &old(1))).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().event().offset.get(), 1);
    // It is tried once more, after the registry was looked at again.
    let nothing = tokio::time::timeout(Duration::from_secs(1), stream.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    let letters = bus.dead_letters(&DeadLetterQuery::waiting()).await.unwrap();
    assert_eq!((letters.len(), letters[0].letter.attempts), (1, 2));
}

/// What is stored invalid is not handed to those who ask for a version, unless the topic only warns.
#[tokio::test]
async fn what_is_read_is_checked() {
    let bus = Bus::memory();
    let bad = bus.publish(beat(Some("1"), &json!({"host": "a"}))).await.unwrap();
    register(&bus, schema(&first()).force("bad events are known")).await;
    let reader = bus.reader(Reads::Version(1)).await.unwrap();
    let found = reader.find(&heartbeat(), bad.id).await.unwrap().unwrap();
    assert!(matches!(&found, Decoded::Unreadable(_, error)
        if matches!(error.reason, WhyUnreadable::Invalid { version: 1, .. })));
    assert_eq!(bus.schemas().counts(&heartbeat()).unreadable, 1);
    let policy = TopicPolicy { payload: PayloadPolicy::Warn, ..TopicPolicy::default() };
    bus.schemas().set_policy(&heartbeat(), policy).await.unwrap();
    let found = reader.find(&heartbeat(), bad.id).await.unwrap().unwrap();
    assert!(matches!(found, Decoded::Event(_)));
}

#[tokio::test]
async fn a_group_cannot_read_what_is_not_registered() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    bus.publish(beat(None, &old(1))).await.unwrap();
    let error = bus.subscribe::<New>("new").stream().await.unwrap_err();
    assert!(matches!(error, GroupError::UnknownVersion { version: 2, .. }), "{error}");
    let group = bus.subscribe_to(["heartbeat.*"], "g").reads(Reads::Version(3));
    assert!(group.stream().await.is_err());
}

/// What a group reads is kept with it, and its filter sees it.
#[tokio::test]
async fn a_filter_sees_the_form_that_the_group_reads() {
    let bus = mixed().await;
    let wants = |event: &promethean::event::Event| {
        event.payload.decode::<New>().is_ok_and(|new| new.mem_mib > 2.5)
    };
    let group = bus.subscribe_to(["heartbeat.*"], "g").reads(Reads::Version(2));
    let group = group.filter(Filter::new("much", wants)).from(Start::Earliest);
    let mut stream = group.stream().await.unwrap();
    for offset in [1, 2] {
        let delivered = stream.next().await.unwrap().unwrap();
        assert_eq!(delivered.event().offset.get(), offset);
        delivered.ack().await.unwrap();
    }
    let other = bus.subscribe_to(["heartbeat.*"], "g").reads(Reads::Latest).stream().await;
    assert!(matches!(other, Err(GroupError::OtherSettings { .. })));
}

/// Functions of the program are hops like any others: named in the registry, given by whoever
/// reads. One that is missing or panics is an error, not a dead process.
#[tokio::test]
async fn functions_cast_too() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    let wish = schema(&second()).up(Hop::function("to mib"));
    assert!(bus.schemas().register(&heartbeat(), wish.clone()).await.is_err(), "not provided");
    bus.schemas()
        .provide("to mib", |value| Ok(json!({"host": value["host"], "mem_mib": value["mem_mb"]})));
    register(&bus, wish).await;
    let published = bus.publish(beat(Some("1"), &old(3))).await.unwrap();
    let reader = bus.reader(Reads::Latest).await.unwrap();
    let found = reader.find(&heartbeat(), published.id).await.unwrap().unwrap();
    assert_eq!(found.event().unwrap().unwrap().payload.as_str(), r#"{"host":"a","mem_mib":3}"#);
    bus.schemas().provide("to mib", |_| panic!("a defect"));
    let found = reader.find(&heartbeat(), published.id).await.unwrap().unwrap();
    let error = found.event().unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
}

/// Where no hop changes anything the payload stays the bytes that were published.
#[tokio::test]
async fn what_needs_no_change_is_not_printed_anew() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    let mut wider = first();
    wider["properties"]["zone"] = json!({"type": "string"});
    register(&bus, schema(&wider)).await;
    let mut odd = beat(Some("1"), &old(1));
    let bytes = r#"{"mem_mb":1.50,"host":"é\u00e9"}"#;
    odd.payload = promethean::event::Payload::parse(bytes).unwrap();
    let published = bus.publish(odd).await.unwrap();
    let reader = bus.reader(Reads::Latest).await.unwrap();
    let found = reader.find(&heartbeat(), published.id).await.unwrap().unwrap();
    let event = found.event().unwrap().unwrap();
    assert_eq!(event.payload.as_str(), bytes);
    assert_eq!(event.headers.get(SCHEMA_VERSION), Some("2"));
}

/// Long chains, and topics without schemas beside them.
#[tokio::test]
async fn chains_of_many_hops() {
    let bus = Bus::memory();
    let version = |number: u32| {
        let name = format!("n{number}");
        json!({"type": "object", "required": [name.as_str()], "properties": {(name.as_str()): {"type": "integer"}}})
    };
    register(&bus, schema(&version(1))).await;
    for number in 2..=12 {
        let (before, after) = (number - 1, number);
        let rename = |from: u32, to: u32| {
            operations(
                &json!([{"op": "rename", "pointer": format!("/n{from}"), "to": format!("n{to}")}]),
            )
        };
        let wish = schema(&version(number)).up(rename(before, after)).down(rename(after, before));
        assert_eq!(register(&bus, wish).await.version, number);
    }
    let low = bus.publish(beat(Some("1"), &json!({"n1": 7}))).await.unwrap();
    let high = bus.publish(beat(Some("12"), &json!({"n12": 8}))).await.unwrap();
    for (reads, expected) in [
        (Reads::Latest, [r#"{"n12":7}"#, r#"{"n12":8}"#]),
        (Reads::Version(1), [r#"{"n1":7}"#, r#"{"n1":8}"#]),
        (Reads::Each([(heartbeat(), 6)].into()), [r#"{"n6":7}"#, r#"{"n6":8}"#]),
        (Reads::Written, [r#"{"n1":7}"#, r#"{"n12":8}"#]),
    ] {
        let reader = bus.reader(reads).await.unwrap();
        for (id, expected) in [low.id, high.id].into_iter().zip(expected) {
            let found = reader.find(&heartbeat(), id).await.unwrap().unwrap();
            assert_eq!(found.event().unwrap().unwrap().payload.as_str(), expected);
        }
    }
    let free = bus.publish(event("free", Some("99"), &json!(1))).await.unwrap();
    let reader = bus.reader(Reads::Version(3)).await.unwrap();
    assert!(reader.find(&super::topic("free"), free.id).await.unwrap().unwrap().event().is_ok());
}
