//! Segments that are not there any more: each is missed, the oldest and the newest, too, and none
//! that was cleaned away is.

use std::path::{Path, PathBuf};

use promethean_event::Offset;
use promethean_log::{
    Cleaning, Damage, Gap, GapReason, Glimpse, Holds, Log, OpenError, OpenReport, Options,
    PageLimit, RealDisk, TopicDefinition, survey,
};

use crate::order_and_search::{append, define, event, fill, lane, small, topic};

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

/// The files of the segments of a directory, in order.
pub(crate) fn segments(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().unwrap_or_default() == "seg").collect();
    files.sort();
    files
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

fn surveyed(path: &Path) -> Vec<Damage> {
    survey(&RealDisk::open_existing(path).unwrap()).unwrap().damage
}

/// What a reader of a topic is told is not there.
fn gaps(log: &Log, name: &str) -> Vec<Gap> {
    let lane = lane(log.topic_id(&topic(name)).unwrap(), 0);
    let mut reader = log.read(lane, Offset::ZERO).unwrap();
    let mut gaps = Vec::new();
    loop {
        let page = reader.next_page(PageLimit::default()).unwrap();
        gaps.extend(page.gaps);
        if page.records.is_empty() {
            return gaps;
        }
    }
}

#[test]
fn the_newest_one_is_not_replaced() {
    let directory = written(600);
    let newest = segments(directory.path()).pop().unwrap();
    std::fs::remove_file(&newest).unwrap();
    let named = surveyed(directory.path());
    assert_eq!(named.iter().map(|damage| damage.file.clone()).collect::<Vec<_>>(), [name(&newest)]);
    for _ in 0..2 {
        match Log::open_dir(directory.path(), small()) {
            Err(OpenError::Damaged { file, reason }) => {
                assert_eq!((file, reason), (name(&newest), "the segment is missing"));
            }
            other => panic!("{other:?}"),
        }
        assert!(!newest.exists());
    }
    // Unless somebody says that it may be so.
    std::fs::write(newest.with_extension("seg.damaged"), "").unwrap();
    let (log, _) = Log::open_dir(directory.path(), small()).unwrap();
    fill(&log, 200);
    drop(log);
    Log::open_dir(directory.path(), small()).unwrap();
}

/// One that is there and cannot be read is set aside by whoever runs the log, as it was told.
#[test]
fn the_newest_one_is_set_aside_by_hand() {
    let directory = written(600);
    let newest = segments(directory.path()).pop().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    let refused = Log::open_dir(directory.path(), small()).unwrap_err().to_string();
    let aside = newest.with_extension("seg.damaged");
    assert!(refused.contains(&name(&aside)), "{refused}");
    std::fs::rename(&newest, &aside).unwrap();
    let (log, _) = Log::open_dir(directory.path(), small()).unwrap();
    fill(&log, 10);
}

/// At whatever end, and whoever asks: the report of opening, readers, the survey; and again the next
/// time, also when the log has gone on meanwhile.
#[test]
fn an_older_one_is_named_to_everybody_for_as_long_as_it_is_missing() {
    for place in [0, 1] {
        let directory = written(600);
        let gone = segments(directory.path())[place].clone();
        std::fs::remove_file(&gone).unwrap();
        for round in 0..3 {
            let named = surveyed(directory.path());
            let (log, report) = Log::open_dir(directory.path(), small()).unwrap();
            for damage in [&named, &report.damage] {
                assert_eq!(damage.len(), 1, "{place}, {round}: {damage:?}");
                assert_eq!(damage[0].reason, "the segment is missing");
                assert_eq!(damage[0].seqs.start == 0, place == 0, "{damage:?}");
            }
            for of in ["a", "b"] {
                let told = gaps(&log, of);
                assert_eq!(told.len(), 1, "{place}, {round}: {told:?}");
                assert_eq!(told[0].reason, GapReason::Corrupt);
            }
            fill(&log, 200);
            log.settle().unwrap();
            log.close();
        }
    }
}

/// What cannot be read at all is taken out of the way; a reader must not think it was compacted.
#[test]
fn one_that_was_set_aside_is_missing() {
    let directory = written(600);
    let bad = segments(directory.path())[1].clone();
    let mut bytes = std::fs::read(&bad).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&bad, bytes).unwrap();
    for _ in 0..2 {
        let (log, report) = Log::open_dir(directory.path(), small()).unwrap();
        assert!(!report.damage.is_empty());
        assert_eq!(gaps(&log, "a")[0].reason, GapReason::Corrupt);
    }
}

fn cleaned() -> (tempfile::TempDir, Options) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { clean_share_min: 0.0, ..small() };
    let (log, _) = Log::open_dir(directory.path(), options.clone()).unwrap();
    let rule = Cleaning { bytes_max: Some(20_000), ..Cleaning::default() };
    for of in ["a", "b"] {
        log.define(TopicDefinition::new(topic(of)).with_cleaning(rule)).wait().unwrap();
    }
    for _ in 0..3 {
        fill(&log, 600);
        log.settle().unwrap();
        assert!(log.clean(&Holds::default()).unwrap() > 0);
    }
    log.close();
    (directory, options)
}

#[test]
fn what_was_cleaned_is_not_missing() {
    let (directory, options) = cleaned();
    let files = segments(directory.path());
    assert!(name(&files[0]).starts_with("0000000000000000-"), "{files:?}");
    assert!(std::fs::metadata(&files[0]).unwrap().len() < 2_000, "only a word is left");
    assert_eq!(surveyed(directory.path()), []);
    let (log, report) = Log::open_dir(directory.path(), options).unwrap();
    assert_eq!(report, OpenReport::default());
    for of in ["a", "b"] {
        let told = gaps(&log, of);
        assert_eq!((told.len(), told[0].reason), (1, GapReason::Expired), "{told:?}");
    }
    drop(log);
    // That word is missed as much as anything else.
    std::fs::remove_file(&files[0]).unwrap();
    assert_eq!(surveyed(directory.path()).len(), 1);
}

/// A log of an earlier build, of which the oldest segment was cleaned away: nobody can know more, and
/// from now on it is kept whole.
#[test]
fn a_log_of_before_is_kept_whole_from_now_on() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/version-1");
    let directory = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture).unwrap() {
        let from = entry.unwrap().path();
        if !name(&from).starts_with("0000000000000000-") {
            std::fs::copy(&from, directory.path().join(name(&from))).unwrap();
        }
    }
    let oldest = segments(directory.path())[0].clone();
    let options = Options { segment_bytes_min: 8192, segment_bytes_max: 8192, ..small() };
    let (log, report) = Log::open_dir(directory.path(), options.clone()).unwrap();
    assert_eq!(report.damage, []);
    define(&log, "a", 1);
    for _ in 0..200 {
        append(&log, vec![event("a", "k", "1")]);
    }
    log.settle().unwrap();
    log.close();
    assert_eq!(surveyed(directory.path()), []);
    let files = segments(directory.path());
    assert!(name(&files[0]).starts_with("0000000000000000-00000001"), "{files:?}");
    assert_eq!(files[1], oldest);
    assert_eq!(Log::open_dir(directory.path(), options.clone()).unwrap().1.damage, []);
    std::fs::remove_file(&files[0]).unwrap();
    assert_eq!(Log::open_dir(directory.path(), options).unwrap().1.damage.len(), 1);
}

/// The file that follows gets its name after the seal: a crash in between leaves it as a spare. That is
/// no damage, for whoever looks.
#[test]
fn one_that_has_not_got_its_name_yet_is_not_missing() {
    let directory = written(590);
    // One that is closed with something in it is sealed; what follows is empty.
    let options = Options { segment_bytes_min: 4096, ..small() };
    let (log, _) = Log::open_dir(directory.path(), options).unwrap();
    fill(&log, 10);
    log.close();
    drop(log);
    let newest = segments(directory.path()).pop().unwrap();
    let spare = directory.path().join("00000007.spare");
    std::fs::rename(&newest, &spare).unwrap();
    assert_eq!(surveyed(directory.path()), []);
    let glimpse = Glimpse::of(directory.path()).unwrap();
    let (log, report) = Log::open(std::sync::Arc::new(glimpse), small()).unwrap();
    assert_eq!((report.damage, log.next_seq().get()), (vec![], 600));
    drop(log);
    assert!(spare.exists(), "a glimpse changes nothing");
    let (log, report) = Log::open_dir(directory.path(), small()).unwrap();
    assert_eq!((report.damage, log.next_seq().get()), (vec![], 600));
    assert!(newest.exists() && !spare.exists());
    fill(&log, 10);
    drop(log);
    assert_eq!(Log::open_dir(directory.path(), small()).unwrap().0.next_seq().get(), 610);
}

/// What nobody reads is looked at all the same.
#[test]
fn scrubbing_finds_what_was_damaged_while_the_log_is_open() {
    let directory = written(600);
    let (log, _) = Log::open_dir(directory.path(), small()).unwrap();
    let count = log.scrub(0).unwrap().segments as u64;
    assert!(count > 3);
    let scrubbed = |place| log.scrub(place).unwrap().damage;
    assert!((0..count).all(|place| scrubbed(place).is_empty()));
    let file = segments(directory.path())[1].clone();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[5_000] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let found: Vec<Damage> = (count..2 * count).flat_map(scrubbed).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].file, name(&file));
    assert!(found[0].bytes.contains(&5_000), "{found:?}");
}
