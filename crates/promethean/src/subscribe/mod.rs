//! Subscribing: as a stream of deliveries, or with a handler.

mod builder;

mod consumer;

mod delivered;

mod failure;

mod stream;

mod times;

mod worker;

pub use builder::Subscribe;
pub use consumer::Consumer;
pub use delivered::Delivered;
pub use failure::Failure;
pub(crate) use failure::FailureVerdict;
pub use stream::Subscription;
