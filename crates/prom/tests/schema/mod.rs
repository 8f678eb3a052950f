//! `prom schema`, as a user runs it.

mod against;
mod check;
mod example;
mod registry;
