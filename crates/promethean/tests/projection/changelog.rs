use std::time::Duration;

use promethean::event::{GroupName, Topic};
use promethean::projection::{Changelog, Coded, Declared, Source, Unkeyed, View, ViewError};
use promethean::{Bus, DeadLetterQuery};

use super::scenario::{Scenario, TOPIC, all, event, processes};

/// Pitfalls 129, 132 and 135.
#[tokio::test]
async fn documents_are_replaced_and_deleted_and_say_where_they_come_from() {
    let scenario = Scenario::new().await;
    let projection = scenario.processes().await;
    scenario.publish("a", r#"{"host":"h1","pid":1,"old":true}"#).await;
    scenario.publish("a", r#"{"host":"h2"}"#).await;
    scenario.publish("b", r#"{"host":"h1"}"#).await;
    scenario.publish("c", r#"{"host":"h1"}"#).await;
    scenario.publish("b", "null").await;
    scenario.publish("c", r#"{"_deleted":true}"#).await;
    projection.caught_up().await.unwrap();
    let expected = r#"{"_key":"a","_ts":5,"_pos":"process.state/0/1","host":"h2"}"#;
    assert_eq!(all(&projection, "processes").await, [expected]);
    assert_eq!(scenario.views.get("processes", "b").await.unwrap(), None);
    let unknown = scenario.views.get("processes\" --", "b").await;
    assert!(matches!(unknown, Err(ViewError::UnknownView(_))));
    assert_eq!(projection.progress().counts.events, 6);
}

/// Pitfall 134.
#[tokio::test]
async fn events_without_a_key_are_counted_and_parked() {
    for unkeyed in [Unkeyed::Park, Unkeyed::Count] {
        let scenario = Scenario::new().await;
        let changelog = processes().unkeyed(unkeyed);
        let projection = scenario.views.changelog(changelog).await.unwrap();
        scenario.bus.publish(event(None, r#"{"host":"h"}"#)).await.unwrap();
        scenario.publish("a", "{}").await;
        projection.caught_up().await.unwrap();
        let counts = projection.progress().counts;
        assert_eq!((counts.events, counts.unkeyed), (2, 1));
        let query = DeadLetterQuery::waiting().group(GroupName::new("processes").unwrap());
        let letters = scenario.bus.dead_letters(&query).await.unwrap();
        let parked = u64::from(unkeyed == Unkeyed::Park);
        assert_eq!((letters.len() as u64, counts.dead), (parked, parked));
        if let Some(entry) = letters.first() {
            assert_eq!(entry.letter.offset.get(), 0);
            assert!(entry.letter.err.contains("no key"), "{}", entry.letter.err);
        }
    }
}

fn versioned() -> Changelog {
    let version = Some(Source::Payload("/v".into()));
    let mut declared = Declared::default();
    declared.version = version;
    Changelog::new(View::new("processes"), TOPIC).declared(declared)
}

/// Pitfalls 130 and 131: in one batch, over batches, and over a restart.
#[tokio::test]
async fn stale_writes_are_ignored_and_never_bring_a_document_back() {
    for batch in [1, 2, 4096] {
        let scenario = Scenario::new().await;
        let projection = scenario.views.changelog(versioned().batch(batch)).await.unwrap();
        scenario.publish("a", r#"{"v":2,"x":"new"}"#).await;
        scenario.publish("a", r#"{"v":1,"x":"old"}"#).await;
        scenario.publish("a", r#"{"v":2,"x":"same"}"#).await;
        scenario.publish("b", r#"{"v":7}"#).await;
        scenario.publish("b", r#"{"v":8,"_deleted":true}"#).await;
        scenario.publish("b", r#"{"v":7,"x":"zombie"}"#).await;
        // A deletion without a version: what was deleted has one.
        scenario.publish("c", r#"{"v":3}"#).await;
        scenario.publish("c", "null").await;
        scenario.publish("c", r#"{"v":3,"x":"zombie"}"#).await;
        projection.caught_up().await.unwrap();
        let counts = projection.progress().counts;
        let scenario = scenario.reopened().await;
        let projection = scenario.views.changelog(versioned().batch(batch)).await.unwrap();
        scenario.publish("b", r#"{"v":6,"x":"zombie"}"#).await;
        scenario.publish("c", r#"{"v":4,"x":"alive"}"#).await;
        projection.caught_up().await.unwrap();
        assert_eq!(
            all(&projection, "processes").await,
            [
                r#"{"_key":"a","_ts":5,"_pos":"process.state/0/0","_v":2,"v":2,"x":"new"}"#,
                r#"{"_key":"c","_ts":5,"_pos":"process.state/0/10","_v":4,"v":4,"x":"alive"}"#,
            ],
        );
        assert_eq!((counts.stale, projection.progress().counts.stale), (4, 5), "{batch}");
        // No version at all: parked, as without a key.
        scenario.publish("d", "{}").await;
        projection.caught_up().await.unwrap();
        assert_eq!(projection.progress().counts.unkeyed, 1);
    }
}

#[tokio::test]
async fn a_deletion_is_remembered_for_its_time_only() {
    let scenario = Scenario::new().await;
    let changelog = versioned().remember_deletions(Duration::ZERO);
    let projection = scenario.views.changelog(changelog).await.unwrap();
    scenario.publish("a", r#"{"v":5}"#).await;
    scenario.publish("a", r#"{"v":6,"_deleted":true}"#).await;
    projection.caught_up().await.unwrap();
    // Append times are milliseconds: wait for the next one.
    let published = scenario.publish("z", r#"{"v":1}"#).await;
    let mut last = published.appended_at;
    while last == published.appended_at {
        last = scenario.publish("z", r#"{"v":1}"#).await.appended_at;
    }
    scenario.publish("a", r#"{"v":1}"#).await;
    projection.caught_up().await.unwrap();
    assert!(scenario.views.get("processes", "a").await.unwrap().is_some());
}

/// Pitfall 133: keys of one's own come from several partitions, and those may be read in any
/// order.
#[tokio::test]
async fn keys_of_ones_own_have_one_order_over_partitions() {
    let scenario = Scenario::with_partitions(4).await;
    let by_host = |batch| {
        let host = |event: &promethean::event::Event| {
            let payload: serde_json::Value = event.payload.decode().ok()?;
            Some(payload.get("host")?.as_str()?.to_owned())
        };
        let mapping = Coded::new().key(host);
        Changelog::new(View::new("hosts"), TOPIC).coded(mapping).batch(batch)
    };
    for n in 0..200 {
        let payload = format!(r#"{{"host":"h{}","n":{n}}}"#, n % 7);
        scenario.publish(&format!("k{}", n % 31), &payload).await;
    }
    let projection = scenario.views.changelog(by_host(3)).await.unwrap();
    projection.caught_up().await.unwrap();
    let verified = projection.verify().await.unwrap();
    assert_eq!((verified.documents, verified.different), (7, 0), "{verified:?}");
    let before = all(&projection, "hosts").await;
    projection.rebuild().await.unwrap();
    assert_eq!(all(&projection, "hosts").await, before);
}

#[tokio::test]
async fn any_tool_can_read_the_file_meanwhile() {
    let scenario = Scenario::new().await;
    let projection = scenario.processes().await;
    for n in 0..100 {
        let payload = format!(r#"{{"host":"h{}","status":"alive","pid":{n}}}"#, n % 3);
        scenario.publish(&format!("k{n:02}"), &payload).await;
    }
    projection.caught_up().await.unwrap();
    let tool = scenario.tool();
    let sql = "SELECT count(*) FROM processes WHERE host = 'h1' AND status = 'alive'";
    let count: i64 = tool.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(count, 33);
    let plan = format!("EXPLAIN QUERY PLAN {sql}");
    let plan: String = tool.query_row(&plan, [], |row| row.get("detail")).unwrap();
    assert!(plan.contains("processes__index_0"), "{plan}");
    let mode: String = tool.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    let sql = "SELECT json_extract(doc, '$.pid') FROM processes WHERE _key = 'k42'";
    assert_eq!(tool.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap(), 42);
}

#[tokio::test]
async fn a_projection_waits_for_its_topic_and_goes_on_where_it_was() {
    let bus = Bus::memory();
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("state.db");
    let views = promethean::projection::Views::open(&bus, &path).await.unwrap();
    let projection = views.changelog(processes()).await.unwrap();
    assert!(matches!(views.changelog(processes()).await, Err(ViewError::Running(_))));
    assert!(views.get("processes", "a").await.unwrap().is_none());
    let published = bus.publish(event(Some("a"), "{}")).await.unwrap();
    let position = format!("{TOPIC}/0/{}", published.offset).parse().unwrap();
    projection.wait_for(&position, Duration::from_secs(60)).await.unwrap();
    assert!(views.get("processes", "a").await.unwrap().is_some());
    let later = format!("{TOPIC}/0/5").parse().unwrap();
    let behind = projection.wait_for(&later, Duration::ZERO).await;
    assert!(matches!(behind, Err(ViewError::Behind(_))));
    projection.stop().await;
    bus.publish(event(Some("b"), "{}")).await.unwrap();
    let projection = views.changelog(processes()).await.unwrap();
    projection.caught_up().await.unwrap();
    assert_eq!(projection.progress().counts.events, 2);
    assert_eq!(views.list().await.unwrap()[0].lag, 0);
}

/// A topic that was removed and made anew is another one, and the views say so.
#[tokio::test]
async fn another_topic_of_the_same_name_is_noticed_and_rebuilding_helps() {
    let scenario = Scenario::new().await;
    let projection = scenario.processes().await;
    scenario.publish("a", "{}").await;
    projection.caught_up().await.unwrap();
    projection.stop().await;
    scenario.bus.remove_topic(&Topic::new(TOPIC).unwrap()).await.unwrap();
    scenario.publish("b", "{}").await;
    let projection = scenario.processes().await;
    assert!(projection.caught_up().await.is_err());
    let state = format!("{:?}", projection.progress().state);
    assert!(state.contains("another one"), "{state}");
    projection.rebuild().await.unwrap();
    projection.caught_up().await.unwrap();
    let keys: Vec<_> = projection.scan("processes", None, 10).await.unwrap();
    assert_eq!(keys.iter().map(|d| d.key.as_str()).collect::<Vec<_>>(), ["b"]);
}

#[tokio::test]
async fn a_view_has_one_projection_until_that_is_forgotten() {
    let scenario = Scenario::new().await;
    let projection = scenario.processes().await;
    scenario.publish("a", "{}").await;
    projection.caught_up().await.unwrap();
    let other = || super::transactional::counting();
    let taken = scenario.views.transactional(other()).await;
    assert!(matches!(taken, Err(ViewError::Taken { .. })));
    assert!(matches!(scenario.views.forget("processes").await, Err(ViewError::Running(_))));
    projection.stop().await;
    let taken = scenario.views.transactional(other()).await.unwrap_err();
    assert!(taken.to_string().contains("was made by projection processes"), "{taken}");
    scenario.views.forget("processes").await.unwrap();
    let projection = scenario.views.transactional(other()).await.unwrap();
    projection.caught_up().await.unwrap();
    assert_eq!(projection.progress().counts.dead, 1, "the event has no host");
}
