//! The log against its simulator: crashes, faults, damage, planted bugs, and the model.
//!
//! Each test runs a share that fits into a minute; `PROM_SIM_SHARE=20` makes it twenty times as
//! much. `prom-sim log` runs as many crashes as one likes.

use promethean_harness::log_simulation::{
    Broken, CorruptionKind, CrashOptions, DamageReport, Patient, PlantedBug, Profile, Random,
    Running, Session, SweepReport, run, run_seed, sweep,
};

/// How much more than usual to do.
fn share() -> u64 {
    std::env::var("PROM_SIM_SHARE").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[test]
fn crashes_lose_nothing_that_was_promised() {
    let report = run(&CrashOptions::new(3000 * share(), 1));
    assert!(report.violations.is_empty(), "{}", report.violations[0]);
    let tally = report.tally;
    println!("{tally:?}");
    // The run has seen what it is for.
    assert!(tally.acked_synced > 5_000 && tally.commits_lost > 100 && tally.torn_tails > 20);
    assert!(tally.crashes_while_opening > 50 && tally.segments_cleaned > 20);
    assert!(tally.duplicates > 50 && tally.refused > 50 && tally.indeterminate > 5);
}

#[test]
fn a_seed_replays_its_run() {
    for seed in 0..20 {
        assert_eq!(run_seed(seed, None), run_seed(seed, None), "seed {seed}");
    }
}

#[test]
fn every_call_of_every_script_may_fail() {
    let mut report = SweepReport::default();
    let scripts = Profile::scripts();
    assert!(scripts.len() >= 20);
    let stride = if share() > 1 { 1 } else { 5 };
    for script in &scripts {
        sweep(script, 16, stride, &mut report);
    }
    println!("{} points, {:?} {:?}", report.points, report.hits, report.tally);
    assert!(report.violations.is_empty(), "{:#?}", report.violations[0]);
    assert!(report.points > 700 && report.hits.len() >= 10, "{:?}", report.hits);
}

#[test]
fn damage_is_told_or_harmless() {
    let mut report = DamageReport::default();
    let scripts = Profile::scripts();
    for (number, script) in scripts.iter().enumerate().filter(|(number, _)| number % 2 == 0) {
        let patient = Patient::new(script.clone(), number as u64, 60).unwrap();
        for seed in 0..70 * share() {
            for kind in CorruptionKind::ALL {
                for suffix in [".seg", ".idx", ".spare"] {
                    patient.damage(kind, suffix, seed, &mut report);
                }
            }
        }
    }
    println!("{} corruptions: {:#?}", report.corruptions, report.detected);
    for (corruption, violation) in &report.violations {
        let (kind, file, place) = (corruption.kind, &corruption.file, &corruption.place);
        println!("{kind:?} of {file}, {place}: {violation}");
    }
    assert!(report.violations.is_empty(), "{} violations", report.violations.len());
    assert!(report.corruptions >= 10_000, "{}", report.corruptions);
}

#[test]
fn the_log_does_what_the_model_does() {
    let mut random = Random::new(4);
    for seed in 0..60 * share() {
        let profile = Profile::swarm(&mut random);
        let mut session = Session::new(profile, seed);
        session.open().unwrap();
        for _ in 0..120 {
            let running = session.step();
            assert_eq!(running, Ok(Running::Yes), "seed {seed}");
        }
        let last = session.verify().and_then(|_| session.look_up_all());
        assert_eq!(last, Ok(()), "seed {seed}");
    }
}

#[test]
fn a_full_disk_refuses_and_then_goes_on() {
    let mut refused = 0;
    for (seed, script) in Profile::scripts().into_iter().enumerate() {
        let mut session = Session::new(script, seed as u64);
        session.open().unwrap();
        for round in 0..4 {
            let room = if round % 2 == 0 { None } else { Some(session.disk().used() + 2000) };
            session.limit_disk(room);
            for _ in 0..30 {
                assert_eq!(session.step(), Ok(Running::Yes), "script {seed}");
            }
            assert_eq!(session.verify(), Ok(Running::Yes), "script {seed}");
        }
        session.limit_disk(None);
        let before = session.tally.acked;
        for _ in 0..30 {
            assert_eq!(session.step(), Ok(Running::Yes), "script {seed}");
        }
        assert!(session.tally.acked > before, "publishing goes on, script {seed}");
        assert_eq!(session.verify().and_then(|_| session.look_up_all()), Ok(()), "script {seed}");
        refused += session.tally.refused;
    }
    assert!(refused > 50, "{refused}");
}

#[test]
fn planted_bugs_that_lose_events_are_found() {
    for bug in [
        PlantedBug::AckBeforeSync,
        PlantedBug::NoDirectorySync,
        PlantedBug::RollWithoutSync,
        PlantedBug::RetriedFsync,
    ] {
        let options = CrashOptions { planted: Some(bug), ..CrashOptions::new(30_000, 1) };
        let report = run(&options);
        let found = report.violations.first();
        let found = found.unwrap_or_else(|| panic!("{bug:?} is not found in {report:?}"));
        println!("{bug:?} after {} seeds, {} crashes: {found}", report.seeds, report.crashes);
    }
}

#[test]
fn a_planted_bug_that_serves_wrong_bytes_is_found() {
    let mut report = DamageReport::default();
    let session =
        Session::new(Profile::scripts()[0].clone(), 1).with_planted(PlantedBug::SkipBadCrc);
    let patient = Patient::of(session, 70).unwrap();
    for seed in 0..300 {
        patient.damage(CorruptionKind::BitFlip, ".seg", seed, &mut report);
    }
    let wrong = report.violations.iter().find(|(_, found)| found.broken == Broken::Changed);
    assert!(wrong.is_some(), "{report:?}");
}
