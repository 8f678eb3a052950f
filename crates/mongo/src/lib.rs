//! The store on MongoDB: events, groups and all that belongs to them, shared by any number of hubs.
//!
//! Modules are listed in the order in which an event meets them.

mod store;

mod options;

mod cluster;

mod table;

mod topics;

mod writer;

mod plan;

mod document;

mod carry_out;

mod transaction;

mod groups;

mod claims;

mod entries;

mod news;

mod growth;

mod tail;

mod watch;

mod reading;

mod lookup;

mod restore;

mod cleaning;

pub mod views;

pub mod outbox;

pub mod changefeed;

pub mod import;

mod examine;

mod fault;

mod clock;

mod limits;

pub use cluster::OpenError;
pub use examine::{Finding, Verdict, examine};
/// The driver, so that its types are the same here and there.
pub use mongodb;
pub use options::{IfMoved, MongoOptions};
pub use store::MongoStore;
