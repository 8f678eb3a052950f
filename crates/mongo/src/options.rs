use std::sync::Arc;
use std::time::Duration;

use promethean::store::{Clock, SystemClock};

/// How a store on MongoDB works.
#[derive(Debug, Clone)]
pub struct MongoOptions {
    /// The database, if the connection string names none. Default `prom`.
    pub database: String,
    /// How long a write or a read may take, tries included. Default 10 s.
    pub deadline: Duration,
    /// How often to look for what grew while the change stream is not to be had. Default 1 s.
    pub poll: Duration,
    /// Where append times come from.
    pub clock: Arc<dyn Clock>,
    /// What to do with a database that is part of a move (`prom migrate`). Default: refuse it.
    pub if_moved: IfMoved,
}

/// What to do with a database from which everything was moved elsewhere, or that is being moved from or to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfMoved {
    /// It is not opened: what is written there is lost to everybody else.
    Refuse,
    /// It is opened: for tools that move, or look.
    Open,
}

impl Default for MongoOptions {
    fn default() -> Self {
        Self {
            database: "prom".to_owned(),
            deadline: Duration::from_secs(10),
            poll: Duration::from_secs(1),
            clock: Arc::new(SystemClock),
            if_moved: IfMoved::Refuse,
        }
    }
}
