use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::TryStreamExt;
use mongodb::ClientSession;
use mongodb::bson::raw::RawDocumentBuf;
use mongodb::bson::{Bson, DateTime, Document, doc};
use promethean::outbox::{
    Claim, Claimed, DatabaseError, OutboxStats, OutboxTable, Outcome, Row, Settled, Settlement,
    shortened,
};

use super::handle::{HELD, MongoOutbox, TURN, refused};
use super::row;
use super::selection::{Wish, select};
use crate::document::unsigned;
use crate::fault::Fault;
use crate::transaction::{Attempt, Step, transact};

/// The outbox of a MongoDB database, as a drainer sees it. Its time is the server's.
///
/// A claim is a transaction: it chooses, marks, and changes the one document that all claims
/// change. Of two at once the later one finds that document changed, and begins anew, so that no
/// two choose by what the other has not done yet. That is what keeps the order of keys.
#[derive(Debug)]
pub struct MongoTable {
    outbox: MongoOutbox,
    /// How often somebody has asked whether others may have written. They may have, each time.
    looks: AtomicI64,
}

impl MongoTable {
    pub(super) fn new(outbox: MongoOutbox) -> Self {
        Self { outbox, looks: AtomicI64::new(0) }
    }

    /// The server's time.
    async fn now(&self) -> Result<DateTime, Fault> {
        let admin = self.outbox.cluster.client.database("admin");
        let hello = self.outbox.cluster.ask(admin.run_command(doc! { "hello": 1 })).await?;
        hello
            .get_datetime("localTime")
            .copied()
            .map_err(|_| Fault::Refused("MongoDB did not tell its time".to_owned()))
    }

    async fn try_claim(&self, claim: Claim) -> Result<Claimed, Fault> {
        let version = self.looks.fetch_add(1, Ordering::Relaxed);
        let now = self.now().await?;
        let wish = Wish { rows: claim.rows, after_dead: claim.after_dead, now };
        let cluster = &self.outbox.cluster;
        let claiming = Claiming { outbox: &self.outbox, wish, claim };
        let rows = transact(cluster, cluster.deadline(), claiming).await?;
        let free_in = if rows.is_empty() { self.free_in(now).await? } else { None };
        Ok(Claimed { rows, free_in, version })
    }

    async fn free_in(&self, now: DateTime) -> Result<Option<Duration>, Fault> {
        let filter = doc! { "held": true, "dead_at": null, "not_before": { "$gt": now } };
        let hint = mongodb::options::Hint::Name(HELD.to_owned());
        let next = self.outbox.rows.find_one(filter).sort(doc! { "not_before": 1 }).hint(hint);
        let next = self.outbox.cluster.ask(next).await?;
        let free = next.and_then(|row| row.get_datetime("not_before").ok());
        Ok(free.map(|free| between(now, free)))
    }

    async fn try_renew(&self, token: String, lease: Duration) -> Result<usize, Fault> {
        let later = doc! { "$set": { "not_before": from_now(lease) } };
        let renew = self.outbox.rows.update_many(doc! { "claim": token }, vec![later]);
        let renewed = self.outbox.cluster.ask(renew).await?;
        Ok(usize::try_from(renewed.matched_count).unwrap_or(usize::MAX))
    }

    async fn try_settle(
        &self,
        token: String,
        settlements: Vec<Settlement>,
    ) -> Result<Settled, Fault> {
        let cluster = &self.outbox.cluster;
        let settling = Settling { outbox: &self.outbox, token, settlements };
        transact(cluster, cluster.deadline(), settling).await
    }

    /// What a worker holds, but for what it holds by a claim of this token.
    async fn try_give_back(&self, worker: String, but: Option<String>) -> Result<usize, Fault> {
        let mut held = doc! { "held": true, "claimed_by": worker };
        held.extend(but.map(|token| ("claim".to_owned(), Bson::from(doc! { "$ne": token }))));
        let give_back = self.outbox.rows.update_many(held, vec![doc! { "$unset": CLAIM.to_vec() }]);
        let hint = mongodb::options::Hint::Name(HELD.to_owned());
        let given = self.outbox.cluster.ask(give_back.hint(hint)).await?;
        Ok(usize::try_from(given.matched_count).unwrap_or(usize::MAX))
    }

    async fn try_purge(&self, keep: Duration, rows_max: usize) -> Result<usize, Fault> {
        let until = self.now().await?.timestamp_millis().saturating_sub(row::span(keep));
        let sent = doc! { "sent_at": { "$lte": DateTime::from_millis(until) } };
        let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
        let old = self.outbox.rows.find(sent.clone()).projection(doc! { "_id": 1 }).limit(limit);
        let old = self.outbox.cluster.ask(old).await?;
        let old: Vec<RawDocumentBuf> = self.outbox.cluster.ask(old.try_collect()).await?;
        if old.is_empty() {
            return Ok(0);
        }
        let mut filter = sent;
        filter.insert("_id", doc! { "$in": ids(&old)? });
        let removed = self.outbox.cluster.ask(self.outbox.rows.delete_many(filter)).await?;
        Ok(usize::try_from(removed.deleted_count).unwrap_or(usize::MAX))
    }

    async fn try_stats(&self) -> Result<OutboxStats, Fault> {
        let rows = &self.outbox.rows;
        let cluster = &self.outbox.cluster;
        let count = async |filter| cluster.ask(rows.count_documents(filter)).await;
        let open = doc! { "sent_at": null, "dead_at": null };
        let oldest = rows.find_one(open.clone()).sort(doc! { "added": 1 });
        let oldest = cluster.ask(oldest).await?;
        let now = unsigned(self.now().await?.timestamp_millis());
        let added = oldest.and_then(|row| row.get_timestamp("added").ok()).map(row::moment);
        let mut failing = open.clone();
        failing.insert("attempts", doc! { "$gt": 0 });
        Ok(OutboxStats {
            pending: count(open).await?,
            failing: count(failing).await?,
            oldest_pending: added
                .map(|added| Duration::from_millis(now.saturating_sub(added.millis()))),
            dead: count(doc! { "held": true, "dead_at": { "$type": "date" } }).await?,
            sent: count(doc! { "sent_at": { "$type": "date" } }).await?,
        })
    }
}

impl OutboxTable for MongoTable {
    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Claimed, DatabaseError>> {
        Box::pin(async { self.try_claim(claim).await.map_err(refused) })
    }

    fn renew(&self, token: String, lease: Duration) -> BoxFuture<'_, Result<usize, DatabaseError>> {
        Box::pin(async move { self.try_renew(token, lease).await.map_err(refused) })
    }

    fn settle(
        &self,
        token: String,
        settlements: Vec<Settlement>,
    ) -> BoxFuture<'_, Result<Settled, DatabaseError>> {
        Box::pin(async { self.try_settle(token, settlements).await.map_err(refused) })
    }

    fn give_back(&self, worker: String) -> BoxFuture<'_, Result<usize, DatabaseError>> {
        Box::pin(async { self.try_give_back(worker, None).await.map_err(refused) })
    }

    fn give_back_others(
        &self,
        worker: String,
        token: String,
    ) -> BoxFuture<'_, Result<usize, DatabaseError>> {
        Box::pin(async { self.try_give_back(worker, Some(token)).await.map_err(refused) })
    }

    fn purge(
        &self,
        keep: Duration,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<usize, DatabaseError>> {
        Box::pin(async move { self.try_purge(keep, rows_max).await.map_err(refused) })
    }

    fn stats(&self) -> BoxFuture<'_, Result<OutboxStats, DatabaseError>> {
        Box::pin(async { self.try_stats().await.map_err(refused) })
    }

    fn version(&self) -> BoxFuture<'_, Result<i64, DatabaseError>> {
        let look = self.looks.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(look)))
    }

    fn written(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.outbox.wake.notified())
    }
}

/// The fields that a claim sets.
const CLAIM: [&str; 4] = ["claim", "claimed_by", "not_before", "held"];

fn from_now(time: Duration) -> Document {
    doc! { "$add": ["$$NOW", row::span(time)] }
}

fn between(from: DateTime, to: DateTime) -> Duration {
    Duration::from_millis(unsigned(to.timestamp_millis() - from.timestamp_millis()))
}

fn ids(rows: &[RawDocumentBuf]) -> Result<Vec<Bson>, Fault> {
    let id = |row: &RawDocumentBuf| {
        let id = row.get("_id").ok().flatten().and_then(|id| Bson::try_from(id).ok());
        id.ok_or_else(|| Fault::Refused("MongoDB sent a row without an _id".to_owned()))
    };
    rows.iter().map(id).collect()
}

/// The transaction of a claim.
struct Claiming<'o> {
    outbox: &'o MongoOutbox,
    wish: Wish,
    claim: Claim,
}

impl Attempt for Claiming<'_> {
    type Outcome = Vec<Row>;

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<Vec<Row>>, Fault>> {
        Box::pin(async move {
            let chosen = select(self.outbox, session, self.wish).await?;
            if chosen.is_empty() {
                return Ok(Step::Abandon(Vec::new()));
            }
            let taken = doc! { "$inc": { "taken": 1_i64 } };
            let turn = self.outbox.turns.update_one(doc! { "_id": TURN }, taken);
            turn.session(&mut *session).await?;
            let literal = |text: &str| doc! { "$literal": text };
            let mark = doc! { "$set": {
                "claim": literal(&self.claim.token),
                "claimed_by": literal(&self.claim.worker),
                "not_before": from_now(self.claim.lease),
                "held": true,
            } };
            let filter = doc! { "_id": { "$in": ids(&chosen)? } };
            let marking = self.outbox.rows.update_many(filter, vec![mark]);
            marking.session(session).await?;
            Ok(Step::Commit(chosen.iter().map(|row| row::read(row)).collect()))
        })
    }
}

/// The transaction that ends a claim on some rows.
struct Settling<'o> {
    outbox: &'o MongoOutbox,
    token: String,
    settlements: Vec<Settlement>,
}

impl Settling<'_> {
    /// Rows that go the same way together, by their places.
    fn groups(&self) -> Vec<(&Outcome, Vec<i64>)> {
        let mut groups: Vec<(&Outcome, Vec<i64>)> = Vec::new();
        for Settlement { seq, outcome } in &self.settlements {
            match groups.iter_mut().find(|(other, _)| *other == outcome) {
                Some((_, places)) => places.push(*seq),
                None => groups.push((outcome, vec![*seq])),
            }
        }
        groups
    }

    fn filter(&self, places: &[i64]) -> Document {
        if places == [row::UNPLACED] {
            return doc! { "claim": &self.token, "added": { "$not": { "$type": "timestamp" } } };
        }
        let times: Vec<_> = places.iter().map(|place| row::time_at(*place)).collect();
        doc! { "claim": &self.token, "added": { "$in": times } }
    }
}

impl Attempt for Settling<'_> {
    type Outcome = Settled;

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<Settled>, Fault>> {
        Box::pin(async move {
            let mut settled = Settled::default();
            for (outcome, places) in self.groups() {
                let (unplaced, placed): (Vec<i64>, Vec<i64>) =
                    places.into_iter().partition(|place| *place == row::UNPLACED);
                for places in [unplaced, placed].into_iter().filter(|places| !places.is_empty()) {
                    let update =
                        self.outbox.rows.update_many(self.filter(&places), change(outcome));
                    let marked = update.session(&mut *session).await?.matched_count;
                    (0..marked).for_each(|_| settled.count(outcome));
                    let wanted = u64::try_from(places.len()).unwrap_or(u64::MAX);
                    settled.fenced += wanted.saturating_sub(marked);
                }
            }
            Ok(Step::Commit(settled))
        })
    }
}

/// What an outcome changes in a row.
fn change(outcome: &Outcome) -> Vec<Document> {
    let release = doc! { "$unset": CLAIM.to_vec() };
    let unclaim = doc! { "$unset": ["claim", "claimed_by"] };
    let attempts = doc! { "$add": [{ "$ifNull": ["$attempts", 0] }, 1] };
    let literal = |text: &str| doc! { "$literal": shortened(text) };
    match outcome {
        Outcome::Sent => {
            let set = doc! { "$set": { "sent_at": "$$NOW" } };
            vec![set, release, doc! { "$unset": "error" }]
        }
        Outcome::Again { delay, error } => {
            let set = doc! {
                "attempts": attempts, "not_before": from_now(*delay), "error": literal(error),
            };
            vec![doc! { "$set": set }, unclaim]
        }
        Outcome::Dead { error } => {
            let set = doc! { "attempts": attempts, "dead_at": "$$NOW", "error": literal(error) };
            vec![doc! { "$set": set }, unclaim, doc! { "$unset": "not_before" }]
        }
        // What had gone wrong before is still so: the error stays.
        Outcome::Released => vec![release],
    }
}
