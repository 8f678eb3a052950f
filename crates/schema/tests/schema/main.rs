//! The schema crate from outside: verdicts, findings, bad input, published cases, random schemas.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a panic is how a test reports; it prints what it measured"
)]

mod differential;
mod findings;
mod random;
mod refusals;
mod suites;
mod verdicts;
