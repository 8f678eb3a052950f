//! The integration tests that belong to no single crate, in one binary.

mod bus_conformance;

mod group_simulation;

mod log_regressions;

mod log_simulation;

mod tidy;
