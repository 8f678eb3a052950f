//! The schema crate from outside: verdicts, findings, bad input, published cases, random schemas.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test reports")]

mod corners;
mod differential;
mod findings;
mod official;
mod pairs;
mod random;
mod refusals;
mod suites;
mod table;
mod verdicts;
