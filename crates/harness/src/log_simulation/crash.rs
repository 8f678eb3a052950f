use serde::Serialize;

use super::disk::CrashStyle;
use super::fault::{Fault, FaultKind};
use super::profile::Profile;
use super::random::{Random, mixed};
use super::session::{Running, Session, Tally};
use super::subject::PlantedBug;
use super::violation::Violation;

/// How much to simulate.
#[derive(Debug, Clone, Copy)]
pub struct CrashOptions {
    /// Crashes in all; the last seed may bring a few more.
    pub crashes: u64,
    /// The first seed; the next ones follow it.
    pub seed: u64,
    /// A bug to plant in the log.
    pub planted: Option<PlantedBug>,
    /// Stop at so many violations.
    pub violations_max: usize,
}

impl CrashOptions {
    /// So many crashes from `seed` on, up to the first violation.
    pub const fn new(crashes: u64, seed: u64) -> Self {
        Self { crashes, seed, planted: None, violations_max: 1 }
    }
}

/// A seed that found something.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// The seed; it alone replays the run.
    pub seed: u64,
    /// What was found.
    pub violation: Violation,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, violation } = self;
        write!(f, "{violation}; replay: prom-sim log --crashes 1 --seed {seed}")
    }
}

/// What a simulation has done and found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Seeds that were run.
    pub seeds: u64,
    /// Crashes that were recovered from.
    pub crashes: u64,
    /// Events whose append was answered.
    pub acked: u64,
    /// What was found.
    pub violations: Vec<Failure>,
    /// What was done, in detail.
    pub tally: Tally,
}

/// Simulates crashes, seed after seed.
pub fn run(options: &CrashOptions) -> Report {
    let mut report = Report::default();
    let mut seed = options.seed;
    while report.crashes < options.crashes && report.violations.len() < options.violations_max {
        let (tally, result) = run_seed(seed, options.planted);
        report.seeds += 1;
        report.tally.add(&tally);
        report.crashes = report.tally.crashes;
        report.acked = report.tally.acked;
        if let Err(violation) = result {
            report.violations.push(Failure { seed, violation });
        }
        seed = seed.wrapping_add(1);
    }
    report
}

/// One seed: a few lives of one log, each ended by a crash, and a last look.
pub fn run_seed(seed: u64, planted: Option<PlantedBug>) -> (Tally, Result<(), Violation>) {
    let (mut session, mut random) = session_of(seed, planted);
    let result = lives(&mut session, &mut random);
    (session.tally, result)
}

/// One seed with a line for every change of the disk and every answer of the log.
pub fn trace_seed(seed: u64, planted: Option<PlantedBug>) -> Vec<String> {
    let (mut session, mut random) = session_of(seed, planted);
    session.disk().start_trace();
    session.disk().note(|| format!("{:?}", session.profile));
    let result = lives(&mut session, &mut random);
    session.disk().note(|| format!("{result:?}"));
    session.disk().trace()
}

fn session_of(seed: u64, planted: Option<PlantedBug>) -> (Session, Random) {
    let mut random = Random::new(mixed(seed));
    let profile = Profile::swarm(&mut random);
    let mut session = Session::new(profile, random.next());
    session.planted = planted;
    (session, random)
}

fn lives(session: &mut Session, random: &mut Random) -> Result<(), Violation> {
    for _ in 0..random.between(1, 16) {
        let kinds = [FaultKind::Crash, FaultKind::Crash, FaultKind::Crash, FaultKind::Crash];
        let kinds = [&kinds[..], &FaultKind::ALL].concat();
        let doubling = random.below(9);
        let at_call = random.between(1, 8 << doubling);
        session.arm(Some(Fault { at_call, kind: *random.pick(&kinds) }));
        live(session, random.between(1, 24))?;
        session.crash(CrashStyle::random(random), random.next());
    }
    session.arm(None);
    live(session, 5)?;
    session.close()?;
    session.open()?;
    session.look_up_all()
}

/// Opens the log and works with it until it stops or `steps` are done.
fn live(session: &mut Session, steps: u64) -> Result<(), Violation> {
    let mut running = session.open()?;
    for _ in 0..steps {
        if running == Running::No {
            return session.verify_failed();
        }
        running = session.step()?;
    }
    Ok(())
}
