//! `prom`, the binary of Promethean.

fn main() {}
