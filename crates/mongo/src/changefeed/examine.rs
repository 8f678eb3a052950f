//! What of a MongoDB should be known before a feed reads it.

use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::doc;
use mongodb::bson::raw::RawDocumentBuf;
use promethean::changefeed::{Definition, DefinitionError, Feed};

use super::change::Images;
use super::hold::images_command;
use super::stream::{self, Begin, Break, Survey};
use crate::cluster::{Cluster, OpenError};
use crate::examine::{Finding, Verdict};
use crate::limits::OPLOG_HOURS_MIN;
use crate::options::MongoOptions;

/// How long somebody who adds a feed waits for each answer of its MongoDB.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks at the MongoDB of a feed, from here. Nothing is changed or made. What is an error will not
/// work, whatever is done about the MongoDB's rights and settings; what is a warning may.
pub async fn examine(name: &str, definition: &Definition) -> Result<Vec<Finding>, DefinitionError> {
    let feed = definition.feed(name)?;
    let mut findings = Findings(Vec::new());
    let options = MongoOptions { deadline: PATIENCE, ..MongoOptions::default() };
    match Cluster::reach(&definition.url, &options).await {
        Ok(cluster) => {
            let cluster = Cluster::over(&cluster.client.database(&feed.database));
            findings.add("replica_set", Verdict::Good, "MongoDB is a replica set");
            findings.collection(&cluster, &feed).await;
            findings.history(&cluster).await;
            findings.access(&cluster, &feed).await;
        }
        Err(error @ OpenError::Unreachable(_)) => {
            let text = format!("{error}; from here: whoever runs the feed goes on trying");
            findings.add("replica_set", Verdict::Warning, text);
        }
        Err(error) => findings.add("replica_set", Verdict::Error, error.to_string()),
    }
    Ok(findings.0)
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, check: &'static str, verdict: Verdict, text: impl Into<String>) {
        self.0.push(Finding { check, verdict, text: text.into() });
    }

    /// Whether it may be fed from, and what it tells of its changes.
    async fn collection(&mut self, cluster: &Cluster, feed: &Feed) {
        let Survey { images, refusal, .. } = match stream::survey(cluster, &feed.collection).await {
            Ok(found) => found,
            Err(fault) => return self.add("collection", Verdict::Unknown, fault.to_string()),
        };
        match refusal {
            Some(refusal) => self.add("collection", Verdict::Error, refusal),
            None => self.add("collection", Verdict::Good, "the collection may be fed from"),
        }
        let command = images_command(feed);
        let (verdict, text) = match images {
            Images::Kept => (Verdict::Good, "the collection keeps images of what changes".into()),
            Images::LookedUp if feed.needs_pre_images() => (
                Verdict::Warning,
                format!(
                    "its key is made of the document, which a delete tells only by a pre-image: the \
                     feed stops at once until they are kept: {command}"
                ),
            ),
            Images::LookedUp if feed.filter.is_some() => (
                Verdict::Warning,
                format!(
                    "without images a document that stops to match the filter leaves no tombstone: \
                     {command}"
                ),
            ),
            Images::LookedUp => (
                Verdict::Good,
                format!("updates come with the newest document; for that of each: {command}"),
            ),
        };
        self.add("images", verdict, text);
    }

    /// How long the feed may be away.
    async fn history(&mut self, cluster: &Cluster) {
        let Some(history) = stream::history(cluster).await else {
            let text = "the oplog may not be read by this user (local.oplog.rs): it cannot be told \
                        how long the feed may be away";
            return self.add("oplog", Verdict::Warning, text);
        };
        let hours = history.now.seconds.saturating_sub(history.oldest.seconds) / 3600;
        let text = format!("the oplog reaches back {hours} h: no longer may the feed be away");
        let verdict = if hours < OPLOG_HOURS_MIN { Verdict::Warning } else { Verdict::Good };
        self.add("oplog", verdict, text);
    }

    /// Whether this user may read the collection, and watch it.
    async fn access(&mut self, cluster: &Cluster, feed: &Feed) {
        let collection: Collection<RawDocumentBuf> = cluster.database.collection(&feed.collection);
        let read = cluster.ask(collection.find_one(doc! {}).projection(doc! { "_id": 1 })).await;
        let watched = match stream::now(cluster).await {
            Ok(now) => {
                let begin = Begin { since: now.next(), token: None };
                let opened = stream::open(cluster, &collection, &begin, Images::LookedUp).await;
                opened.map(drop).map_err(|end| match end {
                    Break::Fault(fault) => fault.to_string(),
                    other => format!("{other:?}"),
                })
            }
            Err(fault) => Err(fault.to_string()),
        };
        match read.map(drop).map_err(|fault| fault.to_string()).and(watched) {
            Ok(()) => self.add("access", Verdict::Good, "this user may read and watch it"),
            Err(text) => {
                let text = format!("the collection cannot be read and watched: {text}");
                self.add("access", Verdict::Warning, text);
            }
        }
    }
}
