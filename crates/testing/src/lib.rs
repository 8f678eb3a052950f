//! A bus for tests: in memory, on a clock that jumps, with faults on demand.
//!
//! ```
//! use promethean_testing::Harness;
//! # #[derive(serde::Serialize, serde::Deserialize)]
//! # struct Beat { host: String }
//! # promethean::topic! { Beat => "heartbeat.received", key = |beat| beat.host.clone() }
//!
//! #[tokio::main(flavor = "current_thread")] // in a test: #[tokio::test]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let harness = Harness::start();
//!     harness.fail("ops", 2); // two deliveries go wrong before a handler sees them
//!     let consumer =
//!         harness.bus().subscribe::<Beat>("ops").handle(|_beat| async { Ok(()) }).await?;
//!     harness.bus().publish(&Beat { host: "dev".into() }).await?;
//!     harness.settled().await?; // no sleep: retries and their delays are over
//!     assert_eq!(consumer.handled(), 3); // two that went wrong, and the one that did not
//!     Ok(())
//! }
//! ```
//!
//! Nothing sleeps: whenever every task waits for time, the clock jumps to the moment that the first
//! of them waits for. A lease of 30 s is over at once, and always in the same order.

mod faults;

mod harness;

mod unsettled;

pub use harness::Harness;
pub use unsettled::Unsettled;
