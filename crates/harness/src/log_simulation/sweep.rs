use serde::Serialize;

use super::disk::CrashStyle;
use super::fault::{Call, Fault, FaultKind};
use super::profile::Profile;
use super::random::{Random, mixed};
use super::session::{Running, Session, Tally};
use super::violation::Violation;

/// One scripted workload with one fault at one call.
#[derive(Debug, Clone, Serialize)]
pub struct SweepPoint {
    /// The workload.
    pub script: &'static str,
    /// The call that fails, counted from the first.
    pub at_call: u64,
    /// How it fails.
    pub kind: FaultKind,
    /// What follows a failure: a power cut, or only a restart.
    pub power_cut: bool,
}

/// What a sweep has done.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SweepReport {
    /// Points that were run.
    pub points: u64,
    /// How often each kind of call was hit.
    pub hits: std::collections::BTreeMap<Call, u64>,
    /// What was found.
    pub violations: Vec<(SweepPoint, Violation)>,
    /// What was done, in detail.
    pub tally: Tally,
}

/// Runs `script` once for every `stride`-th call and every kind of fault.
pub fn sweep(script: &Profile, steps: u64, stride: u64, report: &mut SweepReport) {
    let calls = calls_of(script, steps, report);
    for kind in FaultKind::ALL {
        let mut at_call = 1 + mixed(calls ^ kind as u64) % stride;
        while at_call <= calls {
            for power_cut in [true, false] {
                // A crash is a power cut; after a failed sync only a power cut is defined.
                if !power_cut && kind == FaultKind::Crash {
                    continue;
                }
                let point = SweepPoint { script: script.name, at_call, kind, power_cut };
                run_point(script, steps, point, report);
            }
            at_call += stride;
        }
    }
}

fn session_of(script: &Profile) -> Session {
    let seed = script.name.bytes().fold(7, |seed, byte| mixed(seed ^ u64::from(byte)));
    Session::new(script.clone(), seed)
}

/// How many calls the script makes when nothing fails.
fn calls_of(script: &Profile, steps: u64, report: &mut SweepReport) -> u64 {
    let mut session = session_of(script);
    if let Err(violation) = work(&mut session, steps) {
        let point = SweepPoint {
            script: script.name,
            at_call: 0,
            kind: FaultKind::Error,
            power_cut: false,
        };
        report.violations.push((point, violation));
    }
    session.disk().calls()
}

fn run_point(script: &Profile, steps: u64, point: SweepPoint, report: &mut SweepReport) {
    let mut session = session_of(script);
    session.arm(Some(Fault { at_call: point.at_call, kind: point.kind }));
    let result = fail_and_recover(&mut session, steps, &point);
    if let Some(call) = session.last_hit {
        *report.hits.entry(call).or_default() += 1;
    }
    report.points += 1;
    report.tally.add(&session.tally);
    if let Err(violation) = result {
        report.violations.push((point, violation));
    }
}

fn fail_and_recover(
    session: &mut Session,
    steps: u64,
    point: &SweepPoint,
) -> Result<(), Violation> {
    if work(session, steps)? == Running::No {
        session.verify_failed()?;
    }
    session.last_hit = session.disk().fired();
    let mut random = Random::new(point.at_call);
    if point.power_cut {
        session.crash(CrashStyle::random(&mut random), random.next());
    } else {
        session.kill();
    }
    // The fault is over: everything has to work again.
    session.arm(None);
    work(session, 5)?;
    session.look_up_all()?;
    session.close()?;
    session.open().map(|_| ())
}

fn work(session: &mut Session, steps: u64) -> Result<Running, Violation> {
    let mut running = session.open()?;
    for _ in 0..steps {
        if running == Running::No {
            break;
        }
        running = session.step()?;
    }
    Ok(running)
}
