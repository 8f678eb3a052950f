//! The bus, over the memory store.

mod bus;
#[cfg(test)]
mod metrics;
