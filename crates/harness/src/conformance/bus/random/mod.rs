//! Random runs against the bus: publishers, members that ack, refuse, fall asleep and leave, moves
//! and crashes, all from one seed; then the faults stop, and everything must come to an end.

mod books;

mod run;

use promethean::GroupSettings;
use promethean::{Mode, Ordered, Park};

use super::factory::BusFactory;
use super::scene::{ORDERS, settings};
use crate::group_simulation::Random;

/// What a run has done and found.
#[derive(Debug, Clone, Default)]
pub struct RandomReport {
    /// The seed, which repeats the run.
    pub seed: u64,
    /// Events published.
    pub events: u64,
    /// Deliveries seen.
    pub deliveries: u64,
    /// Dead letters at the end.
    pub dead_letters: u64,
    /// Crashes.
    pub crashes: u64,
    /// Moves.
    pub moves: u64,
    /// What was wrong.
    pub violations: Vec<String>,
}

/// Runs one seed for so many steps.
pub async fn run_random(factory: &dyn BusFactory, seed: u64, steps: u32) -> RandomReport {
    let mut random = Random::new(seed);
    let plan = Plan::new(&mut random, factory);
    run::Run::new(factory, plan, random).await.run(seed, steps).await
}

/// What one seed tries: every one leaves something out, so that the rest has room.
#[derive(Debug, Clone)]
struct Plan {
    settings: GroupSettings,
    lanes: u32,
    keys: u64,
    with_moves: bool,
    with_crashes: bool,
    with_sleep: bool,
    with_leaving: bool,
}

impl Plan {
    fn new(random: &mut Random, factory: &dyn BusFactory) -> Self {
        let tick_ms = super::scene::millis(factory.pace().tick);
        let mut settings = settings(&[ORDERS]);
        settings.mode = if random.chance(30) { Mode::Partitioned } else { Mode::Shared };
        settings.ordered = if random.chance(80) { Ordered::Key } else { Ordered::None };
        if settings.ordered == Ordered::Key && random.chance(30) {
            settings.park = Park::Key;
        }
        settings.ack_timeout_ms = tick_ms * (2 + random.below(10) as u32);
        settings.processing_ms_max = settings.ack_timeout_ms * 2;
        // Leases end before a drain does, so that only their ends matter.
        settings.drain_ms = settings.ack_timeout_ms * 4;
        settings.max_attempts = 2 + random.below(4) as u16;
        settings.backoff_ms = tick_ms / 10;
        settings.backoff_ms_max = tick_ms;
        Self {
            settings,
            lanes: 1 + random.below(3) as u32,
            keys: 1 + random.below(5),
            with_moves: random.chance(40),
            with_crashes: random.chance(50),
            with_sleep: random.chance(70),
            with_leaving: random.chance(70),
        }
    }
}
