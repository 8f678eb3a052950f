//! What the log bounds and leaves: room, time, counts.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use promethean_event::{Offset, PartitionCount, Tag, Timestamp, Topic};
use promethean_log::{
    Append, AppendError, Appended, Cleaning, Clock, Drive, Durability, Holds, Lane, LaneState, Log,
    OpenError, Options, Part, TopicDefinition, WrittenBy,
};

use crate::order_and_search::{append, define, event, lane, small, topic};
use crate::watched::Watched;

/// What nobody waited for to be synced was synced when the next one asked for it, or never.
#[test]
fn what_is_only_written_is_synced_when_nothing_happens() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Watched::new(directory.path());
    let options = Options { spare_segments: 0, ..small() };
    let (log, _) = Log::open(Arc::new(disk.clone()), options).unwrap();
    define(&log, "a", 1);
    for round in 0..6 {
        for durability in [Durability::Written, Durability::None] {
            let before = disk.syncs();
            let append = Append { events: vec![event("a", "k", "1")], durability, expect: vec![] };
            match round % 2 {
                0 => log.append(&append).wait().unwrap(),
                _ => log.append_here(&append).unwrap(),
            };
            assert!(disk.wait_for_sync_beyond(before), "{round} {durability:?}");
        }
    }
}

/// Stands still until it is set.
#[derive(Debug, Default)]
struct HandClock(AtomicU64);

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}

fn written(key: &str) -> Append {
    let durability = Durability::Written;
    Append { events: vec![event("a", key, "1")], durability, expect: vec![] }
}

/// A log whose time and turns are the test's.
fn driven(disk: &Watched) -> (Log, Arc<HandClock>) {
    let clock = Arc::new(HandClock::default());
    let drive = Drive::Caller;
    let own = Arc::clone(&clock) as Arc<dyn Clock>;
    let options = Options { spare_segments: 0, drive, clock: own, ..Options::default() };
    let (log, _) = Log::open(Arc::new(disk.clone()), options).unwrap();
    let defined = log.define(TopicDefinition::new(topic("a")));
    log.commit_waiting();
    defined.wait().unwrap();
    (log, clock)
}

/// Only turns in which something was written looked at how long something had been unsynced.
#[test]
fn what_is_only_written_is_synced_in_time_while_all_else_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Watched::new(directory.path());
    let (log, clock) = driven(&disk);
    let first = written("k");
    log.append_here(&first).unwrap();
    let before = disk.syncs();
    let mut other = first;
    other.events[0].payload = promethean_event::Payload::parse("2").unwrap();
    for millis in (0..1500).step_by(100) {
        clock.0.store(millis, Ordering::Relaxed);
        assert!(matches!(log.append_here(&other), Err(AppendError::IdConflict { .. })));
        assert_eq!(disk.syncs() - before, u64::from(millis >= 1000), "{millis}");
    }
}

/// A sync ended the time of what was unsynced only if a frame was written with it: the next publisher
/// waited for one that he had not asked for.
#[test]
fn what_is_synced_is_not_old_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Watched::new(directory.path());
    let (log, clock) = driven(&disk);
    log.append_here(&written("k")).unwrap();
    let synced = log.sync();
    log.commit_waiting();
    synced.wait().unwrap();
    let before = disk.syncs();
    clock.0.store(5000, Ordering::Relaxed);
    log.append_here(&written("k")).unwrap();
    clock.0.store(5999, Ordering::Relaxed);
    log.append_here(&written("k")).unwrap();
    assert_eq!(disk.syncs(), before);
    clock.0.store(6000, Ordering::Relaxed);
    log.append_here(&written("k")).unwrap();
    assert_eq!(disk.syncs(), before + 1);
}

/// Events of half a megabyte in one segment, which is made by its length only.
fn growing() -> Options {
    let bytes = 16 * 1024 * 1024;
    Options {
        drive: Drive::Caller,
        spare_segments: 0,
        segment_bytes_min: bytes,
        segment_bytes_max: bytes,
        free_bytes_min: 1000,
        ..Options::default()
    }
}

/// Where a topic is the system's and one is not.
fn growing_log(disk: &Watched, options: Options) -> Log {
    let (log, _) = Log::open(Arc::new(disk.clone()), options).unwrap();
    for name in [topic("a"), Topic::system("$state").unwrap()] {
        let defined = log.define(TopicDefinition::new(name));
        log.commit_waiting();
        defined.wait().unwrap();
    }
    log
}

fn large() -> Append {
    let payload = format!("\"{}\"", "x".repeat(500_000));
    let events = (0..3).map(|at| event("a", &format!("k{at}"), &payload)).collect();
    Append { events, ..Append::default() }
}

fn state() -> Append {
    let mut state = event("a", "k", "1");
    state.topic = Topic::system("$state").unwrap();
    Append { events: vec![state], ..Append::default() }
}

/// A file that grows with what is written takes room that was to be left for the system.
#[test]
fn events_leave_room_for_the_system_in_a_segment_that_grows() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Watched::new(directory.path());
    let log = growing_log(&disk, growing());
    let publish = || log.append_here(&large());
    publish().unwrap();
    disk.set_free(999);
    assert!(matches!(publish(), Err(AppendError::NoSpace)));
    assert!(matches!(publish(), Err(AppendError::NoSpace)), "it is asked again");
    log.append_here(&state()).unwrap();
    disk.set_free(1000);
    publish().unwrap();
}

/// What was written in one frame with events, or came in one batch with them, was refused with them: on a
/// disk that is full there was no state any more while anybody tried to publish.
#[test]
fn the_system_has_its_room_while_others_publish() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = 256 * 1024;
    let filled = Options { segment_bytes_min: bytes, segment_bytes_max: bytes, ..growing() };
    for (number, options) in [growing(), filled].into_iter().enumerate() {
        let directory = directory.path().join(number.to_string());
        let disk = Watched::new(&directory);
        let log = growing_log(&disk, options);
        let small = |key: &str| Append { events: vec![event("a", key, "1")], ..Append::default() };
        let payload = format!("\"{}\"", "x".repeat(30_000));
        let medium = || Append { events: vec![event("a", "k", &payload)], ..Append::default() };
        while log.bytes() < 200_000 {
            log.append_here(&medium()).unwrap();
        }
        disk.set_free(0);
        (0..).find(|_| log.append_here(&medium()).is_err()).unwrap();
        let users = |answers: Vec<Result<Appended, AppendError>>| -> Vec<bool> {
            let refused = answers.into_iter().map(|answer| match answer {
                Err(AppendError::NoSpace) => true,
                answer => answer.unwrap().receipts.is_empty(),
            });
            refused.collect()
        };
        let appends = [medium(), state(), small("k"), state(), small("l"), state()];
        let tickets = appends.each_ref().map(|append| log.append(append));
        log.commit_waiting();
        let answers = tickets.map(|ticket| ticket.wait()).into_iter().collect();
        assert_eq!(users(answers), [true, false, true, false, true, false], "{number}");
        // The same for those that come together.
        let parts = appends.each_ref().map(|_| Part { events: 1, ..Part::default() });
        let events: Vec<_> = appends.iter().flat_map(|append| append.events.clone()).collect();
        let mut run = std::pin::pin!(log.append_run(&events, &parts, WrittenBy::Writer));
        log.commit_waiting();
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(answers) = run.as_mut().poll(&mut context) else { panic!("answered") };
        assert_eq!(users(answers), [true, false, true, false, true, false], "{number}");
    }
}

/// After the log was opened again its newest segment passed for one that was filled ahead, and nothing
/// was left for the system any more. So did a spare file.
#[test]
fn events_leave_room_for_the_system_in_a_segment_that_was_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Watched::new(directory.path());
    let log = growing_log(&disk, growing());
    log.append_here(&large()).unwrap();
    drop(log);
    disk.set_free(999);
    let (log, _) = Log::open(Arc::new(disk.clone()), growing()).unwrap();
    assert!(matches!(log.append_here(&large()), Err(AppendError::NoSpace)));
    log.append_here(&state()).unwrap();
    drop(log);
    let spare = std::fs::File::create(directory.path().join("00000007.spare")).unwrap();
    spare.set_len(16 * 1024 * 1024).unwrap();
    let (log, _) = Log::open(Arc::new(disk.clone()), growing()).unwrap();
    disk.set_free(u64::MAX);
    while directory.path().join("00000007.spare").exists() {
        log.append_here(&large()).unwrap();
    }
    disk.set_free(999);
    assert!((0..2).all(|_| matches!(log.append_here(&large()), Err(AppendError::NoSpace))));
    log.append_here(&state()).unwrap();
}

/// No room for the seal, and the file that was made ready to follow could not be removed: the log went on,
/// and a crash could let recovery take that file, with the topics of that moment, for a later one.
#[test]
fn a_log_does_not_go_on_beside_a_head_that_cannot_be_taken_back() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Watched::new(directory.path());
    let options = Options { spare_segments: 0, drive: Drive::Caller, ..small() };
    let (log, _) = Log::open(Arc::new(disk.clone()), options.clone()).unwrap();
    let defined = log.define(TopicDefinition::new(topic("a")));
    log.commit_waiting();
    defined.wait().unwrap();
    let publish = |log: &Log| {
        let events = vec![event("a", "k", "1")];
        log.append_here(&Append { events, ..Append::default() })
    };
    disk.set_stuck(true);
    let written = (0..).find_map(|number| publish(&log).err().map(|error| (number, error)));
    let (written, error) = written.unwrap();
    assert!(matches!(error, AppendError::StorageFailed(_)), "{error:?}");
    assert!(log.failure().is_some());
    drop(log);
    disk.set_stuck(false);
    let (log, _) = Log::open(Arc::new(disk.clone()), options).unwrap();
    assert_eq!(log.next_seq().get(), written);
    publish(&log).unwrap();
}

/// The lock of the directory went to the next process while the cleaner still renamed and removed.
#[test]
fn a_log_is_closed_when_the_cleaner_has_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Watched::new(directory.path());
    let options = Options { clean_share_min: 0.0, ..small() };
    let (log, _) = Log::open(Arc::new(disk.clone()), options).unwrap();
    let cleaning = Cleaning { bytes_max: Some(1), ..Cleaning::default() };
    let definition = TopicDefinition::new(topic("a")).with_cleaning(cleaning);
    log.define(definition).wait().unwrap();
    for number in 0..300 {
        append(&log, vec![event("a", "k", &number.to_string())]);
    }
    log.settle().unwrap();
    disk.hold_renames(true);
    let closed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let cleaner = scope.spawn(|| log.clean(&Holds::default()));
        assert!(disk.wait_until_holding());
        let closer = scope.spawn(|| {
            log.close();
            closed.store(true, Ordering::Release);
        });
        // As long as a log takes to close that does not wait, and more.
        for _ in 0..50 {
            if closed.load(Ordering::Acquire) {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        let early = closed.load(Ordering::Acquire);
        disk.hold_renames(false);
        closer.join().unwrap();
        let _ = cleaner.join().unwrap();
        assert!(!early, "closed while a segment was being replaced");
    });
}

/// The count of a record's tags is one byte: more were stored as something else.
#[test]
fn an_event_over_its_limits_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = Log::open_dir(directory.path(), small()).unwrap();
    let a = define(&log, "a", 1);
    let tag = Tag::new("t").unwrap();
    for count in [33, 257, 300] {
        let mut over = event("a", "k", "1");
        over.tags = vec![tag.clone(); count];
        let events = vec![event("a", "k", "0"), over];
        let refused = log.append(&Append { events, ..Append::default() }).wait();
        let refused = format!("{:?}", refused.unwrap_err());
        assert!(refused.contains(&format!("TooManyTags({count})")), "{refused}");
    }
    assert_eq!(log.lane(lane(a, 0)).unwrap().next, Offset::ZERO);
}

/// All partitions of all topics stand at the start of each segment. What was more than the longest frame
/// of events was written, and never read again: the log did not open any more.
#[test]
fn a_catalog_of_more_than_a_frame_is_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { drive: Drive::Caller, spare_segments: 0, ..small() };
    let (log, _) = Log::open_dir(directory.path(), options.clone()).unwrap();
    let partitions = 65_536;
    let state = LaneState { start: Offset::ZERO, next: Offset::new(3) };
    let mut lanes: Vec<(Lane, LaneState)> = Vec::new();
    for number in 0..22 {
        let name = topic(&format!("t{number}"));
        let count = PartitionCount::new(partitions).unwrap();
        let defined = log.define(TopicDefinition::new(name).with_partitions(count));
        log.commit_waiting();
        let id = defined.wait().unwrap();
        lanes.extend((0..partitions).map(|partition| (lane(id, partition), state)));
    }
    let last = lanes.last().unwrap().0;
    let placed = log.place(lanes);
    log.commit_waiting();
    placed.wait().unwrap();
    // It is closed with enough in it to be sealed, and the catalog of all stands at the next one's start.
    log.close();
    drop(log);
    let (log, report) = Log::open_dir(directory.path(), options).unwrap();
    assert_eq!((report.damage, report.torn_tail), (vec![], None));
    assert_eq!(log.lane(last), Some(state));
}

/// Every publisher was told that the log is busy.
#[test]
fn a_queue_that_takes_nothing_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for options in
        [Options { queue_bytes_max: 0, ..small() }, Options { queue_requests_max: 0, ..small() }]
    {
        let opened = Log::open_dir(directory.path(), options);
        assert!(matches!(opened, Err(OpenError::Options(_))), "{opened:?}");
    }
}

/// What was appended there later was never read, and the search by time panicked.
#[test]
fn a_lane_is_not_trimmed_to_beyond_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = Log::open_dir(directory.path(), small()).unwrap();
    let a = lane(define(&log, "a", 1), 0);
    append(&log, vec![event("a", "k", "1")]);
    log.trim(vec![(a, Offset::new(10))]).wait().unwrap();
    let end = LaneState { start: Offset::new(1), next: Offset::new(1) };
    assert_eq!(log.lane(a), Some(end));
    let appended = append(&log, vec![event("a", "k", "2")]).appended_at;
    assert_eq!(log.offset_at(a, Timestamp::from_millis(1)).unwrap(), Offset::new(1));
    assert!(log.offset_at(a, appended).unwrap() >= Offset::new(1));
    let key = "k".parse().unwrap();
    assert_eq!(log.history(a.topic, &key, 10).unwrap().len(), 1);
}
