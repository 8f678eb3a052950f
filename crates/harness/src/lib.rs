//! Simulators, conformance suites and checks that live outside of what they check.

pub mod group_simulation;
