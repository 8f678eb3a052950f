use super::draft::Draft;
use super::fault::Call;
use super::model::{Batch, LaneKey, Outcome, Placed, Strength};
use super::profile::CleaningStyle;
use super::session::{Running, Session, Waiting};
use super::subject::{Answer, Receipts, Refusal, Subject};
use super::violation::{Broken, Violation};

/// One kind of step.
type Step = fn(&mut Session) -> Result<Running, Violation>;

/// What has become of a request whose answer is a failure of the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It was never written.
    Refused,
    /// It may be there or not.
    Open,
}

impl Session {
    /// One step, drawn by the profile's weights.
    pub fn step(&mut self) -> Result<Running, Violation> {
        self.tally.steps += 1;
        let steps = self.profile.steps;
        let kinds: [(u64, Step); 8] = [
            (steps.append, Self::append),
            (steps.commit, Self::commit),
            (steps.maintain, Self::maintain),
            (steps.read, Self::read_some),
            (steps.look_up, Self::look_up),
            (steps.restart, Self::restart),
            (steps.clock, Self::turn_clock),
            (steps.define, Self::define_any),
        ];
        let mut draw = self.random.below(kinds.iter().map(|(weight, _)| weight).sum());
        for (weight, kind) in kinds {
            if draw < weight {
                return kind(self);
            }
            draw -= weight;
        }
        Ok(Running::Yes)
    }

    fn turn_clock(&mut self) -> Result<Running, Violation> {
        let by = self.random.below(self.profile.clock_ms_max + 1);
        if self.random.chance(self.profile.clock_back) {
            self.clock.set(self.clock.millis() - by);
        } else {
            self.clock.advance(by);
        }
        self.latest_ms = self.latest_ms.max(self.clock.millis());
        Ok(Running::Yes)
    }

    fn restart(&mut self) -> Result<Running, Violation> {
        // A log does not open on a disk that is full to the last byte.
        if self.crowded {
            return Ok(Running::Yes);
        }
        if self.random.chance(500) {
            self.disk.note(|| "CLOSE".to_owned());
            self.close()?;
        } else {
            self.disk.note(|| "KILL".to_owned());
            self.kill();
        }
        self.open()
    }

    fn define_any(&mut self) -> Result<Running, Violation> {
        let topic = self.random.index(self.destinations.len());
        self.define(topic);
        Ok(Running::Yes)
    }

    /// Submits the definition of a topic.
    fn define(&mut self, topic: usize) {
        let definition = self.model.topics()[topic].definition.clone();
        if let Some(log) = &self.log {
            let ticket = log.define(definition);
            self.waiting.push(Waiting::Define(topic, ticket));
        }
    }

    fn append(&mut self) -> Result<Running, Violation> {
        let batch = self.batch();
        for draft in &batch.drafts {
            let known = self.log.as_ref().is_some_and(|log| log.knows(draft.topic));
            if !known {
                self.define(draft.topic);
                // A publisher encodes with the definitions it knows: wait for this one.
                if self.commit()? == Running::No {
                    return Ok(Running::No);
                }
                if self.log.as_ref().is_some_and(|log| !log.knows(draft.topic)) {
                    return Ok(Running::Yes);
                }
            }
        }
        let Some(log) = &self.log else {
            return Ok(Running::No);
        };
        let ticket = log.append(&batch);
        self.waiting.push(Waiting::Append(batch, ticket));
        if self.random.chance(self.profile.overlaps) {
            return self.overlap();
        }
        if self.waiting.len() as u64 >= self.profile.waiting_max {
            return self.commit();
        }
        Ok(Running::Yes)
    }

    /// Writes what waits, and more behind it, before any of it is synced: as threads do, of which one
    /// writes while the other syncs.
    fn overlap(&mut self) -> Result<Running, Violation> {
        for _ in 0..=self.random.below(2) {
            let batch = self.batch();
            let Some(log) = &self.log else {
                return Ok(Running::No);
            };
            self.disk.note(|| format!("WRITE {} requests", self.waiting.len()));
            self.written_ahead = true;
            log.write_waiting();
            if batch.drafts.iter().all(|draft| log.knows(draft.topic)) {
                let ticket = log.append(&batch);
                self.waiting.push(Waiting::Append(batch, ticket));
            }
        }
        self.tally.overlaps += 1;
        self.commit()
    }

    fn batch(&mut self) -> Batch {
        let count = self.random.between(1, self.profile.batch_events_max);
        let now = self.clock.millis();
        let mut drafts: Vec<Draft> = Vec::new();
        for _ in 0..count {
            let destination = self.random.pick(&self.destinations).clone();
            let old = self.submitted.get(self.random.index(self.submitted.len())).cloned();
            let draft = match old {
                Some(old) if self.random.chance(self.profile.duplicates) => old,
                Some(old) if self.random.chance(self.profile.conflicts) => {
                    self.source.altered(&old, &self.destinations[old.topic])
                }
                _ => self.source.next(&destination, now),
            };
            // One id once in a batch: what twice means is for a test of its own.
            if drafts.iter().all(|other| other.event.id != draft.event.id) {
                drafts.push(draft);
            }
        }
        let [none, written, synced] = self.profile.strengths;
        let draw = self.random.below(none + written + synced);
        let strength = match draw {
            draw if draw < none => Strength::None,
            draw if draw < none + written => Strength::Written,
            _ => Strength::Synced,
        };
        let expect = self.expectation(&drafts);
        self.submitted.extend(drafts.iter().cloned());
        Batch { drafts, strength, expect }
    }

    /// The right offset in most cases, a wrong one in some.
    fn expectation(&mut self, drafts: &[Draft]) -> Vec<(LaneKey, u64)> {
        let fresh =
            drafts.iter().all(|draft| self.model.find(draft.topic, &draft.event.id).is_none());
        if !fresh || !self.random.chance(self.profile.expectations) {
            return Vec::new();
        }
        let draft = &drafts[0];
        let lane = LaneKey { topic: draft.topic, partition: draft.partition.get() };
        if self.log.as_ref().is_none_or(|log| !log.knows(lane.topic)) {
            return Vec::new();
        }
        let wrong = u64::from(self.random.chance(300));
        vec![(lane, self.model.next(lane) + wrong)]
    }

    /// Lets the writer take what waits, and compares its answers.
    pub(super) fn commit(&mut self) -> Result<Running, Violation> {
        if let Some(log) = &self.log {
            self.disk.note(|| format!("COMMIT {} requests", self.waiting.len()));
            log.commit_waiting();
        }
        self.settle()
    }

    /// Takes the answers to everything that waits.
    pub(super) fn settle(&mut self) -> Result<Running, Violation> {
        let Some(mut log) = self.log.take() else {
            return Ok(Running::No);
        };
        let fate = self.fate_of_failed(&log);
        self.written_ahead = false;
        let failed = log.has_failed();
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting {
                Waiting::Define(topic, ticket) => {
                    let answer = log.defined(topic, &ticket);
                    self.settle_define(topic, answer, fate)?;
                }
                Waiting::Append(batch, ticket) => {
                    let answer = log.appended(&ticket);
                    self.settle_append(&batch, answer, fate)?;
                }
            }
        }
        self.poisoned = failed;
        self.log = Some(log);
        Ok(if failed || self.disk.is_off() { Running::No } else { Running::Yes })
    }

    /// What has become of requests that are answered with a failure of the storage.
    fn fate_of_failed(&self, log: &Subject) -> Fate {
        let before_the_write = !matches!(self.disk.fired(), Some(Call::Write | Call::SyncData));
        let nothing_written = before_the_write && !self.written_ahead;
        if self.poisoned || !log.has_failed() || (self.disk.is_off() && nothing_written) {
            return Fate::Refused;
        }
        Fate::Open
    }

    fn settle_define(
        &mut self,
        topic: usize,
        answer: Answer<()>,
        fate: Fate,
    ) -> Result<(), Violation> {
        match answer {
            Answer::Yes(()) => {
                // A definition that was there needs no commit and makes nothing else durable.
                if !self.model.topics()[topic].defined {
                    self.model.define(topic);
                    self.model.acknowledge();
                }
                Ok(())
            }
            Answer::No(refusal) => {
                if refusal == Refusal::StorageFailed && fate == Fate::Open {
                    self.model.define(topic);
                }
                self.refused(&refusal)
            }
            Answer::Silence => silence("definition"),
        }
    }

    fn settle_append(
        &mut self,
        batch: &Batch,
        answer: Answer<Receipts>,
        fate: Fate,
    ) -> Result<(), Violation> {
        let expected = self.model.expect(batch);
        self.disk.note(|| {
            let Batch { drafts, strength, expect } = batch;
            let count = drafts.len();
            format!("APPEND {count} {strength:?} {expect:?}: {answer:?}, expected {expected:?}")
        });
        match (answer, expected) {
            (Answer::Yes(_), _) if self.poisoned => {
                Violation::err(Broken::Accepted, "an append after the storage had failed")
            }
            (Answer::Yes(receipts), Outcome::Stored(placed)) => {
                self.accepted(batch, &receipts, &placed)
            }
            (Answer::Yes(receipts), other) => {
                Violation::err(Broken::Accepted, format!("{receipts:?} where {other:?} was due"))
            }
            (Answer::No(Refusal::IdConflict), Outcome::IdConflict)
            | (Answer::No(Refusal::OffsetMismatch), Outcome::OffsetMismatch) => {
                self.tally.refused += 1;
                Ok(())
            }
            // Refused for the sake of a batch before it whose commit has failed then.
            (Answer::No(Refusal::IdConflict | Refusal::OffsetMismatch), _) if self.may_fail() => {
                self.tally.refused += 1;
                Ok(())
            }
            (Answer::No(Refusal::LookupFailed), _) => self.refused(&Refusal::LookupFailed),
            (Answer::No(refusal @ (Refusal::StorageFailed | Refusal::NoSpace)), expected) => {
                let open = refusal == Refusal::StorageFailed && fate == Fate::Open;
                if let (Outcome::Stored(placed), true) = (expected, open) {
                    self.model.commit(batch, &placed, false);
                    self.tally.indeterminate += 1;
                }
                self.refused(&refusal)
            }
            (Answer::No(refusal), expected) => {
                Violation::err(Broken::Answer, format!("{refusal:?} where {expected:?} was due"))
            }
            (Answer::Silence, _) => silence("append"),
        }
    }

    fn accepted(
        &mut self,
        batch: &Batch,
        receipts: &Receipts,
        placed: &[Placed],
    ) -> Result<(), Violation> {
        if receipts.places.iter().map(|(place, _)| place).ne(placed) {
            let detail = format!("receipts {receipts:?} where {placed:?} was due");
            return Violation::err(Broken::Answer, detail);
        }
        self.model.commit(batch, placed, true);
        for (place, seq) in &receipts.places {
            self.model.learn(*place, *seq, receipts.appended_ms)?;
            self.tally.duplicates += u64::from(place.duplicate);
        }
        self.tally.acked += placed.len() as u64;
        if batch.strength == Strength::Synced {
            self.tally.acked_synced += placed.len() as u64;
            self.model.acknowledge_places(placed);
        }
        Ok(())
    }

    fn refused(&mut self, refusal: &Refusal) -> Result<(), Violation> {
        self.tally.refused += 1;
        match refusal {
            Refusal::StorageFailed | Refusal::LookupFailed if self.may_fail() => Ok(()),
            Refusal::NoSpace if self.crowded || self.disk.fired().is_some() => Ok(()),
            other => Violation::err(Broken::Failed, format!("{other:?} without a cause")),
        }
    }

    /// One round of spare files and side files.
    pub(super) fn upkeep(&mut self) -> Result<(), Violation> {
        let result = self.log.as_ref().map_or(Ok(()), Subject::maintain);
        result.or_else(|error| Violation::err(Broken::Failed, format!("upkeep fails: {error}")))
    }

    /// Upkeep: spare files and side files, or a round of the cleaner.
    fn maintain(&mut self) -> Result<Running, Violation> {
        let cleaning = self.profile.cleaning != CleaningStyle::Keep && self.random.chance(500);
        // The cleaner commits on its own, and with it what waits.
        if cleaning && self.commit()? == Running::No {
            return Ok(Running::No);
        }
        let Some(log) = &self.log else {
            return Ok(Running::No);
        };
        self.disk.note(|| if cleaning { "CLEAN" } else { "MAINTAIN" }.to_owned());
        let result = if cleaning { log.clean() } else { log.maintain().map(|()| 0) };
        match result {
            Ok(rewritten) => self.tally.segments_cleaned += rewritten as u64,
            Err(_) if self.may_fail() || self.crowded => {}
            Err(error) => {
                return Violation::err(Broken::Failed, format!("upkeep fails: {error}"));
            }
        }
        if self.disk.is_off() || self.poisoned {
            return Ok(Running::No);
        }
        if cleaning { self.verify() } else { Ok(Running::Yes) }
    }
}

fn silence(what: &str) -> Result<(), Violation> {
    Violation::err(Broken::Answer, format!("the writer left a {what} without an answer"))
}
