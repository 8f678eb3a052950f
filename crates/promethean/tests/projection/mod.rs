//! Projections and views: each module has the traps of its part.

mod changelog;
mod killed;
mod rebuild;
mod scenario;
mod transactional;
