//! The schema crate from outside: published cases, random schemas, bad input.

mod differential;
mod random;
mod suites;
