use promethean_event::{SessionId, Tag};

use super::super::{AddError, DatabaseError, Listing, ReviveError};
use super::*;

/// Pitfalls 37, 38: everything of the event arrives, and its id is that of the row.
#[tokio::test(start_paused = true)]
async fn the_whole_envelope_arrives() {
    let mut app = Application::new();
    let mut full = event(1, "k\u{0}é'");
    full.sid = Some(SessionId::generate());
    full.headers.insert("x-b", "2").unwrap();
    full.headers.insert("x-a", "1").unwrap();
    full.payload = Payload::parse(r#"{"z":1.50,"a":[9007199254740993]}"#).unwrap();
    full.caused_by = vec![EventId::generate(), EventId::generate()];
    full.tags = vec![Tag::new("#duck").unwrap()];
    app.add(&[full.clone(), event(2, "")]);
    assert_eq!(app.text("SELECT id FROM promethean_outbox").unwrap(), full.id.to_string());

    let store = ScriptedStore::healthy();
    let running = app.start(&store, quick());
    until("both are sent", || app.stats().sent == 2).await;
    assert_eq!(store.events(), [full, event(2, "")]);
    assert_eq!(running.stop().await.sent, 2);
}

/// Pitfall 40: the event is part of the business transaction.
#[tokio::test(start_paused = true)]
async fn a_rollback_leaves_nothing() {
    let mut app = Application::new();
    let tx = app.connection.transaction().unwrap();
    tx.execute("INSERT INTO business VALUES (1)", []).unwrap();
    app.outbox.add(&tx, &event(1, "a")).unwrap();
    tx.rollback().unwrap();
    app.add(&[event(2, "a")]);

    let store = ScriptedStore::healthy();
    let running = app.start(&store, quick());
    until("the other one is sent", || app.stats().sent == 1).await;
    running.stop().await;
    assert_eq!(store.numbers(), [2]);
    assert_eq!(app.number("SELECT COUNT(*) FROM business"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_sqlite_has_ended_takes_nothing() {
    let mut app = Application::new();
    let tx = app.connection.transaction().unwrap();
    tx.execute_batch("ROLLBACK").unwrap();
    assert!(matches!(app.outbox.add(&tx, &event(1, "a")), Err(AddError::NoTransaction)));
    drop(tx);
    assert_eq!(app.stats().pending, 0);
}

#[tokio::test(start_paused = true)]
async fn the_same_event_again_adds_nothing_and_another_with_its_id_is_refused() {
    let mut app = Application::new();
    app.add(&[event(1, "a")]);
    app.add(&[event(1, "a")]);
    assert_eq!(app.stats().pending, 1);
    let tx = app.connection.transaction().unwrap();
    let mut other = event(1, "a");
    other.payload = Payload::null();
    let refused = app.outbox.add(&tx, &other);
    assert!(matches!(refused, Err(AddError::IdConflict(id)) if id == other.id));
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_published_is_refused_at_once() {
    let mut app = Application::new();
    let tx = app.connection.transaction().unwrap();
    let mut system = event(1, "a");
    system.topic = promethean_event::Topic::system("$groups").unwrap();
    assert!(matches!(app.outbox.add(&tx, &system), Err(AddError::SystemTopic(_))));
    let mut tagged = event(1, "a");
    tagged.tags = vec![Tag::new("t").unwrap(); 33];
    assert!(matches!(app.outbox.add(&tx, &tagged), Err(AddError::Event(_))));
    let mut late = event(1, "a");
    late.ts = Timestamp::from_millis(u64::MAX);
    assert!(matches!(app.outbox.add(&tx, &late), Err(AddError::Time(u64::MAX))));
    tx.commit().unwrap();
    assert_eq!(app.stats(), OutboxStats::default());
}

#[tokio::test(start_paused = true)]
async fn a_missing_table_is_reported_and_not_made_by_the_way() {
    let app = Application::new();
    app.connection.execute_batch("DROP TABLE promethean_outbox").unwrap();
    let store = ScriptedStore::healthy();
    let drainer = app.drainer(&store, quick());
    let stats = drainer.meter().stats().await;
    assert!(matches!(stats, Err(DatabaseError::NotInstalled)), "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn only_the_dead_are_revived() {
    let mut app = Application::new();
    app.add(&[event(1, "a")]);
    let id = event(1, "a").id;
    let not_dead = |result| matches!(result, Err(ReviveError::NotDead(found)) if found == id);
    assert!(not_dead(app.outbox.retry(&app.connection, id)));
    assert!(not_dead(app.outbox.discard(&app.connection, id)));
    assert_eq!(app.stats().pending, 1);
    assert!(app.outbox.dead(&app.connection, Listing::default()).unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn ages_are_told() {
    let mut app = Application::new();
    assert_eq!(app.stats().oldest_pending, None);
    app.add(&[event(1, "a")]);
    tokio::time::advance(Duration::from_secs(5)).await;
    app.add(&[event(2, "a")]);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(app.stats().oldest_pending, Some(Duration::from_secs(7)));
}
