//! The bus, over the memory store; projections, over files too.

mod bus;

mod examples;

#[cfg(test)]
mod metrics;

// Functions beside tests may do what tests may.
#[cfg(test)]
mod projection;
