use std::sync::Arc;

use futures_util::TryStreamExt;
use mongodb::bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use mongodb::bson::{Document, doc};
use mongodb::error::ErrorKind;
use mongodb::options::IndexOptions;
use mongodb::{ClientSession, Collection, Database, IndexModel};
use promethean::outbox::limits::LISTING_ROWS_MAX;
use promethean::outbox::{
    AddError, DatabaseError, FailedEvent, Listing, OutboxStats, OutboxTable, ReviveError,
};
use promethean_event::{EventId, NewEvent};
use tokio::sync::Notify;

use super::row;
use super::table::MongoTable;
use crate::cluster::Cluster;
use crate::fault::Fault;

/// The collection of the rows.
const ROWS: &str = "outbox";
/// The collection of the document that claims take turns by.
const TURNS: &str = "outbox_turns";
/// The document that claims take turns by.
pub(super) const TURN: &str = "claims";

/// The index of rows in the order of adding.
pub(super) const OPEN: &str = "open";
/// The index of held rows by their key.
pub(super) const HELD_KEYS: &str = "held_keys";
/// The index of held rows by the time when they come free.
pub(super) const HELD: &str = "held";
/// The index of rows by their claim.
const CLAIMED: &str = "claimed";

/// The outbox of a MongoDB database. A cheap clone; clones of one wake the same drainers.
#[derive(Debug, Clone)]
pub struct MongoOutbox {
    pub(super) cluster: Cluster,
    pub(super) rows: Collection<RawDocumentBuf>,
    pub(super) turns: Collection<Document>,
    pub(super) wake: Arc<Notify>,
}

impl MongoOutbox {
    /// Makes the collections and indexes that are not there, and gives the handle. Rows are
    /// written with the caller's client, and need a replica set.
    pub async fn install(database: &Database) -> Result<Self, DatabaseError> {
        let cluster = Cluster::over(database);
        let rows = cluster.database.collection(ROWS);
        let turns = cluster.database.collection(TURNS);
        let outbox = Self { cluster, rows, turns, wake: Arc::new(Notify::new()) };
        outbox.prepare().await.map_err(refused)?;
        Ok(outbox)
    }

    /// Before the first transaction: in one, making a collection would be in its way.
    async fn prepare(&self) -> Result<(), Fault> {
        for name in [ROWS, TURNS] {
            self.cluster.make_collection(name).await?;
        }
        self.cluster.ask(self.rows.create_indexes(indexes())).await?;
        let turn = self.turns.update_one(doc! { "_id": TURN }, doc! { "$inc": { "taken": 0_i64 } });
        self.cluster.ask(turn.upsert(true)).await?;
        Ok(())
    }

    /// The table for a drainer: [`Drainer::over`](promethean::outbox::Drainer::over).
    pub fn table(&self) -> Arc<MongoTable> {
        Arc::new(MongoTable::new(self.clone()))
    }

    /// Adds an event to the caller's transaction: it will be published if that commits, and else
    /// never was. The same event again adds nothing.
    ///
    /// Events of one key are published in the order in which they were added, if the transactions
    /// came one after the other. Of two that were open at once the one that added later goes first if
    /// it is committed and published before the other one is committed; that cannot be where both
    /// write a document in common, since one of them is then refused, and done again.
    pub async fn add(&self, session: &mut ClientSession, event: &NewEvent) -> Result<(), AddError> {
        if !is_in_transaction(session).await? {
            return Err(AddError::NoTransaction);
        }
        if event.topic.is_system() {
            return Err(AddError::SystemTopic(event.topic.as_str().to_owned()));
        }
        event.check()?;
        i64::try_from(event.ts.millis()).map_err(|_| AddError::Time(event.ts.millis()))?;
        // Looked for first: inserting what is there would cost the caller the transaction.
        let find = self.rows.find_one(doc! { "_id": event.id.to_string() }).session(&mut *session);
        if let Some(found) = self.cluster.ask(find).await.map_err(refused)? {
            let added = found.get_timestamp("added").ok();
            let same = row::content(&found, added).as_ref() == Ok(event);
            return if same { Ok(()) } else { Err(AddError::IdConflict(event.id)) };
        }
        let insert = self.rows.insert_one(row::encode(event)).session(session);
        self.cluster.ask(insert).await.map_err(refused)?;
        Ok(())
    }

    /// Wakes a drainer of this process that uses this handle or a clone: call it after the commit.
    /// Otherwise the drainer looks by itself, once per `poll`.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Events that were given up, with the reason, in the order of adding.
    pub async fn dead(&self, listing: Listing) -> Result<Vec<FailedEvent>, DatabaseError> {
        self.list(doc! { "held": true, "dead_at": { "$type": "date" } }, listing).await
    }

    /// Events that failed and will be tried again, with the last reason, in the order of adding.
    pub async fn failing(&self, listing: Listing) -> Result<Vec<FailedEvent>, DatabaseError> {
        let filter = doc! { "sent_at": null, "dead_at": null, "attempts": { "$gt": 0 } };
        self.list(filter, listing).await
    }

    async fn list(
        &self,
        mut filter: Document,
        listing: Listing,
    ) -> Result<Vec<FailedEvent>, DatabaseError> {
        if listing.after > row::UNPLACED {
            filter.insert("added", doc! { "$gt": row::time_at(listing.after) });
        }
        let max = i64::try_from(listing.max.min(LISTING_ROWS_MAX)).unwrap_or(i64::MAX);
        let find = self.rows.find(filter).sort(doc! { "added": 1 }).limit(max);
        let cursor = self.cluster.ask(find).await.map_err(refused)?;
        let rows: Vec<RawDocumentBuf> =
            self.cluster.ask(cursor.try_collect()).await.map_err(refused)?;
        Ok(rows.iter().map(|row| failed(row)).collect())
    }

    /// Has a dead event tried again, in its old place: before the later ones of its key, unless
    /// they went on without it.
    pub async fn retry(&self, id: EventId) -> Result<(), ReviveError> {
        let filter = doc! { "_id": id.to_string(), "dead_at": { "$type": "date" } };
        let change = doc! { "$unset": { "dead_at": 1, "not_before": 1, "attempts": 1, "held": 1 } };
        let updated = self.cluster.ask(self.rows.update_one(filter, change)).await;
        let updated = updated.map_err(refused)?;
        self.wake();
        if updated.matched_count == 0 { Err(ReviveError::NotDead(id)) } else { Ok(()) }
    }

    /// Removes a dead event for good. What waits behind it goes on.
    pub async fn discard(&self, id: EventId) -> Result<(), ReviveError> {
        let filter = doc! { "_id": id.to_string(), "dead_at": { "$type": "date" } };
        let removed = self.cluster.ask(self.rows.delete_one(filter)).await.map_err(refused)?;
        self.wake();
        if removed.deleted_count == 0 { Err(ReviveError::NotDead(id)) } else { Ok(()) }
    }

    /// How the outbox stands.
    pub async fn stats(&self) -> Result<OutboxStats, DatabaseError> {
        self.table().stats().await
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what errors are mapped by")]
pub(super) fn refused(fault: Fault) -> DatabaseError {
    DatabaseError::Remote(fault.to_string())
}

/// Whether a transaction is open. The driver tells it only to one who wants to begin another.
async fn is_in_transaction(session: &mut ClientSession) -> Result<bool, AddError> {
    match session.start_transaction().await {
        Err(error) => match &*error.kind {
            ErrorKind::Transaction { message, .. } if message.contains("in progress") => Ok(true),
            _ => Err(AddError::Database(refused(Fault::from(error)))),
        },
        Ok(()) => {
            // Nothing was sent yet, so that there is nothing to take back but the intention.
            drop(session.abort_transaction().await);
            Ok(false)
        }
    }
}

fn failed(row: &RawDocument) -> FailedEvent {
    let text = |name| row.get(name).ok().flatten().map(row::lossy);
    let added = row.get_timestamp("added").ok();
    let attempts = row.get("attempts").ok().flatten().and_then(row::number);
    let key = row.get("key").ok().flatten().filter(|key| *key != RawBsonRef::Null);
    FailedEvent {
        seq: row::place_of(added),
        id: text("_id").unwrap_or_default(),
        topic: text("topic").unwrap_or_default(),
        key: key.map(row::lossy),
        attempts: attempts.and_then(|attempts| u32::try_from(attempts).ok()).unwrap_or(0),
        error: text("error").unwrap_or_default(),
        added_at: added.map(row::moment).unwrap_or_default(),
        dead_at: row::millis(row, "dead_at"),
    }
}

/// Of what is held, claimed or waiting, there is little: their indexes hold only that.
fn indexes() -> [IndexModel; 4] {
    let partial = |name: &str, keys: Document, of: Document| {
        let options =
            IndexOptions::builder().name(name.to_owned()).partial_filter_expression(of).build();
        IndexModel::builder().keys(keys).options(options).build()
    };
    let open = IndexOptions::builder().name(OPEN.to_owned()).build();
    let order = doc! { "sent_at": 1, "dead_at": 1, "added": 1 };
    [
        IndexModel::builder().keys(order).options(open).build(),
        partial(HELD_KEYS, doc! { "topic": 1, "key": 1, "added": 1 }, doc! { "held": true }),
        partial(HELD, doc! { "held": 1, "not_before": 1 }, doc! { "held": true }),
        partial(CLAIMED, doc! { "claim": 1, "added": 1 }, doc! { "claim": { "$exists": true } }),
    ]
}
