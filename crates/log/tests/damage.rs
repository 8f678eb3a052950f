//! What a log does about bytes that are not what was written.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use promethean_event::Offset;
use promethean_log::{GapReason, Glimpse, Log, OpenError, PageLimit, RealDisk, survey};

use crate::order_and_search::{append, define, event, fill, lane, small};

fn written(count: usize) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = Log::open_dir(directory.path(), small()).unwrap();
    define(&log, "a", 1);
    define(&log, "b", 1);
    fill(&log, count);
    log.settle().unwrap();
    log.close();
    directory
}

fn files(path: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|known| known == extension)).collect();
    files.sort();
    files
}

fn flip(path: &Path, position: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], position).unwrap();
}

fn problems(path: &Path) -> Vec<String> {
    let disk = RealDisk::open_existing(path).unwrap();
    survey(&disk).unwrap().damage.iter().map(|damage| damage.file.clone()).collect()
}

#[test]
fn a_good_log_has_no_problems() {
    let directory = written(600);
    let survey = survey(&RealDisk::open_existing(directory.path()).unwrap()).unwrap();
    assert_eq!(survey.damage, []);
    assert_eq!(survey.torn_tail, None);
    assert_eq!(survey.segments.iter().map(|segment| segment.events).sum::<u64>(), 600);
    assert_eq!(survey.topics.iter().map(|topic| topic.events).sum::<u64>(), 600);
    assert!(survey.segments.len() > 3);
}

#[test]
fn a_flipped_bit_in_a_sealed_segment_is_reported_to_the_reader() {
    let directory = written(600);
    let oldest = files(directory.path(), "seg")[0].clone();
    flip(&oldest, 5000);
    let name = oldest.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(problems(directory.path()), [name]);
    let (log, _) = Log::open_dir(directory.path(), small()).unwrap();
    let mut corrupt = 0;
    let mut seen = 0;
    for number in 0..2 {
        let topic = log.topic_id(&["a", "b"][number].parse().unwrap()).unwrap();
        let mut reader = log.read(lane(topic, 0), Offset::ZERO).unwrap();
        loop {
            let page = reader.next_page(PageLimit::default()).unwrap();
            corrupt += page.gaps.iter().filter(|gap| gap.reason == GapReason::Corrupt).count();
            if page.records.is_empty() {
                break;
            }
            seen += page.records.len();
        }
    }
    assert_eq!((seen, corrupt), (599, 1), "one event is lost, and its place is named");
}

#[test]
fn damage_in_the_newest_segment_is_not_taken_for_a_torn_tail() {
    let directory = written(40);
    let newest = files(directory.path(), "seg").pop().unwrap();
    flip(&newest, 2000);
    assert_eq!(problems(directory.path()).len(), 1);
    let (log, report) = Log::open_dir(directory.path(), small()).unwrap();
    assert_eq!(report.damage.len(), 1);
    assert_eq!(report.damage[0].seqs.end - report.damage[0].seqs.start, 1);
    assert_eq!(report.torn_tail, None);
    assert_eq!(log.next_seq().get(), 40, "all behind the damage is still there");
    let again = append(&log, vec![event("a", "k", "1")]);
    assert_eq!(again.receipts[0].seq.get(), 40);
}

#[test]
fn a_torn_tail_is_cut_and_reported() {
    let directory = written(40);
    let newest = files(directory.path(), "seg").pop().unwrap();
    let (log, _) = Log::open_dir(directory.path(), small()).unwrap();
    append(&log, vec![event("a", "k", "1")]);
    drop(log);
    // The last frame and the mark behind it, half written.
    let bytes = std::fs::read(&newest).unwrap();
    let used = bytes.len() - bytes.iter().rev().take_while(|&&byte| byte == 0).count();
    let file = std::fs::OpenOptions::new().write(true).open(&newest).unwrap();
    file.write_all_at(&[0; 120], used as u64 - 120).unwrap();
    let (log, report) = Log::open_dir(directory.path(), small()).unwrap();
    assert_eq!(report.damage, []);
    assert!(report.torn_tail.is_some());
    assert_eq!(log.next_seq().get(), 40);
    append(&log, vec![event("a", "k", "2")]);
    drop(log);
    assert_eq!(Log::open_dir(directory.path(), small()).unwrap().0.next_seq().get(), 41);
}

/// The last frame of a log that was killed has no witness behind it: that it is damaged looks as if it
/// had never been finished. It is reported all the same, whichever of its bytes it is.
#[test]
fn damage_to_the_very_last_frame_is_reported() {
    let directory = written(40);
    let newest = files(directory.path(), "seg").pop().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    let frames = |bytes: &[u8]| -> Vec<usize> {
        let found = bytes.windows(3).enumerate().filter(|(_, magic)| magic == b"PFR");
        found.map(|(place, _)| place).collect()
    };
    // As if it had not been closed.
    let closed = *frames(&bytes).last().unwrap();
    bytes[closed..].fill(0);
    let last = *frames(&bytes).last().unwrap();
    for place in last..closed {
        let mut bad = bytes.clone();
        bad[place] ^= 0x10;
        std::fs::write(&newest, &bad).unwrap();
        let survey = survey(&RealDisk::open_existing(directory.path()).unwrap()).unwrap();
        assert!(survey.torn_tail.is_some() || !survey.damage.is_empty(), "byte {}", place - last);
    }
}

#[test]
fn a_later_format_is_refused_untouched() {
    let directory = written(40);
    let newest = files(directory.path(), "seg").pop().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&newest).unwrap();
    file.write_all_at(&[99], 8).unwrap();
    let before: Vec<_> =
        files(directory.path(), "seg").iter().map(std::fs::read).map(Result::unwrap).collect();
    let opened = Log::open_dir(directory.path(), small());
    assert!(matches!(opened, Err(OpenError::UnknownFormat { version: 99, .. })));
    let after: Vec<_> =
        files(directory.path(), "seg").iter().map(std::fs::read).map(Result::unwrap).collect();
    assert_eq!(before, after);
}

#[test]
fn swapped_missing_and_foreign_segments_are_noticed() {
    let directory = written(600);
    let segments = files(directory.path(), "seg");
    let (one, other) = (&segments[0], &segments[1]);
    let aside = directory.path().join("aside");
    std::fs::rename(one, &aside).unwrap();
    std::fs::rename(other, one).unwrap();
    std::fs::rename(&aside, other).unwrap();
    assert!(!problems(directory.path()).is_empty());
    let (log, report) = Log::open_dir(directory.path(), small()).unwrap();
    assert_eq!(report.damage.iter().filter(|damage| !damage.bytes.is_empty()).count(), 2);
    drop(log);
    assert_eq!(files(directory.path(), "damaged").len(), 2, "set aside, not deleted");

    let directory = written(600);
    std::fs::remove_file(&files(directory.path(), "seg")[1]).unwrap();
    let (_, report) = Log::open_dir(directory.path(), small()).unwrap();
    assert!(report.damage[0].seqs.end > report.damage[0].seqs.start, "the seqs are named");

    let directory = written(40);
    let foreign = written(600);
    let stray = &files(foreign.path(), "seg")[1];
    std::fs::copy(stray, directory.path().join(stray.file_name().unwrap())).unwrap();
    let opened = Log::open_dir(directory.path(), small());
    assert!(matches!(opened, Err(OpenError::ForeignSegment { .. })));
}

#[test]
fn a_damaged_side_file_is_built_again() {
    let directory = written(600);
    for (number, path) in files(directory.path(), "idx").iter().enumerate() {
        flip(path, 100 + number as u64 * 7);
    }
    assert!(!problems(directory.path()).is_empty());
    let (log, _) = Log::open_dir(directory.path(), small()).unwrap();
    let topic = log.topic_id(&"a".parse().unwrap()).unwrap();
    let key = "key-01".parse().unwrap();
    assert_eq!(log.history(topic, &key, 1000).unwrap().len(), 20);
    drop(log);
    assert_eq!(problems(directory.path()), Vec::<String>::new());
}

fn heads(bytes: &[u8]) -> Vec<usize> {
    let found = bytes.windows(3).enumerate().filter(|(_, magic)| magic == b"PFR");
    found.map(|(place, _)| place).collect()
}

fn set_len(path: &Path, length: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

/// Bit rot in a sealed segment names the events that it took: in the survey, and when the log is opened
/// and the side file was built after the damage. Restored from a copy, it is whole again.
#[test]
fn damage_of_a_sealed_segment_is_told_with_its_events() {
    let directory = written(600);
    let oldest = files(directory.path(), "seg")[0].clone();
    let good = std::fs::read(&oldest).unwrap();
    flip(&oldest, 5000);
    std::fs::remove_file(&files(directory.path(), "idx")[0]).unwrap();
    let surveyed = survey(&RealDisk::open_existing(directory.path()).unwrap()).unwrap().damage;
    let (log, report) = Log::open_dir(directory.path(), small()).unwrap();
    assert_eq!(report.damage, surveyed);
    let seqs = report.damage[0].seqs.clone();
    assert!(seqs.end == seqs.start + 1 && seqs.start > 10, "{seqs:?}");
    assert_eq!(log.scrub(0).unwrap().damage, surveyed);
    log.close();
    std::fs::write(&oldest, good).unwrap();
    let (log, report) = Log::open_dir(directory.path(), small()).unwrap();
    assert_eq!(report.damage, []);
    let a = log.topic_id(&"a".parse().unwrap()).unwrap();
    assert_eq!(crate::order_and_search::read_all(&log, lane(a, 0)).len(), 400);
}

/// One damaged record made every page fail in which it would have been, and what was missing beside it
/// was called compacted.
#[test]
fn reading_backward_tells_of_damage_and_goes_on() {
    let directory = written(600);
    flip(&files(directory.path(), "seg")[0], 5000);
    let (log, _) = Log::open_dir(directory.path(), small()).unwrap();
    let (mut seen, mut corrupt) = (0, 0);
    for name in ["a", "b"] {
        let topic = log.topic_id(&name.parse().unwrap()).unwrap();
        let mut before = log.lane(lane(topic, 0)).unwrap().next;
        loop {
            let limit = PageLimit { events: 7, bytes: 1 << 20 };
            let page = log.page_before(lane(topic, 0), before, limit).unwrap();
            assert!(page.gaps.iter().all(|gap| gap.reason == GapReason::Corrupt));
            corrupt += page.gaps.iter().map(|gap| gap.to.get() - gap.from.get()).sum::<u64>();
            seen += page.records.len();
            let Some(last) = page.records.last() else { break };
            before = last.offset();
        }
    }
    assert_eq!((seen, corrupt), (599, 1));
}

/// A log whose newest segment holds nothing but topics: closed with enough in the one before.
fn written_and_rolled() -> (tempfile::TempDir, PathBuf) {
    let directory = written(590);
    let options = promethean_log::Options { segment_bytes_min: 4096, ..small() };
    let (log, _) = Log::open_dir(directory.path(), options.clone()).unwrap();
    fill(&log, 10);
    log.close();
    drop(log);
    let (log, _) = Log::open_dir(directory.path(), options).unwrap();
    define(&log, "c", 1);
    define(&log, "d", 1);
    log.close();
    let newest = files(directory.path(), "seg").pop().unwrap();
    assert!(newest.to_str().unwrap().contains("0000000000000258-"), "{newest:?}");
    (directory, newest)
}

/// The segment that follows has the same name if there was no event in it: it was written over the
/// damaged one, and then there were two of one name, of which one could never be indexed.
#[test]
fn damage_to_a_newest_segment_without_events_is_kept_beside() {
    let by_bit = |path: &Path| flip(path, heads(&std::fs::read(path).unwrap())[1] as u64 + 50);
    let by_length = |path: &Path| set_len(path, std::fs::metadata(path).unwrap().len() - 100);
    let ways: [&dyn Fn(&Path); 2] = [&by_bit, &by_length];
    for (number, damage) in ways.into_iter().enumerate() {
        let (directory, newest) = written_and_rolled();
        damage(&newest);
        let bad = std::fs::read(&newest).unwrap();
        let (log, report) = Log::open_dir(directory.path(), small()).unwrap();
        assert_eq!(report.damage.len(), 1, "{number}");
        let aside = files(directory.path(), "damaged");
        assert_eq!(aside.len(), 1, "{number}");
        assert_eq!(std::fs::read(&aside[0]).unwrap(), bad);
        assert!(log.topic_id(&"d".parse().unwrap()).is_some(), "what is behind it is there");
        fill(&log, 300);
        log.settle().unwrap();
        log.close();
        drop(log);
        let (log, report) = Log::open_dir(directory.path(), small()).unwrap();
        assert_eq!((report.damage, log.next_seq().get()), (vec![], 900));
        let a = log.topic_id(&"a".parse().unwrap()).unwrap();
        assert_eq!(crate::order_and_search::read_all(&log, lane(a, 0)).len(), 393 + 6 + 200);
    }
}

/// More than the longest frame may be bad in a row. What was behind it was written over.
#[test]
fn damage_over_many_megabytes_is_not_taken_for_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = 64 * 1024 * 1024;
    let options = promethean_log::Options {
        segment_bytes_min: bytes,
        segment_bytes_max: bytes,
        spare_segments: 0,
        ..small()
    };
    let (log, _) = Log::open_dir(directory.path(), options.clone()).unwrap();
    define(&log, "a", 1);
    let payload = format!("\"{}\"", "x".repeat(1_000_000));
    for number in 0..5 {
        let events = (0..12).map(|at| event("a", &format!("{number}-{at}"), &payload)).collect();
        append(&log, events);
    }
    log.close();
    drop(log);
    let newest = files(directory.path(), "seg").pop().unwrap();
    let heads = heads(&std::fs::read(&newest).unwrap());
    // The two catalogs, then the batches.
    let (from, to) = (heads[3], heads[6]);
    let file = std::fs::OpenOptions::new().write(true).open(&newest).unwrap();
    file.write_all_at(&vec![0; to - from], from as u64).unwrap();
    assert_eq!(problems(directory.path()).len(), 1);
    let (log, report) = Log::open_dir(directory.path(), options).unwrap();
    assert_eq!(report.damage.len(), 1);
    assert_eq!(report.damage[0].seqs, 12..48);
    assert_eq!(log.next_seq().get(), 60);
}

/// A newest segment that has lost its end, with frames in it: nobody knows how many, and what was at
/// their offsets. Before, the log went on, gave the offsets to other events, and later cut off what was
/// left of the frame.
#[test]
fn a_newest_segment_that_is_cut_within_its_frames_is_not_opened() {
    for within in [true, false] {
        let directory = written(40);
        let newest = files(directory.path(), "seg").pop().unwrap();
        let frames = heads(&std::fs::read(&newest).unwrap());
        let cut = frames[frames.len() - 5] as u64 + if within { 60 } else { 0 };
        set_len(&newest, cut);
        let left = std::fs::read(&newest).unwrap();
        assert_eq!(problems(directory.path()).len(), 1);
        for _ in 0..2 {
            let refused = Log::open_dir(directory.path(), small());
            let reason = "its end is missing";
            assert!(
                matches!(refused, Err(OpenError::Damaged { reason: told, .. }) if told == reason)
            );
            assert_eq!(std::fs::read(&newest).unwrap(), left);
        }
        // Unless somebody says that it may be lost.
        std::fs::write(newest.with_extension("seg.damaged"), "").unwrap();
        // A glimpse did not see that word.
        let glimpse = Glimpse::of(directory.path()).unwrap();
        assert_eq!(Log::open(Arc::new(glimpse), small()).unwrap().0.next_seq().get(), 36);
        let (log, report) = Log::open_dir(directory.path(), small()).unwrap();
        assert!(!report.damage.is_empty());
        assert_eq!(log.next_seq().get(), 36);
        fill(&log, 200);
        log.settle().unwrap();
        log.close();
        drop(log);
        assert_eq!(std::fs::read(&newest).unwrap(), left, "what is left is left as it is");
        assert!(!Log::open_dir(directory.path(), small()).unwrap().1.damage.is_empty());
    }
}

/// Where the bytes behind the frames say that nothing followed, nothing is lost but room.
#[test]
fn a_newest_segment_that_is_cut_behind_its_frames_is_opened() {
    for closed in [true, false] {
        let directory = written(40);
        let newest = files(directory.path(), "seg").pop().unwrap();
        let mut bytes = std::fs::read(&newest).unwrap();
        let last = *heads(&bytes).last().unwrap();
        if !closed {
            bytes[last..].fill(0);
            std::fs::write(&newest, &bytes).unwrap();
        }
        set_len(&newest, last as u64 + 48);
        let (log, report) = Log::open_dir(directory.path(), small()).unwrap();
        assert_eq!(report.damage.len(), 1);
        assert_eq!(append(&log, vec![event("a", "k", "1")]).receipts[0].seq.get(), 40);
        log.settle().unwrap();
        log.close();
        drop(log);
        assert_eq!(Log::open_dir(directory.path(), small()).unwrap().0.next_seq().get(), 41);
    }
}
