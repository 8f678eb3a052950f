use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_core::future::BoxFuture;
use promethean_event::{Key, NewEvent};

use super::super::{
    AfterDead, Claim, Claimed, DatabaseError, FailedEvent, Listing, OutboxTable, Settled,
    Settlement, SqliteTable,
};
use super::script::Fate;
use super::*;
use crate::store::AppendError;

fn dead(app: &Application) -> Vec<FailedEvent> {
    app.outbox.dead(&app.connection, Listing::default()).unwrap()
}

fn conflict(event: &NewEvent) -> Fate {
    Fate::Refused(AppendError::IdConflict { topic: event.topic.clone(), id: event.id })
}

fn unavailable() -> Fate {
    Fate::Refused(AppendError::Unavailable("away".into()))
}

/// A store that refuses one event for good.
fn poisoned(number: u32) -> impl FnMut(&[NewEvent]) -> Fate + Send + 'static {
    move |events| {
        let bad = events.iter().find(|event| super::number(event) == number);
        bad.map_or(Fate::Stored, conflict)
    }
}

/// Pitfall 39: a failure is not final.
#[tokio::test(start_paused = true)]
async fn every_passing_failure_is_tried_again() {
    let away = |error| Fate::Refused(error);
    for fate in [
        unavailable(),
        away(AppendError::Busy(9)),
        away(AppendError::NoSpace),
        away(AppendError::StorageFailed("disk".into())),
        away(AppendError::Indeterminate("cut".into())),
        away(AppendError::Closed),
        away(AppendError::UnknownTopic("order.placed".parse().unwrap())),
        Fate::StoredUnsure,
        Fate::Lost,
        Fate::StoredSilently,
        Fate::Late(Duration::from_secs(20)),
        Fate::Panic,
    ] {
        let mut app = Application::new();
        app.add(&[event(1, "a"), event(2, "a"), event(3, "b"), event(4, "")]);
        let store = ScriptedStore::after([fate.clone(), fate.clone()]);
        let running = app.start(&store, quick());
        until("all are sent", || app.stats().sent == 4).await;
        let counters = running.stop().await;
        let stored = store.events();
        let of_key = |key: &str| {
            let key = Some(Key::new(key).unwrap());
            stored.iter().filter(|event| event.key == key).map(super::number).collect::<Vec<_>>()
        };
        assert_eq!((of_key("a"), of_key("b"), stored.len()), (vec![1, 2], vec![3], 4), "{fate:?}");
        assert!(counters.failed > 0, "{fate:?}: {counters:?}");
        assert_eq!(counters.dead, 0, "{fate:?}");
    }
}

/// A table whose first claim is not answered.
#[derive(Debug)]
struct Unheard {
    table: SqliteTable,
    was_asked: AtomicBool,
    /// It is made only when it is looked for: in vain.
    is_late: bool,
    late: Mutex<Option<Claim>>,
}

impl Unheard {
    fn of(app: &Application, is_late: bool) -> Self {
        let table = SqliteTable::new(&app.outbox, app.path.as_path());
        Self { table, was_asked: AtomicBool::new(false), is_late, late: Mutex::new(None) }
    }
}

impl OutboxTable for Unheard {
    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Claimed, DatabaseError>> {
        Box::pin(async {
            if self.was_asked.swap(true, Ordering::SeqCst) {
                return self.table.claim(claim).await;
            }
            match self.is_late {
                true => *self.late.lock().unwrap() = Some(claim),
                false => drop(self.table.claim(claim).await?),
            }
            Err(DatabaseError::Remote("no answer".into()))
        })
    }

    fn renew(&self, token: String, lease: Duration) -> BoxFuture<'_, Result<usize, DatabaseError>> {
        self.table.renew(token, lease)
    }

    fn settle(
        &self,
        token: String,
        settlements: Vec<Settlement>,
    ) -> BoxFuture<'_, Result<Settled, DatabaseError>> {
        self.table.settle(token, settlements)
    }

    fn give_back(&self, worker: String) -> BoxFuture<'_, Result<usize, DatabaseError>> {
        Box::pin(async {
            let given = self.table.give_back(worker).await?;
            let late = self.late.lock().unwrap().take();
            if let Some(mut claim) = late {
                // What there was by then.
                claim.rows = 1;
                assert_eq!(self.table.claim(claim).await?.rows.len(), 1);
            }
            Ok(given)
        })
    }

    fn give_back_others(
        &self,
        worker: String,
        token: String,
    ) -> BoxFuture<'_, Result<usize, DatabaseError>> {
        self.table.give_back_others(worker, token)
    }

    fn purge(
        &self,
        keep: Duration,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<usize, DatabaseError>> {
        self.table.purge(keep, rows_max)
    }

    fn stats(&self) -> BoxFuture<'_, Result<OutboxStats, DatabaseError>> {
        self.table.stats()
    }

    fn version(&self) -> BoxFuture<'_, Result<i64, DatabaseError>> {
        self.table.version()
    }

    fn written(&self) -> BoxFuture<'_, ()> {
        self.table.written()
    }
}

/// P33: rows of a claim that nobody has heard of waited for the end of its lease, and all that came after
/// them by their keys. One that was made only after it was looked for did so still.
#[tokio::test(start_paused = true)]
async fn a_claim_that_nobody_has_heard_of_is_given_back() {
    for is_late in [false, true] {
        for keys in [["a", "a", ""], ["a", "a", "a"]] {
            let mut app = Application::new();
            app.add(&[event(1, keys[0]), event(2, keys[1]), event(3, keys[2])]);
            let table = Unheard::of(&app, is_late);
            let store = ScriptedStore::after([]);
            let options = DrainOptions { lease: Duration::from_secs(3000), ..quick() };
            let drainer = Drainer::over(Arc::new(table), store.clone(), options).unwrap();
            let begun = instant();
            let (stop, stopped) = oneshot::channel::<()>();
            let task = tokio::spawn(drainer.run(async { drop(stopped.await) }));
            until("all are sent", || app.stats().sent == 3).await;
            let waited = instant().duration_since(begun);
            assert!(waited < Duration::from_secs(60), "late: {is_late}, {waited:?}");
            drop(stop);
            assert_eq!(task.await.unwrap().database_errors, 1);
            assert_eq!(store.events().len(), 3);
        }
    }
}

/// A long outage makes nothing dead, and does not write a failure into every row.
#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_for() {
    let mut app = Application::new();
    app.add(&(0..1_000).map(|n| event(n, "")).collect::<Vec<_>>());
    let store = ScriptedStore::new(|_| unavailable());
    let running = app.start(
        &store,
        DrainOptions { backoff_max: Duration::from_secs(300), batch: 10, ..quick() },
    );
    tokio::time::sleep(Duration::from_secs(1800)).await;
    let stats = app.stats();
    assert_eq!((stats.pending, stats.dead), (1_000, 0));
    assert!(stats.failing > 0 && stats.failing < 300, "{stats:?}");
    let failing = app.outbox.failing(&app.connection, Listing::default()).unwrap();
    assert_eq!(failing[0].error, "away; try again");
    store.follow(|_| Fate::Stored);
    until("all are sent", || app.stats().sent == 1_000).await;
    running.stop().await;
}

/// Pitfall 41, and a poisoned row: it is dead, its key waits, the others go on.
#[tokio::test(start_paused = true)]
async fn a_dead_event_stops_its_key_only() {
    let mut app = Application::new();
    let events =
        [event(1, "a"), event(2, "a"), event(3, "a"), event(4, "b"), event(5, ""), event(6, "b")];
    app.add(&events);
    let store = ScriptedStore::new(poisoned(2));
    let running = app.start(&store, quick());
    until("the others are sent", || app.stats().sent == 4).await;
    assert_eq!(store.numbers(), [1, 4, 5, 6]);
    let found = dead(&app);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].id.as_str(), found[0].attempts), (&*events[1].id.to_string(), 1));
    assert_eq!((found[0].topic.as_str(), found[0].key.as_deref()), ("order.placed", Some("a")));
    assert!(found[0].error.contains("already in order.placed with other content"));

    // More of the key waits, too; a retry that fails changes nothing.
    app.add(&[event(7, "a")]);
    app.outbox.retry(&app.connection, events[1].id).unwrap();
    until("it is dead again", || dead(&app).len() == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(store.numbers(), [1, 4, 5, 6]);

    // The cause is gone: the key goes on, in order.
    store.follow(|_| Fate::Stored);
    app.outbox.retry(&app.connection, events[1].id).unwrap();
    until("all are sent", || app.stats().sent == 7).await;
    assert_eq!(store.numbers(), [1, 4, 5, 6, 2, 3, 7]);
    assert_eq!(running.stop().await.dead, 2);
}

#[tokio::test(start_paused = true)]
async fn a_discarded_event_lets_its_key_go_on() {
    let mut app = Application::new();
    app.add(&[event(1, "a"), event(2, "a")]);
    let store = ScriptedStore::new(poisoned(1));
    let running = app.start(&store, quick());
    until("one is dead", || app.stats().dead == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(store.numbers().is_empty());
    app.outbox.discard(&app.connection, event(1, "a").id).unwrap();
    until("the other is sent", || app.stats().sent == 1).await;
    assert_eq!(store.numbers(), [2]);
    assert_eq!(app.stats().dead, 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_on_without_its_dead_if_asked_to() {
    let mut app = Application::new();
    app.add(&[event(1, "a"), event(2, "a"), event(3, "b")]);
    let store = ScriptedStore::new(poisoned(1));
    let options = DrainOptions { after_dead: AfterDead::GoOn, ..quick() };
    let running = app.start(&store, options);
    until("the others are sent", || app.stats().sent == 2).await;
    app.add(&[event(4, "a")]);
    until("later ones are sent", || app.stats().sent == 3).await;
    assert_eq!(store.numbers(), [2, 3, 4]);
    running.stop().await;
}

/// The batch is too large; no event of it is. Only what is too large alone is dead.
#[tokio::test(start_paused = true)]
async fn a_batch_that_is_too_large_is_cut() {
    let mut app = Application::new();
    app.add(&(0..20).map(|n| event(n, &format!("{}", n % 3))).collect::<Vec<_>>());
    let store = ScriptedStore::new(|events| {
        let large = events.len() > 4 || events.iter().any(|event| super::number(event) == 13);
        let error = AppendError::TooLarge { events: events.len(), bytes: 0 };
        if large { Fate::Refused(error) } else { Fate::Stored }
    });
    let running = app.start(&store, quick());
    until("the others are sent", || app.stats().sent == 17).await;
    // 13, 16 and 19 are of one key.
    let expected: Vec<_> = (0..20).filter(|n| ![13, 16, 19].contains(n)).collect();
    assert_eq!(store.numbers(), expected);
    assert_eq!(dead(&app)[0].id, event(13, "").id.to_string());
    running.stop().await;
}

/// What fails because of the event is dead after so many attempts, and not before.
#[tokio::test(start_paused = true)]
async fn attempts_wear_out() {
    let mut app = Application::new();
    let mut lost = event(1, "a");
    lost.topic = "no.where".parse().unwrap();
    app.add(&[lost.clone(), event(2, "a")]);
    let topic = lost.topic.clone();
    let store = ScriptedStore::new(move |events| {
        let unknown = events.iter().any(|event| event.topic == topic);
        if unknown { Fate::Refused(AppendError::UnknownTopic(topic.clone())) } else { Fate::Stored }
    });
    let running = app.start(&store, DrainOptions { max_attempts: Some(3), ..quick() });
    until("it is dead", || app.stats().dead == 1).await;
    assert_eq!(dead(&app)[0].attempts, 3);
    assert_eq!(store.calls().iter().filter(|call| call.contains(&lost.id)).count(), 3);
    // Keys belong to topics: the other one was not in its way.
    assert_eq!(store.numbers(), [2]);
    assert_eq!(running.stop().await.failed, 2);
}

/// A row that hangs every publish it is part of costs its own key only, and what stands before it
/// in the key is published.
#[tokio::test(start_paused = true)]
async fn one_that_hangs_is_isolated() {
    let mut app = Application::new();
    app.add(&(0..30).map(|n| event(n, &format!("{}", n % 5))).collect::<Vec<_>>());
    let store = ScriptedStore::new(|events| {
        let hangs = events.iter().any(|event| super::number(event) == 12);
        if hangs { Fate::Lost } else { Fate::Stored }
    });
    let running = app.start(&store, quick());
    // Of key 2: 2 and 7 stand before 12, and 17, 22, 27 behind it.
    until("the others are sent", || app.stats().sent == 26).await;
    let mut stored = store.numbers();
    stored.sort_unstable();
    let expected: Vec<_> = (0..30).filter(|n| ![12, 17, 22, 27].contains(n)).collect();
    assert_eq!(stored, expected);
    assert_eq!(app.stats().dead, 0);
    running.stop().await;
}

/// Rows that are not events are reported, and hold their key.
#[tokio::test(start_paused = true)]
async fn malformed_rows_are_reported() {
    for (column, value) in [
        ("id", "'no id'"),
        ("sid", "'x'"),
        ("ts", "-1"),
        ("topic", "'No Topic'"),
        ("topic", "'$groups'"),
        ("key", "''"),
        ("headers", "'[]'"),
        ("payload", "'{'"),
        ("payload", "CAST(x'22ff22' AS TEXT)"),
        ("caused_by", "'[1]'"),
        ("tags", "'[\"\"]'"),
    ] {
        let mut app = Application::new();
        app.add(&[event(1, "a"), event(2, "a"), event(3, "b")]);
        let sql = format!("UPDATE promethean_outbox SET {column} = {value} WHERE seq = 1");
        app.connection.execute(&sql, []).unwrap();
        let store = ScriptedStore::healthy();
        let running = app.start(&store, quick());
        until("it is dead", || app.stats().dead == 1).await;
        until("the other key is sent", || store.numbers().contains(&3)).await;
        let found = dead(&app);
        let report = &found[0].error;
        assert!(report.starts_with(&format!("malformed row, {column}")), "{report}");
        let same_key = !["topic", "key"].contains(&column);
        assert!(!same_key || store.numbers() == [3], "{column}");
        assert_eq!(running.stop().await.dead, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_corrected_row_is_published_in_its_place() {
    let mut app = Application::new();
    app.add(&[event(1, "a"), event(2, "a")]);
    app.connection.execute("UPDATE promethean_outbox SET payload = '{' WHERE seq = 1", []).unwrap();
    let store = ScriptedStore::healthy();
    let running = app.start(&store, quick());
    until("it is dead", || app.stats().dead == 1).await;
    app.connection.execute("UPDATE promethean_outbox SET payload = '1' WHERE seq = 1", []).unwrap();
    app.outbox.retry(&app.connection, event(1, "a").id).unwrap();
    until("both are sent", || app.stats().sent == 2).await;
    assert_eq!(store.numbers(), [1, 2]);
    running.stop().await;
}

/// Pitfall 43: an error of the database does not end the loop.
#[tokio::test(start_paused = true)]
async fn survives_the_database() {
    let mut app = Application::new();
    let store = ScriptedStore::healthy();
    app.connection.execute_batch("ALTER TABLE promethean_outbox RENAME TO away").unwrap();
    let running = app.start(&store, quick());
    until("it has met the error", || running.meter.counters().database_errors > 2).await;
    app.connection.execute_batch("ALTER TABLE away RENAME TO promethean_outbox").unwrap();
    app.add(&[event(1, "a")]);
    until("it is sent", || app.stats().sent == 1).await;
    running.stop().await;
}

/// Marking fails for a while: what was published is not published again for it.
#[tokio::test(start_paused = true)]
async fn marking_is_tried_again() {
    let mut app = Application::new();
    app.add(&[event(1, "a")]);
    app.connection
        .execute_batch(
            "CREATE TRIGGER no_mark BEFORE UPDATE OF sent_at ON promethean_outbox
             WHEN new.sent_at IS NOT NULL BEGIN SELECT RAISE(ABORT, 'not now'); END",
        )
        .unwrap();
    let store = ScriptedStore::healthy();
    let running = app.start(&store, quick());
    until("marking failed", || running.meter.counters().database_errors > 0).await;
    app.connection.execute_batch("DROP TRIGGER no_mark").unwrap();
    until("it is marked", || app.stats().sent == 1).await;
    assert_eq!(store.calls().len(), 1);
    running.stop().await;
}

/// Rows that cannot be removed do not hold up what is to be published.
#[tokio::test(start_paused = true)]
async fn a_purge_that_fails_holds_up_nothing() {
    let mut app = Application::new();
    app.connection
        .execute_batch(
            "CREATE TRIGGER no_purge BEFORE DELETE ON promethean_outbox
             BEGIN SELECT RAISE(ABORT, 'kept'); END",
        )
        .unwrap();
    app.add(&[event(1, "a")]);
    let store = ScriptedStore::healthy();
    let running = app.start(&store, DrainOptions { keep_sent: Some(Duration::ZERO), ..quick() });
    until("the purge has failed", || running.meter.counters().database_errors > 0).await;
    app.add(&[event(2, "a")]);
    until("the second is sent", || app.stats().sent == 2).await;
    app.connection.execute_batch("DROP TRIGGER no_purge").unwrap();
    until("both are removed", || app.stats().sent == 0).await;
    assert_eq!(running.stop().await.purged, 2);
}
