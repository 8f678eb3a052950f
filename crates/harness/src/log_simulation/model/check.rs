use super::{LaneKey, Model, Seen, SeenEvent, SeenGap, SeenLane, SeenLog, SeenReason};
use crate::log_simulation::violation::{Broken, Violation};

impl Model {
    /// Takes what a crash has left: the newest commits may be gone, back to the last that must
    /// stay. The number of commits that are gone.
    pub fn recover(&mut self, seen: &SeenLog, now: u64) -> Result<usize, Violation> {
        let gone = self.resume(seen, now)?;
        // What survived once is durable: nothing may take it away later.
        self.kept = self.entries.len();
        Ok(gone)
    }

    /// Takes what a failed commit has left, without a crash: the newest commits may be gone.
    pub fn resume(&mut self, seen: &SeenLog, now: u64) -> Result<usize, Violation> {
        let gone = self.cut(seen)?;
        self.check(seen, now)?;
        Ok(gone)
    }

    /// Whether the whole log is as it must be; `now` is the latest time that any clock has shown.
    pub fn check(&mut self, seen: &SeenLog, now: u64) -> Result<(), Violation> {
        let empty = SeenLane::default();
        for key in Vec::from_iter(self.lane_keys()) {
            let lane = seen.get(&key).unwrap_or(&empty);
            self.check_lane(key, lane)?;
            self.check_removals(key, now)?;
        }
        if let Some(key) = seen.keys().find(|key| self.topics.get(key.topic).is_none()) {
            return Violation::err(Broken::Phantom, format!("{key:?} was never defined"));
        }
        self.check_order()
    }

    /// Finds the prefix of commits that has exactly the seen next offsets.
    fn cut(&mut self, seen: &SeenLog) -> Result<usize, Violation> {
        let before = self.entries.len();
        let next = |key: &LaneKey| seen.get(key).map_or(0, |lane| lane.next);
        loop {
            let mut short = None;
            for key in self.lane_keys() {
                let (seen, mine) = (next(&key), self.next(key));
                if seen > mine && self.entries.len() == before {
                    let detail = format!("{key:?} ends at {seen}, only {mine} were submitted");
                    return Violation::err(Broken::Phantom, detail);
                }
                if seen > mine {
                    let detail = format!(
                        "{key:?} ends at {seen}: a part of commit {} is there, not all of it, or a \
                         commit after a lost one",
                        self.entries.len()
                    );
                    return Violation::err(Broken::Torn, detail);
                }
                if seen < mine {
                    short = Some((key, seen, mine));
                }
            }
            let undefined = |topic: usize| {
                !seen.keys().any(|key| key.topic == topic) && self.topics[topic].defined
            };
            let missing = (0..self.topics.len()).find(|&topic| undefined(topic));
            if short.is_none() && missing.is_none() {
                break;
            }
            if self.entries.len() <= self.kept.max(self.written) {
                let detail = match (short, missing) {
                    (Some((key, seen, mine)), _) => format!(
                        "{key:?} ends at {seen}; {mine} events of the {} commits were acknowledged \
                         as synced or served (or written)",
                        self.kept.max(self.written)
                    ),
                    _ => format!("the definition of topic {missing:?} is gone"),
                };
                return Violation::err(Broken::Lost, detail);
            }
            self.pop();
        }
        Ok(before - self.entries.len())
    }

    fn check_lane(&mut self, key: LaneKey, seen: &SeenLane) -> Result<(), Violation> {
        if seen.next != self.next(key) {
            let detail = format!("{key:?} ends at {}, not at {}", seen.next, self.next(key));
            return Violation::err(Broken::Answer, detail);
        }
        let mut expected = 0;
        for item in &seen.items {
            let from = match item {
                Seen::Event(event) => event.offset,
                Seen::Gap(gap) => gap.from,
            };
            if from != expected {
                let detail = format!("{key:?}: {item:?} where offset {expected} was due");
                return Violation::err(Broken::Hole, detail);
            }
            expected = match item {
                Seen::Event(event) => self.check_event(key, event)?,
                Seen::Gap(gap) => self.check_gap(key, *gap)?,
            };
        }
        if expected != seen.next {
            let detail = format!("{key:?}: read up to {expected}, the end is {}", seen.next);
            return Violation::err(Broken::Hole, detail);
        }
        self.check_start(key, seen)
    }

    fn check_start(&self, key: LaneKey, seen: &SeenLane) -> Result<(), Violation> {
        let lane = self.lane(key);
        let first = lane.iter().position(|event| !event.removed).unwrap_or(lane.len()) as u64;
        if seen.start > first {
            let detail = format!("{key:?} starts at {}, but offset {first} is there", seen.start);
            return Violation::err(Broken::Answer, detail);
        }
        Ok(())
    }

    /// The offset after the event.
    fn check_event(&mut self, key: LaneKey, seen: &SeenEvent) -> Result<u64, Violation> {
        let offset = seen.offset;
        let topic = &mut self.topics[key.topic];
        let lane = &mut topic.lanes[key.partition as usize];
        let Some(event) = lane.get_mut(offset as usize) else {
            return Violation::err(Broken::Phantom, format!("{key:?} offset {offset}: {seen:?}"));
        };
        if event.draft.digest != seen.digest {
            let other = lane.iter().position(|event| event.draft.digest == seen.digest);
            let detail = format!("{key:?} offset {offset} has other bytes; those of {other:?}");
            return Violation::err(Broken::Changed, detail);
        }
        if event.seq.is_some_and(|seq| seq != seen.seq)
            || event.appended_ms.is_some_and(|ms| ms != seen.appended_ms)
        {
            let detail = format!(
                "{key:?} offset {offset} is {seen:?}, was seq {:?} at {:?}",
                event.seq, event.appended_ms
            );
            return Violation::err(Broken::Changed, detail);
        }
        event.seq = Some(seen.seq);
        event.appended_ms = Some(seen.appended_ms);
        event.removed = false;
        let place = (key.partition, offset);
        let known = *topic.ids.entry(event.draft.event.id).or_insert(place);
        if known != place {
            let detail = format!("{key:?} offset {offset} has the id of {known:?}");
            return Violation::err(Broken::Answer, detail);
        }
        Ok(offset + 1)
    }

    /// The offset after the gap. Whether its events may be gone is for `check_removals`.
    fn check_gap(&mut self, key: LaneKey, gap: SeenGap) -> Result<u64, Violation> {
        if gap.reason == SeenReason::Corrupt {
            return Violation::err(Broken::Lost, format!("{key:?}: {gap:?} on a healthy disk"));
        }
        if gap.to <= gap.from || gap.to > self.next(key) {
            return Violation::err(Broken::Hole, format!("{key:?}: {gap:?}"));
        }
        let topic = &mut self.topics[key.topic];
        let lane = &mut topic.lanes[key.partition as usize];
        for offset in gap.from..gap.to {
            let event = &mut lane[offset as usize];
            event.removed = true;
            let id = event.draft.event.id;
            if topic.ids.get(&id) == Some(&(key.partition, offset)) {
                topic.ids.remove(&id);
            }
        }
        Ok(gap.to)
    }

    /// `seq` and append times rise in commit order.
    fn check_order(&self) -> Result<(), Violation> {
        let mut last = (None, 0);
        for &(key, offset) in &self.order {
            let event = &self.lane(key)[offset as usize];
            let (Some(seq), Some(ms)) = (event.seq, event.appended_ms) else {
                continue;
            };
            if last.0.is_some_and(|before| before >= seq) || ms < last.1 {
                let detail =
                    format!("{key:?} offset {offset}: seq {seq} at {ms} ms after {last:?}");
                return Violation::err(Broken::Hole, detail);
            }
            last = (Some(seq), ms);
        }
        Ok(())
    }
}
