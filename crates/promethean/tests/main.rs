//! The bus, over the memory store; projections, over files too.

mod bus;

#[cfg(test)]
mod causality;

mod examples;

#[cfg(test)]
mod glimpse;

#[cfg(test)]
mod jobs;

#[cfg(test)]
mod metrics;

#[cfg(test)]
mod scrubbing;

// Functions beside tests may do what tests may.
#[cfg(test)]
mod projection;
