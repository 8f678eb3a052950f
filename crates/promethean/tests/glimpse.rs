//! A store that is looked at while somebody else writes to it.

use std::path::Path;

use promethean::embedded::{EmbeddedOptions, EmbeddedStore};
use promethean::store::{Append, Lane, PageLimit, Read, Store, TopicDefinition};
use promethean_event::{EventId, NewEvent, Offset, Payload, Timestamp, Topic};

fn batch(from: u64) -> Append {
    let event = |number: u64| {
        let (ts, topic) = (Timestamp::from_millis(number), Topic::new("orders").unwrap());
        NewEvent::new(EventId::generate(), ts, topic, Payload::of(&number).unwrap())
    };
    Append { events: (from..from + 100).map(event).collect(), ..Append::default() }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join("log")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Every glimpse is whole: the events up to some point, in order, and all that were acknowledged before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_glimpse_is_whole_while_others_write() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = EmbeddedOptions::default();
    // So that segments follow each other meanwhile.
    (options.log.segment_bytes_min, options.log.segment_bytes_max) = (64 * 1024, 64 * 1024);
    let (store, _) = EmbeddedStore::open(folder.path(), options.clone()).unwrap();
    let topic = store.define(TopicDefinition::new(Topic::new("orders").unwrap())).await.unwrap();
    let lane = Lane { topic, partition: promethean_event::Partition::ZERO };
    let (acknowledged, mut told) = tokio::sync::watch::channel(0_u64);
    let writing = tokio::spawn(async move {
        let mut number = 0;
        while !acknowledged.is_closed() {
            store.append(batch(number)).await.unwrap();
            number += 100;
            acknowledged.send_replace(number);
        }
        store.close().await;
        number
    });
    for _ in 0..30 {
        told.changed().await.unwrap();
        let before = *told.borrow_and_update();
        let path = folder.path().to_owned();
        let glimpse = tokio::task::spawn_blocking(move || EmbeddedStore::glimpse(&path));
        let glimpse = glimpse.await.unwrap().unwrap();
        let end = glimpse.bounds(lane).await.unwrap().next;
        assert!(end.get() >= before, "{before} were acknowledged, {end} are there");
        let (mut from, mut next) = (Offset::ZERO, 0);
        while from < end {
            let read = Read::From { lane, from, limit: PageLimit::default() };
            let page = glimpse.read(read).await.unwrap();
            assert!(page.gaps.is_empty(), "{:?}", page.gaps);
            for stored in page.events {
                assert_eq!(stored.event.payload.decode::<u64>().unwrap(), next);
                next += 1;
            }
            from = page.next;
        }
        assert_eq!(next, end.get());
        // What is written to it is nobody else's business.
        glimpse.append(batch(0)).await.unwrap();
        glimpse.close().await;
    }
    drop(told);
    let written = writing.await.unwrap();
    let before = names(folder.path());
    EmbeddedStore::glimpse(folder.path()).unwrap().close().await;
    assert_eq!(names(folder.path()), before, "a glimpse has left something behind");
    let (store, report) = EmbeddedStore::open(folder.path(), options).unwrap();
    assert_eq!((report.log.torn_tail, report.log.damage.len()), (None, 0));
    assert_eq!(store.bounds(lane).await.unwrap().next.get(), written);
    store.close().await;
}
