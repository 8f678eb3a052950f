//! The real server, really killed, under load over WebSocket and HTTP.

use promethean_harness::server_kills::{ServerKillOptions, run};

/// Zero lost, zero phantoms, zero reordered, zero duplicates, no cursor past what is not done.
/// `PROM_SIM_SHARE=n` makes it n times as long; `prom-kill server` takes any number.
#[test]
fn kills_of_the_server_break_no_promise() {
    let folder = tempfile::tempdir().unwrap();
    let share: u32 =
        std::env::var("PROM_SIM_SHARE").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let report = run(&ServerKillOptions {
        binary: env!("CARGO_BIN_EXE_prom").into(),
        folder: folder.path().to_owned(),
        kills: 30 * share,
        seed: 7,
    })
    .unwrap();
    assert_eq!(report.verdict.violations, Vec::<String>::new());
    let verdict = report.verdict;
    assert!(verdict.published > 0 && verdict.acked > 0 && verdict.again > 0, "{verdict:?}");
}
