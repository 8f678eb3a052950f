//! The log over a real directory: append, reopen, read, find.

use std::collections::BTreeMap;
use std::path::Path;

use promethean_event::{
    EventId, Key, NewEvent, Offset, PartitionCount, Pattern, Payload, Seq, Timestamp, Topic,
};
use promethean_log::{
    Append, AppendError, Durability, Expectation, Lane, Log, OpenError, OpenReport, Options,
    PageLimit, ReadError, Record, TopicDefinition, TopicId,
};

pub(crate) fn small() -> Options {
    Options {
        segment_bytes_min: 16 * 1024,
        segment_bytes_max: 16 * 1024,
        tail_bytes: 8 * 1024,
        free_bytes_min: 0,
        ..Options::default()
    }
}

pub(crate) fn open(path: &Path) -> Log {
    let (log, report) = Log::open_dir(path, small()).unwrap();
    assert_eq!(report, OpenReport::default());
    log
}

pub(crate) fn topic(name: &str) -> Topic {
    Topic::new(name).unwrap()
}

pub(crate) fn define(log: &Log, name: &str, partitions: u32) -> TopicId {
    let partitions = PartitionCount::new(partitions).unwrap();
    let definition = TopicDefinition::new(topic(name)).with_partitions(partitions);
    log.define(definition).wait().unwrap()
}

pub(crate) fn event(name: &str, key: &str, payload: &str) -> NewEvent {
    let payload = Payload::parse(payload.to_owned()).unwrap();
    let event = NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic(name), payload);
    event.with_key(Key::new(key).unwrap())
}

pub(crate) fn append(log: &Log, events: Vec<NewEvent>) -> promethean_log::Appended {
    log.append(&Append { events, ..Append::default() }).wait().unwrap()
}

pub(crate) fn lane(topic: TopicId, partition: u32) -> Lane {
    Lane { topic, partition: promethean_event::Partition::new(partition) }
}

pub(crate) fn read_all(log: &Log, lane: Lane) -> Vec<Record> {
    let mut reader = log.read(lane, Offset::ZERO).unwrap();
    let mut all = Vec::new();
    loop {
        let page = reader.next_page(PageLimit { events: 37, bytes: 1 << 20 }).unwrap();
        assert_eq!(page.gaps, []);
        if page.records.is_empty() {
            return all;
        }
        all.extend(page.records);
    }
}

/// Fills several segments with events of 30 keys in two topics; gives them in order.
pub(crate) fn fill(log: &Log, count: usize) -> Vec<NewEvent> {
    let mut events = Vec::new();
    for number in 0..count {
        let name = if number % 3 == 0 { "b" } else { "a" };
        let payload = format!(r#"{{"number":{number}}}"#);
        let event = event(name, &format!("key-{:02}", number % 30), &payload);
        append(log, vec![event.clone()]);
        events.push(event);
    }
    events
}

#[test]
fn everything_is_found_again_also_after_reopening() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = open(directory.path());
    let (a, b) = (define(&log, "a", 1), define(&log, "b", 1));
    let events = fill(&log, 1000);
    for round in 0..4 {
        let of = |name: &str| -> Vec<_> {
            events.iter().filter(|event| event.topic.as_str() == name).cloned().collect()
        };
        for (id, name) in [(a, "a"), (b, "b")] {
            let records = read_all(&log, lane(id, 0));
            let stored: Vec<_> =
                records.iter().map(|record| record.to_event(&topic(name)).unwrap()).collect();
            let expected: Vec<_> = (0..)
                .zip(of(name))
                .map(|(offset, event)| {
                    event.placed(promethean_event::Partition::ZERO, Offset::new(offset))
                })
                .collect();
            assert_eq!(stored, expected, "round {round}");
        }
        check_lookups(&log, &events, [a, b]);
        match round {
            0 => log.settle().unwrap(),
            1 => {
                log.close();
                drop(log);
                log = open(directory.path());
            }
            2 => {
                // Side files are built again when they are gone.
                log.close();
                drop(log);
                for entry in std::fs::read_dir(directory.path()).unwrap() {
                    let path = entry.unwrap().path();
                    if path.extension().is_some_and(|extension| extension == "idx") {
                        std::fs::remove_file(path).unwrap();
                    }
                }
                let (again, report) = Log::open_dir(directory.path(), small()).unwrap();
                assert!(!report.rebuilt.is_empty());
                log = again;
            }
            _ => {}
        }
    }
}

fn check_lookups(log: &Log, events: &[NewEvent], [a, b]: [TopicId; 2]) {
    let id_of = |event: &NewEvent| if event.topic.as_str() == "a" { a } else { b };
    let mut latest = BTreeMap::new();
    for event in events {
        let found = log.find(id_of(event), &event.id).unwrap().unwrap();
        assert_eq!(found.payload(), event.payload);
        latest.insert((event.topic.clone(), event.key.clone().unwrap()), event.clone());
    }
    assert!(log.find(a, &EventId::generate()).unwrap().is_none());
    assert!(log.find(a, &EventId::derived("x", b"y")).unwrap().is_none());
    for ((topic, key), event) in &latest {
        let id = id_of(event);
        assert_eq!(log.latest(id, key).unwrap().unwrap().id(), event.id);
        let history: Vec<_> =
            log.history(id, key, usize::MAX).unwrap().iter().map(Record::id).collect();
        let expected: Vec<_> = events
            .iter()
            .rev()
            .filter(|event| event.topic == *topic && event.key.as_ref() == Some(key))
            .map(|event| event.id)
            .collect();
        assert_eq!(history, expected);
    }
    for prefix in ["", "key-1", "key-29", "nothing"] {
        let mut keys = log.keys(a, prefix);
        let mut found = Vec::new();
        loop {
            let page = keys.next_page().unwrap();
            if page.is_empty() {
                break;
            }
            found.extend(page.iter().map(Record::id));
        }
        let expected: Vec<_> = latest
            .iter()
            .filter(|((topic, key), _)| topic.as_str() == "a" && key.as_str().starts_with(prefix))
            .map(|(_, event)| event.id)
            .collect();
        assert_eq!(found, expected, "keys with prefix {prefix:?}");
    }
    let mut merged =
        log.read_merged(log.lanes(&Pattern::new("*").unwrap()), Seq::new(500)).unwrap();
    let mut seqs = Vec::new();
    loop {
        let page = merged.next_page(PageLimit { events: 100, bytes: 1 << 20 }).unwrap();
        if page.records.is_empty() {
            break;
        }
        seqs.extend(page.records.iter().map(|record| record.seq().get()));
    }
    assert_eq!(seqs, (500..1000).collect::<Vec<_>>());
    let page =
        log.page_before(lane(a, 0), Offset::new(300), PageLimit { events: 290, bytes: 1 << 20 });
    let offsets: Vec<_> =
        page.unwrap().records.iter().map(|record| record.offset().get()).collect();
    assert_eq!(offsets, (10..300).rev().collect::<Vec<_>>());
}

#[test]
fn offsets_at_a_time_agree_with_append_times() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    let a = define(&log, "a", 1);
    define(&log, "b", 1);
    fill(&log, 600);
    for settled in [false, true] {
        if settled {
            log.settle().unwrap();
        }
        let records = read_all(&log, lane(a, 0));
        let times: Vec<_> = records.iter().map(|record| record.appended_at().millis()).collect();
        let (first, last) = (times[0], times[times.len() - 1]);
        for time in first.saturating_sub(2)..=last + 2 {
            let expected = times.partition_point(|&known| known < time) as u64;
            let found = log.offset_at(lane(a, 0), Timestamp::from_millis(time)).unwrap();
            assert_eq!(found.get(), expected, "at {time}");
        }
    }
}

#[test]
fn the_same_id_is_stored_once() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    define(&log, "a", 4);
    let first = event("a", "k", "1");
    let receipt = append(&log, vec![first.clone()]).receipts[0];
    let mut again = first.clone();
    again.ts = Timestamp::from_millis(99);
    for _ in 0..2 {
        let other = event("a", "k", "2");
        let answer = append(&log, vec![other.clone(), again.clone(), other]).receipts;
        assert_eq!(answer[1], promethean_log::Receipt { duplicate: true, ..receipt });
        assert_eq!(answer[2], promethean_log::Receipt { duplicate: true, ..answer[0] });
        assert!(!answer[0].duplicate);
        fill_topic(&log, 300);
        log.settle().unwrap();
    }
    let mut conflict = first.clone();
    conflict.payload = Payload::null();
    let before = log.next_seq();
    let events = vec![event("a", "k", "3"), conflict];
    let refused = log.append(&Append { events, ..Append::default() }).wait();
    assert!(matches!(refused, Err(AppendError::IdConflict { id, .. }) if id == first.id));
    assert_eq!(log.next_seq(), before, "a refused batch leaves nothing behind");
}

fn fill_topic(log: &Log, count: usize) {
    for number in 0..count {
        append(log, vec![event("a", &number.to_string(), "0")]);
    }
}

#[test]
fn expectations_and_unknown_topics_refuse_the_whole_batch() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    let a = define(&log, "a", 1);
    let expect = |next| vec![Expectation { lane: lane(a, 0), next: Offset::new(next) }];
    let events = vec![event("a", "k", "1")];
    let try_with = |next| {
        log.append(&Append { events: events.clone(), expect: expect(next), ..Append::default() })
            .wait()
    };
    assert!(
        matches!(try_with(1), Err(AppendError::OffsetMismatch { actual, .. }) if actual == Offset::ZERO)
    );
    assert!(try_with(0).is_ok());
    assert!(try_with(0).is_err());
    let unknown = log.append(&Append { events: vec![event("x", "k", "1")], ..Append::default() });
    assert!(matches!(unknown.wait(), Err(AppendError::UnknownTopic(_))));
    assert!(matches!(log.append(&Append::default()).wait(), Err(AppendError::Empty)));
    assert!(matches!(
        log.read(lane(a, 0), Offset::new(2)),
        Err(ReadError::BeyondEnd { next, .. }) if next == Offset::new(1)
    ));
    assert!(matches!(log.read(lane(a, 1), Offset::ZERO), Err(ReadError::UnknownLane)));
}

#[test]
fn definitions_are_idempotent_and_partitions_fixed() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    let a = define(&log, "a", 4);
    assert_eq!(define(&log, "a", 4), a);
    let other = TopicDefinition::new(topic("a"));
    assert!(matches!(log.define(other).wait(), Err(AppendError::PartitionsFixed { has: 4, .. })));
    append(&log, vec![event("a", "k", "1")]);
    log.remove(a).wait().unwrap();
    assert_eq!(log.topic_id(&topic("a")), None);
    let again = define(&log, "a", 1);
    assert_ne!(again, a);
    assert!(read_all(&log, lane(again, 0)).is_empty());
}

#[test]
fn a_second_process_is_told_who_has_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    match Log::open_dir(directory.path(), small()) {
        Err(OpenError::Locked { holder, .. }) => {
            assert_eq!(holder, std::process::id().to_string());
        }
        other => panic!("opened twice: {other:?}"),
    }
    drop(log);
    open(directory.path());
}

#[test]
fn concurrent_publishers_get_dense_offsets_and_readers_wake_up() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    let a = define(&log, "a", 1);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    append(&log, vec![event("a", "k", "1"), event("a", "k", "2")]);
                }
            });
        }
    });
    let records = read_all(&log, lane(a, 0));
    let offsets: Vec<_> = records.iter().map(|record| record.offset().get()).collect();
    assert_eq!(offsets, (0..800).collect::<Vec<_>>());
    for pair in records.chunks(2) {
        assert_eq!(pair[0].payload().as_str(), "1", "a batch stays together");
        assert_eq!(pair[1].payload().as_str(), "2");
    }
}

#[test]
fn weaker_durability_is_named_in_the_answer() {
    let directory = tempfile::tempdir().unwrap();
    let log = open(directory.path());
    define(&log, "a", 1);
    for durability in [Durability::None, Durability::Written, Durability::Synced] {
        let events = vec![event("a", "k", "1")];
        let answer = log.append(&Append { events, durability, ..Append::default() }).wait();
        assert_eq!(answer.unwrap().durability, durability);
    }
    log.close();
    assert!(matches!(
        log.append(&Append { events: vec![event("a", "k", "1")], ..Append::default() }).wait(),
        Err(AppendError::Closed)
    ));
    drop(log);
    assert_eq!(open(directory.path()).next_seq(), Seq::new(3));
}

/// Pitfalls 6 and 29: those who wait are woken, and those who keep up never touch the disk.
#[test]
fn readers_that_keep_up_are_woken_and_served_from_memory() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = Log::open_dir(directory.path(), Options::default()).unwrap();
    let a = define(&log, "a", 1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut reader = log.read(lane(a, 0), Offset::ZERO).unwrap();
                let mut next = 0;
                while next < 500 {
                    log.grown_beyond(Seq::new(next)).wait();
                    let page = reader.next_page(PageLimit::default()).unwrap();
                    next += page.records.len() as u64;
                }
            });
        }
        for _ in 0..500 {
            append(&log, vec![event("a", "k", "1")]);
        }
    });
    assert_eq!(log.disk_reads(), 0);
    let keys = ["k".parse().unwrap(), "never".parse().unwrap()];
    let latest = log.latest_many(a, &keys).unwrap();
    assert!(latest[0].is_some() && latest[1].is_none());
}
