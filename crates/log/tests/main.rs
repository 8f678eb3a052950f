//! The log over a real directory. One binary: each further one costs a link step.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it did not expect should stop there"
)]

mod bounds;
mod cleaner;
mod damage;
mod format;
mod missing;
mod order_and_search;
mod searching;
mod segments;
mod watched;
mod written_here;
