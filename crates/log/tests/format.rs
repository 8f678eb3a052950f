//! A log that was written once and is kept: this build must read it, whatever it writes itself.
//! `PROM_WRITE_FIXTURE=DIR` writes a new one, for a new format version.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use promethean_event::{
    EventId, Key, NewEvent, Offset, PartitionCount, Payload, SessionId, Tag, Timestamp, Topic,
};
use promethean_log::{
    Append, Cleaning, Clock, Compaction, Lane, Log, OpenReport, Options, PageLimit, TopicDefinition,
};

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000)
    }
}

fn options() -> Options {
    Options {
        segment_bytes_min: 8192,
        segment_bytes_max: 8192,
        free_bytes_min: 0,
        clock: Arc::new(Still),
        ..Options::default()
    }
}

fn definitions() -> Vec<TopicDefinition> {
    let compaction = Some(Compaction { age_ms_min: 1, tombstone_ms: 2 });
    vec![
        TopicDefinition::new(Topic::new("process.state").unwrap())
            .with_partitions(PartitionCount::new(2).unwrap())
            .with_cleaning(Cleaning { age_ms_max: Some(5), bytes_max: None, compaction }),
        TopicDefinition::new(Topic::system("$state").unwrap()),
    ]
}

fn events() -> Vec<NewEvent> {
    (0..100u8)
        .map(|number| {
            let id = EventId::v7(1_700_000_000_000 + u64::from(number), [number; 10]);
            let topic = definitions()[usize::from(number % 7 == 0)].topic.clone();
            let ts = Timestamp::from_millis(1_700_000_000_000);
            let payload = if number % 11 == 0 {
                Payload::null()
            } else {
                Payload::parse(format!(r#"{{"number":{number},"exact":1.50}}"#)).unwrap()
            };
            let mut event = NewEvent::new(id, ts, topic, payload);
            if number % 3 > 0 {
                event.key = Some(Key::new(format!("key-{}", number % 5)).unwrap());
            }
            if number % 5 == 0 {
                event.sid = Some(SessionId::from_bytes([number; 16]));
                event.headers.insert("x-number", &number.to_string()).unwrap();
                event.caused_by = vec![EventId::v7(1, [0; 10])];
                event.tags = vec![Tag::new("#käse").unwrap()];
            }
            event
        })
        .collect()
}

fn write(path: &Path) {
    let (log, _) = Log::open_dir(path, options()).unwrap();
    for definition in definitions() {
        log.define(definition).wait().unwrap();
    }
    for batch in events().chunks(7) {
        log.append(&Append { events: batch.to_vec(), ..Append::default() }).wait().unwrap();
    }
    log.settle().unwrap();
    log.close();
}

fn check(path: &Path) {
    let (log, report) = Log::open_dir(path, options()).unwrap();
    assert_eq!(report, OpenReport::default());
    let topics: Vec<_> = log.topics().into_iter().map(|(_, definition)| definition).collect();
    assert_eq!(topics, definitions());
    let mut stored = Vec::new();
    for (topic, definition) in log.topics() {
        for partition in definition.partitions.partitions() {
            let mut reader = log.read(Lane { topic, partition }, Offset::ZERO).unwrap();
            let page = reader.next_page(PageLimit::default()).unwrap();
            assert_eq!(page.gaps, []);
            let in_order = (0..).zip(&page.records).all(|(n, record)| record.offset().get() == n);
            assert!(in_order);
            stored.extend(
                page.records.iter().map(|record| record.to_event(&definition.topic).unwrap()),
            );
        }
    }
    stored.sort_by_key(|event| event.id);
    let expected: Vec<_> = events()
        .into_iter()
        .zip(&stored)
        .map(|(event, stored)| event.placed(stored.partition, stored.offset))
        .collect();
    assert_eq!(stored, expected);
    let key = Key::new("key-1").unwrap();
    let (topic, _) = log.topics()[0];
    assert_eq!(log.history(topic, &key, 1000).unwrap().len(), 11);
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

#[test]
fn what_this_build_writes_it_reads() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path());
    check(directory.path());
    if let Some(path) = std::env::var_os("PROM_WRITE_FIXTURE") {
        write(Path::new(&path));
    }
}

/// As it was at first, and with the flag of a log that is kept whole.
#[test]
fn version_1_is_read() {
    for (name, with_side_files) in [
        ("version-1", true),
        ("version-1", false),
        ("version-1-whole", true),
        ("version-1-whole", false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(fixture(name)).unwrap() {
            let from = entry.unwrap().path();
            let is_side_file = from.extension().is_some_and(|extension| extension == "idx");
            if with_side_files || !is_side_file {
                std::fs::copy(&from, directory.path().join(from.file_name().unwrap())).unwrap();
            }
        }
        if with_side_files {
            check(directory.path());
        } else {
            let (log, report) = Log::open_dir(directory.path(), options()).unwrap();
            assert!(report.damage.is_empty() && !report.rebuilt.is_empty());
            log.close();
            check(directory.path());
        }
    }
}
