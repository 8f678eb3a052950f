//! Single events, by id, key and time: always by an index. What has expired and is still to be deleted is
//! not found: where lanes start is asked at the same time.

use std::collections::HashMap;

use futures_util::{StreamExt, TryStreamExt};
use mongodb::bson::raw::RawDocumentBuf;
use mongodb::bson::{Document, doc};
use promethean::store::{KeyPage, KeyQuery, Lane, ReadError, Stored, TopicEntry};
use promethean_event::{EventId, Key, Offset, Partition, Timestamp};

use crate::cleaning;
use crate::cluster::{BY_ID, BY_KEY, BY_TIME, Cluster};
use crate::document::{date, decode, signed, unsigned};
use crate::fault::Fault;
use crate::limits::{IDS_AT_ONCE, KEY_REPEATS_MAX, LOOKUPS_AT_ONCE};

/// The events of a topic. Its name first, as in every index, so that users' queries find theirs.
pub(crate) fn of_topic(entry: &TopicEntry) -> Document {
    doc! { "topic": entry.definition.topic.as_str(), "topic_id": i64::from(entry.id.get()) }
}

/// The events of a lane.
pub(crate) fn of_lane(entry: &TopicEntry, lane: Lane) -> Document {
    let mut filter = of_topic(entry);
    filter.insert("partition", i64::from(lane.partition.get()));
    filter
}

/// One query, as it goes to the server: the tests look at the plans for these.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) filter: Document,
    pub(crate) sort: Document,
    pub(crate) index: &'static str,
    pub(crate) limit: i64,
}

impl Query {
    pub(crate) fn by_id(entry: &TopicEntry, id: EventId) -> Self {
        let mut filter = of_topic(entry);
        filter.insert("id", id.to_string());
        Self { filter, sort: Document::new(), index: BY_ID, limit: 1 }
    }

    pub(crate) fn by_key(entry: &TopicEntry, key: &Key, max: usize) -> Self {
        let mut filter = of_topic(entry);
        filter.insert("key", key.as_str());
        let sort = doc! { "topic": 1, "topic_id": 1, "key": 1, "offset": -1 };
        Self { filter, sort, index: BY_KEY, limit: limit(max) }
    }

    pub(crate) fn keys(entry: &TopicEntry, bound: Document) -> Self {
        let mut filter = of_topic(entry);
        filter.insert("key", bound);
        let sort = doc! { "topic": 1, "topic_id": 1, "key": 1, "offset": -1 };
        Self { filter, sort, index: BY_KEY, limit: 0 }
    }

    pub(crate) fn at_time(entry: &TopicEntry, lane: Lane, time: Timestamp) -> Self {
        let mut filter = of_lane(entry, lane);
        filter.insert("appendedAt", doc! { "$gte": date(time) });
        let sort = doc! { "topic": 1, "topic_id": 1, "partition": 1, "appendedAt": 1, "offset": 1 };
        Self { filter, sort, index: BY_TIME, limit: 1 }
    }

    /// Runs it, and gives all it finds.
    pub(crate) async fn all(self, cluster: &Cluster) -> Result<Vec<RawDocumentBuf>, Fault> {
        let events = cluster.events.find(self.filter).sort(self.sort).limit(self.limit);
        let reading = events.hint(mongodb::options::Hint::Name(self.index.to_owned()));
        cluster.ask(async { reading.await?.try_collect().await }).await
    }
}

fn limit(max: usize) -> i64 {
    signed(max.max(1) as u64)
}

fn events(found: &[RawDocumentBuf], entry: &TopicEntry) -> Result<Vec<Stored>, ReadError> {
    found.iter().map(|document| decode(document, &entry.definition.topic)).collect()
}

/// Where the lanes of a topic start.
struct Starts(HashMap<Partition, u64>);

impl Starts {
    async fn of(cluster: &Cluster, entry: &TopicEntry) -> Result<Self, Fault> {
        let starts = cleaning::starts(cluster, entry).await?;
        Ok(Self(starts.into_iter().map(|(lane, start)| (lane.partition, start)).collect()))
    }

    fn has_kept(&self, stored: &Stored) -> bool {
        let start = self.0.get(&stored.event.partition);
        start.is_none_or(|start| stored.event.offset.get() >= *start)
    }
}

pub(crate) async fn find(
    cluster: &Cluster,
    entry: &TopicEntry,
    id: EventId,
) -> Result<Option<Stored>, ReadError> {
    let query = Query::by_id(entry, id).all(cluster);
    let (found, starts) = futures_util::try_join!(query, Starts::of(cluster, entry))?;
    Ok(events(&found, entry)?.pop().filter(|stored| starts.has_kept(stored)))
}

/// Those of these ids that are there.
pub(crate) async fn find_all(
    cluster: &Cluster,
    entry: &TopicEntry,
    ids: &[EventId],
) -> Result<Vec<Stored>, Fault> {
    let mut stored = Vec::new();
    for part in ids.chunks(IDS_AT_ONCE) {
        let mut filter = of_topic(entry);
        let part: Vec<String> = part.iter().map(EventId::to_string).collect();
        filter.insert("id", doc! { "$in": part });
        let query = Query { filter, sort: Document::new(), index: BY_ID, limit: 0 };
        let found = query.all(cluster).await?;
        stored.extend(events(&found, entry).map_err(|error| Fault::Refused(error.to_string()))?);
    }
    Ok(stored)
}

pub(crate) async fn history(
    cluster: &Cluster,
    entry: &TopicEntry,
    key: &Key,
    max: usize,
) -> Result<Vec<Stored>, ReadError> {
    let query = Query::by_key(entry, key, max).all(cluster);
    let (found, starts) = futures_util::try_join!(query, Starts::of(cluster, entry))?;
    // Newest first: nothing that is kept is behind one that is not.
    let kept = events(&found, entry)?.into_iter().filter(|stored| starts.has_kept(stored));
    Ok(kept.collect())
}

pub(crate) async fn latest(
    cluster: &Cluster,
    entry: &TopicEntry,
    keys: Vec<Key>,
) -> Result<Vec<Option<Stored>>, ReadError> {
    let newest = keys.into_iter().map(|key| async move {
        let found = Query::by_key(entry, &key, 1).all(cluster).await?;
        Ok::<_, ReadError>(events(&found, entry)?.pop())
    });
    let newest = futures_util::stream::iter(newest).buffered(LOOKUPS_AT_ONCE);
    let starts = async { Ok(Starts::of(cluster, entry).await?) };
    let (newest, starts) = futures_util::try_join!(newest.try_collect::<Vec<_>>(), starts)?;
    let kept = |found: Option<Stored>| found.filter(|stored| starts.has_kept(stored));
    Ok(newest.into_iter().map(kept).collect())
}

pub(crate) async fn offset_at(
    cluster: &Cluster,
    entry: &TopicEntry,
    lane: Lane,
    time: Timestamp,
) -> Result<Option<Offset>, Fault> {
    let found = Query::at_time(entry, lane, time).all(cluster).await?;
    let offset = found.first().and_then(|document| document.get_i64("offset").ok());
    Ok(offset.map(|offset| Offset::new(unsigned(offset))))
}

/// Keys in order, each with its newest event: along the index, jumping over keys with long
/// histories.
pub(crate) async fn keys(
    cluster: &Cluster,
    entry: &TopicEntry,
    query: &KeyQuery,
) -> Result<KeyPage, ReadError> {
    let max = query.max.max(1);
    let starts = Starts::of(cluster, entry).await?;
    let mut walk =
        Walk { cluster, entry, prefix: &query.prefix, max: max + 1, starts, found: Vec::new() };
    let mut bound = match &query.after {
        Some(after) if after.as_str() >= query.prefix.as_str() => doc! { "$gt": after.as_str() },
        _ => doc! { "$gte": &query.prefix },
    };
    // A jump begins where the last key ended; it ends when nothing is left to jump to.
    while let Some(next) = walk.from(bound).await? {
        bound = doc! { "$gt": next };
    }
    let mut page = KeyPage { more: walk.found.len() > max, events: walk.found };
    page.events.truncate(max);
    Ok(page)
}

/// A way along the keys of a topic.
struct Walk<'a> {
    cluster: &'a Cluster,
    entry: &'a TopicEntry,
    prefix: &'a str,
    /// So many keys at most.
    max: usize,
    starts: Starts,
    /// The newest event of each key.
    found: Vec<Stored>,
}

impl Walk<'_> {
    /// Takes keys up from a bound on; gives the key to jump behind, if there is one.
    async fn from(&mut self, bound: Document) -> Result<Option<String>, ReadError> {
        let query = Query::keys(self.entry, bound);
        let reading = self.cluster.events.find(query.filter).sort(query.sort);
        let reading = reading.hint(mongodb::options::Hint::Name(query.index.to_owned()));
        let mut cursor = self.cluster.ask(reading.batch_size(128)).await?;
        let (mut last, mut repeats) = (None::<String>, 0);
        while self.found.len() < self.max && self.cluster.ask(cursor.advance()).await? {
            let document = cursor.current();
            let key = document.get_str("key").unwrap_or_default();
            if !key.starts_with(self.prefix) {
                return Ok(None);
            }
            if last.as_deref() == Some(key) {
                repeats += 1;
                if repeats > KEY_REPEATS_MAX {
                    return Ok(last);
                }
                continue;
            }
            (last, repeats) = (Some(key.to_owned()), 0);
            let newest = decode(document, &self.entry.definition.topic)?;
            if self.starts.has_kept(&newest) {
                self.found.push(newest);
            }
        }
        Ok(None)
    }
}
