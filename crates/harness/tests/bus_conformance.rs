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
