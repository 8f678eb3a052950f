use promethean_event::Key;
use promethean_log::ReadError;

use super::model::{LaneKey, Seen, SeenEvent, SeenLog, StoredEvent};
use super::session::{Running, Session};
use super::subject::Found;
use super::violation::{Broken, Violation};

impl Session {
    /// Everything that the log has; `None` if its storage fails as it may.
    pub(super) fn read_all(&mut self) -> Result<Option<SeenLog>, Violation> {
        let page = *self.random.pick(&[5, 1000, 1000, 1000]);
        let Some(log) = &self.log else {
            return Ok(None);
        };
        let result = log.read_all(page);
        let seen = self.readable(result)?;
        if let Some(seen) = &seen {
            let items = seen.values().map(|lane| lane.items.len() as u64);
            self.tally.events_checked += items.sum::<u64>();
        }
        Ok(seen)
    }

    /// Errors of reads are broken promises unless a fault was injected.
    fn readable<T>(&self, result: Result<T, ReadError>) -> Result<Option<T>, Violation> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(ReadError::Io(_) | ReadError::Damaged { .. }) if self.may_fail() => Ok(None),
            // Some searches need a side file, and that one needs room.
            Err(ReadError::Io(error))
                if self.crowded && error.kind() == std::io::ErrorKind::StorageFull =>
            {
                Ok(None)
            }
            Err(error) => Violation::err(Broken::Failed, format!("a read fails: {error:?}")),
        }
    }

    fn running(&self) -> Running {
        if self.disk.is_off() { Running::No } else { Running::Yes }
    }

    fn any_lane(&mut self) -> Option<LaneKey> {
        let lanes: Vec<_> = self.model.lane_keys().collect();
        let key = *self.random.pick(&lanes);
        let known = self.log.as_ref().is_some_and(|log| log.knows(key.topic));
        known.then_some(key)
    }

    /// Reads a lane from somewhere, or several topics by seq, and compares.
    pub(super) fn read_some(&mut self) -> Result<Running, Violation> {
        let Some(key) = self.any_lane() else {
            return Ok(Running::Yes);
        };
        let next = self.model.next(key);
        let from = self.random.below(next + 1);
        let page = *self.random.pick(&[1, 3, 1000]);
        match self.random.below(3) {
            0 => self.read_from(key, from, page)?,
            1 => self.read_back(key, from, page)?,
            _ => self.read_merged(page)?,
        }
        Ok(self.running())
    }

    fn read_from(&self, key: LaneKey, from: u64, page: usize) -> Result<(), Violation> {
        let Some(log) = &self.log else { return Ok(()) };
        let Some(items) = self.readable(log.read_lane(key, from, page))? else {
            return Ok(());
        };
        let seen = items.iter().filter_map(|item| match item {
            Seen::Event(event) => Some((event.offset, event.digest)),
            Seen::Gap(_) => None,
        });
        let mut expected = self.kept(key).filter(|(offset, _)| *offset >= from);
        if seen.clone().eq(expected.by_ref().map(|(offset, event)| (offset, event.draft.digest))) {
            return Ok(());
        }
        let offsets: Vec<_> = seen.map(|(offset, _)| offset).collect();
        let detail = format!("{key:?} from {from} in pages of {page}: {offsets:?}");
        Violation::err(Broken::Answer, detail)
    }

    fn read_back(&self, key: LaneKey, before: u64, page: usize) -> Result<(), Violation> {
        let Some(log) = &self.log else { return Ok(()) };
        let Some(found) = self.readable(log.page_before(key, before, page))? else {
            return Ok(());
        };
        let mut expected: Vec<_> = self.kept(key).filter(|(offset, _)| *offset < before).collect();
        let skip = expected.len().saturating_sub(page);
        expected.drain(..skip);
        same(key, &found, &expected, &format!("page before {before}"))
    }

    fn read_merged(&mut self, page: usize) -> Result<(), Violation> {
        let Some(log) = &self.log else { return Ok(()) };
        let topics = 0..self.destinations.len();
        let topics: Vec<_> =
            topics.filter(|&topic| log.knows(topic) && self.random.chance(700)).collect();
        let seqs: Vec<_> = self.model.order().iter().filter_map(|place| self.seq(*place)).collect();
        let from = seqs.get(self.random.index(seqs.len() * 2)).copied().unwrap_or(0);
        let Some(found) = self.readable(log.read_merged(&topics, from, page))? else {
            return Ok(());
        };
        let expected = self.model.order().iter().filter(|&&(key, offset)| {
            let event = &self.model.lane(key)[offset as usize];
            topics.contains(&key.topic) && !event.removed && event.seq.is_none_or(|seq| seq >= from)
        });
        let expected: Vec<_> = expected.copied().collect();
        let found: Vec<_> = found.iter().map(|(key, event)| (*key, event.offset)).collect();
        if found == expected {
            return Ok(());
        }
        let at = found.iter().zip(&expected).take_while(|(one, other)| one == other).count();
        let detail = format!(
            "topics {topics:?} from seq {from} in pages of {page}: event {at} is {:?}, not {:?}; {} \
             instead of {} events",
            found.get(at),
            expected.get(at),
            found.len(),
            expected.len()
        );
        Violation::err(Broken::Answer, detail)
    }

    fn seq(&self, (key, offset): (LaneKey, u64)) -> Option<u64> {
        self.model.lane(key)[offset as usize].seq
    }

    /// Events of a lane that the cleaner has left.
    fn kept(&self, key: LaneKey) -> impl Iterator<Item = (u64, &StoredEvent)> {
        let lane = self.model.lane(key).iter().enumerate();
        lane.filter(|(_, event)| !event.removed).map(|(offset, event)| (offset as u64, event))
    }

    /// Every key that was used, with its topic.
    pub(super) fn keys_submitted(&self) -> std::collections::BTreeSet<(usize, Key)> {
        let keyed = self.submitted.iter();
        keyed.filter_map(|draft| Some((draft.topic, draft.event.key.clone()?))).collect()
    }

    /// How many events of a key the cleaner has left.
    pub(super) fn kept_with_key(&self, topic: usize, key: &Key) -> usize {
        let lanes = self.model.lane_keys().filter(|lane| lane.topic == topic);
        let events = lanes.flat_map(|lane| self.kept(lane));
        events.filter(|(_, event)| event.draft.event.key.as_ref() == Some(key)).count()
    }

    /// One look-up, compared with the model.
    pub(super) fn look_up(&mut self) -> Result<Running, Violation> {
        self.tally.look_ups += 1;
        match self.random.below(4) {
            0 => {
                let draft = self.submitted.get(self.random.index(self.submitted.len())).cloned();
                if let Some(draft) = draft {
                    self.check_id(draft.topic, draft.event.id)?;
                }
            }
            1 => {
                let topic = self.random.index(self.destinations.len());
                let key = self.source.key();
                self.check_key(topic, &key)?;
            }
            2 => {
                let topic = self.random.index(self.destinations.len());
                let prefix = *self.random.pick(&["", "dev", "dev:stt:", "x"]);
                self.check_keys(topic, prefix)?;
            }
            _ => {
                let Some(key) = self.any_lane() else {
                    return Ok(Running::Yes);
                };
                let time = self.latest_ms - self.random.below(self.profile.clock_ms_max * 20 + 2);
                self.check_time(key, time)?;
            }
        }
        Ok(self.running())
    }

    /// Every id, every key and some times, compared with the model.
    pub fn look_up_all(&mut self) -> Result<(), Violation> {
        let drafts: Vec<_> =
            self.submitted.iter().map(|draft| (draft.topic, draft.event.id)).collect();
        for (topic, id) in drafts {
            self.check_id(topic, id)?;
        }
        let mut keys: Vec<Key> =
            self.submitted.iter().filter_map(|draft| draft.event.key.clone()).collect();
        keys.sort();
        keys.dedup();
        for topic in 0..self.destinations.len() {
            for key in &keys {
                self.check_key(topic, key)?;
            }
            self.check_keys(topic, "")?;
        }
        for key in Vec::from_iter(self.model.lane_keys()) {
            self.check_time(key, self.latest_ms)?;
            self.read_back(key, self.model.next(key), 1000)?;
        }
        Ok(())
    }

    fn check_id(&self, topic: usize, id: promethean_event::EventId) -> Result<(), Violation> {
        let Some(log) = &self.log else { return Ok(()) };
        let Some(found) = self.readable(log.find(topic, &id))? else {
            return Ok(());
        };
        let expected = self.model.find(topic, &id);
        if found.map(|(key, event)| (key, event.offset)) != expected {
            let detail = format!("id {id} is at {found:?}, not at {expected:?}");
            return Violation::err(Broken::Answer, detail);
        }
        Ok(())
    }

    fn check_key(&self, topic: usize, key: &Key) -> Result<(), Violation> {
        let Some(log) = &self.log else { return Ok(()) };
        let (Some(latest), Some(history)) =
            (self.readable(log.latest(topic, key))?, self.readable(log.history(topic, key))?)
        else {
            return Ok(());
        };
        let partitions = self.destinations[topic].partitions;
        let id = promethean_event::EventId::from_bytes([0; 16]);
        let partition = partitions.partition_of(Some(key), &id).get();
        let lane = LaneKey { topic, partition };
        let expected: Vec<_> = self
            .kept(lane)
            .filter(|(_, event)| event.draft.event.key.as_ref() == Some(key))
            .collect();
        same(lane, &history, &expected, &format!("history of {key}"))?;
        let newest = expected.get(expected.len().saturating_sub(1)..).unwrap_or_default();
        same(lane, &Vec::from_iter(latest), newest, &format!("latest of {key}"))
    }

    fn check_keys(&self, topic: usize, prefix: &str) -> Result<(), Violation> {
        let Some(log) = &self.log else { return Ok(()) };
        let Some(found) = self.readable(log.keys(topic, prefix))? else {
            return Ok(());
        };
        let mut expected = std::collections::BTreeMap::new();
        for partition in 0..self.destinations[topic].partitions.get() {
            let lane = LaneKey { topic, partition };
            for (offset, event) in self.kept(lane) {
                let key = event.draft.event.key.as_ref().map(Key::as_str);
                if let Some(key) = key.filter(|key| key.starts_with(prefix)) {
                    expected.insert(key, (lane, offset));
                }
            }
        }
        let mut places: Vec<_> = found.iter().map(|(key, event)| (*key, event.offset)).collect();
        let mut expected: Vec<_> = expected.into_values().collect();
        places.sort_unstable();
        expected.sort_unstable();
        if places != expected {
            let detail = format!("keys {prefix:?} of {topic}: {places:?}, not {expected:?}");
            return Violation::err(Broken::Answer, detail);
        }
        Ok(())
    }

    fn check_time(&self, key: LaneKey, time: u64) -> Result<(), Violation> {
        let Some(log) = &self.log else { return Ok(()) };
        let Some(offset) = self.readable(log.offset_at(key, time))? else {
            return Ok(());
        };
        let early = |event: &StoredEvent| event.appended_ms.is_some_and(|ms| ms < time);
        let lane = self.model.lane(key);
        let first = lane.iter().position(|event| !early(event)).unwrap_or(lane.len()) as u64;
        let first_kept = self.kept(key).find(|(_, event)| !early(event));
        let last = first_kept.map_or(lane.len() as u64, |(offset, _)| offset);
        if !(first..=last).contains(&offset) {
            let detail = format!("{key:?} at {time}: {offset}, not {first} to {last}");
            return Violation::err(Broken::Answer, detail);
        }
        Ok(())
    }
}

fn same(
    lane: LaneKey,
    found: &[Found],
    expected: &[(u64, &StoredEvent)],
    what: &str,
) -> Result<(), Violation> {
    let right = |((key, seen), (offset, event)): (&Found, &(u64, &StoredEvent))| {
        let SeenEvent { offset: seen_offset, digest, .. } = *seen;
        *key == lane && seen_offset == *offset && digest == event.draft.digest
    };
    if found.len() == expected.len() && found.iter().zip(expected).all(right) {
        return Ok(());
    }
    let found: Vec<_> = found.iter().map(|(_, event)| event.offset).collect();
    let expected: Vec<_> = expected.iter().map(|(offset, _)| *offset).collect();
    let detail = format!("{what} in {lane:?} is {found:?}, not {expected:?}");
    Violation::err(Broken::Answer, detail)
}
