//! The integration tests that belong to no single crate, in one binary.

mod conformance;

mod kills;

mod store_faults;

mod log_regressions;

mod log_simulation;

mod tidy;
