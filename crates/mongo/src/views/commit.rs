//! One batch of a projection: documents, counts and cursors, in one transaction.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures_core::future::BoxFuture;
use mongodb::ClientSession;
use mongodb::bson::raw::{RawArrayBuf, RawDocumentBuf};
use mongodb::bson::{Bson, Document, cstr, doc, rawdoc};
use promethean::projection::view_store::{Batch, DatabaseError, Order, Phase, Stamp, Table, Write};
use promethean_event::Offset;

use super::record::{field, lane_number, lane_of};
use super::row::{encode, stamp};
use super::{MongoViews, refused};
use crate::document::{signed, unsigned};
use crate::fault::{Fault, is_of_the_write};
use crate::transaction::{Attempt, Step, transact};

impl MongoViews {
    pub(super) async fn commit(&self, batch: Batch) -> Result<u64, DatabaseError> {
        let applying = Applying { views: self.clone(), batch: Arc::new(batch) };
        transact(&self.cluster, self.cluster.deadline(), applying).await.map_err(refused)?
    }

    /// Moves the cursors of a batch, and counts; refused if they are not where they were, or if
    /// the claim is another's.
    pub(super) async fn advance(
        &self,
        session: &mut ClientSession,
        batch: &Batch,
        stale: u64,
    ) -> Result<Result<(), DatabaseError>, Fault> {
        let (condition, change) = advance_documents(batch, stale);
        let moved = self.projections.update_one(condition, change).session(session).await?;
        Ok(if moved.matched_count == 1 { Ok(()) } else { Err(DatabaseError::Fenced) })
    }
}

/// What must be so of the projection's document, and what becomes of it.
fn advance_documents(batch: &Batch, stale: u64) -> (Document, Document) {
    let of = &batch.of;
    let state = field(of.state);
    let mut condition = doc! {
        "_id": &of.projection, "claim": signed(of.claim), "pending": { "$exists": false },
        format!("{state}.build"): of.build,
    };
    let (mut set, mut add, mut unset) = (Document::new(), Document::new(), Document::new());
    for moved in &batch.cursors {
        let cursor = format!("{state}.cursors.{}", lane_number(moved.lane));
        condition.insert(format!("{cursor}.next"), signed(moved.from.get()));
        set.insert(format!("{cursor}.next"), signed(moved.to.get()));
        if moved.missed > 0 {
            add.insert(format!("{cursor}.missed"), signed(moved.missed));
        }
    }
    let counts = &batch.counts;
    let counted = [
        ("events", counts.events),
        ("stale", counts.stale + stale),
        ("unkeyed", counts.unkeyed),
        ("dead", counts.dead),
    ];
    for (name, count) in counted {
        add.insert(format!("{state}.counts.{name}"), signed(count));
    }
    if let Some(phase) = &batch.phase {
        let (text, after) = match phase {
            Phase::Keys(after) => ("keys", after.clone()),
            Phase::Events => ("events", None),
        };
        set.insert(format!("{state}.phase"), text);
        set.insert(format!("{state}.after_key"), after);
    }
    if batch.synced {
        unset.insert(format!("{state}.plan"), "");
    }
    let mut change = doc! { "$inc": add };
    if !set.is_empty() {
        change.insert("$set", set);
    }
    if !unset.is_empty() {
        change.insert("$unset", unset);
    }
    (condition, change)
}

struct Applying {
    views: MongoViews,
    batch: Arc<Batch>,
}

type Applied = Result<u64, DatabaseError>;

impl Attempt for Applying {
    type Outcome = Applied;

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<Applied>, Fault>> {
        Box::pin(self.apply(session))
    }
}

/// What stands of the writes to one collection.
#[derive(Default)]
struct Standing {
    puts: Vec<RawDocumentBuf>,
    deletes: Vec<String>,
    stale: u64,
    buried: Vec<Document>,
    risen: Vec<Document>,
}

/// What a command does many times.
#[derive(Debug, Clone, Copy)]
enum Verb {
    Update,
    Delete,
}

impl Applying {
    async fn apply(&self, session: &mut ClientSession) -> Result<Step<Applied>, Fault> {
        let batch = &*self.batch;
        let mut standings = Vec::new();
        for (table, writes) in batch.tables.iter().zip(&batch.writes) {
            let there = self.there(session, table, writes).await?;
            let graves = self.graves(session, table, writes).await?;
            standings.push((table, self.decide(table, writes, &there, &graves)));
        }
        let stale = standings.iter().map(|(_, standing)| standing.stale).sum();
        if let Err(error) = self.views.advance(session, batch, stale).await? {
            return Ok(Step::Abandon(Err(error)));
        }
        for (table, standing) in standings {
            self.write(session, table, standing).await?;
        }
        if let Some(until) = batch.graves_until.filter(|_| batch.order.has_graves()) {
            let old = doc! { "build": batch.of.build, "at": { "$lt": signed(until) } };
            self.views.graves.delete_many(old).session(session).await?;
        }
        Ok(Step::Commit(Ok(stale)))
    }

    /// Where the documents come from that are there. Not asked where every write stands.
    async fn there(
        &self,
        session: &mut ClientSession,
        table: &Table,
        writes: &BTreeMap<String, Write>,
    ) -> Result<HashMap<String, Stamp>, Fault> {
        let mut there = HashMap::new();
        if self.batch.order == Order::Sequence || writes.is_empty() {
            return Ok(there);
        }
        let keys: Vec<&String> = writes.keys().collect();
        let (collection, wanted) =
            (self.views.collection(&table.name), doc! { "_id": { "$in": keys } });
        let parts = doc! { "_key": 1, "_ts": 1, "_v": 1, "_meta.at": 1, "_meta.lane": 1,
        "_meta.offset": 1 };
        let mut cursor = collection.find(wanted).projection(parts).session(&mut *session).await?;
        while let Some(found) = cursor.next(session).await {
            let found = found?;
            if let (Ok(key), Some(stamp)) = (found.get_str("_id"), stamp(&found)) {
                there.insert(key.to_owned(), stamp);
            }
        }
        Ok(there)
    }

    fn grave_id(&self, table: &Table, key: &str) -> Document {
        doc! { "build": self.batch.of.build, "view": &table.view, "key": key }
    }

    async fn graves(
        &self,
        session: &mut ClientSession,
        table: &Table,
        writes: &BTreeMap<String, Write>,
    ) -> Result<HashMap<String, Stamp>, Fault> {
        let mut graves = HashMap::new();
        if !self.batch.order.has_graves() || writes.is_empty() {
            return Ok(graves);
        }
        let ids: Vec<Document> = writes.keys().map(|key| self.grave_id(table, key)).collect();
        let found = self.views.graves.find(doc! { "_id": { "$in": ids } });
        let mut cursor = found.session(&mut *session).await?;
        while let Some(found) = cursor.next(session).await {
            let found = found?;
            let key = found.get_document("_id").and_then(|id| id.get_str("key"));
            if let (Ok(key), Some(stamp)) = (key, grave_stamp(&found)) {
                graves.insert(key.to_owned(), stamp);
            }
        }
        Ok(graves)
    }

    /// Which writes stand. Pure.
    fn decide(
        &self,
        table: &Table,
        writes: &BTreeMap<String, Write>,
        there: &HashMap<String, Stamp>,
        graves: &HashMap<String, Stamp>,
    ) -> Standing {
        let (batch, mut standing) = (&*self.batch, Standing::default());
        for (key, write) in writes {
            let at = write.stamp().at;
            let counts = |grave: &&Stamp| at <= grave.at.saturating_add(batch.grave_ms);
            let grave = graves.get(key);
            let old = there.get(key).or_else(|| grave.filter(counts));
            let stands = match old {
                Some(old) => batch.order.after(write.clone(), old),
                None => Some(write.clone()),
            };
            match stands {
                None => standing.stale += 1,
                Some(Write::Put(stamp, value)) => {
                    // The feed reads no other topics than those of its cursors.
                    let Some(topic) = batch.topics.get(&stamp.lane.topic) else { continue };
                    standing.puts.push(encode(key, &stamp, topic, &value));
                    standing.risen.extend(grave.map(|_| self.grave_id(table, key)));
                }
                Some(Write::Delete(stamp)) => {
                    standing.deletes.push(key.clone());
                    if batch.order.has_graves() {
                        standing.buried.push(grave_document(
                            self.grave_id(table, key),
                            batch.of.build,
                            &stamp,
                        ));
                    }
                }
            }
        }
        standing
    }

    async fn write(
        &self,
        session: &mut ClientSession,
        table: &Table,
        standing: Standing,
    ) -> Result<(), Fault> {
        let put = |document: RawDocumentBuf| {
            let key = document.get_str("_id").unwrap_or_default();
            rawdoc! { "q": { "_id": key }, "u": document, "upsert": true }
        };
        let puts = standing.puts.into_iter().map(put);
        self.bulk(session, Verb::Update, &table.name, puts).await?;
        let delete = |key: String| rawdoc! { "q": { "_id": key }, "limit": 1 };
        let deletes = standing.deletes.into_iter().map(delete);
        self.bulk(session, Verb::Delete, &table.name, deletes).await?;
        if !standing.risen.is_empty() {
            let risen = doc! { "_id": { "$in": standing.risen } };
            self.views.graves.delete_many(risen).session(&mut *session).await?;
        }
        let bury = |grave: Document| {
            let id = grave.get("_id").cloned().unwrap_or(Bson::Null);
            let grave = doc! { "q": { "_id": id }, "u": grave, "upsert": true };
            RawDocumentBuf::try_from(&grave).map_err(|error| Fault::Refused(error.to_string()))
        };
        let buried: Vec<_> = standing.buried.into_iter().map(bury).collect::<Result<_, _>>()?;
        self.bulk(session, Verb::Update, super::GRAVES, buried.into_iter()).await
    }

    /// Many writes by one command.
    async fn bulk(
        &self,
        session: &mut ClientSession,
        verb: Verb,
        collection: &str,
        writes: impl Iterator<Item = RawDocumentBuf>,
    ) -> Result<(), Fault> {
        let mut all = RawArrayBuf::new();
        writes.for_each(|write| all.push(write));
        if all.is_empty() {
            return Ok(());
        }
        let (verb, list) = match verb {
            Verb::Update => (cstr!("update"), cstr!("updates")),
            Verb::Delete => (cstr!("delete"), cstr!("deletes")),
        };
        let mut command = RawDocumentBuf::new();
        command.append(verb, collection);
        command.append(list, all);
        command.append(cstr!("ordered"), false);
        let answer = self.views.cluster.database.run_raw_command(command).session(session).await?;
        let Ok(errors) = answer.get_array("writeErrors") else { return Ok(()) };
        let text = format!("{collection} could not be changed: {}", told(errors));
        let of_the_write = |error: &Bson| {
            let code = error.as_document().and_then(|error| error.get_i32("code").ok());
            code.is_some_and(is_of_the_write)
        };
        // What is the system's own is nobody's fault who published something.
        let is_view = collection != super::GRAVES;
        match is_view && errors.iter().any(of_the_write) {
            true => Err(Fault::Rejected(text)),
            false => Err(Fault::Refused(text)),
        }
    }
}

/// The first of some errors, in the server's words.
fn told(errors: &[Bson]) -> String {
    let first = errors.first().and_then(Bson::as_document);
    let message = first.and_then(|error| error.get_str("errmsg").ok());
    message.unwrap_or("the server did not say why").to_owned()
}

fn grave_document(id: Document, build: i64, stamp: &Stamp) -> Document {
    doc! {
        "_id": id,
        "build": build,
        "v": stamp.version,
        "at": signed(stamp.at),
        "lane": lane_number(stamp.lane),
        "offset": signed(stamp.offset.get()),
    }
}

fn grave_stamp(grave: &Document) -> Option<Stamp> {
    Some(Stamp {
        ts: 0,
        at: unsigned(grave.get_i64("at").ok()?),
        lane: lane_of(grave.get_i64("lane").ok()?),
        offset: Offset::new(unsigned(grave.get_i64("offset").ok()?)),
        version: grave.get_i64("v").ok(),
    })
}
