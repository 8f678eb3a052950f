//! The transactional outbox: an event is published if, and only if, your own transaction commits.
//!
//! A service that writes to its database and then publishes can crash in between; one that does it
//! the other way round publishes what never was. So add the event to the transaction, on your own
//! connection, and let a [`Drainer`] publish it afterwards:
//!
//! ```
//! # use std::sync::{Arc, Mutex};
//! # use promethean::store::{Lane, Receipt, TopicId};
//! # use promethean_event::{Offset, Partition};
//! use promethean::outbox::{DrainOptions, Drainer, Outbox, OutboxTarget, PublishError};
//! use promethean_event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
//! use rusqlite::Connection;
//! #
//! # #[derive(Debug, Clone, Default)]
//! # struct Published(Arc<Mutex<Vec<NewEvent>>>);
//! # impl OutboxTarget for Published {
//! #     fn publish(
//! #         &self,
//! #         events: Vec<NewEvent>,
//! #     ) -> std::pin::Pin<Box<dyn Future<Output = Result<Vec<Receipt>, PublishError>> + Send>> {
//! #         let lane = Lane { topic: TopicId::new(0), partition: Partition::new(0) };
//! #         let receipt = Receipt { lane, offset: Offset::new(0), duplicate: false };
//! #         let receipts = vec![receipt; events.len()];
//! #         self.0.lock().unwrap().extend(events);
//! #         Box::pin(async { Ok(receipts) })
//! #     }
//! # }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("shop.db");
//! # let published = Published::default();
//! # let target = published.clone();
//! // Your database, and your table.
//! let mut connection = Connection::open(&path)?;
//! connection.execute_batch("CREATE TABLE orders (number INTEGER PRIMARY KEY, total INTEGER)")?;
//! let outbox = Outbox::install(&connection)?;
//!
//! // Once per process: publishes to your bus or store, here `target`.
//! let drainer = Drainer::new(&outbox, path.as_path(), target, DrainOptions::default())?;
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let running = tokio::spawn(drainer.run(async { drop(stopped.await) }));
//!
//! // The order and its event: both or neither.
//! let tx = connection.transaction()?;
//! tx.execute("INSERT INTO orders VALUES (7, 1250)", [])?;
//! let placed = NewEvent::new(
//!     EventId::generate(),
//!     Timestamp::from_millis(1_700_000_000_000),
//!     Topic::new("order.placed")?,
//!     Payload::parse(r#"{"number":7,"total":1250}"#)?,
//! );
//! outbox.add(&tx, &placed.clone().with_key(Key::new("7")?))?;
//! outbox.commit(tx)?;
//!
//! # while outbox.stats(&connection)?.sent == 0 {
//! #     tokio::task::yield_now().await;
//! # }
//! // On the way out: finishes what is under way.
//! drop(stop);
//! assert_eq!(running.await?.sent, 1);
//! # assert_eq!(published.0.lock().unwrap()[0].id, placed.id);
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - **Nothing is lost**: a committed event is published, whatever crashes, as soon as a drainer
//!   and the store are there.
//! - **Nothing is stored twice**: the id of the event is that of the row, and a store keeps an id
//!   once. A crash between publishing and marking adds nothing.
//! - **Nothing is published that a power loss could undo**, also if your connection commits
//!   without a sync (`synchronous = NORMAL` in WAL mode): the drainer syncs before it publishes.
//! - **Events of a key keep their order**, by topic, with any number of drainers, through failures.
//!   An event that fails stops its key and nothing else. Events without a key have no order.
//! - **An outage makes nothing dead**: events wait for as long as it lasts. An event that the store
//!   refuses for good (its id is there with other content, say) is *dead*: kept with its error,
//!   listed by [`Outbox::dead`], tried again by [`Outbox::retry`], dropped by [`Outbox::discard`].
//!   Later events of its key wait for that, unless [`AfterDead::GoOn`] is chosen.
//!
//! # How it works
//!
//! A drainer claims rows for the time of a *lease*, which it renews while it works, under a token
//! that is new with each claim. Rows are marked by token: a drainer that was away for longer than
//! its lease finds its rows taken over, and can mark nothing. It sleeps until [`Outbox::add`] or
//! [`Outbox::commit`] wakes it; for writes of other processes it looks once in a while at a number
//! that SQLite changes with every commit.
//!
//! Limits are in [`limits`]; the layout of the table is in `schema.rs`, and is meant to be read and
//! written by programs in other languages, too.
//!
//! Modules are listed in the order in which an event meets them.

mod schema;

mod row;

mod handle;

mod options;

mod table;

mod database;

mod claims;

mod sqlite;

mod backoff;

mod parts;

mod target;

mod round;

mod drainer;

mod counters;

mod error;

pub mod limits;

#[cfg(test)]
mod tests;

pub use counters::DrainCounters;
pub use database::ConnectionSource;
pub use drainer::{DrainMeter, Drainer};
pub use error::{AddError, DatabaseError, OptionsError, ReviveError};
pub use handle::{FailedEvent, Listing, Outbox, OutboxStats};
pub use options::{AfterDead, DrainOptions};
pub use sqlite::SqliteTable;
pub use table::{
    Claim, Claimed, Malformed, OrderKey, OutboxTable, Outcome, Row, Settled, Settlement, shortened,
};
pub use target::{OutboxTarget, PublishError};
