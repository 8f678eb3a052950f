//! Conformance suites and simulators of Promethean, as a library so that a command can run them
//! for as long as one likes. They live outside of what they check.

pub mod conformance;

pub mod group_simulation;

pub mod log_simulation;

pub mod kills;

pub mod server_kills;

pub mod stopwatch;
