//! Subscribing: as a stream of deliveries, or with a handler.

mod ack_ranges;

mod batch;

mod builder;

mod consumer;

mod delivered;

mod pace;

mod runner;

mod stream;

mod times;

mod worker;

pub use batch::DeliveredBatch;
pub use builder::Subscribe;
pub use consumer::Consumer;
pub use delivered::Delivered;
pub(crate) use delivered::fail;
pub use stream::Subscription;
