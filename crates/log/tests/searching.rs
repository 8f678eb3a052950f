//! Where a lane stands at a time or a seq, also while segments are sealed, and beside damage.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use promethean_event::{Offset, Seq, Timestamp};
use promethean_log::{
    Append, Cleaning, Clock, Compaction, Durability, Gap, GapReason, Holds, Lane, Log,
    MergedReader, Options, PageLimit, ReadError, Record, TopicDefinition,
};

use crate::order_and_search::{append, define, event, lane, small, topic};

/// Every look is a millisecond later, so that no two events have one time.
#[derive(Debug, Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

fn ticking() -> Options {
    Options { clock: Arc::new(Ticking::default()), ..small() }
}

fn merged(log: &Log, lanes: &[Lane], from: u64) -> (Vec<Record>, Vec<Gap>) {
    let mut reader = log.read_merged(lanes.iter().copied(), Seq::new(from)).unwrap();
    all_of(&mut reader)
}

fn all_of(reader: &mut MergedReader) -> (Vec<Record>, Vec<Gap>) {
    let (mut records, mut gaps) = (Vec::new(), Vec::new());
    loop {
        let page = reader.next_page(PageLimit::default()).unwrap();
        gaps.extend(page.gaps);
        if page.records.is_empty() {
            return (records, gaps);
        }
        records.extend(page.records);
    }
}

/// A search looked at the sealed segments and at the one that is written one after the other: one that
/// was sealed in between was in neither, and the search began behind all of it.
#[test]
fn a_search_misses_no_segment_that_is_sealed_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes_min: 4096, segment_bytes_max: 4096, ..ticking() };
    let (log, _) = Log::open_dir(directory.path(), options).unwrap();
    let a = lane(define(&log, "a", 1), 0);
    // The offset of an event that is there, and its time; they rise together.
    let (newest, time) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let searches = || {
            while !done.load(Ordering::Acquire) {
                let millis = time.load(Ordering::Acquire);
                let offset = newest.load(Ordering::Acquire);
                if millis == 0 {
                    continue;
                }
                let found = log.offset_at(a, Timestamp::from_millis(millis)).unwrap().get();
                if found > offset {
                    return Some(format!("time {millis}: {found}, not {offset}"));
                }
                let mut reader = log.read_merged([a], Seq::new(offset)).unwrap();
                let page = reader.next_page(PageLimit { events: 1, bytes: 1 }).unwrap();
                let first = page.records.first().map(|record| record.seq().get());
                if first != Some(offset) {
                    return Some(format!("seq {offset}: {first:?}"));
                }
            }
            None
        };
        let searchers = [scope.spawn(searches), scope.spawn(searches), scope.spawn(searches)];
        for _ in 0..12_000 {
            let events = vec![event("a", "k", "1")];
            let durability = Durability::Written;
            let appended = log.append_here(&Append { events, durability, ..Append::default() });
            let appended = appended.unwrap();
            newest.store(appended.receipts[0].offset.get(), Ordering::Release);
            time.store(appended.appended_at.millis(), Ordering::Release);
        }
        done.store(true, Ordering::Release);
        let wrong = searchers.map(|searcher| searcher.join().unwrap());
        assert_eq!(wrong, [None, None, None]);
    });
}

fn flip(path: &Path, position: u64, bit: u32) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], position).unwrap();
}

/// The heads of frames were believed as they stood: one flipped bit of a time or a length led a search
/// past events that are there, or into nowhere.
#[test]
fn a_search_believes_no_damaged_head() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = Log::open_dir(directory.path(), ticking()).unwrap();
    let a = lane(define(&log, "a", 1), 0);
    let mut times = Vec::new();
    for number in 0..200 {
        times.push(append(&log, vec![event("a", "k", &number.to_string())]).appended_at);
    }
    log.settle().unwrap();
    let oldest = directory.path().join("0000000000000000-00000000.seg");
    let bytes = std::fs::read(&oldest).unwrap();
    let heads = bytes.windows(3).enumerate().filter(|(_, magic)| magic == b"PFR");
    let heads: Vec<_> = heads.map(|(place, _)| place as u64).collect();
    let (mut told, mut right) = (0, 0);
    // The kind, the length, the seq and the time of a frame of events, behind the catalogs.
    for (field, bit) in [(3, 1), (4, 0), (5, 3), (16, 2), (17, 0), (24, 1), (25, 3), (27, 0)] {
        let head = heads[20];
        flip(&oldest, head + field, bit);
        for (offset, &time) in times.iter().enumerate().take(60) {
            match log.offset_at(a, time) {
                Ok(found) => assert_eq!(found.get(), offset as u64, "{field}, {bit}"),
                Err(ReadError::Damaged { .. }) => told += 1,
                Err(other) => panic!("{other:?}"),
            }
            let mut reader = log.read_merged([a], Seq::new(offset as u64)).unwrap();
            let (records, gaps) = all_of(&mut reader);
            // Records are read by their own sums: none is lost by the head of its frame.
            assert_eq!((records.len(), gaps.len()), (times.len() - offset, 0), "{field}, {bit}");
            right += 1;
        }
        flip(&oldest, head + field, bit);
    }
    assert!(told > 100 && right > 400, "{told} {right}");
}

/// Promise 11: a reader by seq was begun behind what was missing, and nobody was told.
#[test]
fn reading_by_seq_says_what_is_missing_at_its_beginning() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { clean_share_min: 0.0, ..ticking() };
    let (log, _) = Log::open_dir(directory.path(), options.clone()).unwrap();
    let compaction = Some(Compaction { age_ms_min: 0, tombstone_ms: 1_000_000 });
    let cleaning = Cleaning { compaction, ..Cleaning::default() };
    let definition = TopicDefinition::new(topic("a")).with_cleaning(cleaning);
    let a = lane(log.define(definition).wait().unwrap(), 0);
    let b = lane(define(&log, "b", 1), 0);
    // Seqs 0 to 199, of which the last seven stay.
    for number in 0..200 {
        append(&log, vec![event("a", &format!("k{}", number % 7), "1")]);
    }
    let filling = format!("\"{}\"", "x".repeat(200));
    for _ in 0..200 {
        append(&log, vec![event("b", "k", &filling)]);
    }
    log.settle().unwrap();
    log.clean(&Holds::default()).unwrap();
    let told = |from: u64, lane: Lane| {
        let (records, gaps) = merged(&log, &[lane], from);
        assert!(records.iter().all(|record| record.seq().get() >= from));
        let all = gaps.iter().map(|gap| (gap.from.get(), gap.to.get(), gap.reason));
        (records.len(), all.collect::<Vec<_>>())
    };
    assert_eq!(told(0, a), (7, vec![(0, 193, GapReason::Compacted)]));
    let (count, gaps) = told(100, a);
    assert_eq!((count, gaps.len()), (7, 1));
    assert!(gaps[0].0 <= 100 && gaps[0].1 == 193, "{gaps:?}");
    assert_eq!(told(195, a), (5, vec![]), "the one before is there");
    // Of the other one the oldest are given up.
    assert_eq!(told(250, b), (150, vec![]));
    log.trim(vec![(b, Offset::new(80))]).wait().unwrap();
    assert_eq!(told(0, b), (120, vec![(0, 80, GapReason::Expired)]));
    assert_eq!(told(250, b), (120, vec![(50, 80, GapReason::Expired)]));
    assert_eq!(told(330, b), (70, vec![]));
    log.close();
    drop(log);
    // And what is in a segment that is gone.
    let entries = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().unwrap_or_default() == "seg").collect();
    files.sort();
    std::fs::remove_file(&files[files.len() - 2]).unwrap();
    let (log, report) = Log::open_dir(directory.path(), options).unwrap();
    let seqs = report.damage[0].seqs.clone();
    let (_, gaps) = merged(&log, &[b], seqs.start + 1);
    let gap = gaps[0];
    assert_eq!(gap.reason, GapReason::Corrupt, "{gaps:?}");
    assert_eq!((gap.from.get(), gap.to.get()), (seqs.start - 200, seqs.end - 200));
}
