//! Retention and compaction.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use promethean_event::{Offset, Partition, Timestamp};
use promethean_log::{
    CleanError, Cleaning, Clock, Compaction, Gap, GapReason, Holds, Lane, Log, Options, PageLimit,
    ReadError, Record, TopicDefinition, TopicId,
};

use crate::missing::segments;
use crate::order_and_search::{append, event, small, topic};
use crate::watched::Watched;

#[derive(Debug, Default)]
struct HandClock(AtomicU64);

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}

struct Cleaned {
    directory: tempfile::TempDir,
    clock: Arc<HandClock>,
    log: Log,
    lane: Lane,
}

impl Cleaned {
    fn new(cleaning: Cleaning) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(HandClock::default());
        let log = Self::open(directory.path(), &clock);
        let definition = TopicDefinition::new(topic("a")).with_cleaning(cleaning);
        let a = log.define(definition).wait().unwrap();
        log.define(TopicDefinition::new(topic("b"))).wait().unwrap();
        Self { directory, clock, log, lane: lane(a) }
    }

    fn open(path: &Path, clock: &Arc<HandClock>) -> Log {
        let (log, report) = Log::open_dir(path, Self::options(clock)).unwrap();
        assert_eq!(report.damage, []);
        log
    }

    fn options(clock: &Arc<HandClock>) -> Options {
        let clock = Arc::clone(clock) as Arc<dyn Clock>;
        Options { clock, clean_share_min: 0.0, ..small() }
    }

    fn reopen(&mut self) {
        self.log.close();
        self.log = Self::open(self.directory.path(), &self.clock);
    }

    fn set_time(&self, millis: u64) {
        self.clock.0.store(millis, Ordering::Relaxed);
    }

    fn publish(&self, key: &str, payload: &str) {
        append(&self.log, vec![event("a", key, payload)]);
    }

    /// Events that keep nobody, to move what is before them into sealed segments.
    fn fill(&self) {
        let filling = format!("\"{}\"", "x".repeat(200));
        for _ in 0..80 {
            append(&self.log, vec![event("b", "k", &filling)]);
        }
        self.log.settle().unwrap();
    }

    fn read(&self) -> (Vec<Record>, Vec<Gap>) {
        let mut reader = self.log.read(self.lane, Offset::ZERO).unwrap();
        let (mut records, mut gaps) = (Vec::new(), Vec::new());
        loop {
            let page = reader.next_page(PageLimit { events: 7, bytes: 1 << 20 }).unwrap();
            gaps.extend(page.gaps.iter().copied());
            if page.records.is_empty() {
                return (records, gaps);
            }
            records.extend(page.records);
        }
    }

    fn payloads(&self) -> Vec<String> {
        let payload = |record: &Record| record.payload().as_str().to_owned();
        self.read().0.iter().map(payload).collect()
    }
}

fn lane(topic: TopicId) -> Lane {
    Lane { topic, partition: Partition::ZERO }
}

#[test]
fn age_moves_the_start_and_says_so() {
    let mut cleaned = Cleaned::new(Cleaning { age_ms_max: Some(100), ..Cleaning::default() });
    for number in 0..50 {
        cleaned.set_time(number * 10);
        cleaned.publish("k", &number.to_string());
    }
    cleaned.fill();
    cleaned.log.clean(&Holds::default()).unwrap();
    let bytes = cleaned.log.bytes();
    for _ in 0..2 {
        let (records, gaps) = cleaned.read();
        assert_eq!(records[0].offset().get(), 39, "490 - 100");
        assert_eq!(records.len(), 11);
        let (from, to) = (Offset::ZERO, Offset::new(39));
        assert_eq!(gaps, [Gap { lane: cleaned.lane, from, to, reason: GapReason::Expired }]);
        assert_eq!(cleaned.log.lane(cleaned.lane).unwrap().start.get(), 39);
        let key = "k".parse().unwrap();
        assert_eq!(cleaned.log.history(cleaned.lane.topic, &key, 100).unwrap().len(), 11);
        cleaned.reopen();
    }
    assert_eq!(cleaned.log.clean(&Holds::default()).unwrap(), 0, "nothing is left to do");
    assert_eq!(cleaned.log.bytes(), bytes);
}

#[test]
fn holds_keep_what_a_group_has_not_passed() {
    let cleaned = Cleaned::new(Cleaning { age_ms_max: Some(1), ..Cleaning::default() });
    for number in 0..20 {
        cleaned.publish("k", &number.to_string());
    }
    cleaned.set_time(1000);
    cleaned.fill();
    let mut holds = Holds::default();
    holds.keep(cleaned.lane, Offset::new(5));
    cleaned.log.clean(&holds).unwrap();
    assert_eq!(cleaned.read().0[0].offset().get(), 5);
    cleaned.log.clean(&Holds::default()).unwrap();
    assert!(cleaned.read().0.is_empty());
}

#[test]
fn bytes_move_the_start_by_whole_segments() {
    let cleaned = Cleaned::new(Cleaning { bytes_max: Some(20_000), ..Cleaning::default() });
    for number in 0..600 {
        cleaned.publish("k", &number.to_string());
    }
    cleaned.log.settle().unwrap();
    let before = cleaned.log.bytes();
    cleaned.log.clean(&Holds::default()).unwrap();
    let kept: usize = cleaned.read().0.iter().map(Record::bytes).sum();
    assert!(kept >= 20_000, "{kept}");
    assert!(kept <= 20_000 + 3 * 16 * 1024, "{kept}");
    assert!(cleaned.log.bytes() < before);
}

fn compacted(age_ms_min: u64, tombstone_ms: u64) -> Cleaned {
    let compaction = Some(Compaction { age_ms_min, tombstone_ms });
    Cleaned::new(Cleaning { compaction, ..Cleaning::default() })
}

#[test]
fn compaction_keeps_the_newest_of_each_key() {
    let mut cleaned = compacted(0, 1_000_000);
    for number in 0..200 {
        cleaned.publish(&format!("k{}", number % 7), &number.to_string());
    }
    cleaned.fill();
    cleaned.publish("k3", "\"newer\"");
    cleaned.log.clean(&Holds::default()).unwrap();
    for _ in 0..2 {
        assert_eq!(cleaned.payloads(), ["193", "194", "195", "196", "197", "198", "\"newer\""]);
        let (_, gaps) = cleaned.read();
        assert!(gaps.iter().all(|gap| gap.reason == GapReason::Compacted));
        let missing: u64 = gaps.iter().map(|gap| gap.to.get() - gap.from.get()).sum();
        assert_eq!(missing, 201 - 7, "what is missing is said");
        cleaned.reopen();
    }
}

/// Pitfall 36: those who keep up must see every event.
#[test]
fn young_events_are_not_compacted() {
    let cleaned = compacted(100, 0);
    cleaned.publish("k", "1");
    cleaned.set_time(50);
    cleaned.publish("k", "2");
    cleaned.publish("k", "3");
    cleaned.fill();
    cleaned.set_time(120);
    cleaned.log.clean(&Holds::default()).unwrap();
    assert_eq!(cleaned.payloads(), ["2", "3"]);
    cleaned.set_time(200);
    cleaned.log.clean(&Holds::default()).unwrap();
    assert_eq!(cleaned.payloads(), ["3"]);
}

/// Pitfalls 32 and 131: a tombstone stays for its time, and its key never comes back.
#[test]
fn tombstones_go_last() {
    let cleaned = compacted(0, 1000);
    cleaned.publish("k", "1");
    cleaned.publish("other", "1");
    cleaned.fill();
    cleaned.publish("k", "null");
    cleaned.fill();
    cleaned.log.clean(&Holds::default()).unwrap();
    assert_eq!(cleaned.payloads(), ["1", "null"], "the tombstone is kept for readers");
    cleaned.set_time(2000);
    let mut holds = Holds::default();
    holds.keep(cleaned.lane, Offset::new(2));
    cleaned.log.clean(&holds).unwrap();
    assert_eq!(cleaned.payloads(), ["1", "null"], "a group has not passed it");
    cleaned.log.clean(&Holds::default()).unwrap();
    assert_eq!(cleaned.payloads(), ["1"]);
    let key = "k".parse().unwrap();
    assert!(cleaned.log.latest(cleaned.lane.topic, &key).unwrap().is_none());
}

#[test]
fn a_removed_topic_leaves_the_disk() {
    let cleaned = Cleaned::new(Cleaning::default());
    for number in 0..400 {
        cleaned.publish("k", &number.to_string());
    }
    cleaned.fill();
    let before = cleaned.log.bytes();
    cleaned.log.remove(cleaned.lane.topic).wait().unwrap();
    cleaned.log.clean(&Holds::default()).unwrap();
    assert!(cleaned.log.bytes() + 400 * 60 < before);
}

#[test]
fn readers_go_on_while_segments_are_swapped() {
    let cleaned = compacted(0, 0);
    for number in 0..500 {
        cleaned.publish(&format!("k{}", number % 50), &number.to_string());
    }
    cleaned.fill();
    let mut reader = cleaned.log.read(cleaned.lane, Offset::ZERO).unwrap();
    let limit = PageLimit { events: 10, bytes: 1 << 20 };
    let first = reader.next_page(limit).unwrap();
    assert_eq!(first.records.len(), 10);
    cleaned.log.clean(&Holds::default()).unwrap();
    for number in 0..300 {
        append(&cleaned.log, vec![event("b", "k", &number.to_string())]);
    }
    let mut next = 10;
    loop {
        let page = reader.next_page(limit).unwrap();
        for gap in &page.gaps {
            assert_eq!(gap.reason, GapReason::Compacted);
        }
        let Some(last) = page.records.last() else { break };
        next = last.offset().get() + 1;
    }
    assert_eq!(next, 500);
    let newest: Vec<_> = cleaned.payloads();
    assert_eq!(newest, (450..500).map(|number| number.to_string()).collect::<Vec<_>>());
}

/// One damaged segment ended every round before anything was done.
#[test]
fn damage_in_one_segment_keeps_no_other_from_being_cleaned() {
    let mut cleaned = Cleaned::new(Cleaning { age_ms_max: Some(100), ..Cleaning::default() });
    for number in 0..600 {
        cleaned.publish("k", &number.to_string());
    }
    cleaned.fill();
    let damaged = cleaned.directory.path().join("0000000000000000-00000000.seg");
    let mut bytes = std::fs::read(&damaged).unwrap();
    bytes[5_000] ^= 1;
    std::fs::write(&damaged, &bytes).unwrap();
    let before = cleaned.log.bytes();
    cleaned.set_time(1000);
    for round in 0..2 {
        let met = cleaned.log.clean(&Holds::default());
        assert!(matches!(met, Err(CleanError::Read(ReadError::Damaged { .. }))), "{met:?}");
        assert_eq!(std::fs::read(&damaged).unwrap(), bytes, "it may be wanted for repair");
        assert!(cleaned.log.bytes() + 400 * 60 < before, "{round}: {}", cleaned.log.bytes());
        assert_eq!(cleaned.log.clean(&Holds::default()).unwrap(), 0, "it is known by now");
        cleaned.reopen();
    }
}

/// Bytes that the disk does not give ended every round, where bytes that are others than were written did
/// not.
#[test]
fn a_segment_that_cannot_be_read_keeps_no_other_from_being_cleaned() {
    let mut cleaned = Cleaned::new(Cleaning { age_ms_max: Some(100), ..Cleaning::default() });
    for number in 0..600 {
        cleaned.set_time(number);
        cleaned.publish("k", &number.to_string());
    }
    cleaned.fill();
    cleaned.log.close();
    let disk = Watched::new(cleaned.directory.path());
    let options = Cleaned::options(&cleaned.clock);
    cleaned.log = Log::open(Arc::new(disk.clone()), options).unwrap().0;
    disk.spoil("0000000000000000-00000000.seg", 4096..12_000);
    let b = lane(cleaned.log.topic_id(&topic("b")).unwrap());
    cleaned.log.trim(vec![(b, cleaned.log.lane(b).unwrap().next)]).wait().unwrap();
    // The start of a lane cannot be found; then a segment cannot be copied.
    for (now, gone) in [(150, 40 * 250), (1000, 400 * 60)] {
        let before = cleaned.log.bytes();
        cleaned.set_time(now);
        let met = cleaned.log.clean(&Holds::default());
        assert!(matches!(met, Err(CleanError::Read(ReadError::Io(_)))), "{now}: {met:?}");
        assert!(cleaned.log.bytes() + gone < before, "{now}: {}", cleaned.log.bytes());
    }
    assert!(cleaned.log.clean(&Holds::default()).is_ok(), "it is known by now");
}

/// A newest segment of which damage took all events, and not what is behind them, had no time: searches
/// by time passed by the segment before it, and retention gave up what had not expired.
#[test]
fn a_segment_that_lost_all_its_events_hides_none_before_it() {
    let mut cleaned = Cleaned::new(Cleaning { age_ms_max: Some(1000), ..Cleaning::default() });
    let path = cleaned.directory.path().to_owned();
    for number in 0..50 {
        cleaned.set_time(number * 10);
        cleaned.publish("k", &number.to_string());
    }
    while segments(&path).len() < 2 {
        append(&cleaned.log, vec![event("b", "k", "1")]);
    }
    cleaned.log.close();
    let newest = segments(&path).pop().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    let heads = bytes.windows(4).enumerate().filter(|(_, head)| head == b"PFR\x01");
    let heads: Vec<usize> = heads.map(|(place, _)| place).collect();
    assert!(!heads.is_empty());
    heads.into_iter().for_each(|head| bytes[head + 60] ^= 1);
    std::fs::write(&newest, bytes).unwrap();
    for round in 0..3 {
        let (log, report) = Log::open_dir(&path, Cleaned::options(&cleaned.clock)).unwrap();
        cleaned.log = log;
        assert!(!report.damage.is_empty());
        cleaned.publish("k", "50");
        let first = |millis| cleaned.log.offset_at(cleaned.lane, Timestamp::from_millis(millis));
        let found: Vec<u64> = (0..50).map(|at| first(at * 10).unwrap().get()).collect();
        assert_eq!(found, (0..50).collect::<Vec<u64>>(), "{round}");
        cleaned.log.settle().unwrap();
        cleaned.log.close();
    }
    cleaned.set_time(1100);
    cleaned.log = Log::open_dir(&path, Cleaned::options(&cleaned.clock)).unwrap().0;
    cleaned.log.clean(&Holds::default()).unwrap();
    let (records, _) = cleaned.read();
    assert_eq!((records[0].offset().get(), records.len()), (10, 40 + 3));
}
