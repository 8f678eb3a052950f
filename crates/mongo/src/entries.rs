//! The small things of the system's: settings, schemas, tokens.

use futures_core::future::BoxFuture;
use mongodb::ClientSession;
use mongodb::bson::{Document, doc};
use promethean::store::{Entry, HEARD_SPACES, Put, SaveError, is_space};
use promethean_event::{Key, Payload};

use crate::cluster::Cluster;
use crate::document::{signed, unsigned};
use crate::fault::Fault;
use crate::news::{self, About};
use crate::topics::next_number;
use crate::transaction::{Attempt, Step, transact_anew};

pub(crate) async fn of(cluster: &Cluster, space: &str) -> Result<Vec<Entry>, Fault> {
    let reading = async {
        let by_key =
            cluster.entries.find(doc! { "space": space }).sort(doc! { "space": 1, "key": 1 });
        let mut cursor = by_key.await?;
        let mut found: Vec<Document> = Vec::new();
        while cursor.advance().await? {
            found.push(cursor.deserialize_current()?);
        }
        Ok(found)
    };
    let found = cluster.ask(reading).await?;
    let entry = |document: &Document| {
        let id = document.get("_id");
        let unreadable = || Fault::Refused(format!("an entry cannot be read: {id:?}"));
        entry(document).ok_or_else(unreadable)
    };
    found.iter().map(entry).collect()
}

/// The spaces in which there are entries.
pub(crate) async fn spaces(cluster: &Cluster) -> Result<Vec<String>, Fault> {
    let names = cluster.ask(cluster.entries.distinct("space", doc! {})).await?;
    Ok(names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

fn entry(document: &Document) -> Option<Entry> {
    Some(Entry {
        key: Key::new(document.get_str("key").ok()?).ok()?,
        value: Payload::from_stored(document.get_str("value").ok()?.to_owned().into()),
        version: unsigned(document.get_i64("version").ok()?),
    })
}

/// Keeps or removes entries: all of it or nothing.
pub(crate) async fn put(cluster: &Cluster, puts: Vec<Put>) -> Result<(), SaveError> {
    if let Some(put) = puts.iter().find(|put| !is_space(put.space)) {
        return Err(SaveError::BadSpace(put.space));
    }
    if puts.is_empty() {
        return Ok(());
    }
    transact_anew(cluster, || PutAll { cluster: cluster.clone(), puts: puts.clone() }).await?
}

struct PutAll {
    cluster: Cluster,
    puts: Vec<Put>,
}

impl Attempt for PutAll {
    type Outcome = Result<(), SaveError>;

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<Self::Outcome>, Fault>> {
        Box::pin(self.put_all(session))
    }
}

fn id(put: &Put) -> Document {
    doc! { "space": put.space, "key": put.key.as_str() }
}

impl PutAll {
    async fn put_all(
        &self,
        session: &mut ClientSession,
    ) -> Result<Step<Result<(), SaveError>>, Fault> {
        for put in &self.puts {
            let Some(expected) = put.expect else { continue };
            let by_id = doc! { "_id": id(put) };
            let known = self.cluster.entries.find_one(by_id).session(&mut *session).await?;
            let version = known.and_then(|known| known.get_i64("version").ok()).map_or(0, unsigned);
            if version != expected {
                let key = put.key.clone();
                return Ok(Step::Abandon(Err(SaveError::Changed { key, version })));
            }
        }
        for put in &self.puts {
            let by_id = doc! { "_id": id(put) };
            let Some(value) = &put.value else {
                self.cluster.entries.delete_one(by_id).session(&mut *session).await?;
                continue;
            };
            // One counter for all of them, so that an entry that was removed and made again does
            // not come back to an earlier version; and so that those who race meet there.
            let version = next_number(&self.cluster, session, "entries").await?;
            let document = doc! {
                "_id": id(put), "space": put.space, "key": put.key.as_str(),
                "value": value.as_str(), "version": signed(unsigned(version)),
            };
            let entries = &self.cluster.entries;
            entries.replace_one(by_id, document).upsert(true).session(&mut *session).await?;
        }
        if self.puts.iter().any(|put| HEARD_SPACES.contains(&put.space)) {
            news::tell_within(&self.cluster, session, About::Hubs).await?;
        }
        Ok(Step::Commit(Ok(())))
    }
}
