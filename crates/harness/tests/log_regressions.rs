//! Faults of the log that the simulator has found, each as the shortest story that shows it.

#![expect(clippy::unwrap_used, reason = "what the stories share may stop them")]

use std::sync::Arc;

use promethean_event::{EventId, NewEvent, Offset, Payload, Seq, Timestamp, Topic};
use promethean_harness::log_simulation::{
    CrashStyle, Fault, FaultKind, NameFate, SimClock, SimDisk,
};
use promethean_log::{
    Append, AppendError, Appended, Drive, Durability, Lane, Log, Options, PageLimit,
    TopicDefinition, TopicId,
};

type Answered = Option<Result<Appended, AppendError>>;

fn open(disk: &SimDisk) -> Log {
    let options = Options {
        segment_bytes_min: 4096,
        segment_bytes_max: 16_384,
        free_bytes_min: 0,
        clock: Arc::new(SimClock::at(1000)),
        drive: Drive::Caller,
        ..Options::default()
    };
    Log::open(Arc::new(disk.attach()), options).unwrap().0
}

fn topic() -> Topic {
    "orders".parse().unwrap()
}

fn define(log: &Log) -> TopicId {
    let ticket = log.define(TopicDefinition::new(topic()));
    log.commit_waiting();
    ticket.try_take().unwrap().unwrap()
}

fn event(id: u8, text: &str) -> NewEvent {
    let payload = Payload::parse(format!("\"{text}\"").into_bytes()).unwrap();
    NewEvent::new(EventId::from_bytes([id; 16]), Timestamp::from_millis(1), topic(), payload)
}

/// Appends batches in one commit.
fn commit(log: &Log, batches: Vec<Vec<NewEvent>>, durability: Durability) -> Vec<Answered> {
    let append = |events| log.append(&Append { events, durability, expect: Vec::new() });
    let tickets: Vec<_> = batches.into_iter().map(append).collect();
    log.commit_waiting();
    tickets.iter().map(|ticket| ticket.try_take()).collect()
}

fn offsets(answers: &[Answered]) -> Vec<Option<u64>> {
    let first = |answer: &Answered| {
        let appended = answer.as_ref()?.as_ref().ok()?;
        Some(appended.receipts.first()?.offset.get())
    };
    answers.iter().map(first).collect()
}

#[test]
fn a_refused_batch_takes_no_offsets_back() {
    let log = open(&SimDisk::new(1));
    define(&log);
    commit(&log, vec![vec![event(9, "first")]], Durability::Synced);
    let batches = vec![vec![event(10, "a")], vec![event(9, "other")], vec![event(11, "b")]];
    let answers = commit(&log, batches, Durability::Synced);
    assert_eq!(offsets(&answers), [Some(1), None, Some(2)]);
}

#[test]
fn a_merged_read_starts_at_its_seq_within_a_frame() {
    let log = open(&SimDisk::new(1));
    let lane = Lane { topic: define(&log), partition: promethean_event::Partition::ZERO };
    let batch = (1..=5).map(|id| event(id, "x")).collect();
    commit(&log, vec![batch], Durability::Synced);
    let mut reader = log.read_merged([lane], Seq::new(3)).unwrap();
    let page = reader.next_page(PageLimit::default()).unwrap();
    let seqs: Vec<_> = page.records.iter().map(|record| record.seq().get()).collect();
    assert_eq!(seqs, [3, 4]);
}

#[test]
fn a_full_disk_takes_back_no_place_that_was_given() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    define(&log);
    disk.arm(Some(Fault { at_call: 1, kind: FaultKind::NoSpace }));
    let answers = commit(&log, vec![vec![event(1, "a")]], Durability::None);
    assert!(matches!(answers[0], Some(Err(AppendError::NoSpace))), "{answers:?}");
    let answers = commit(&log, vec![vec![event(2, "b")]], Durability::None);
    assert_eq!(offsets(&answers), [Some(0)]);
}

/// The kernel forgets what a failed sync should have kept, and shows it until the power goes.
#[test]
fn what_is_served_after_a_failed_sync_and_a_restart_survives() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let log = open(&disk);
        let lane = Lane { topic: define(&log), partition: promethean_event::Partition::ZERO };
        disk.arm(Some(Fault { at_call: 2, kind: FaultKind::Error }));
        // Over several sectors: the next frame would write its neighbour in a sector again.
        let long = event(1, &"a".repeat(2000));
        let answers = commit(&log, vec![vec![long]], Durability::Synced);
        assert!(matches!(answers[0], Some(Err(AppendError::StorageFailed(_)))), "{answers:?}");
        disk.kill();
        drop(log);
        let log = open(&disk);
        let served = log.lane(lane).unwrap().next;
        commit(&log, vec![vec![event(2, "b")]], Durability::Synced);
        let style = CrashStyle { kept: 0, odd: 0, names: NameFate::Subset };
        disk.crash(style, seed);
        drop(log);
        let log = open(&disk);
        assert_eq!(log.lane(lane).unwrap().next, served.next());
        let mut reader = log.read(lane, Offset::ZERO).unwrap();
        let page = reader.next_page(PageLimit::default()).unwrap();
        assert_eq!(page.records.len() as u64, served.get() + 1, "{:?}", page.gaps);
    }
}

/// Everything that was promised, read from the start.
fn served(log: &Log, lane: Lane) -> u64 {
    let mut reader = log.read(lane, Offset::ZERO).unwrap();
    let mut count = 0;
    loop {
        let page = reader.next_page(PageLimit::default()).unwrap();
        assert_eq!(page.gaps, []);
        if page.records.is_empty() {
            return count;
        }
        count += page.records.len() as u64;
    }
}

/// A disk that is full when the power comes back: the log opens, wherever it was cut off (a segment
/// without a side file, one that is sealed and nothing behind it), serves what it has, and goes on
/// when there is room. Before, the next segment or a side file that was not there yet was in the way.
#[test]
fn a_full_disk_does_not_keep_a_log_from_being_opened() {
    let (mut crashed, mut refused) = (0, 0);
    for at_call in 1..220 {
        let disk = SimDisk::new(at_call);
        let log = open(&disk);
        let lane = Lane { topic: define(&log), partition: promethean_event::Partition::ZERO };
        disk.arm(Some(Fault { at_call, kind: FaultKind::Crash }));
        let mut acked = 0;
        for number in 0..60_u8 {
            let batch = vec![event(number, &"x".repeat(300))];
            let answers = commit(&log, vec![batch], Durability::Synced);
            if offsets(&answers) != [Some(acked)] {
                break;
            }
            acked += 1;
            // Now and then: a crash finds segments without side files, too.
            if number % 25 == 24 {
                let _ = log.maintain();
            }
        }
        crashed += u32::from(acked < 60);
        let style = CrashStyle { kept: 500, odd: 500, names: NameFate::Subset };
        disk.crash(style, at_call);
        drop(log);
        disk.set_capacity(disk.used());
        let log = open(&disk);
        let has = served(&log, lane);
        assert!(has >= acked, "at call {at_call}: {has} of {acked}");
        let big = |id| vec![event(id, &"x".repeat(9_000))];
        let answers = commit(&log, vec![big(98)], Durability::Synced);
        // Unless a file lies ready that it fits into.
        let refusal = matches!(answers[0], Some(Err(AppendError::NoSpace)));
        assert!(refusal || offsets(&answers) == [Some(has)], "{at_call}: {answers:?}");
        refused += u32::from(refusal);
        disk.set_capacity(u64::MAX);
        let next = has + u64::from(!refusal);
        let answers = commit(&log, vec![big(99)], Durability::Synced);
        assert_eq!(offsets(&answers), [Some(next)], "at call {at_call}");
        drop(log);
        assert_eq!(served(&open(&disk), lane), next + 1);
    }
    assert!(crashed > 100 && refused > 50, "{crashed} {refused}");
}

/// A damaged segment that was restored from a copy, on a disk without room for another side file: the one
/// that there was had been removed first, and the log did not open.
#[test]
fn a_full_disk_does_not_keep_a_restored_log_from_being_opened() {
    let disk = SimDisk::new(1);
    let log = open(&disk);
    let lane = Lane { topic: define(&log), partition: promethean_event::Partition::ZERO };
    for number in 0..60_u8 {
        commit(&log, vec![vec![event(number, &"x".repeat(300))]], Durability::Synced);
        log.maintain().unwrap();
    }
    log.close();
    drop(log);
    let mut image = disk.image();
    let restored = image.keys().find(|name| name.ends_with(".seg")).unwrap().clone();
    let side = restored.replace(".seg", ".idx");
    let good = image[&restored].clone();
    image.get_mut(&restored).unwrap()[2000] ^= 1;
    image.remove(&side).unwrap();
    let disk = SimDisk::from_image(image, 1);
    // Its side file is built, and tells of the damage.
    drop(open(&disk));
    let mut image = disk.image();
    assert!(image.contains_key(&side));
    image.insert(restored, good);
    let disk = SimDisk::from_image(image, 1);
    disk.set_capacity(disk.used());
    for _ in 0..2 {
        let log = open_again(&disk);
        assert_eq!(log.lane(lane).unwrap().next, Offset::new(60));
        let read = log.read(lane, Offset::ZERO).unwrap().next_page(PageLimit::default()).unwrap();
        assert!(read.records.len() > 50);
        assert!(disk.image().keys().all(|name| !name.ends_with(".tmp")), "nothing is in the way");
    }
    disk.set_capacity(u64::MAX);
    disk.kill();
    assert_eq!(served(&open(&disk), lane), 60);
}

fn open_again(disk: &SimDisk) -> Log {
    disk.kill();
    open(disk)
}

/// No room for the seal: the file that was made ready to follow stayed where it was, with the catalog of
/// that moment. One that was made ready later had the same seq, and a crash before it got its name let
/// recovery take the older one.
#[test]
fn a_segment_that_could_not_be_sealed_leaves_none_that_would_follow() {
    let (mut refused, mut crashed) = (0, 0);
    for at_call in 1..40 {
        for crash_at in 1..30 {
            let disk = SimDisk::new(at_call);
            let log = open(&disk);
            define(&log);
            disk.arm(Some(Fault { at_call, kind: FaultKind::NoSpace }));
            let mut number = 0_u8;
            let full = std::iter::from_fn(|| {
                number += 1;
                let batch = vec![event(number, &"x".repeat(300))];
                commit(&log, vec![batch], Durability::Synced).pop().flatten()
            });
            let full = full.take(40).any(|answer| matches!(answer, Err(AppendError::NoSpace)));
            disk.arm(None);
            if !full || log.failure().is_some() {
                continue;
            }
            refused += 1;
            let later: Topic = "later".parse().unwrap();
            let ticket = log.define(TopicDefinition::new(later.clone()));
            log.commit_waiting();
            ticket.try_take().unwrap().unwrap();
            disk.arm(Some(Fault { at_call: crash_at, kind: FaultKind::Crash }));
            for number in 100..130_u8 {
                commit(&log, vec![vec![event(number, &"x".repeat(300))]], Durability::Synced);
            }
            crashed += u32::from(disk.is_off());
            disk.crash(CrashStyle { kept: 500, odd: 0, names: NameFate::Prefix }, crash_at);
            drop(log);
            drop(open(&disk));
            let log = open_again(&disk);
            assert!(log.topic_id(&later).is_some(), "at call {at_call}, crash at {crash_at}");
        }
    }
    assert!(refused > 50 && crashed > 50, "{refused} {crashed}");
}

/// Who does not ask for a sync loses a second at most, also where there is never a pause.
#[test]
fn what_is_only_written_is_synced_in_time() {
    let disk = SimDisk::new(1);
    let clock = SimClock::at(1000);
    let options = Options {
        free_bytes_min: 0,
        clock: Arc::new(clock.clone()),
        drive: Drive::Caller,
        ..Options::default()
    };
    let log = Log::open(Arc::new(disk.attach()), options).unwrap().0;
    let lane = Lane { topic: define(&log), partition: promethean_event::Partition::ZERO };
    for number in 0..100_u8 {
        clock.advance(100);
        let answers = commit(&log, vec![vec![event(number, "x")]], Durability::Written);
        assert_eq!(offsets(&answers), [Some(u64::from(number))]);
    }
    // Before the log is closed, which would sync it.
    disk.crash(CrashStyle { kept: 0, odd: 0, names: NameFate::Subset }, 1);
    drop(log);
    let kept = open(&disk).lane(lane).unwrap().next.get();
    assert!((89..100).contains(&kept), "{kept} of 100, ten to a second");
}
