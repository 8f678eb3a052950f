//! Views as they were.

use promethean::Moment;
use promethean::event::{Offset, Timestamp};
use promethean::projection::{
    Changelog, Document, Expressions, Past, PastError, PastScan, StepEffect, View, blame,
};

use super::scenario::{Scenario, TOPIC, all};
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
