//! The simulator finds nothing in the group as it is, and every planted bug.

use promethean_delivery::PlantedBug;
use promethean_harness::group_simulation::{SimOptions, run};

/// Seeds of one test run; the environment may ask for more.
fn seeds(usual: u64) -> u64 {
    let asked = std::env::var("PROM_SIM_SEEDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn groups_keep_their_promises() {
    let report =
        run(SimOptions { seeds: seeds(700), stop_at_first: true, ..SimOptions::default() });
    let json = serde_json::to_string(&report).unwrap();
    println!("{json}");
    assert!(report.violations.is_empty(), "{:#?}", report.violations);
    assert!(report.faults.crashes > 0 && report.dead_letters > 0 && report.assignments > 0);
}

#[test]
fn every_planted_bug_is_found() {
    for bug in PlantedBug::ALL {
        let report = run(SimOptions {
            seeds: 200,
            bug: Some(bug),
            stop_at_first: true,
            ..SimOptions::default()
        });
        println!("{bug:?}: seed {} {:?}", report.seeds, report.violations.first());
        assert!(!report.violations.is_empty(), "{bug:?} was not found");
    }
}

/// The same seed is the same run.
#[test]
fn runs_repeat() {
    let report = |seed| {
        let report = run(SimOptions { first_seed: seed, seeds: 5, ..SimOptions::default() });
        serde_json::to_string(&report).unwrap()
    };
    assert_eq!(report(7), report(7));
    assert_ne!(report(7), report(70));
}
