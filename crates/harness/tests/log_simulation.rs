//! The log against its simulator: crashes, faults, damage, planted bugs, and the model.

use promethean_harness::log_simulation::{
    CorruptionKind, DamageReport, Patient, Profile, SweepReport, sweep,
};

#[test]
fn every_call_of_every_script_may_fail() {
    let mut report = SweepReport::default();
    for script in Profile::scripts() {
        sweep(&script, 20, 1, &mut report);
    }
    let first: Vec<_> = report.violations.iter().take(10).collect();
    println!("{} points, {:?} {:?}", report.points, report.hits, report.tally);
    assert!(report.violations.is_empty(), "{} violations: {first:#?}", report.violations.len());
    assert!(Profile::scripts().len() >= 20 && report.points > 5_000, "{}", report.points);
}

#[test]
fn damage_is_told_or_harmless() {
    let mut report = DamageReport::default();
    let scripts = Profile::scripts();
    for round in 0..12 {
        let script = scripts[round % scripts.len()].clone();
        let patient = Patient::new(script, round as u64, 100).unwrap();
        for seed in 0..70 {
            for kind in CorruptionKind::ALL {
                for suffix in [".seg", ".idx"] {
                    patient.damage(kind, suffix, seed, &mut report);
                }
            }
        }
    }
    let first: Vec<_> = report.violations.iter().map(|v| format!("{:?} {} {} {}", v.0.kind, v.0.file, v.0.place, v.1)).collect();
    println!("{} {:#?}", report.corruptions, report.detected);
    assert!(report.violations.is_empty(), "{} violations: {first:#?}", report.violations.len());
    assert!(report.corruptions >= 10_000, "{}", report.corruptions);
}
