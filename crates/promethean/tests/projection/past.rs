//! Views as they were.

use std::collections::BTreeMap;

use promethean::event::{Event, Key, Offset, Timestamp, Topic};
use promethean::projection::{
    Changelog, Coded, Document, Expressions, Past, PastError, PastScan, StepEffect, Transactional,
    View, blame,
};
use promethean::snapshot::Compactor;
use promethean::store::{Compaction, TopicDefinition};
use promethean::{AsOf, AsOfError, Moment};

use super::scenario::{Scenario, TOPIC, all, event, processes};
use super::transactional::counting;

fn shown(past: &Past) -> String {
    match past {
        Past::Document { document, .. } => document.to_json(),
        Past::Deleted { event, .. } => format!("deleted at {}", event.event.offset),
        Past::NeverExisted => "never".to_owned(),
        Past::BeforeHistory { starts_at, .. } => format!("from {starts_at}"),
    }
}

#[tokio::test]
async fn a_view_is_what_its_mapping_made_of_the_key_then() {
    let scenario = Scenario::new().await;
    let mapping = Expressions {
        map: Some("{'up': payload.status == 'alive', 'n': payload.n}".into()),
        tombstone: Some("payload.status == 'gone'".into()),
        ..Expressions::default()
    };
    let changelog = Changelog::new(View::new("up"), TOPIC).mapping(mapping.compile().unwrap());
    let projection = scenario.views.changelog(changelog).await.unwrap();
    for (key, payload) in [
        ("a", r#"{"status":"alive","n":1}"#),
        ("b", r#"{"status":"alive","n":2}"#),
        ("a", r#"{"status":"stale","n":3}"#),
        ("a", r#"{"status":"gone","n":4}"#),
        ("a", r#"{"n":5}"#),
        ("a", r#"{"status":"alive","n":6}"#),
    ] {
        scenario.publish(key, payload).await;
    }
    projection.caught_up().await.unwrap();
    let at = async |offset| {
        let moment = Moment::Offset(Offset::new(offset));
        shown(&projection.at("up", "a", moment).await.unwrap())
    };
    assert!(at(0).await.ends_with(r#""_pos":"process.state/0/0","n":1,"up":true}"#));
    assert_eq!(at(1).await, at(0).await);
    assert!(at(2).await.ends_with(r#""n":3,"up":false}"#));
    assert_eq!(at(3).await, "deleted at 3");
    // What the view makes nothing of changes nothing.
    assert_eq!(at(4).await, "deleted at 3");
    assert!(at(5).await.ends_with(r#""n":6,"up":true}"#));
    // The present is the view's own document.
    let now = Moment::Appended(Timestamp::from_millis(u64::MAX / 2));
    let present = scenario.views.get("up", "a").await.unwrap().unwrap();
    assert_eq!(shown(&projection.at("up", "a", now).await.unwrap()), present.to_json());
    assert_eq!(shown(&projection.at("up", "c", now).await.unwrap()), "never");

    let (steps, is_all) = projection.steps("up", "a", now).await.unwrap();
    let effects: Vec<StepEffect> = steps.iter().map(|step| step.effect).collect();
    let (put, delete) = (StepEffect::Put, StepEffect::Delete);
    assert_eq!(effects, [put, put, delete, StepEffect::Ignored, put]);
    assert!(is_all);
    let states: Vec<_> = steps
        .iter()
        .map(|step| step.document.as_ref().map(|document| document.decode().unwrap()))
        .collect();
    assert_eq!(blame(&states, "/up"), Some(4));

    let whole = projection.scan_at("up", now).await.unwrap();
    assert_eq!(scanned(whole).await, all(&projection, "up").await);
    let then = projection.scan_at("up", Moment::Offset(Offset::new(3))).await.unwrap();
    assert_eq!(scanned(then).await.len(), 1, "a was deleted");
}

/// All that a scan finds, by key.
async fn scanned(mut scan: PastScan) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(documents) = scan.next().await.unwrap() {
        found.extend(documents.iter().map(Document::to_json));
    }
    found.sort();
    found
}

/// A whole view at any place is what each of its keys was there, however few keys are remembered
/// at once, over several partitions, and with events that the view makes nothing of.
#[tokio::test]
async fn a_whole_view_is_what_its_keys_were() {
    let scenario = Scenario::with_partitions(2).await;
    let mapping = Expressions {
        map: Some("payload.n % 7 == 3 ? null : payload".into()),
        ..Expressions::default()
    };
    let changelog = Changelog::new(View::new("some"), TOPIC).mapping(mapping.compile().unwrap());
    let projection = scenario.views.changelog(changelog).await.unwrap();
    let mut random = 1_u64;
    for n in 0..300 {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = format!("k{}", (random >> 33) % 40);
        let payload = match (random >> 50) % 5 {
            0 => format!(r#"{{"n":{n},"_deleted":true}}"#),
            _ => format!(r#"{{"n":{n}}}"#),
        };
        scenario.publish(&key, &payload).await;
    }
    projection.caught_up().await.unwrap();
    for offset in [0, 1, 17, 60, 110] {
        let moment = Moment::Offset(Offset::new(offset));
        let mut expected = Vec::new();
        for key in 0..40 {
            let past = projection.at("some", &format!("k{key}"), moment).await.unwrap();
            if let Past::Document { document, .. } = past {
                expected.push(document.to_json());
            }
        }
        expected.sort();
        for keys in [1, 3, 1_000] {
            let scan = projection.scan_at("some", moment).await.unwrap().keys_at_once(keys);
            assert_eq!(scanned(scan).await, expected, "at {offset}, {keys} keys");
        }
    }
}

/// An old version never counts, neither now nor looking back.
#[tokio::test]
async fn versions_count_in_the_past_too() {
    let scenario = Scenario::new().await;
    let mapping = Expressions { version: Some("payload.v".into()), ..Expressions::default() };
    let changelog = Changelog::new(View::new("latest"), TOPIC).mapping(mapping.compile().unwrap());
    let projection = scenario.views.changelog(changelog).await.unwrap();
    for payload in
        [r#"{"v":1}"#, r#"{"v":3}"#, r#"{"v":2}"#, r#"{"_deleted":true,"v":4}"#, r#"{"v":3}"#]
    {
        scenario.publish("a", payload).await;
    }
    projection.caught_up().await.unwrap();
    let at = async |offset| {
        let moment = Moment::Offset(Offset::new(offset));
        match projection.at("latest", "a", moment).await.unwrap() {
            Past::Document { document, .. } => document.version.unwrap(),
            Past::Deleted { .. } => -1,
            other => panic!("{other:?}"),
        }
    };
    let seen = [at(0).await, at(1).await, at(2).await, at(3).await, at(4).await];
    assert_eq!(seen, [1, 3, 3, -1, -1]);
    assert!(scenario.views.get("latest", "a").await.unwrap().is_none());
}

/// What code made has no history of its own: the log is folded up to there.
#[tokio::test]
async fn a_view_in_rust_is_folded_from_the_log() {
    let scenario = Scenario::with_partitions(3).await;
    let projection = scenario.views.transactional(counting()).await.unwrap();
    for n in 0..50 {
        scenario.publish(&format!("p{n}"), &format!(r#"{{"host":"h{}"}}"#, n % 3)).await;
    }
    projection.caught_up().await.unwrap();
    let view = projection.status().await.unwrap().views[0].clone();
    let refused = projection.at(&view, "h1", Moment::Offset(Offset::ZERO)).await;
    assert!(matches!(refused, Err(PastError::NotByKey(_))));
    let now = Moment::Appended(Timestamp::from_millis(u64::MAX / 2));
    let folded = projection.folded(now).await.unwrap();
    let then = folded.scan(&view, None, 100).await.unwrap();
    let then: Vec<String> = then.iter().map(|document| document.to_json()).collect();
    assert_eq!(then, all(&projection, &view).await);
    let before = projection.folded(Moment::Appended(Timestamp::from_millis(0))).await.unwrap();
    assert!(before.scan(&view, None, 100).await.unwrap().is_empty());
    drop((folded, before));
    let left: Vec<_> = std::fs::read_dir(scenario.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("verify"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Where any event of a key may decide, one that has more than are folded is an error (pitfall 150):
/// by event time, and by version.
#[tokio::test]
async fn a_history_that_is_too_long_is_an_error_and_not_a_guess() {
    let scenario = Scenario::new().await;
    let mapping = Expressions { version: Some("payload.v".into()), ..Expressions::default() };
    let versioned = Changelog::new(View::new("latest"), TOPIC).mapping(mapping.compile().unwrap());
    let (versioned, plain) =
        (scenario.views.changelog(versioned).await.unwrap(), scenario.processes().await);
    // The greatest version, and the latest event time, are those of the first event.
    let first = event(Some("a"), r#"{"v":1000000}"#);
    scenario.bus.publish(first).at(Timestamp::from_millis(900)).await.unwrap();
    for batch in 0..promethean::AS_OF_EVENTS_MAX / 1_000 {
        let events = (0..1_000).map(|n| event(Some("a"), &format!(r#"{{"v":{}}}"#, batch + n)));
        scenario.bus.publish_batch(events.collect()).await.unwrap();
    }
    let now = Moment::Appended(Timestamp::from_millis(u64::MAX / 2));
    let happened = Moment::Happened(Timestamp::from_millis(1_000));
    for (view, projection, moment) in [("latest", &versioned, now), ("processes", &plain, happened)]
    {
        let refused = projection.at(view, "a", moment).await;
        let is_said = matches!(refused, Err(PastError::AsOf(AsOfError::TooManyEvents)));
        assert!(is_said, "{view}: {refused:?}");
    }
    assert!(matches!(plain.at("processes", "a", now).await, Ok(Past::Document { .. })));
}

/// A mapping that panics is an event that does not fit, now and looking back.
#[tokio::test]
async fn a_mapping_that_panics_is_passed_over_in_the_past_too() {
    let scenario = Scenario::new().await;
    let mapping = Coded::new().document(|event: &Event| {
        assert_ne!(event.payload.as_str(), "2", "a bug of the mapping");
        Ok::<_, String>(event.payload.clone())
    });
    let changelog = Changelog::new(View::new("coded"), TOPIC).coded(mapping);
    let projection = scenario.views.changelog(changelog).await.unwrap();
    for payload in ["1", "2"] {
        scenario.publish("a", payload).await;
    }
    projection.caught_up().await.unwrap();
    let now = Moment::Appended(Timestamp::from_millis(u64::MAX / 2));
    let then = projection.at("coded", "a", now).await.unwrap();
    assert!(shown(&then).ends_with("\"value\":1}"), "{then:?}");
    let scan = projection.scan_at("coded", now).await.unwrap();
    assert_eq!(scanned(scan).await, all(&projection, "coded").await);
}

/// Pitfall 156, for what has no history of its own: deleted is not never.
#[tokio::test]
async fn what_code_has_deleted_is_told_from_what_never_was() {
    let scenario = Scenario::new().await;
    let counts = Transactional::new("hosts").topic(TOPIC).view(View::new("hosts"));
    let projection = counts.apply(|tx, event| {
        let host: String = event.payload.decode().map_err(promethean::Failure::park)?;
        match host.strip_prefix('-') {
            Some(gone) => tx.delete("hosts", gone)?,
            None => tx.put("hosts", &host, &1)?,
        }
        Ok(())
    });
    let projection = scenario.views.transactional(projection).await.unwrap();
    for host in ["\"h1\"", "\"h2\"", "\"-h1\""] {
        scenario.publish("k", host).await;
    }
    projection.caught_up().await.unwrap();
    let now = Moment::Appended(Timestamp::from_millis(u64::MAX / 2));
    let at = async |key| shown(&projection.at_folded("hosts", key, now).await.unwrap());
    assert_eq!(at("h1").await, "deleted at 2");
    assert!(at("h2").await.ends_with("\"value\":1}"));
    assert_eq!(at("h3").await, "never");
    // Once the beginning of the log is gone, it may have been.
    expire(&scenario).await;
    scenario.publish("k", "\"h4\"").await;
    assert_eq!(at("h3").await, "from process.state/0/3");
    assert!(at("h4").await.ends_with("\"value\":1}"));
}

/// All events of the topic that are there now are gone.
async fn expire(scenario: &Scenario) {
    let mut definition = TopicDefinition::new(Topic::new(TOPIC).unwrap());
    let partitions = scenario.bus.topics().get(&definition.topic).unwrap().definition.partitions;
    definition.partitions = partitions;
    definition.cleaning.bytes_max = Some(1);
    scenario.bus.define(definition.clone()).await.unwrap();
    scenario.bus.store().clean(Vec::new()).await.unwrap();
    definition.cleaning.bytes_max = None;
    scenario.bus.define(definition).await.unwrap();
}

/// What a topic has lost, its snapshot has kept: of one key, and of a whole view, however few keys
/// are remembered at once. What neither has is said.
#[tokio::test]
async fn the_past_begins_at_the_nearest_snapshot() {
    let scenario = Scenario::with_partitions(2).await;
    let projection = scenario.views.changelog(processes()).await.unwrap();
    let topic = Topic::new(TOPIC).unwrap();
    let compactor = Compactor::new(scenario.bus.clone(), topic.clone());
    let mut expected = BTreeMap::new();
    for n in 0..200 {
        let key = format!("k{}", n % 40);
        if n % 9 == 0 {
            scenario.publish(&key, "null").await;
            expected.remove(&key);
        } else {
            scenario.publish(&key, &format!(r#"{{"n":{n}}}"#)).await;
            expected.insert(key, format!("\"n\":{n}}}"));
        }
    }
    projection.caught_up().await.unwrap();
    let now = Moment::Appended(Timestamp::from_millis(u64::MAX / 2));
    compactor.run().await.unwrap();
    // Of one key there is something newer in the topic; of another only what the snapshot has.
    expire(&scenario).await;
    scenario.publish("k1", r#"{"n":1000}"#).await;
    expected.insert("k1".into(), "\"n\":1000}".into());
    projection.caught_up().await.unwrap();
    for n in 0..40 {
        let key = format!("k{n}");
        let past = projection.at("processes", &key, now).await.unwrap();
        match (&past, expected.get(&key)) {
            (Past::Document { document, event, is_complete }, Some(value)) => {
                assert!(document.to_json().ends_with(value), "{key}: {past:?}");
                assert!(is_complete, "{key}");
                let is_kept = event.event.topic.as_str() == "process.state.snapshot";
                assert_eq!(is_kept, key != "k1");
                assert_eq!(document.position.topic, topic, "it says where it comes from");
            }
            // What was never published to the snapshot, because it was gone before, is unknown.
            (Past::Deleted { .. } | Past::BeforeHistory { .. }, None) => {}
            other => panic!("{key}: {other:?}"),
        }
        let raw = scenario.bus.as_of(&topic, &Key::new(&*key).unwrap(), now).await.unwrap();
        assert_eq!(matches!(raw, AsOf::State { .. }), expected.contains_key(&key), "{key}");
    }
    for keys in [1, 3, 1_000] {
        let scan = projection.scan_at("processes", now).await.unwrap().keys_at_once(keys);
        assert_eq!(scanned(scan).await, all(&projection, "processes").await, "{keys} keys");
    }
    // Before the snapshot was made, nobody knows what was known.
    let early = Moment::Appended(Timestamp::from_millis(1));
    let past = projection.at("processes", "k2", early).await.unwrap();
    assert!(matches!(past, Past::BeforeHistory { .. }), "{past:?}");
    let mut scan = projection.scan_at("processes", early).await.unwrap();
    while let Some(documents) = scan.next().await.unwrap() {
        assert!(documents.is_empty(), "{documents:?}");
    }
    assert!(!scan.is_complete());
}

/// A whole view of which keys may have vanished does not say that it is complete.
#[tokio::test]
async fn a_whole_view_says_whether_it_is_complete() {
    let scenario = Scenario::new().await;
    let projection = scenario.processes().await;
    scenario.publish("a", "{}").await;
    scenario.publish("b", "{}").await;
    projection.caught_up().await.unwrap();
    let now = Moment::Appended(Timestamp::from_millis(u64::MAX / 2));
    let complete = async || {
        let mut scan = projection.scan_at("processes", now).await.unwrap();
        let mut documents = 0;
        while let Some(found) = scan.next().await.unwrap() {
            documents += found.len();
        }
        (documents, scan.is_complete())
    };
    assert_eq!(complete().await, (2, true));
    expire(&scenario).await;
    scenario.publish("b", "{}").await;
    // Of `a` there is nothing left that could be counted.
    assert_eq!(complete().await, (1, false));

    // A key that was deleted since may have been compacted away, unless all of that is too young.
    for (age_ms_min, is_complete) in [(0, false), (3_600_000, true)] {
        let scenario = Scenario::new().await;
        let mut definition = TopicDefinition::new(Topic::new(TOPIC).unwrap());
        definition.cleaning.compaction = Some(Compaction { age_ms_min, tombstone_ms: 0 });
        scenario.bus.define(definition).await.unwrap();
        let projection = scenario.processes().await;
        let first = scenario.publish("a", "{}").await;
        projection.caught_up().await.unwrap();
        let then = Moment::Appended(Timestamp::from_millis(first.appended_at.millis() - 1));
        let mut scan = projection.scan_at("processes", then).await.unwrap();
        while scan.next().await.unwrap().is_some() {}
        assert_eq!(scan.is_complete(), is_complete, "{age_ms_min} ms");
    }
}
