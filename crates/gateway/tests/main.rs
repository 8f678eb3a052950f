//! The edge over real sockets. One binary: each further one costs a link step.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that meets what it did not expect should stop there"
)]

mod gateway;
