//! Hand-made histories: the checker must pass the good ones and name the bad ones.

use promethean_event::{Partition, PartitionCount};
use promethean_log::{Cleaning, Compaction};

use super::*;
use crate::log_simulation::draft::{Destination, DraftSource};

const NOW: u64 = 100_000;

/// Two topics; the second has two partitions and is compacted.
struct Story {
    model: Model,
    source: DraftSource,
}

impl Story {
    fn new(cleaning: Cleaning) -> Self {
        let plain = TopicDefinition::new("plain".parse().unwrap());
        let cleaned = TopicDefinition::new("cleaned".parse().unwrap())
            .with_partitions(PartitionCount::new(2).unwrap())
            .with_cleaning(cleaning);
        let mut model = Model::new(vec![plain, cleaned]);
        model.define(0);
        model.define(1);
        model.acknowledge();
        Self { model, source: DraftSource::new(11) }
    }

    fn draft(&mut self, topic: usize) -> Draft {
        let definition = &self.model.topics()[topic].definition;
        let destination = Destination {
            number: topic,
            topic: definition.topic.clone(),
            partitions: definition.partitions,
        };
        self.source.next(&destination, 1000)
    }

    /// A commit of one event to each of `topics`, in partition 0.
    fn commit(&mut self, topics: &[usize], strength: Strength) -> Batch {
        let drafts = topics.iter().map(|&topic| {
            let mut draft = self.draft(topic);
            draft.partition = Partition::ZERO;
            draft
        });
        let batch = Batch { drafts: drafts.collect(), strength, expect: Vec::new() };
        self.submit(&batch);
        batch
    }

    fn submit(&mut self, batch: &Batch) {
        let Outcome::Stored(placed) = self.model.expect(batch) else { panic!("refused") };
        self.model.commit(batch, &placed, true);
    }

    /// What a right log would show.
    fn seen(&self) -> SeenLog {
        let mut seen = SeenLog::new();
        for key in self.model.lane_keys() {
            let lane = self.model.lane(key);
            let items = lane.iter().enumerate().map(|(offset, event)| {
                let offset = offset as u64;
                let place = self.model.order().iter().position(|at| *at == (key, offset));
                Seen::Event(SeenEvent {
                    offset,
                    seq: place.unwrap() as u64,
                    appended_ms: 1000,
                    digest: event.draft.digest,
                })
            });
            let items = items.collect();
            seen.insert(key, SeenLane { start: 0, next: lane.len() as u64, items });
        }
        seen
    }
}

const PLAIN: LaneKey = LaneKey { topic: 0, partition: 0 };
const CLEANED: LaneKey = LaneKey { topic: 1, partition: 0 };

fn three_commits(strength: Strength) -> Story {
    let mut story = Story::new(Cleaning::default());
    for _ in 0..3 {
        story.commit(&[0, 0, 1], strength);
    }
    story
}

fn broken(result: Result<usize, Violation>) -> Broken {
    result.expect_err("a bad history passed").broken
}

/// What the checker says about a story of three unacknowledged commits after `change`.
fn verdict(change: impl FnOnce(&mut SeenLog)) -> Result<usize, Violation> {
    let mut story = three_commits(Strength::Written);
    let mut seen = story.seen();
    change(&mut seen);
    story.model.recover(&seen, NOW)
}

fn lane(seen: &mut SeenLog, key: LaneKey) -> &mut SeenLane {
    seen.get_mut(&key).unwrap()
}

fn truncate(seen: &mut SeenLog, key: LaneKey, next: u64) {
    let lane = lane(seen, key);
    lane.next = next;
    lane.items.truncate(next as usize);
}

fn event(seen: &mut SeenLog, key: LaneKey, at: usize) -> &mut SeenEvent {
    match &mut lane(seen, key).items[at] {
        Seen::Event(event) => event,
        Seen::Gap(_) => panic!("a gap"),
    }
}

#[test]
fn right_histories_pass() {
    assert_eq!(verdict(|_| ()), Ok(0));
    let lost_one = verdict(|seen| {
        truncate(seen, PLAIN, 4);
        truncate(seen, CLEANED, 2);
    });
    assert_eq!(lost_one, Ok(1));
    let lost_all = verdict(|seen| {
        truncate(seen, PLAIN, 0);
        truncate(seen, CLEANED, 0);
    });
    assert_eq!(lost_all, Ok(3));
}

#[test]
fn lost_acknowledged_commits_are_named() {
    let mut story = three_commits(Strength::Synced);
    story.model.acknowledge();
    let mut seen = story.seen();
    truncate(&mut seen, PLAIN, 4);
    truncate(&mut seen, CLEANED, 2);
    assert_eq!(broken(story.model.recover(&seen, NOW)), Broken::Lost);
}

#[test]
fn a_commit_before_an_acknowledged_one_must_stay() {
    let mut story = Story::new(Cleaning::default());
    story.commit(&[0], Strength::Written);
    story.commit(&[1], Strength::Synced);
    story.model.acknowledge();
    let mut seen = story.seen();
    truncate(&mut seen, PLAIN, 0);
    assert_eq!(broken(story.model.recover(&seen, NOW)), Broken::Lost);
}

#[test]
fn served_commits_must_stay_if_they_asked_for_a_sync() {
    for (strength, result) in [(Strength::Synced, Err(Broken::Lost)), (Strength::Written, Ok(3))] {
        let mut story = three_commits(strength);
        story.model.served(CLEANED, 1);
        let mut seen = story.seen();
        truncate(&mut seen, PLAIN, 0);
        truncate(&mut seen, CLEANED, 0);
        let verdict = story.model.recover(&seen, NOW).map_err(|violation| violation.broken);
        assert_eq!(verdict, result);
    }
}

#[test]
fn written_commits_outlive_the_process_but_not_the_power() {
    for (strength, power, right) in [
        (Strength::Written, false, false),
        (Strength::Written, true, true),
        (Strength::None, false, true),
    ] {
        let mut story = three_commits(strength);
        story.model.process_died();
        if power {
            story.model.power_failed();
        }
        let mut seen = story.seen();
        truncate(&mut seen, PLAIN, 4);
        truncate(&mut seen, CLEANED, 2);
        assert_eq!(story.model.recover(&seen, NOW).is_ok(), right, "{strength:?} {power}");
    }
}

#[test]
fn lost_definitions_are_named() {
    let mut story = Story::new(Cleaning::default());
    let mut seen = story.seen();
    seen.retain(|key, _| key.topic != 1);
    assert_eq!(broken(story.model.recover(&seen, NOW)), Broken::Lost);
}

#[test]
fn survivors_are_durable_from_then_on() {
    let mut story = three_commits(Strength::Written);
    let mut seen = story.seen();
    assert_eq!(story.model.recover(&seen, NOW), Ok(0));
    truncate(&mut seen, PLAIN, 4);
    truncate(&mut seen, CLEANED, 2);
    assert_eq!(broken(story.model.recover(&seen, NOW)), Broken::Lost);
}

#[test]
fn torn_commits_are_named() {
    assert_eq!(broken(verdict(|seen| truncate(seen, PLAIN, 5))), Broken::Torn);
    assert_eq!(broken(verdict(|seen| truncate(seen, CLEANED, 2))), Broken::Torn);
}

#[test]
fn a_later_commit_without_an_earlier_one_is_named() {
    let mut story = Story::new(Cleaning::default());
    story.commit(&[0], Strength::Written);
    story.commit(&[1], Strength::Written);
    let mut seen = story.seen();
    truncate(&mut seen, PLAIN, 0);
    assert_eq!(broken(story.model.recover(&seen, NOW)), Broken::Torn);
}

#[test]
fn phantoms_are_named() {
    let result = verdict(|seen| {
        let extra = SeenEvent { offset: 6, seq: 99, appended_ms: 1000, digest: 1 };
        let lane = lane(seen, PLAIN);
        lane.items.push(Seen::Event(extra));
        lane.next = 7;
    });
    assert_eq!(broken(result), Broken::Phantom);
    let undefined = verdict(|seen| {
        seen.insert(LaneKey { topic: 9, partition: 0 }, SeenLane::default());
    });
    assert_eq!(broken(undefined), Broken::Phantom);
}

#[test]
fn changed_events_are_named() {
    assert_eq!(broken(verdict(|seen| event(seen, PLAIN, 2).digest ^= 1)), Broken::Changed);
    let swapped = verdict(|seen| {
        let (one, two) = (event(seen, PLAIN, 0).digest, event(seen, PLAIN, 1).digest);
        event(seen, PLAIN, 0).digest = two;
        event(seen, PLAIN, 1).digest = one;
    });
    assert_eq!(broken(swapped), Broken::Changed);
    for change in
        [|event: &mut SeenEvent| event.seq += 100, |event: &mut SeenEvent| event.appended_ms += 1]
    {
        let mut story = three_commits(Strength::Written);
        let mut seen = story.seen();
        story.model.recover(&seen, NOW).unwrap();
        change(event(&mut seen, PLAIN, 5));
        assert_eq!(broken(story.model.recover(&seen, NOW)), Broken::Changed);
    }
}

#[test]
fn holes_and_disorder_are_named() {
    let cases: [fn(&mut SeenLog); 6] = [
        |seen| {
            lane(seen, PLAIN).items.remove(2);
        },
        |seen| lane(seen, PLAIN).items.swap(1, 2),
        |seen| {
            let twice = lane(seen, PLAIN).items[3];
            lane(seen, PLAIN).items.insert(3, twice);
        },
        |seen| {
            lane(seen, PLAIN).items.pop();
        },
        |seen| event(seen, PLAIN, 1).seq = 7,
        |seen| event(seen, PLAIN, 1).appended_ms = 10,
    ];
    for (number, case) in cases.into_iter().enumerate() {
        assert_eq!(broken(verdict(case)), Broken::Hole, "case {number}");
    }
}

#[test]
fn a_start_beyond_what_is_there_is_named() {
    assert_eq!(broken(verdict(|seen| lane(seen, PLAIN).start = 1)), Broken::Answer);
}

fn gap(seen: &mut SeenLog, key: LaneKey, (from, to): (u64, u64), reason: SeenReason) {
    let lane = lane(seen, key);
    let gap = Seen::Gap(SeenGap { from, to, reason });
    lane.items.splice(from as usize..to as usize, [gap]);
}

#[test]
fn gaps_need_a_rule() {
    let expired = verdict(|seen| gap(seen, PLAIN, (0, 2), SeenReason::Expired));
    assert_eq!(broken(expired), Broken::Removed);
    let corrupt = verdict(|seen| gap(seen, PLAIN, (0, 2), SeenReason::Corrupt));
    assert_eq!(broken(corrupt), Broken::Lost);
    let rules = |age, bytes| Cleaning { age_ms_max: age, bytes_max: bytes, compaction: None };
    for (cleaning, right) in [
        (rules(Some(NOW - 1000), None), true),
        (rules(Some(NOW - 999), None), false),
        (rules(None, Some(128)), true),
        (rules(None, Some(100_000)), false),
    ] {
        let mut story = Story::new(cleaning);
        story.commit(&[1, 1, 1], Strength::Synced);
        let mut seen = story.seen();
        gap(&mut seen, CLEANED, (0, 1), SeenReason::Expired);
        assert_eq!(story.model.recover(&seen, NOW).is_ok(), right, "{cleaning:?}");
    }
}

fn compacted() -> Story {
    let compaction = Some(Compaction { age_ms_min: 0, tombstone_ms: 50_000 });
    let mut story = Story::new(Cleaning { compaction, ..Cleaning::default() });
    story.source.keyed = 1000;
    story.source.keys = 1;
    story
}

#[test]
fn compaction_keeps_the_newest_of_each_key() {
    let mut story = compacted();
    story.commit(&[1, 1, 1], Strength::Synced);
    let mut seen = story.seen();
    gap(&mut seen, CLEANED, (0, 2), SeenReason::Compacted);
    assert_eq!(story.model.clone().recover(&seen, NOW), Ok(0));
    gap(&mut seen, CLEANED, (1, 2), SeenReason::Compacted);
    lane(&mut seen, CLEANED).items[1] =
        Seen::Gap(SeenGap { from: 2, to: 3, reason: SeenReason::Compacted });
    lane(&mut seen, CLEANED).items.truncate(2);
    assert_eq!(broken(story.model.recover(&seen, NOW)), Broken::Removed);
}

#[test]
fn what_a_lost_event_had_superseded_must_be_there() {
    let mut story = compacted();
    story.commit(&[1], Strength::Synced);
    story.commit(&[1], Strength::Written);
    let mut seen = story.seen();
    gap(&mut seen, CLEANED, (0, 1), SeenReason::Compacted);
    assert_eq!(story.model.check(&seen, NOW), Ok(()));
    let lane = lane(&mut seen, CLEANED);
    lane.next = 1;
    lane.items.truncate(1);
    assert_eq!(broken(story.model.recover(&seen, NOW)), Broken::Removed);
}

#[test]
fn a_removed_tombstone_takes_older_events_with_it() {
    let mut story = compacted();
    story.commit(&[1], Strength::Synced);
    let mut batch = story.commit(&[1], Strength::Synced);
    batch.drafts[0] = loop {
        let mut draft = story.draft(1);
        draft.partition = Partition::ZERO;
        if draft.is_tombstone() {
            break draft;
        }
    };
    story.submit(&batch);
    let mut seen = story.seen();
    gap(&mut seen, CLEANED, (2, 3), SeenReason::Compacted);
    let early = story.model.clone().recover(&seen, 40_000);
    assert_eq!(broken(early), Broken::Removed);
    assert_eq!(broken(story.model.clone().recover(&seen, NOW)), Broken::Removed);
    lane(&mut seen, CLEANED).items.clear();
    gap(&mut seen, CLEANED, (0, 0), SeenReason::Compacted);
    let all = SeenGap { from: 0, to: 3, reason: SeenReason::Compacted };
    lane(&mut seen, CLEANED).items = vec![Seen::Gap(all)];
    assert_eq!(story.model.recover(&seen, NOW), Ok(0));
}

#[test]
fn duplicates_conflicts_and_expectations() {
    let mut story = Story::new(Cleaning::default());
    let batch = story.commit(&[0, 1], Strength::Synced);
    let Outcome::Stored(again) = story.model.expect(&batch) else { panic!("refused") };
    assert!(again.iter().all(|place| place.duplicate && place.offset == 0));
    let mut altered = batch.clone();
    altered.drafts[1].digest ^= 1;
    assert_eq!(story.model.expect(&altered), Outcome::IdConflict);
    let drafts = vec![story.draft(0)];
    let expect = |next| Batch {
        drafts: drafts.clone(),
        strength: Strength::Synced,
        expect: vec![(PLAIN, next)],
    };
    assert_eq!(story.model.expect(&expect(0)), Outcome::OffsetMismatch);
    assert!(matches!(story.model.expect(&expect(1)), Outcome::Stored(_)));
}

#[test]
fn an_id_at_two_offsets_is_named() {
    let mut story = Story::new(Cleaning { age_ms_max: Some(10), ..Cleaning::default() });
    let batch = story.commit(&[1], Strength::Synced);
    let mut seen = story.seen();
    gap(&mut seen, CLEANED, (0, 1), SeenReason::Expired);
    story.model.check(&seen, NOW).unwrap();
    // The id is free again: the same event may be stored once more, but not be there twice.
    story.submit(&batch);
    let seen = story.seen();
    assert_eq!(broken(story.model.recover(&seen, NOW)), Broken::Answer);
}
