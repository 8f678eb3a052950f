//! A durable event bus to embed.
//!
//! Modules are listed in the order in which an event meets them.

pub mod store;

pub mod outbox;
