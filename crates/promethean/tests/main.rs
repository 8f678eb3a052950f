//! The bus, over the memory store.

mod bus;

mod examples;

mod metrics;
