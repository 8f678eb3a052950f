//! The transactional outbox in MongoDB: an event is published if, and only if, your own transaction
//! commits. [`promethean::outbox`] is the same for SQLite, and has the drainer of both.
//!
//! ```no_run
//! use promethean::outbox::{DrainOptions, Drainer};
//! use promethean_event::NewEvent;
//! use promethean_mongo::mongodb::Client;
//! use promethean_mongo::mongodb::bson::doc;
//! use promethean_mongo::outbox::MongoOutbox;
//!
//! # async fn example(
//! #     client: Client, bus: promethean::Bus, placed: NewEvent,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let shop = client.database("shop");
//! let outbox = MongoOutbox::install(&shop).await?;
//!
//! // Once per process.
//! let drainer = Drainer::over(outbox.table(), bus, DrainOptions::default())?;
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let running = tokio::spawn(drainer.run(async { drop(stopped.await) }));
//!
//! // The order and its event: both or neither.
//! let mut session = client.start_session().await?;
//! session.start_transaction().await?;
//! let orders = shop.collection("orders");
//! orders.insert_one(doc! { "_id": 7, "total": 1250 }).session(&mut session).await?;
//! outbox.add(&mut session, &placed).await?;
//! session.commit_transaction().await?;
//! outbox.wake();
//!
//! // On the way out: finishes what is under way.
//! drop(stop);
//! running.await?;
//! # Ok(())
//! # }
//! ```
//!
//! # A row
//!
//! A document of the collection `outbox`. A program in another language adds one in its own
//! transaction; `docs/outbox.md` tells how. It gives `_id` (the id of the event), `topic`,
//! `payload`, and `added` as an empty timestamp, which the server fills with its own time as it
//! inserts: that is the order of adding, whatever the clocks of the programs say.
//!
//! | `sent_at` | `dead_at` | `not_before` | the row |
//! | --- | --- | --- | --- |
//! | none | none | none | waits to be claimed |
//! | none | none | a time | is claimed (`claim` is there), or waits for its next attempt |
//! | none | a time | none | is dead |
//! | a time | none | none | is sent, and goes with a purge |
//!
//! `held` is true while a row is claimed, waits or is dead: indexes of those are small by it.

mod row;

mod handle;

mod selection;

mod table;

pub use handle::MongoOutbox;
pub(crate) use row::number as whole_number;
pub use table::MongoTable;
