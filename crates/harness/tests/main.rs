//! The integration tests that belong to no single crate, in one binary.

mod conformance;

mod log_regressions;

mod log_simulation;

mod tidy;
