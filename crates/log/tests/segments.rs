//! How large segments are, and when they are left.

use std::path::Path;

use promethean_log::{Append, Drive, Log, Options, TopicDefinition};

use crate::order_and_search::{event, topic};

const MIB: usize = 1024 * 1024;

fn segments(path: &Path) -> Vec<u64> {
    let files = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let named = files.filter(|file| file.path().extension().is_some_and(|known| known == "seg"));
    let mut sizes: Vec<_> =
        named.map(|file| (file.file_name(), file.metadata().unwrap().len())).collect();
    sizes.sort();
    sizes.into_iter().map(|(_, bytes)| bytes).collect()
}

fn append_mib(log: &Log, number: usize) {
    let payload = format!("\"{}\"", "x".repeat(MIB / 4));
    let events = (0..4).map(|at| event("a", &format!("k{number}-{at}"), &payload)).collect();
    log.append_here(&Append { events, ..Append::default() }).unwrap();
}

/// Where no filled file was ready the log goes on in one that grows, in which every sync costs more;
/// as soon as there is a filled one it goes on in that.
#[test]
fn a_segment_that_was_not_filled_ahead_is_left_for_one_that_was() {
    let directory = tempfile::tempdir().unwrap();
    let megabytes = |count: u64| count * MIB as u64;
    let options =
        Options { drive: Drive::Caller, segment_bytes_max: megabytes(16), ..Options::default() };
    let (log, _) = Log::open_dir(directory.path(), options).unwrap();
    let defined = log.define(TopicDefinition::new(topic("a")));
    log.commit_waiting();
    defined.wait().unwrap();
    (0..6).for_each(|number| append_mib(&log, number));
    let before = segments(directory.path());
    assert_eq!(before.last(), Some(&megabytes(16)), "the first one was full in no time");
    append_mib(&log, 6);
    assert_eq!(segments(directory.path()).len(), before.len(), "there is room, and nothing better");
    log.maintain().unwrap();
    append_mib(&log, 7);
    let after = segments(directory.path());
    assert_eq!(after.len(), before.len() + 1);
    assert_eq!(after.last(), Some(&megabytes(16)));
    log.maintain().unwrap();
    (8..12).for_each(|number| append_mib(&log, number));
    assert_eq!(segments(directory.path()).len(), after.len(), "this one was");
    log.close();
    drop(log);
    let (log, report) = Log::open_dir(directory.path(), Options::default()).unwrap();
    assert_eq!(report.damage, []);
    assert_eq!(log.next_seq().get(), 12 * 4);
}
