use promethean::event::Topic;
use promethean::projection::{Projection, ProjectionState, View, ViewError};
use promethean::store::{Compaction, TopicDefinition};

use super::scenario::{Scenario, TOPIC, all, processes};
use super::transactional::counting;

async fn fill(scenario: &Scenario, events: u32) {
    for n in 0..events {
        let payload = match n % 11 {
            0 => "null".to_owned(),
            _ => format!(r#"{{"host":"h{}","n":{n}}}"#, n % 3),
        };
        scenario.publish(&format!("k{}", n * 7 % 40), &payload).await;
    }
}

/// P30: byte for byte, from keys and from events, while events go on arriving.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_that_was_built_anew_is_the_same() {
    let scenario = Scenario::with_partitions(3).await;
    let changelog = scenario.processes().await;
    fill(&scenario, 300).await;
    let publishing = async {
        fill(&scenario, 300).await;
    };
    let (rebuilt, ()) = tokio::join!(changelog.rebuild(), publishing);
    rebuilt.unwrap();
    changelog.caught_up().await.unwrap();
    let verified = changelog.verify().await.unwrap();
    assert_eq!(verified.different, 0, "{:?}", verified.differences);
    let before = all(&changelog, "processes").await;
    assert!(before.len() > 30);
    changelog.rebuild().await.unwrap();
    assert_eq!(all(&changelog, "processes").await, before);
    assert_eq!(changelog.progress().state, ProjectionState::Running);
}

/// They had one file between them, and the first to end took it away from the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verifications_do_not_disturb_each_other() {
    let scenario = Scenario::with_partitions(2).await;
    let changelog = scenario.processes().await;
    fill(&scenario, 100).await;
    changelog.caught_up().await.unwrap();
    for _ in 0..5 {
        let (one, two, three) =
            tokio::join!(changelog.verify(), changelog.verify(), changelog.verify());
        for found in [one, two, three] {
            assert_eq!(found.unwrap().different, 0);
        }
    }
}

#[tokio::test]
async fn a_transactional_projection_is_built_anew_without_a_word() {
    let scenario = Scenario::with_partitions(2).await;
    let projection = scenario.views.transactional(counting()).await.unwrap();
    fill(&scenario, 200).await;
    projection.caught_up().await.unwrap();
    let before = (all(&projection, "processes").await, values(&projection).await);
    // Emitted events are gone, so that their ids are not known any more: nothing may come again.
    let milestone = Topic::new("host.milestone").unwrap();
    scenario.bus.remove_topic(&milestone).await.unwrap();
    projection.rebuild().await.unwrap();
    let after = (all(&projection, "processes").await, values(&projection).await);
    assert_eq!(before, after);
    assert!(scenario.bus.topics().get(&milestone).is_none());
    fill(&scenario, 100).await;
    projection.caught_up().await.unwrap();
    assert!(scenario.bus.topics().get(&milestone).is_some(), "and then it speaks again");
    let different = projection.verify().await.unwrap().differences;
    assert!(different.iter().all(|difference| difference.view == "host_stats"), "{different:?}");
}

/// Without positions: partitions have no order, and whose event was the last is chance.
async fn values(projection: &Projection) -> Vec<String> {
    let documents = projection.scan("host_stats", None, 100).await.unwrap();
    documents.iter().map(|document| document.value.as_str().to_owned()).collect()
}

/// A changed definition builds anew by itself; the old documents stay until then.
#[tokio::test]
async fn a_changed_definition_builds_anew() {
    let scenario = Scenario::new().await;
    let projection = scenario.processes().await;
    fill(&scenario, 50).await;
    projection.caught_up().await.unwrap();
    let scenario = scenario.reopened().await;
    let coded = promethean::projection::Coded::new()
        .document(|event| promethean::event::Payload::of(&event.payload.as_bytes().len()));
    let changed = processes().coded(coded).version(2);
    let projection = scenario.views.changelog(changed).await.unwrap();
    let mut progress = projection.watch();
    progress.wait_for(|progress| progress.state == ProjectionState::Running).await.unwrap();
    projection.caught_up().await.unwrap();
    for document in projection.scan("processes", None, 100).await.unwrap() {
        assert!(document.decode::<u64>().is_ok(), "{document:?}");
    }
    assert_eq!(projection.verify().await.unwrap().different, 0);
    // Other indexes are not another definition: nothing is built anew.
    let scenario = scenario.reopened().await;
    let before = scenario
        .tool()
        .query_row("SELECT build FROM promethean_builds", [], |row| row.get::<_, i64>(0));
    let plain = promethean::projection::Changelog::new(View::new("processes"), TOPIC);
    let coded = promethean::projection::Coded::new()
        .document(|event| promethean::event::Payload::of(&event.payload.as_bytes().len()));
    let projection = scenario.views.changelog(plain.coded(coded).version(2)).await.unwrap();
    projection.caught_up().await.unwrap();
    let after = scenario
        .tool()
        .query_row("SELECT build FROM promethean_builds", [], |row| row.get::<_, i64>(0));
    assert_eq!(before.unwrap(), after.unwrap());
    let indexes =
        "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'processes\\_\\_index%' ESCAPE '\\'";
    let left: i64 = scenario.tool().query_row(indexes, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn verifying_finds_what_is_wrong() {
    let scenario = Scenario::new().await;
    let projection = scenario.processes().await;
    for key in ["a", "b", "c"] {
        scenario.publish(key, r#"{"host":"h"}"#).await;
    }
    projection.caught_up().await.unwrap();
    assert_eq!(projection.verify().await.unwrap().documents, 3);
    let tool = scenario.tool();
    tool.execute("UPDATE processes SET doc = '{}' WHERE _key = 'a'", []).unwrap();
    tool.execute("DELETE FROM processes WHERE _key = 'b'", []).unwrap();
    let insert = "INSERT INTO processes (_key, _ts, _at, _lane, _offset, doc) \
                  VALUES ('x', 1, 1, 0, 0, '{}')";
    tool.execute(insert, []).unwrap();
    let found = projection.verify().await.unwrap();
    let keys: Vec<_> = found.differences.iter().map(|d| d.key.as_str()).collect();
    assert_eq!((found.different, keys), (3, vec!["a", "b", "x"]));
    assert!(found.differences[1].found.is_none() && found.differences[2].expected.is_none());
    let left = std::fs::read_dir(scenario.folder.path()).unwrap();
    let left = left
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("verify"));
    assert_eq!(left.count(), 0);
    projection.rebuild().await.unwrap();
    assert_eq!(projection.verify().await.unwrap().different, 0);
}

/// Cleaning leaves alone what a projection has not read, and a view of a compacted topic is whole.
#[tokio::test]
async fn a_compacted_topic_gives_the_same_view() {
    let scenario = Scenario::new().await;
    let mut definition = TopicDefinition::new(Topic::new(TOPIC).unwrap());
    definition.cleaning.compaction = Some(Compaction::default());
    scenario.bus.define(definition).await.unwrap();
    fill(&scenario, 200).await;
    scenario.bus.store().clean(Vec::new()).await.unwrap();
    let projection = scenario.processes().await;
    projection.caught_up().await.unwrap();
    assert_eq!(projection.progress().missed, 0);
    let before = all(&projection, "processes").await;
    projection.rebuild().await.unwrap();
    assert_eq!(all(&projection, "processes").await, before);
    // While it is stopped, a deletion comes and goes: said, and mended by building anew.
    projection.stop().await;
    scenario.publish("k1", "null").await;
    scenario.publish("k2", "{}").await;
    scenario.bus.store().clean(Vec::new()).await.unwrap();
    let projection = scenario.processes().await;
    projection.caught_up().await.unwrap();
    assert!(projection.progress().missed > 0);
    projection.rebuild().await.unwrap();
    assert_eq!(projection.progress().missed, 0);
    assert!(projection.get("processes", "k1").await.unwrap().is_none());
}

/// Building anew was broken off, and then the topic was removed: what is half made is of no use.
#[tokio::test]
async fn a_half_made_build_of_a_topic_that_is_gone_is_begun_anew() {
    let scenario = Scenario::new().await;
    let projection = scenario.processes().await;
    scenario.publish("a", "{}").await;
    projection.caught_up().await.unwrap();
    projection.stop().await;
    scenario
        .tool()
        .execute_batch(
            "INSERT INTO promethean_builds (projection, state, definition, phase) \
             SELECT projection, 'building', definition, 'events' FROM promethean_builds; \
             INSERT INTO promethean_cursors (build, lane, topic, partition, next, begun) \
             SELECT last_insert_rowid(), lane, topic, partition, next, begun \
             FROM promethean_cursors; \
             CREATE TABLE processes__build_2 AS SELECT * FROM processes",
        )
        .unwrap();
    scenario.bus.remove_topic(&Topic::new(TOPIC).unwrap()).await.unwrap();
    scenario.publish("b", "{}").await;
    let projection = scenario.processes().await;
    // It goes on by itself with what was broken off; either way the views are those of the topic.
    let rebuilt = async {
        loop {
            match projection.rebuild().await {
                Err(ViewError::Rebuilding(_)) => tokio::task::yield_now().await,
                done => return done,
            }
        }
    };
    rebuilt.await.unwrap();
    projection.caught_up().await.unwrap();
    let keys: Vec<String> = projection
        .scan("processes", None, 10)
        .await
        .unwrap()
        .into_iter()
        .map(|document| document.key)
        .collect();
    assert_eq!(keys, ["b"]);
}
