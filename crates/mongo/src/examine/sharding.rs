//! Whether collections of the store are sharded, and what by. A unique index of a sharded collection
//! holds over all shards only if the shard of a document is decided by the first fields of the index.

use mongodb::bson::{Document, doc};

use super::{Findings, Verdict, admin};
use crate::cluster::{COLLECTIONS, Cluster, unique_fields};
use crate::views;

const UNSHARDED: &str = "no collection of the store is sharded";

/// What `events` may be sharded by, if it has to be: the beginning of both of its unique indexes.
const EVENTS_KEY: &str = "{ topic: 1, topic_id: 1 }";

impl Findings {
    pub(super) async fn sharding(&mut self, cluster: &Cluster) {
        let of_database = format!("{}.", cluster.database.name());
        let names = COLLECTIONS.iter().chain(&views::COLLECTIONS);
        let names = names.map(|name| format!("{of_database}{name}"));
        let known = cluster.client.database("config").collection::<Document>("collections");
        let filter =
            doc! { "_id": { "$in": names.collect::<Vec<_>>() }, "dropped": { "$ne": true } };
        let reading = async {
            let mut cursor = known.find(filter).await?;
            let mut found = Vec::new();
            while cursor.advance().await? {
                found.push(cursor.deserialize_current()?);
            }
            Ok(found)
        };
        let sharded = match cluster.ask(reading).await {
            Ok(sharded) => sharded,
            // Who may not look there sees at least whether it is a cluster of shards.
            Err(fault) => {
                let hello = admin(cluster, doc! { "hello": 1 }).await.unwrap_or_default();
                return match hello.contains_key("setName") {
                    true => self.add("sharding", Verdict::Good, UNSHARDED),
                    false => self.add("sharding", Verdict::Unknown, fault.to_string()),
                };
            }
        };
        // From MongoDB 7.3 on, collections that are not sharded may be listed, too.
        let sharded =
            sharded.iter().filter(|found| !found.get_bool("unsplittable").unwrap_or(false));
        let mut is_sharded = false;
        for found in sharded {
            let (Ok(name), Ok(key)) = (found.get_str("_id"), found.get_document("key")) else {
                continue;
            };
            is_sharded = true;
            let name = name.strip_prefix(&of_database).unwrap_or(name);
            let fields: Vec<&str> = key.keys().map(String::as_str).collect();
            let (verdict, text) = judge(cluster.database.name(), name, &fields);
            self.add("sharding", verdict, text);
        }
        if !is_sharded {
            self.add("sharding", Verdict::Good, UNSHARDED);
        }
    }
}

/// What to say of a collection that is sharded by some fields.
fn judge(database: &str, collection: &str, key: &[&str]) -> (Verdict, String) {
    let is_broken = |unique: &&Vec<String>| {
        let begins = unique.iter().zip(key).all(|(field, of_key)| field == of_key);
        !begins || unique.len() < key.len()
    };
    let unique = unique_fields(collection);
    let broken: Vec<String> = unique.iter().filter(is_broken).map(|key| key.join(", ")).collect();
    let by = key.join(", ");
    if broken.is_empty() {
        let text = format!(
            "{collection} is sharded by ({by}), by which nothing can be there twice; but a commit may be \
             a transaction over several shards, which nothing here is tested with: better keep the \
             whole database on one"
        );
        return (Verdict::Warning, text);
    }
    let least = match collection {
        "events" => format!(
            ", or at least sh.reshardCollection(\"{database}.events\", {EVENTS_KEY}), which keeps a \
             topic on one shard"
        ),
        _ => String::new(),
    };
    let text = format!(
        "{collection} is sharded by ({by}), so that ({}) is unique within a shard only: what must be \
         there once could be there twice; stop all hubs, then \
         sh.unshardCollection(\"{database}.{collection}\") (MongoDB 8.0 or later; before, move by prom \
         migrate to a database that is not sharded){least}",
        broken.join(") and (")
    );
    (Verdict::Error, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_parts_what_is_unique_is_an_error() {
        let events = |key: &[&str]| judge("prom", "events", key);
        for key in [&["topic"][..], &["topic", "topic_id"]] {
            assert_eq!(events(key).0, Verdict::Warning, "{key:?}");
        }
        let parted: [&[&str]; 7] = [
            &["_id"],
            &["id"],
            &["key"],
            &["topic_id"],
            &["topic", "key"],
            &["topic", "topic_id", "partition"],
            &["topic", "topic_id", "id"],
        ];
        for key in parted {
            let (verdict, text) = events(key);
            assert_eq!(verdict, Verdict::Error, "{key:?}");
            assert!(text.contains(EVENTS_KEY), "{text}");
        }
        // Each of the two unique indexes by itself, as it is named in what is said.
        let (_, text) = events(&["topic", "topic_id", "partition"]);
        assert!(text.contains("(topic, topic_id, id)") && !text.contains("offset)"), "{text}");
        let (_, text) = events(&["topic", "topic_id", "id"]);
        assert!(text.contains("(topic, topic_id, partition, offset)"), "{text}");
    }

    #[test]
    fn documents_that_are_found_by_their_id_are_sharded_by_it_or_not_at_all() {
        assert_eq!(judge("prom", "lanes", &["_id"]).0, Verdict::Warning);
        assert_eq!(judge("prom", "lanes", &["topic"]).0, Verdict::Error);
        assert_eq!(judge("prom", "topics", &["_id"]).0, Verdict::Error, "its name is unique, too");
        assert_eq!(judge("prom", "entries", &["space", "key"]).0, Verdict::Error);
    }
}
