//! Projections and views: each module has the traps of its part.

mod as_of;
mod changelog;
mod killed;
mod listing;
mod past;
mod rebuild;
mod scenario;
mod snapshot;
mod transactional;
