use super::script::Fate;
use super::*;

/// Pitfall 43: a batch is one claim and one publish.
#[tokio::test(start_paused = true)]
async fn a_batch_is_one_publish() {
    let mut app = Application::new();
    app.add(&(0..250).map(|n| event(n, &format!("{}", n % 7))).collect::<Vec<_>>());
    let store = ScriptedStore::healthy();
    let running = app.start(&store, quick());
    until("all are sent", || app.stats().sent == 250).await;
    assert_eq!(store.numbers(), (0..250).collect::<Vec<_>>());
    assert_eq!(store.calls().iter().map(Vec::len).collect::<Vec<_>>(), [100, 100, 50]);
    assert_eq!(running.stop().await.sent, 250);
}

/// A commit wakes the drainer at once, and one that it is not told of soon after the add.
#[tokio::test(start_paused = true)]
async fn wakes_without_waiting_for_the_poll() {
    let mut app = Application::new();
    let store = ScriptedStore::healthy();
    let hour = Duration::from_secs(3600);
    let running = app.start(&store, DrainOptions { poll: hour, ..quick() });
    until("it has looked", || app.number("SELECT 1") == 1).await;
    let before = instant();
    app.add(&[event(1, "a")]);
    until("the first is sent", || app.stats().sent == 1).await;

    let tx = app.connection.transaction().unwrap();
    app.outbox.add(&tx, &event(2, "a")).unwrap();
    // The drainer is woken here, and finds nothing.
    tokio::time::sleep(Duration::from_millis(100)).await;
    tx.commit().unwrap();
    until("the second is sent", || app.stats().sent == 2).await;
    assert!(instant() - before < Duration::from_secs(5), "it waited for the poll");
    running.stop().await;
}

/// Another process writes: no handle tells of it.
#[tokio::test(start_paused = true)]
async fn notices_what_others_write() {
    let app = Application::new();
    let store = ScriptedStore::healthy();
    let running = app.start(&store, quick());
    tokio::time::sleep(Duration::from_secs(100)).await;
    let before = instant();
    let mut other = Connection::open(&app.path).unwrap();
    let outbox = Outbox::install(&other).unwrap();
    let tx = other.transaction().unwrap();
    outbox.add(&tx, &event(1, "a")).unwrap();
    tx.commit().unwrap();
    until("it is sent", || app.stats().sent == 1).await;
    assert!(instant() - before <= Duration::from_millis(1100), "one poll");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rows_left_by_a_stopped_program_are_sent_by_the_next() {
    let mut app = Application::new();
    app.add(&[event(1, "a"), event(2, "a"), event(3, "")]);
    let store = ScriptedStore::healthy();
    let running = app.start(&store, DrainOptions { batch: 1, ..quick() });
    running.stop().await;
    let left = app.stats().pending;
    assert!(left > 0, "stopped at once");
    let running = app.start(&store, quick());
    until("all are sent", || app.stats().sent == 3).await;
    running.stop().await;
    assert_eq!(store.numbers(), [1, 2, 3]);
}

/// Pitfall 37: between publishing and marking.
#[tokio::test(start_paused = true)]
async fn a_crash_after_the_publish_adds_nothing() {
    let mut app = Application::new();
    app.add(&[event(1, "a"), event(2, "a")]);
    let store = ScriptedStore::after([Fate::StoredSilently]);
    let first = app.start(&store, quick());
    until("they are stored", || store.numbers().len() == 2).await;
    first.crash().await;
    assert_eq!(app.stats().pending, 2, "published, and not marked");
    let second = app.start(&store, quick());
    until("they are marked", || app.stats().sent == 2).await;
    assert_eq!(store.numbers(), [1, 2]);
    assert_eq!(second.stop().await.duplicates, 2);
    assert_eq!(store.calls().len(), 2);
}

/// Stopping finishes what is under way, and gives back the rest at once.
#[tokio::test(start_paused = true)]
async fn stops_gracefully() {
    let mut app = Application::new();
    // The second one of the key has its turn after the first one only.
    app.add(&[event(1, "a"), event(2, "a")]);
    app.connection.execute("UPDATE promethean_outbox SET attempts = 1", []).unwrap();
    let store = ScriptedStore::after([Fate::Late(Duration::from_secs(1))]);
    let running = app.start(&store, quick());
    until("the publish is under way", || store.calls().len() == 1).await;
    assert!(store.numbers().is_empty());
    assert_eq!(running.stop().await.sent, 1);
    assert_eq!(store.numbers(), [1]);
    assert_eq!(app.stats().pending, 1);
    let held = "SELECT COUNT(*) FROM promethean_outbox WHERE not_before > 0 OR claim IS NOT NULL";
    assert_eq!(app.number(held), 0, "claims are given back");
}

/// Pitfall 43: sent rows go, in time and not before, and not all in one transaction.
#[tokio::test(start_paused = true)]
async fn sent_rows_are_purged() {
    let mut app = Application::new();
    app.add(&(0..2_500).map(|n| event(n, "")).collect::<Vec<_>>());
    let store = ScriptedStore::healthy();
    let hour = Duration::from_secs(3600);
    let running =
        app.start(&store, DrainOptions { keep_sent: Some(hour), batch: 2_500, ..quick() });
    until("all are sent", || app.stats().sent == 2_500).await;
    tokio::time::sleep(hour - Duration::from_secs(30)).await;
    assert_eq!(app.stats().sent, 2_500, "not before its time");
    tokio::time::sleep(Duration::from_secs(120)).await;
    until("they are gone", || app.stats().sent == 0).await;
    assert_eq!(running.stop().await.purged, 2_500);
    // A number is never used again: order would suffer.
    app.add(&[event(9_999, "")]);
    assert_eq!(app.number("SELECT MAX(seq) FROM promethean_outbox"), 2_501);
}

#[tokio::test(start_paused = true)]
async fn a_purge_is_bounded() {
    let mut app = Application::new();
    app.add(&(0..5).map(|n| event(n, "")).collect::<Vec<_>>());
    app.connection.execute("UPDATE promethean_outbox SET sent_at = seq", []).unwrap();
    let purge = |until| {
        let until = Timestamp::from_millis(until);
        super::super::claims::purge(&app.connection, until, 2).unwrap()
    };
    assert_eq!([purge(4), purge(4), purge(4), purge(5), purge(5)], [2, 2, 0, 1, 0]);
}

/// Pitfall 161.
#[tokio::test(start_paused = true)]
async fn workers_have_names_of_their_own() {
    let app = Application::new();
    let store = ScriptedStore::healthy();
    let names: std::collections::HashSet<_> =
        (0..100).map(|_| app.drainer(&store, quick()).worker().to_owned()).collect();
    assert_eq!(names.len(), 100);
    let drainer = app.drainer(&store, quick());
    assert_ne!(drainer.new_claim().token, drainer.new_claim().token);
}
