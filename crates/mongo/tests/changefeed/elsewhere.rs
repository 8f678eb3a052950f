//! A feed that is declared again, of the same collection by another name of its MongoDB, or of another one.

use mongodb::bson::doc;
use promethean::changefeed::{FeedsError, Gap, Phase, Recovery, Status, Versioned};

use super::{Stage, options};
use crate::conformance::wait_for;
use crate::replica_set::url;

/// It was taken for another MongoDB, and began anew: what changed meanwhile was missing, and nobody was
/// told.
#[test]
fn another_name_of_the_same_mongodb_is_the_same() {
    wait_for(async {
        for tells in [true, false] {
            let stage = Stage::new().await;
            stage.declare(|feed| feed.snapshot = false).await;
            let running = stage.start(options());
            stage.until_streaming().await;
            stage.items.insert_one(doc! { "_id": 1 }).await.unwrap();
            stage.until_events(1).await;
            running.crash().await;
            if !tells {
                // By a program of before, which did not note what it read.
                let mut status = stage.feeds.status("items").await.unwrap().unwrap();
                status.value.read_from = None;
                stage.feeds.save("items", &status.value, status.version).await.unwrap();
            }
            stage.items.insert_one(doc! { "_id": 2 }).await.unwrap();
            let other = url().replacen("127.0.0.1", "localhost", 1);
            assert_ne!(other, url());
            stage
                .declare(|feed| {
                    feed.snapshot = false;
                    feed.url = other;
                })
                .await;
            let running = stage.start(options());
            stage.until_events(2).await;
            let status = stage.status().await.unwrap();
            assert_eq!((status.gap, status.alarm), (None, None));
            stage.end(running).await;
        }
    });
}

/// What was missing between the two was not stated anywhere.
#[test]
fn another_mongodb_begins_anew_and_the_gap_is_told() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.items.insert_one(doc! { "_id": 1 }).await.unwrap();
        stage.declare(|_| {}).await;
        let running = stage.start(options());
        stage.until_events(1).await;
        stage.until_streaming().await;
        running.crash().await;
        // As if its place were one in another set.
        let mut status = stage.feeds.status("items").await.unwrap().unwrap();
        status.value.read_from.as_mut().unwrap().set_id = Some("another".into());
        let reached = status.value.reached;
        stage.feeds.save("items", &status.value, status.version).await.unwrap();
        let running = stage.start(options());
        // Everything once more, by ids of its own.
        stage.until_events(2).await;
        let is_told = async || !stage.told_gaps().await.is_empty();
        stage.until("the gap is told", is_told).await;
        let told = stage.told_gaps().await;
        assert_eq!((told.len(), &told[0]["recovery"]), (1, &"another-mongodb".into()));
        let status = stage.status().await.unwrap();
        assert!(status.alarm.unwrap().contains("another MongoDB"));
        assert_eq!(status.gap.as_ref().and_then(|gap: &Gap| gap.from), reached);
        assert_eq!(status.snapshots, 2);
        stage.end(running).await;
    });
}

/// An instance that was about to begin noted its place in the first collection as one in the second.
#[test]
fn what_was_about_to_begin_does_not_begin_where_it_is_not_wanted_any_more() {
    wait_for(async {
        for is_removed in [false, true] {
            let stage = Stage::new().await;
            stage.declare(|_| {}).await;
            // An instance comes so far, and no further.
            assert!(stage.feeds.status("items").await.unwrap().is_none());
            if is_removed {
                stage.feeds.remove("items").await.unwrap();
            }
            let name = stage.database.name();
            stage.declare(|feed| feed.collection = format!("{name}.others")).await;
            let phase = Phase::Stream { since: stage.time().await, token: None, run: 0 };
            let begun = Status { phase, ..Status::default() };
            let taken = stage.feeds.save("items", &begun, 0).await;
            assert!(matches!(taken, Err(FeedsError::Save(_))), "{taken:?}");
            let others = stage.database.collection("others");
            others.insert_one(doc! { "_id": 1 }).await.unwrap();
            let running = stage.start(options());
            stage.until_events(1).await;
            stage.end(running).await;
        }
    });
}

/// Whoever stopped between the two carried out the order once more.
#[test]
fn an_order_ends_with_what_it_has_come_to() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.declare(|_| {}).await;
        let running = stage.start(options());
        stage.until_streaming().await;
        running.crash().await;
        let before = stage.feeds.wanted("items").await.unwrap().unwrap();
        stage.feeds.resume("items", Some(Recovery::Resnapshot)).await.unwrap();
        let status = stage.feeds.status("items").await.unwrap().unwrap();
        let mut next = status.clone();
        next.value.snapshots += 1;
        // Somebody has ordered something else meanwhile: neither is written.
        assert!(stage.feeds.save_recovered("items", &next, &before).await.is_err());
        assert_eq!(stage.status().await.unwrap(), status.value);
        let wanted = stage.feeds.wanted("items").await.unwrap().unwrap();
        assert_eq!(wanted.value.recover, Some(Recovery::Resnapshot));
        let version = stage.feeds.save_recovered("items", &next, &wanted).await.unwrap();
        let saved = stage.feeds.status("items").await.unwrap().unwrap();
        assert_eq!((saved.version, saved.value), (version, next.value.clone()));
        assert_eq!(stage.feeds.wanted("items").await.unwrap().unwrap().value.recover, None);
        let late = Versioned { value: next.value, version: status.version };
        assert!(stage.feeds.save_recovered("items", &late, &wanted).await.is_err());
        super::drop_database(stage.database.name()).await;
    });
}
