//! Topics: their documents, and making and removing them.

use futures_core::future::BoxFuture;
use mongodb::ClientSession;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{Hint, ReturnDocument};
use promethean::store::{
    AppendError, Cleaning, Compaction, SaveError, TopicDefinition, TopicEntry, TopicId, TopicTable,
    is_reserved,
};
use promethean_event::{PartitionCount, Topic};

use crate::cluster::{BY_OFFSET, Cluster};
use crate::document::{signed, unsigned};
use crate::fault::Fault;
use crate::limits::DELETE_EVENTS_MAX;
use crate::news::{self, About};
use crate::transaction::{Attempt, Step, transact, transact_anew};

/// All topics, as they are in the database.
pub(crate) async fn load(cluster: &Cluster) -> Result<TopicTable, Fault> {
    let reading = async {
        let mut cursor = cluster.topics.find(doc! { "name": { "$type": "string" } }).await?;
        let mut found = Vec::new();
        while cursor.advance().await? {
            found.push(cursor.deserialize_current()?);
        }
        Ok(found)
    };
    let found: Vec<Document> = cluster.ask(reading).await?;
    let unreadable = |document: &Document| {
        Fault::Refused(format!("a document of `topics` cannot be read: {document}"))
    };
    found.iter().map(|document| read(document).ok_or_else(|| unreadable(document))).collect()
}

fn read(document: &Document) -> Option<TopicEntry> {
    let cleaning = document.get_document("cleaning").ok()?;
    let limit = |name: &str| cleaning.get_i64(name).ok().map(unsigned);
    let compaction = match (limit("age_ms_min"), limit("tombstone_ms")) {
        (Some(age_ms_min), Some(tombstone_ms)) => Some(Compaction { age_ms_min, tombstone_ms }),
        _ => None,
    };
    let partitions = u32::try_from(document.get_i64("partitions").ok()?).ok()?;
    let definition = TopicDefinition {
        topic: Topic::stored(document.get_str("name").ok()?).ok()?,
        partitions: PartitionCount::new(partitions).ok()?,
        cleaning: Cleaning {
            age_ms_max: limit("age_ms_max"),
            bytes_max: limit("bytes_max"),
            compaction,
        },
    };
    Some(TopicEntry { id: id_of(document)?, definition })
}

fn id_of(document: &Document) -> Option<TopicId> {
    Some(TopicId::new(u32::try_from(document.get_i64("_id").ok()?).ok()?))
}

fn cleaning(cleaning: Cleaning) -> Document {
    let mut document = Document::new();
    let mut put = |name: &str, limit: Option<u64>| {
        if let Some(limit) = limit {
            document.insert(name, signed(limit));
        }
    };
    put("age_ms_max", cleaning.age_ms_max);
    put("bytes_max", cleaning.bytes_max);
    put("age_ms_min", cleaning.compaction.map(|rule| rule.age_ms_min));
    put("tombstone_ms", cleaning.compaction.map(|rule| rule.tombstone_ms));
    document
}

/// Defines a topic, or changes how it is cleaned.
pub(crate) async fn define(
    cluster: &Cluster,
    definition: TopicDefinition,
) -> Result<TopicEntry, SaveError> {
    if is_reserved(&definition.topic) {
        return Err(AppendError::UnknownTopic(definition.topic).into());
    }
    let attempt = || Define { cluster: cluster.clone(), definition: definition.clone() };
    transact_anew(cluster, attempt).await?
}

struct Define {
    cluster: Cluster,
    definition: TopicDefinition,
}

impl Attempt for Define {
    type Outcome = Result<TopicEntry, SaveError>;

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<Self::Outcome>, Fault>> {
        Box::pin(self.define(session))
    }
}

impl Define {
    async fn define(
        &self,
        session: &mut ClientSession,
    ) -> Result<Step<Result<TopicEntry, SaveError>>, Fault> {
        let topics = &self.cluster.topics;
        let wanted = &self.definition;
        let by_name = doc! { "name": wanted.topic.as_str() };
        let known = topics.find_one(by_name).session(&mut *session).await?;
        let rules = cleaning(wanted.cleaning);
        let Some(known) = known.as_ref().and_then(read) else {
            let id = next_number(&self.cluster, session, "topics").await?;
            let partitions = i64::from(wanted.partitions.get());
            let name = wanted.topic.as_str();
            let document = doc! {
                "_id": id, "name": name, "partitions": partitions, "cleaning": rules, "lanes": 0_i64,
            };
            topics.insert_one(document).session(&mut *session).await?;
            news::tell_within(&self.cluster, session, About::Topics).await?;
            let id = TopicId::new(u32::try_from(id).unwrap_or(u32::MAX));
            return Ok(Step::Commit(Ok(TopicEntry { id, definition: wanted.clone() })));
        };
        if known.definition.partitions != wanted.partitions {
            return Ok(Step::Abandon(Err(SaveError::PartitionsFixed {
                topic: wanted.topic.clone(),
                has: known.definition.partitions.get(),
                wanted: wanted.partitions.get(),
            })));
        }
        let entry = TopicEntry { id: known.id, definition: wanted.clone() };
        if known.definition == *wanted {
            return Ok(Step::Abandon(Ok(entry)));
        }
        let change = doc! { "$set": { "cleaning": rules } };
        let by_id = doc! { "_id": i64::from(known.id.get()) };
        topics.update_one(by_id, change).session(&mut *session).await?;
        news::tell_within(&self.cluster, session, About::Topics).await?;
        Ok(Step::Commit(Ok(entry)))
    }
}

/// The next number of a kind. In the transaction that uses it, so that none is given twice; a
/// transaction that fails gives it back.
pub(crate) async fn next_number(
    cluster: &Cluster,
    session: &mut ClientSession,
    kind: &str,
) -> Result<i64, Fault> {
    let counter = cluster
        .counters
        .find_one_and_update(doc! { "_id": kind }, doc! { "$inc": { "next": 1_i64 } })
        .upsert(true)
        .return_document(ReturnDocument::After)
        .session(session)
        .await?;
    let next = counter.and_then(|counter| counter.get_i64("next").ok());
    next.ok_or_else(|| Fault::Refused(format!("the counter `{kind}` holds no number")))
}

/// Takes a topic's name, lanes and cursors away. Its events go by [`sweep`].
pub(crate) async fn remove(cluster: &Cluster, topic: TopicId) -> Result<(), SaveError> {
    let attempt = Remove { cluster: cluster.clone(), topic };
    Ok(transact(cluster, cluster.deadline(), attempt).await?)
}

struct Remove {
    cluster: Cluster,
    topic: TopicId,
}

impl Attempt for Remove {
    type Outcome = ();

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<()>, Fault>> {
        Box::pin(async move {
            let id = i64::from(self.topic.get());
            let live = doc! { "_id": id, "name": { "$type": "string" } };
            let change = doc! { "$rename": { "name": "was" } };
            let removed =
                self.cluster.topics.update_one(live, change).session(&mut *session).await?;
            if removed.matched_count == 0 {
                return Ok(Step::Abandon(()));
            }
            let lanes = doc! { "_id": {
                "$gte": id << 32,
                "$lt": (id + 1) << 32,
            } };
            self.cluster.lanes.delete_many(lanes.clone()).session(&mut *session).await?;
            // Events that were told go with it.
            self.cluster.news.delete_many(lanes).session(&mut *session).await?;
            news::tell_within(&self.cluster, session, About::Topics).await?;
            let cursors = doc! { "topic_id": id };
            self.cluster.cursors.delete_many(cursors).session(&mut *session).await?;
            Ok(Step::Commit(()))
        })
    }
}

/// Deletes the events of topics that were removed.
pub(crate) async fn sweep(cluster: &Cluster) -> Result<(), Fault> {
    let reading = async {
        let mut cursor = cluster.topics.find(doc! { "was": { "$type": "string" } }).await?;
        let mut found = Vec::new();
        while cursor.advance().await? {
            found.push(cursor.deserialize_current()?);
        }
        Ok(found)
    };
    let removed: Vec<Document> = cluster.ask(reading).await?;
    for document in removed {
        let Some(id) = document.get("_id").cloned() else { continue };
        let name = document.get_str("was").unwrap_or_default();
        delete_events(cluster, name, id.clone()).await?;
        cluster.ask(cluster.topics.delete_one(doc! { "_id": id })).await?;
    }
    Ok(())
}

/// In pieces, each within a deadline. It may be cut off at any time, because the topic's document stays
/// until all are gone.
async fn delete_events(cluster: &Cluster, name: &str, id: Bson) -> Result<(), Fault> {
    let events = doc! { "topic": name, "topic_id": id };
    let sort = doc! { "topic": 1, "topic_id": 1, "partition": 1, "offset": 1 };
    loop {
        let first = cluster.events.find_one(events.clone()).sort(sort.clone());
        let first = first.projection(doc! { "partition": 1, "offset": 1 });
        let first = cluster.ask(first.hint(Hint::Name(BY_OFFSET.to_owned()))).await?;
        let Some(first) = first else { return Ok(()) };
        let (Ok(partition), Ok(offset)) = (first.get_i64("partition"), first.get_i64("offset"))
        else {
            return Err(Fault::Refused(format!("an event of {name} has no place: {first:?}")));
        };
        let end = offset.saturating_add(signed(DELETE_EVENTS_MAX));
        let mut piece = events.clone();
        piece.insert("partition", partition);
        piece.insert("offset", doc! { "$gte": offset, "$lt": end });
        let deleting = cluster.events.delete_many(piece);
        cluster.ask(deleting.hint(Hint::Name(BY_OFFSET.to_owned()))).await?;
    }
}
