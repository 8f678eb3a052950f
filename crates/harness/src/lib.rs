//! Simulators, conformance suites and checks that live outside of what they check, as a library
//! so that a command can run them for as long as one likes.

pub mod log_simulation;

pub mod group_simulation;
