use serde::Serialize;

use super::clock::SimClock;
use super::disk::{CrashStyle, DiskImage, SimDisk};
use super::draft::{Destination, Draft, DraftSource};
use super::fault::{Call, Fault};
use super::model::{Batch, Model, Seen};
use super::profile::Profile;
use super::random::Random;
use super::subject::{AppendTicket, DefineTicket, PlantedBug, Subject};
use super::violation::{Broken, Violation};

/// What a run did, so that one can see what it has covered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "each is named after what it counts")]
pub struct Tally {
    pub steps: u64,
    pub opens: u64,
    pub crashes: u64,
    pub crashes_while_opening: u64,
    pub acked: u64,
    pub acked_synced: u64,
    pub duplicates: u64,
    pub refused: u64,
    pub indeterminate: u64,
    pub commits_lost: u64,
    pub torn_tails: u64,
    pub segments_cleaned: u64,
    pub events_checked: u64,
    pub look_ups: u64,
    pub overlaps: u64,
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.opens += other.opens;
        self.crashes += other.crashes;
        self.crashes_while_opening += other.crashes_while_opening;
        self.acked += other.acked;
        self.acked_synced += other.acked_synced;
        self.duplicates += other.duplicates;
        self.refused += other.refused;
        self.indeterminate += other.indeterminate;
        self.commits_lost += other.commits_lost;
        self.torn_tails += other.torn_tails;
        self.segments_cleaned += other.segments_cleaned;
        self.events_checked += other.events_checked;
        self.look_ups += other.look_ups;
        self.overlaps += other.overlaps;
    }
}

/// Whether the log still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Running {
    /// It does.
    Yes,
    /// The power is off, or its storage has failed: only a crash or a restart helps.
    No,
}

/// A request that the log has not answered yet.
#[derive(Debug)]
pub(super) enum Waiting {
    Define(usize, DefineTicket),
    Append(Batch, AppendTicket),
}

/// One log on one simulated disk, with the model beside it.
#[derive(Debug)]
pub struct Session {
    pub(super) profile: Profile,
    pub(super) disk: SimDisk,
    pub(super) clock: SimClock,
    pub(super) model: Model,
    pub(super) random: Random,
    pub(super) source: DraftSource,
    pub(super) destinations: Vec<Destination>,
    /// Drafts that were submitted, to repeat some of them.
    pub(super) submitted: Vec<Draft>,
    pub(super) log: Option<Subject>,
    pub(super) waiting: Vec<Waiting>,
    /// Something of what waits is written already, and not synced.
    pub(super) written_ahead: bool,
    /// The log has said that its storage failed.
    pub(super) poisoned: bool,
    /// The disk may be full.
    pub(super) crowded: bool,
    /// The latest time that the clock has shown.
    pub(super) latest_ms: u64,
    /// The call that the last fault has hit.
    pub(super) last_hit: Option<Call>,
    pub(super) planted: Option<PlantedBug>,
    /// What was done so far.
    pub tally: Tally,
}

impl Session {
    /// A session with an empty disk; not opened yet.
    pub fn new(profile: Profile, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let definitions = profile.definitions(&mut random);
        let destinations = definitions.iter().enumerate().map(|(number, definition)| Destination {
            number,
            topic: definition.topic.clone(),
            partitions: definition.partitions,
        });
        let destinations = destinations.collect();
        let disk = SimDisk::new(random.next());
        disk.set_write_back(profile.write_back);
        let mut source = DraftSource::new(random.next());
        source.keys = profile.keys;
        source.keyed = profile.keyed;
        source.payload_bytes_max = profile.payload_bytes_max;
        let start = 1_700_000_000_000;
        Self {
            disk,
            clock: SimClock::at(start),
            model: Model::new(definitions),
            random,
            source,
            destinations,
            submitted: Vec::new(),
            log: None,
            waiting: Vec::new(),
            written_ahead: false,
            poisoned: false,
            crowded: false,
            latest_ms: start,
            last_hit: None,
            planted: None,
            tally: Tally::default(),
            profile,
        }
    }

    /// A session like this one, not opened, on another disk.
    pub(super) fn revived(&self, image: DiskImage) -> Self {
        Self {
            profile: self.profile.clone(),
            disk: SimDisk::from_image(image, 0),
            clock: self.clock.clone(),
            model: self.model.clone(),
            random: self.random.clone(),
            source: self.source.clone(),
            destinations: self.destinations.clone(),
            submitted: self.submitted.clone(),
            log: None,
            waiting: Vec::new(),
            written_ahead: false,
            poisoned: false,
            crowded: false,
            latest_ms: self.latest_ms,
            last_hit: None,
            planted: self.planted,
            tally: Tally::default(),
        }
    }

    /// With a bug in the log, to see whether it is found.
    #[must_use]
    pub fn with_planted(mut self, bug: PlantedBug) -> Self {
        self.planted = Some(bug);
        self
    }

    /// The disk.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Lets the disk hold so many bytes in all, so that it may be full; `None` for any number.
    pub fn limit_disk(&mut self, bytes: Option<u64>) {
        self.crowded = bytes.is_some();
        self.disk.set_capacity(bytes.unwrap_or(u64::MAX));
    }

    /// Arms a fault for calls from now on.
    pub fn arm(&self, fault: Option<Fault>) {
        self.disk.arm(fault);
    }

    /// Whether something has happened that lets calls fail.
    pub(super) fn may_fail(&self) -> bool {
        self.disk.fired().is_some() || self.poisoned
    }

    /// Opens the log and compares all of it with the model.
    pub fn open(&mut self) -> Result<Running, Violation> {
        assert!(self.log.is_none(), "a session opens one log at a time");
        self.tally.opens += 1;
        self.disk.note(|| "OPEN".to_owned());
        self.poisoned = false;
        match Subject::open(self) {
            Ok((subject, report)) => {
                self.log = Some(subject);
                self.tally.torn_tails += u64::from(report.torn_tail.is_some());
                if !report.damage.is_empty() {
                    let detail = format!("damage on a healthy disk: {:?}", report.damage);
                    return Violation::err(Broken::Lost, detail);
                }
            }
            Err(_) if self.disk.fired().is_some() => return Ok(Running::No),
            Err(error) => {
                return Violation::err(Broken::Failed, format!("the log does not open: {error:?}"));
            }
        }
        let Some(seen) = self.read_all()? else {
            return Ok(Running::No);
        };
        self.tally.commits_lost += self.model.recover(&seen, self.latest_ms)? as u64;
        Ok(Running::Yes)
    }

    /// Closes the log: it serves what waits, and all it has answered is durable then.
    pub fn close(&mut self) -> Result<(), Violation> {
        let Some(log) = &self.log else { return Ok(()) };
        log.close();
        if self.settle()? == Running::Yes && !self.may_fail() {
            self.model.acknowledge();
        }
        self.model.process_died();
        self.disk.kill();
        self.log = None;
        Ok(())
    }

    /// The process dies: what it wrote stays, synced or not. What waits was never written.
    pub fn kill(&mut self) {
        self.disk.kill();
        self.model.process_died();
        self.waiting.clear();
        self.log = None;
    }

    /// The power goes; the log's process with it.
    pub fn crash(&mut self, style: CrashStyle, seed: u64) {
        self.tally.crashes += 1;
        self.tally.crashes_while_opening += u64::from(self.log.is_none());
        self.disk.crash(style, seed);
        self.model.power_failed();
        self.waiting.clear();
        self.log = None;
    }

    /// After a failure of the storage: reads go on, and what they give must survive.
    pub fn verify_failed(&mut self) -> Result<(), Violation> {
        if self.log.is_none() || self.disk.is_off() {
            return Ok(());
        }
        let Some(seen) = self.read_all()? else {
            return Ok(());
        };
        let mut visible = self.model.clone();
        visible.recover(&seen, self.latest_ms)?;
        for (key, lane) in &seen {
            for item in &lane.items {
                if let Seen::Event(event) = item {
                    self.model.served(*key, event.offset);
                }
            }
        }
        Ok(())
    }

    /// Reads everything and compares it with the model.
    pub fn verify(&mut self) -> Result<Running, Violation> {
        let Some(seen) = self.read_all()? else {
            return Ok(Running::No);
        };
        self.model.check(&seen, self.latest_ms)?;
        Ok(Running::Yes)
    }
}
