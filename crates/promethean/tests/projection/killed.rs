//! A real process, killed again and again while it publishes and projects: the views are always
//! the fold of the log at their cursors, byte for byte. `PROM_KILLS` says how often, for each of one
//! and two partitions; a few by default, 100 in CI (`scripts/test`), and for a long run:
//! `PROM_KILLS=5000 cargo nextest run -p promethean --release killed_at_any_moment`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use promethean::Bus;
use promethean::event::{Pattern, Topic};
use promethean::projection::{Changelog, Difference, Projection, View, Views};
use promethean::store::TopicDefinition;
use promethean::{Replay, Replayed};
use serde_json::Value;
use tempfile::TempDir;

use super::scenario::{TOPIC, event};
use super::transactional::counting;

const FOLDER: &str = "PROM_KILLED_FOLDER";
const PARTITIONS: &str = "PROM_KILLED_PARTITIONS";
const THIS: &str = "projection::killed::the_one_that_is_killed";

async fn open(folder: &Path, partitions: u32) -> (Bus, Views, [Projection; 2]) {
    let bus = Bus::open(folder).await.unwrap();
    let mut definition = TopicDefinition::new(Topic::new(TOPIC).unwrap());
    definition.partitions = promethean::event::PartitionCount::new(partitions).unwrap();
    bus.define(definition).await.unwrap();
    let views = Views::open(&bus, folder.join("state.db")).await.unwrap();
    let counts = views.transactional(counting()).await.unwrap();
    let latest = views.changelog(Changelog::new(View::new("latest"), TOPIC)).await.unwrap();
    (bus, views, [counts, latest])
}

/// Not a test of its own: the process that the other one kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_one_that_is_killed() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let partitions = std::env::var(PARTITIONS).unwrap().parse().unwrap();
    let (bus, _views, [counts, _latest]) = open(Path::new(&folder), partitions).await;
    let mut progress = counts.watch();
    let telling = async {
        let mut stdout = std::io::stdout();
        loop {
            let events = progress.borrow_and_update().counts.events;
            writeln!(stdout, "committed {events}").unwrap();
            progress.changed().await.unwrap();
        }
    };
    let publishing = async {
        for n in 0_u64.. {
            let events = (0..1 + n % 9).map(|k| {
                let payload = format!(r#"{{"host":"h{}","n":{n}}}"#, (n + k) % 5);
                event(Some(&format!("p{}", (n * 7 + k) % 50)), &payload)
            });
            bus.publish_batch(events.collect()).await.unwrap();
        }
    };
    tokio::join!(telling, publishing);
}

/// Runs the other process until it has committed so many times, and kills it.
fn run_and_kill(folder: &Path, partitions: u32, commits: usize) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([THIS, "--exact", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(PARTITIONS, partitions.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines.map_while(Result::ok).filter(|line| line.contains("committed"));
    let told = told.take(commits).count();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(told, commits, "it ended by itself");
}

/// Before anybody repairs anything: counters and cursors are of the same moment.
fn check_file(folder: &Path) {
    let connection = rusqlite::Connection::open(folder.join("state.db")).unwrap();
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let seen = number("SELECT coalesce(sum(doc ->> '$.seen'), 0) FROM host_stats");
    let passed = number(
        "SELECT coalesce(sum(next), 0) FROM promethean_cursors JOIN promethean_builds USING (build) \
         WHERE projection = 'processes-txn'",
    );
    assert_eq!(seen, passed);
    let check: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

async fn check_views(folder: &Path, partitions: u32) {
    let (bus, views, [counts, latest]) = open(folder, partitions).await;
    for projection in [&counts, &latest] {
        projection.caught_up().await.unwrap();
        let found = projection.verify().await.unwrap();
        // Byte for byte. Only where several partitions write one document, it is chance whose
        // event was the last; `check_file` has looked at the counts.
        let is_chance = |d: &Difference| d.view == "host_stats" && partitions > 1;
        let wrong: Vec<_> = found.differences.iter().filter(|d| !is_chance(d)).collect();
        assert_eq!((wrong.len(), found.missed), (0, 0), "{wrong:?}");
        assert!(found.documents > 0);
    }
    let mut expected = 0;
    for document in counts.scan("host_stats", None, 100).await.unwrap() {
        expected += document.decode::<Value>().unwrap()["seen"].as_u64().unwrap() / 10;
    }
    let replay = Replay::of(Pattern::new("host.milestone").unwrap());
    let mut replaying = bus.replay(replay).await.unwrap();
    let mut emitted = std::collections::HashSet::new();
    let mut count = 0;
    while let Some(Replayed::Event(stored)) = replaying.next().await.unwrap() {
        count += 1;
        emitted.insert(stored.event.payload.as_str().to_owned());
    }
    assert_eq!((count, emitted.len() as u64), (expected, expected), "each once");
    views.stop().await;
    bus.close().await;
}

/// Kills so often, each time at another moment.
fn kill_and_check(partitions: u32) {
    let kills = std::env::var("PROM_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(5);
    let mut folder = TempDir::new().unwrap();
    for round in 0..kills {
        // The log is folded from its beginning each time: it must not grow for long.
        if round % 10 == 9 {
            folder = TempDir::new().unwrap();
        }
        run_and_kill(folder.path(), partitions, 4 + round * 7 % 40);
        check_file(folder.path());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(check_views(folder.path(), partitions));
    }
}

#[test]
fn killed_at_any_moment_the_views_are_right() {
    kill_and_check(1);
}

#[test]
fn killed_at_any_moment_the_views_of_two_partitions_are_right() {
    kill_and_check(2);
}
