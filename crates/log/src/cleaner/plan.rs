use std::collections::HashSet;
use std::sync::Arc;

use promethean_event::Offset;

use super::{CleanError, Holds, Round};
use crate::engine::{Engine, Segment};
use crate::error::ReadError;
use crate::index::key_hash;
use crate::segment::RecordHeader;
use crate::topic::{Cleaning, Compaction, Lane, TopicId};

/// Segments that are read together at most: bounds the memory of one run.
const RUN_SEGMENTS_MAX: usize = 16;

/// Where lanes should start, by the rules for age and bytes. A lane whose start cannot be read is left as
/// it is.
pub(super) fn starts(round: &mut Round<'_>) -> Result<Vec<(Lane, Offset)>, CleanError> {
    let Round { engine, holds, now, .. } = *round;
    let topics: Vec<_> = {
        let state = engine.read();
        let live = state.catalog.live_topics();
        live.map(|(id, topic)| (id, topic.definition.clone())).collect()
    };
    let mut starts = Vec::new();
    for (topic, definition) in topics {
        let Cleaning { age_ms_max, bytes_max, .. } = definition.cleaning;
        if age_ms_max.is_none() && bytes_max.is_none() {
            continue;
        }
        for partition in definition.partitions.partitions() {
            let lane = Lane { topic, partition };
            let by_age = age_ms_max.map(|age| engine.offset_at_ms(lane, now.saturating_sub(age)));
            let by_bytes = bytes_max.map(|bytes| start_by_bytes(engine, lane, bytes));
            let mut start = 0;
            for found in by_age.into_iter().chain(by_bytes) {
                start = round.or_left(found)?.unwrap_or(0).max(start);
            }
            let start = start.min(holds.of(lane));
            let known = engine.read().catalog.lane(lane).map_or(0, |state| state.start.get());
            if start > known {
                starts.push((lane, Offset::new(start)));
            }
        }
    }
    Ok(starts)
}

/// Where a lane must start for its sealed segments to hold no more than so many bytes, or one
/// segment more.
fn start_by_bytes(engine: &Engine, lane: Lane, bytes_max: u64) -> Result<u64, ReadError> {
    let sealed = engine.read().sealed.clone();
    let mut bytes = 0;
    for segment in sealed.iter().rev() {
        if bytes >= bytes_max {
            let next = engine.ask(segment, |index| index.lane_next(lane))?;
            return Ok(next.unwrap_or(0));
        }
        bytes += engine.ask(segment, |index| index.lane_bytes(lane))?;
    }
    Ok(0)
}

/// Segments to be written again as one, and what of them is dead.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) verdicts: Vec<Verdict>,
    /// Whether anything older than the run exists.
    pub(super) is_oldest: bool,
}

/// What of one segment is dead.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Events with a newer one of the same key: dead if they are old enough.
    superseded: HashSet<u32>,
    /// Newest events of keys that nothing older stands behind: dead if they are old tombstones.
    exposed: HashSet<u32>,
    rules: Rules,
    now: u64,
    events: u64,
    dead_bytes: u64,
    bytes: u64,
}

/// The lanes of a segment and what may happen to them.
type Rules = std::collections::HashMap<Lane, LaneRule>;

#[derive(Debug, Clone, Copy)]
struct LaneRule {
    removed: bool,
    start: u64,
    hold: u64,
    compaction: Option<Compaction>,
}

impl Plan {
    /// The next run at or behind a seq that is worth the work.
    pub(super) fn next(round: &mut Round<'_>, from: u64) -> Result<Option<Self>, CleanError> {
        let Round { engine, holds, now, .. } = *round;
        let sealed = engine.read().sealed.clone();
        let start = sealed.partition_point(|segment| segment.name.base < from);
        for (place, segment) in sealed.iter().enumerate().skip(start) {
            let mut plan = Self {
                segments: vec![Arc::clone(segment)],
                verdicts: vec![],
                is_oldest: place == 0,
            };
            if !engine.can_be_cleaned(segment) {
                continue;
            }
            let judge = Judge { engine, sealed: &sealed, holds, now };
            let Some(verdict) = round.or_left(judge.verdict(place))? else { continue };
            plan.verdicts.push(verdict);
            for (next_place, next) in sealed.iter().enumerate().skip(place + 1) {
                if !engine.can_be_cleaned(next) || plan.segments.len() == RUN_SEGMENTS_MAX {
                    break;
                }
                let Some(verdict) = round.or_left(judge.verdict(next_place))? else { break };
                if !plan.takes(engine, &verdict) {
                    break;
                }
                plan.segments.push(Arc::clone(next));
                plan.verdicts.push(verdict);
            }
            if plan.is_worth_it(engine) {
                return Ok(Some(plan));
            }
        }
        Ok(None)
    }

    pub(super) fn end_seq(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.next_seq)
    }

    fn live_bytes(&self) -> u64 {
        self.verdicts.iter().map(Verdict::live_bytes).sum()
    }

    /// Whether one more segment fits: all of it, or, if it is to be cleaned, what is left of it.
    fn takes(&self, engine: &Engine, next: &Verdict) -> bool {
        let together = self.live_bytes() + next.live_bytes();
        let limit = engine.site.options.segment_bytes_max;
        let dirty = next.dead_bytes > 0;
        together <= if dirty { limit } else { limit / 2 }
    }

    fn is_worth_it(&self, engine: &Engine) -> bool {
        let bytes: u64 = self.verdicts.iter().map(|verdict| verdict.bytes).sum();
        let dead: u64 = self.verdicts.iter().map(|verdict| verdict.dead_bytes).sum();
        let share = engine.site.options.clean_share_min;
        let dirty = dead > 0 && dead as f64 >= bytes as f64 * share;
        // What is left of the first segment of all is not worth a copy of the next one.
        let pieces = self.verdicts.iter().filter(|verdict| verdict.events > 0).count();
        let empty = self.verdicts.len() - pieces;
        dirty || pieces > 1 || empty > 1
    }
}

impl Verdict {
    fn live_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.dead_bytes)
    }

    /// Whether the record at a position is dead.
    pub(super) fn is_dead(&self, header: &RecordHeader, position: u32) -> bool {
        let Some(rule) = self.rules.get(&header.lane) else {
            return false;
        };
        if rule.removed || header.offset < rule.start {
            return true;
        }
        let Some(Compaction { age_ms_min, tombstone_ms }) = rule.compaction else {
            return false;
        };
        let older_than = |age: u64| header.append_ms.saturating_add(age) <= self.now;
        if header.offset >= rule.hold || !older_than(age_ms_min) {
            return false;
        }
        let is_old_tombstone = || header.is_tombstone() && older_than(tombstone_ms);
        self.superseded.contains(&position)
            || self.exposed.contains(&position) && is_old_tombstone()
    }
}

/// Judges segments.
struct Judge<'a> {
    engine: &'a Engine,
    sealed: &'a [Arc<Segment>],
    holds: &'a Holds,
    now: u64,
}

impl Judge<'_> {
    fn verdict(&self, place: usize) -> Result<Verdict, ReadError> {
        let Some(segment) = self.sealed.get(place) else {
            return Ok(Verdict::default());
        };
        let (bytes, now) = (segment.end_position, self.now);
        let mut verdict = Verdict { bytes, now, ..Verdict::default() };
        let lanes = self.engine.ask(segment, |index| index.lane_entries())?;
        for entry in lanes {
            let rule = self.rule(entry.lane);
            verdict.rules.insert(entry.lane, rule);
            verdict.events += u64::from(entry.count);
            if entry.count == 0 {
                continue;
            }
            if rule.removed || entry.last < rule.start {
                verdict.dead_bytes += entry.bytes;
            } else if entry.first < rule.start {
                let span = (entry.last - entry.first + 1) as f64;
                let gone = (rule.start - entry.first) as f64;
                verdict.dead_bytes += (entry.bytes as f64 * gone / span) as u64;
            }
        }
        self.judge_keys(segment, place, &mut verdict)?;
        Ok(verdict)
    }

    fn rule(&self, lane: Lane) -> LaneRule {
        let state = self.engine.read();
        let Some(topic) = state.catalog.live(lane.topic) else {
            return LaneRule { removed: true, start: 0, hold: u64::MAX, compaction: None };
        };
        LaneRule {
            removed: false,
            start: topic.lane(lane.partition).map_or(0, |lane| lane.start.get()),
            hold: self.holds.of(lane),
            compaction: topic.definition.cleaning.compaction,
        }
    }

    /// Finds events of compacted topics that have a newer one of their key.
    fn judge_keys(
        &self,
        segment: &Arc<Segment>,
        place: usize,
        verdict: &mut Verdict,
    ) -> Result<(), ReadError> {
        let compacted: HashSet<TopicId> = verdict
            .rules
            .iter()
            .filter(|(_, rule)| {
                rule.compaction.is_some_and(|compaction| {
                    segment.append_ms.start.saturating_add(compaction.age_ms_min) <= self.now
                })
            })
            .map(|(lane, _)| lane.topic)
            .collect();
        if compacted.is_empty() {
            return Ok(());
        }
        let keys = self.engine.ask(segment, |index| index.key_entries(&compacted))?;
        let events: usize = keys.iter().map(|key| key.positions.len()).sum();
        let mut dead = 0;
        for entry in keys {
            let Some((topic, key)) = split(&entry.composite) else {
                continue;
            };
            let hash = key_hash(topic, key);
            let newer = self.exists_after(place, topic, key)?;
            let mut positions = entry.positions.iter().copied();
            if !newer
                && let Some(newest) = positions.next()
                && entry.tombstone
                && !self.exists_before(place, hash)
            {
                verdict.exposed.insert(newest);
                dead += 1;
            }
            let before = verdict.superseded.len();
            verdict.superseded.extend(positions);
            dead += verdict.superseded.len() - before;
        }
        let share = dead as f64 / events.max(1) as f64;
        verdict.dead_bytes += (segment.end_position as f64 * share) as u64;
        Ok(())
    }

    /// Whether a newer segment has an event of the key. A false no only keeps an event.
    fn exists_after(&self, place: usize, topic: TopicId, key: &str) -> Result<bool, ReadError> {
        let last = match self.engine.latest(topic, key) {
            Err(ReadError::Damaged { .. } | ReadError::Io(_)) => return Ok(false),
            last => last?,
        };
        let end = self.sealed.get(place).map_or(0, |segment| segment.next_seq);
        Ok(last.is_some_and(|record| record.seq().get() >= end))
    }

    /// Whether an older segment may have an event of the key. A false yes only keeps a tombstone.
    fn exists_before(&self, place: usize, hash: u64) -> bool {
        self.sealed.iter().take(place).any(|segment| {
            let found = self.engine.ask(segment, |index| index.find_key(hash, 1));
            found.map_or(true, |found| !found.is_empty())
        })
    }
}

fn split(composite: &[u8]) -> Option<(TopicId, &str)> {
    let (topic, key) = composite.split_first_chunk()?;
    Some((TopicId(u32::from_be_bytes(*topic)), std::str::from_utf8(key).ok()?))
}
