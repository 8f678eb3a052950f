//! Conformance suites and simulators of Promethean, as a library so that a command can run them
//! for as long as one likes.

pub mod log_simulation;
