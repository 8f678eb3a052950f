//! The network edge of Promethean: WebSocket and HTTP, access and limits.

pub mod access;

pub mod intake;

pub mod filter;

pub mod quota;

pub mod rejection;

pub mod limits;
