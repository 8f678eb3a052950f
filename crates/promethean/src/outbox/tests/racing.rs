use std::collections::HashMap;

use rusqlite::{StatementStatus, named_params};

use super::super::claims;
use super::super::{AfterDead, Claim, Outcome, Settlement, limits};
use super::script::Fate;
use super::*;
use crate::store::AppendError;

const START: u64 = 1_000_000;
const LEASE: Duration = Duration::from_secs(10);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(START + millis)
}

fn claim(token: &str, rows: usize) -> Claim {
    let after_dead = AfterDead::Wait;
    Claim { token: token.into(), worker: token.into(), rows, lease: LEASE, after_dead }
}

fn seqs(connection: &mut Connection, millis: u64, wish: &Claim) -> Vec<i64> {
    claims::claim(connection, at(millis), wish).unwrap().iter().map(|row| row.seq).collect()
}

fn sent(seq: i64) -> Settlement {
    Settlement { seq, outcome: Outcome::Sent }
}

/// Pitfall 42: who comes too late marks nothing, whatever it wants to mark.
#[tokio::test(start_paused = true)]
async fn a_late_marker_is_fenced() {
    let mut app = Application::new();
    app.add(&[event(1, "a")]);
    let connection = &mut app.connection;
    assert_eq!(seqs(connection, 0, &claim("one", 10)), [1]);
    assert!(seqs(connection, 9_999, &claim("two", 10)).is_empty());
    assert_eq!(seqs(connection, 10_000, &claim("two", 10)), [1]);
    let before = row(connection);
    let again = Outcome::Again { delay: LEASE, error: "e".into() };
    for outcome in [Outcome::Sent, again, Outcome::Dead { error: "e".into() }, Outcome::Released] {
        let late = [Settlement { seq: 1, outcome }];
        let settled = claims::settle(connection, at(10_001), "one", &late).unwrap();
        assert_eq!((settled.fenced, settled.sent, settled.failed, settled.dead), (1, 0, 0, 0));
    }
    assert_eq!(claims::renew(connection, "one", at(90_000)).unwrap(), 0);
    assert_eq!(claims::give_back(connection, "one").unwrap(), 0);
    assert_eq!(row(connection), before);
    assert_eq!(claims::settle(connection, at(10_002), "two", &[sent(1)]).unwrap().sent, 1);
    // Twice is late, too.
    assert_eq!(claims::settle(connection, at(10_002), "two", &[sent(1)]).unwrap().fenced, 1);
}

fn row(connection: &Connection) -> String {
    let sql = "SELECT json_array(attempts, not_before, claim, claimed_by, error, sent_at, dead_at)
               FROM promethean_outbox";
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Pitfall 41: while a row of a key is out, nobody gets a later one.
#[tokio::test(start_paused = true)]
async fn a_key_is_claimed_by_one_at_a_time() {
    let mut app = Application::new();
    app.add(&[event(1, "a"), event(2, "a"), event(3, "b"), event(4, ""), event(5, "a")]);
    let connection = &mut app.connection;
    assert_eq!(seqs(connection, 0, &claim("one", 1)), [1]);
    assert_eq!(seqs(connection, 0, &claim("two", 10)), [3, 4]);
    assert_eq!(claims::settle(connection, at(1), "one", &[sent(1)]).unwrap().sent, 1);
    assert_eq!(seqs(connection, 1, &claim("three", 1)), [2]);
    assert!(seqs(connection, 1, &claim("four", 10)).is_empty());
    // Backing off holds the key like a claim.
    let again = Outcome::Again { delay: Duration::from_secs(5), error: "e".into() };
    let failed = [Settlement { seq: 2, outcome: again }];
    claims::settle(connection, at(2), "three", &failed).unwrap();
    assert_eq!(claims::next_free(connection, at(2)).unwrap(), Some(at(5_002)));
    assert!(!claims::is_any(connection, at(5_001), AfterDead::Wait).unwrap());
    assert_eq!(seqs(connection, 5_002, &claim("five", 10)), [2, 5]);
}

/// Pitfall 42: a renewed claim outlives its first lease.
#[tokio::test(start_paused = true)]
async fn a_renewed_claim_is_kept() {
    let mut app = Application::new();
    app.add(&[event(1, "a"), event(2, "")]);
    let connection = &mut app.connection;
    assert_eq!(seqs(connection, 0, &claim("one", 10)), [1, 2]);
    assert_eq!(claims::renew(connection, "one", at(19_000)).unwrap(), 2);
    assert!(seqs(connection, 18_999, &claim("two", 10)).is_empty());
    assert_eq!(seqs(connection, 19_000, &claim("two", 10)), [1, 2]);
}

/// A clock that was an age ahead does not hold rows for an age.
#[tokio::test(start_paused = true)]
async fn a_clock_that_goes_back_frees_what_it_held() {
    let mut app = Application::new();
    app.add(&[event(1, "a"), event(2, "a")]);
    let connection = &mut app.connection;
    let ahead = 2 * limits::HOLD_MAX.as_millis() as u64;
    assert_eq!(seqs(connection, ahead, &claim("one", 1)), [1]);
    assert_eq!(seqs(connection, 0, &claim("two", 10)), [1, 2]);
}

/// Looking for work must not go over all rows ever sent, nor twice over what waits.
#[tokio::test(start_paused = true)]
async fn looking_costs_what_is_claimed_and_not_what_was_sent() {
    let mut app = Application::new();
    app.add(&(0..3_000).map(|n| event(n, "a")).collect::<Vec<_>>());
    let work = |connection: &Connection| {
        let mut statement = connection.prepare(claims::CANDIDATES).unwrap();
        let found = statement
            .query_map(
                named_params! {
                    ":now": 1, ":horizon": 2, ":dead_hold": true, ":limit": 100,
                },
                |row| row.get::<_, i64>(0),
            )
            .unwrap()
            .count();
        (found, statement.get_status(StatementStatus::VmStep))
    };
    let (found, steps) = work(&app.connection);
    assert_eq!(found, 100);
    assert!(steps < 100 * 40, "{steps} steps for 100 of 3,000 rows of one key");
    app.connection.execute("UPDATE promethean_outbox SET sent_at = 1", []).unwrap();
    app.add(&[event(9_000, "a")]);
    let (found, steps) = work(&app.connection);
    assert_eq!(found, 1);
    assert!(steps < 200, "{steps} steps for one row after 3,000 sent ones");
}

/// Renewal keeps a slow publish from being taken over, for many leases.
#[tokio::test(start_paused = true)]
async fn a_slow_publish_is_not_taken_over() {
    let mut app = Application::new();
    app.add(&[event(1, "a")]);
    let store = ScriptedStore::after([Fate::Late(Duration::from_secs(60))]);
    let options = DrainOptions { publish_timeout: Duration::from_secs(90), ..quick() };
    let one = app.start(&store, options.clone());
    let two = app.start(&store, options);
    until("it is sent", || app.stats().sent == 1).await;
    assert_eq!(store.calls().len(), 1, "nobody else took it");
    assert_eq!(one.stop().await.sent + two.stop().await.sent, 1);
}

/// Pitfall 42: a drainer that was away for longer than its lease.
#[tokio::test(start_paused = true)]
async fn a_drainer_that_comes_back_marks_nothing() {
    let mut app = Application::new();
    app.add(&[event(1, "a"), event(2, "a")]);
    let store = ScriptedStore::after([Fate::Late(Duration::from_secs(5))]);
    let one = app.start(&store, quick());
    until("the publish is under way", || store.calls().len() == 1).await;
    // Its lease is lost, as if its process had stood still.
    let free = "UPDATE promethean_outbox SET not_before = 1";
    app.connection.execute(free, []).unwrap();
    let two = app.start(&store, quick());
    until("the other has sent both", || app.stats().sent == 2).await;
    let marked = app.text("SELECT group_concat(sent_at) FROM promethean_outbox");
    until("the first has its answer", || one.meter.counters().fenced == 2).await;
    assert_eq!(app.text("SELECT group_concat(sent_at) FROM promethean_outbox"), marked);
    assert_eq!(store.numbers(), [1, 2]);
    assert_eq!((one.stop().await.sent, two.stop().await.sent), (0, 2));
}

/// A little chance, the same for the same seed.
fn chance(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

fn fate(number: u64) -> Fate {
    match number % 12 {
        0 => Fate::Refused(AppendError::Unavailable("away".into())),
        1 => Fate::StoredUnsure,
        2 => Fate::Lost,
        3 => Fate::StoredSilently,
        4 => Fate::Late(Duration::from_millis(number % 40_000)),
        5 => Fate::Panic,
        _ => Fate::Stored,
    }
}

/// Three drainers that crash and start anew, on a store that does what it likes: nothing is lost,
/// nothing twice, every key in its order.
#[tokio::test(start_paused = true)]
async fn drainers_race_and_crash() {
    for first_seed in 1..=4_u64 {
        let mut seed = first_seed;
        let mut app = Application::new();
        let mut script_seed = seed + 100;
        let store = ScriptedStore::new(move |_| fate(chance(&mut script_seed)));
        let options = DrainOptions { batch: 5, ..quick() };
        let mut running: Vec<_> = (0..3).map(|_| app.start(&store, options.clone())).collect();
        let mut expected: HashMap<String, Vec<u32>> = HashMap::new();
        for n in 0..60 {
            let key = ["a", "b", "c", ""][chance(&mut seed) as usize % 4];
            app.add(&[event(n, key)]);
            expected.entry(key.into()).or_default().push(n);
            tokio::time::sleep(Duration::from_millis(chance(&mut seed) % 400)).await;
            if chance(&mut seed).is_multiple_of(4) {
                running.swap_remove(chance(&mut seed) as usize % 3).crash().await;
                running.push(app.start(&store, options.clone()));
            }
        }
        until("all are sent", || app.stats().sent == 60).await;
        for drainer in running {
            drainer.stop().await;
        }
        let mut stored: HashMap<String, Vec<u32>> = HashMap::new();
        for event in store.events() {
            let key = event.key.as_ref().map(ToString::to_string).unwrap_or_default();
            stored.entry(key).or_default().push(number(&event));
        }
        for free in [&mut stored, &mut expected] {
            free.entry(String::new()).or_default().sort_unstable();
        }
        assert_eq!(stored, expected, "seed {first_seed}");
    }
}
