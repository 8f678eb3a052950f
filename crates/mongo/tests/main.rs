//! The store on MongoDB, against a real replica set: `scripts/mongod -- cargo nextest run ...`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that meets what it did not expect should stop there"
)]

mod replica_set;

mod verdict;

mod conformance;

mod bus;

mod outbox;

mod changefeed;

mod news;

mod plans;

mod examining;

mod hubs;

mod views;

mod faults;

mod example;
