//! Appends that the calling thread writes, among others that it does not.

use promethean_log::{Append, AppendError, Drive, Log, Options, TopicDefinition, TopicId};

use crate::order_and_search::{define, event, lane, read_all, small, topic};

const EACH: usize = 200;

fn one(number: usize) -> Append {
    let payload = format!("{{\"number\":{number}}}");
    Append { events: vec![event("a", &format!("k{number}"), &payload)], ..Append::default() }
}

/// How many there are; no offset twice, none left out.
fn stored(log: &Log, topic: TopicId) -> u64 {
    let records = read_all(log, lane(topic, 0));
    assert!(records.iter().map(|record| record.offset().get()).eq(0..records.len() as u64));
    records.len() as u64
}

/// Threads that write by themselves, threads that leave it to the log's own, and segments that are
/// full every few events: everybody is answered, with a place of his own, and it is there afterwards.
#[test]
fn everybody_is_answered_and_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let (log, _) = Log::open_dir(directory.path(), small()).unwrap();
    let topic = define(&log, "a", 1);
    let mut offsets: Vec<u64> = std::thread::scope(|scope| {
        let publisher = |number: usize| {
            let log = log.clone();
            move || {
                let publish = |at: usize| match number % 2 {
                    0 => log.append_here(&one(number * EACH + at)),
                    _ => log.append(&one(number * EACH + at)).wait(),
                };
                let places = (0..EACH).map(|at| publish(at).unwrap().receipts[0].offset.get());
                places.collect::<Vec<u64>>()
            }
        };
        let threads: Vec<_> = (0..4).map(|number| scope.spawn(publisher(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    offsets.sort_unstable();
    assert!(offsets.iter().copied().eq(0..4 * EACH as u64));
    log.close();
    assert!(matches!(log.append_here(&one(0)), Err(AppendError::Closed)));
    drop(log);
    let (log, report) = Log::open_dir(directory.path(), small()).unwrap();
    assert_eq!((report.damage, report.torn_tail), (vec![], None));
    assert_eq!(stored(&log, topic), 4 * EACH as u64);
}

/// Nobody is left behind when the log is closed while threads write by themselves.
#[test]
fn closing_answers_those_who_write() {
    for _ in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let (log, _) = Log::open_dir(directory.path(), small()).unwrap();
        let topic = define(&log, "a", 1);
        let acknowledged: u64 = std::thread::scope(|scope| {
            let publisher = |number: usize| {
                let log = log.clone();
                move || {
                    let mut acknowledged = 0;
                    for at in 0.. {
                        match log.append_here(&one(number * 1_000_000 + at)) {
                            Ok(_) => acknowledged += 1,
                            Err(AppendError::Closed) => break,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    acknowledged
                }
            };
            let threads: Vec<_> = (0..3).map(|number| scope.spawn(publisher(number))).collect();
            while log.next_seq().get() < 20 {
                std::thread::yield_now();
            }
            log.close();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        drop(log);
        let (log, _) = Log::open_dir(directory.path(), small()).unwrap();
        assert_eq!(stored(&log, topic), acknowledged);
    }
}

#[test]
fn where_the_caller_drives_the_log_it_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { drive: Drive::Caller, ..small() };
    let (log, _) = Log::open_dir(directory.path(), options).unwrap();
    let defined = log.define(TopicDefinition::new(topic("a")));
    log.commit_waiting();
    let topic = defined.wait().unwrap();
    (0..10).for_each(|number| drop(log.append_here(&one(number)).unwrap()));
    assert_eq!(stored(&log, topic), 10);
}
