//! The schema crate from outside: published cases, random schemas, bad input.

mod suites;
