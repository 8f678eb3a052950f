//! Runs delivery groups through schedules that nobody would think of, all from one seed: members
//! that join, leave, fall silent and come back; late, double and foreign acks; refusals,
//! extensions, parks, seeks, pauses, rebalances; saves that take their time; crashes of the
//! whole process after which only what was durable is left; clocks that jump. Then the faults
//! stop, and everything must drain.
//!
//! [`checker`] watches from outside: it knows what went in and came out and what is durable, and
//! nothing of how a group works.

pub mod checker;

mod actions;

mod answers;

mod consumer;

mod lane_books;

mod ledger;

mod random;

mod swarm;

mod world;

use promethean_delivery::PlantedBug;
use serde::Serialize;

pub use random::Random;

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct SimOptions {
    /// The first seed.
    pub first_seed: u64,
    /// How many seeds. Default: 100.
    pub seeds: u64,
    /// Actions of the phase with faults, per seed. Default: 300.
    pub steps: u32,
    /// A mistake for the group to make. Default: none.
    pub bug: Option<PlantedBug>,
    /// Stop at the first seed that finds something. Default: no.
    pub stop_at_first: bool,
    /// Write down every input and output, to read what a seed does. Default: no.
    pub trace: bool,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            first_seed: 1,
            seeds: 100,
            steps: 300,
            bug: None,
            stop_at_first: false,
            trace: false,
        }
    }
}

/// What was run, and what was found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Seeds run.
    pub seeds: u64,
    /// Inputs given to groups.
    pub steps: u64,
    /// What was done to them.
    pub faults: Faults,
    /// Events published.
    pub events: u64,
    /// Deliveries seen.
    pub deliveries: u64,
    /// Dead letters seen.
    pub dead_letters: u64,
    /// Changes of owner seen.
    pub assignments: u64,
    /// What was wrong.
    pub violations: Vec<Violation>,
    /// What happened, line by line, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<String>,
}

/// How often what was done.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Faults {
    /// Whole-process crashes.
    pub crashes: u64,
    /// Saves lost in crashes.
    pub lost_saves: u64,
    /// Members that left or fell silent.
    pub lost_members: u64,
    /// Acks with a token that was not, or not any more, the member's.
    pub stale_acks: u64,
    /// Refused deliveries.
    pub nacks: u64,
    /// Seeks.
    pub seeks: u64,
    /// Clock jumps, in either direction.
    pub clock_jumps: u64,
    /// Fetches that failed or came late.
    pub bad_fetches: u64,
}

/// One promise broken.
#[derive(Debug, Clone, Serialize)]
pub struct Violation {
    /// Which seed shows it.
    pub seed: u64,
    /// After how many inputs.
    pub step: u64,
    /// Which promise, and how.
    pub what: String,
}

/// Runs all seeds.
pub fn run(options: SimOptions) -> Report {
    let mut report = Report::default();
    for seed in options.first_seed..options.first_seed + options.seeds {
        world::World::new(seed, options).run(&mut report);
        report.seeds += 1;
        if options.stop_at_first && !report.violations.is_empty() {
            break;
        }
    }
    report
}
