//! The suite of the bus, for every kind of bus there is.

use promethean_harness::conformance::bus;

macro_rules! in_memory {
    ($($area:ident { $($case:ident,)* })*) => {
        mod memory {
            use super::bus;
            $(mod $area {
                use super::bus;
                $(#[tokio::test(start_paused = true)]
                async fn $case() {
                    bus::$area::$case(&bus::MemoryBuses::default()).await;
                })*
            })*
        }
    };
}

promethean_harness::bus_cases!(in_memory);

macro_rules! embedded {
    ($($area:ident { $($case:ident,)* })*) => {
        mod embedded {
            use super::bus;
            $(mod $area {
                use super::bus;
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let folder = tempfile::tempdir().unwrap();
                    bus::$area::$case(&bus::EmbeddedBuses::new(folder.path())).await;
                })*
            })*
        }
    };
}

promethean_harness::bus_cases!(embedded);

/// Seeds of one test run; the environment may ask for more.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("PROM_BUS_SEEDS").ok();
    let first = std::env::var("PROM_BUS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    first..first + asked.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Random runs in memory: nothing lost, nothing twice on lease, no key out of order, no cursor past
/// what is open, no attempt too many, no stale ack taken.
#[tokio::test(start_paused = true)]
async fn random_runs_in_memory() {
    let (mut crashes, mut moves, mut dead) = (0, 0, 0);
    for seed in seeds(150) {
        let report = bus::run_random(&bus::MemoryBuses::default(), seed, 400).await;
        assert!(report.violations.is_empty(), "PROM_BUS_SEED={seed}: {report:#?}");
        crashes += report.crashes;
        moves += report.moves;
        dead += report.dead_letters;
    }
    println!("{crashes} crashes, {moves} moves, {dead} dead letters");
    assert!(crashes > 0 && moves > 0 && dead > 0, "the runs have seen what they are for");
}

/// The same with threads, files and real time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_runs_on_disk() {
    for seed in seeds(8) {
        let folder = tempfile::tempdir().unwrap();
        let buses = bus::EmbeddedBuses::new(folder.path());
        let report = bus::run_random(&buses, seed, 250).await;
        assert!(report.violations.is_empty(), "PROM_BUS_SEED={seed}: {report:#?}");
    }
}
