//! The bus, over the memory store; projections, over files too.

mod bus;
mod projection;
