//! Subscribing: as a stream of deliveries, or with a handler.

mod builder;

mod consumer;

mod delivered;

mod stream;

pub(crate) use builder::begin;
pub use builder::{Mode, Ordered, Park, Reads, Subscribe};
pub use consumer::Consumer;
pub use delivered::{Answer, Delivered};
pub use stream::Subscription;
