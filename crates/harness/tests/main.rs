//! The integration tests that belong to no single crate, in one binary.

mod conformance;

mod store_faults;

mod bus_conformance;

mod outbox_conformance;

mod view_conformance;

mod group_simulation;

mod kills;

mod log_regressions;

mod log_simulation;

mod tidy;
