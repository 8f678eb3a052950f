//! The bus, over the memory store.

mod bus;
