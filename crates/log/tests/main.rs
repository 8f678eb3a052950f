//! The log over a real directory. One binary: each further one costs a link step.

mod cleaner;
mod damage;
mod order_and_search;
