//! What every store, and every bus over one, is held to. The same cases run for all of them, so
//! that no implementation has a contract of its own.

pub mod bus;
