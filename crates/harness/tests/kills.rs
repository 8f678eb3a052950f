//! A real process, really killed.

use promethean_harness::kills::{KillOptions, run};

/// Zero lost, zero reordered within a key, zero cursor past unacked, duplicates only where a lease
/// was open. `PROM_SIM_SHARE=n` makes it n times as long.
#[test]
fn two_hundred_kills_break_no_promise() {
    let folder = tempfile::tempdir().unwrap();
    let share: u32 =
        std::env::var("PROM_SIM_SHARE").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let report = run(&KillOptions {
        binary: env!("CARGO_BIN_EXE_prom-kill").into(),
        folder: folder.path().to_owned(),
        kills: 200 * share,
        seed: 1,
    })
    .unwrap();
    assert_eq!(report.verdict.violations, Vec::<String>::new());
    assert!(report.verdict.published > 0 && report.verdict.acked > 0 && report.verdict.again > 0);
}
