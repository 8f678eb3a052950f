//! What nobody reads is looked at, too (RELIABILITY P10).

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use promethean::embedded::{EmbeddedOptions, EmbeddedStore};
use promethean::store::Store;
use promethean::{Bus, BusOptions};
use promethean_event::{EventId, NewEvent, Payload, Timestamp, Topic};

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_found_by_itself_and_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = EmbeddedOptions::default();
    (options.log.segment_bytes_min, options.log.segment_bytes_max) = (64 * 1024, 64 * 1024);
    let (store, _) = EmbeddedStore::open(folder.path(), options).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    // So soon that it looks without a rest, but for the least.
    let scrubbed = BusOptions::default().scrub_every(Duration::from_millis(1));
    let bus = Bus::with_store(Arc::clone(&store), scrubbed);
    let payload = Payload::of(&"x".repeat(1_000)).unwrap();
    for _ in 0..200 {
        let (ts, topic) = (Timestamp::from_millis(1), Topic::new("orders").unwrap());
        bus.publish(NewEvent::new(EventId::generate(), ts, topic, payload.clone())).await.unwrap();
    }
    assert_eq!(store.damage(), Vec::<String>::new());
    let name = "0000000000000000-00000000.seg";
    let path = folder.path().join("log").join(name);
    std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(b"!", 30_000).unwrap();
    while store.damage().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let parts = store.scrub(0).await.unwrap();
    for place in 0..2 * parts as u64 {
        store.scrub(place).await.unwrap();
    }
    let told = store.damage();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with(&format!("{name} bytes ")), "{told:?}");
    bus.close().await;
}
