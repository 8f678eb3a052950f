//! Hears what other hubs do: lanes that grow, topics that come and go. By a change stream, which
//! costs one document for each commit and lane; by looking, while that is not to be had.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use mongodb::bson::{Document, doc};
use mongodb::change_stream::event::ChangeStreamEvent;
use promethean::store::{HEARD_SPACES, Lane};
use promethean_event::Timestamp;

use crate::clock::Deadline;
use crate::cluster::Cluster;
use crate::document::unsigned;
use crate::fault::{Fault, describe, too_late};
use crate::groups::lane;
use crate::growth::Growing;
use crate::limits::{STREAM_AWAIT, STREAM_SILENCE_MAX};
use crate::plan::Head;
use crate::reading::settle;
use crate::table::Table;
use crate::tail::Tail;

#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) cluster: Cluster,
    pub(crate) table: Arc<Table>,
    pub(crate) growing: Arc<Growing>,
    pub(crate) poll: Duration,
}

impl Watch {
    /// Runs until the store is closed or the task is ended.
    pub(crate) async fn run(self) {
        while !self.growing.is_closed() {
            if let Err(fault) = Box::pin(self.follow()).await {
                tracing::warn!(%fault, "the change stream broke; looking by itself meanwhile");
            }
            // Not longer than that behind, whatever becomes of the stream.
            Deadline::after(self.poll).pause(self.poll).await;
        }
    }

    /// Listens first and looks then, so that nothing falls between.
    async fn follow(&self) -> Result<(), Fault> {
        let watch = self.cluster.database.watch().pipeline(pipeline());
        let opened = in_time(watch.max_await_time(STREAM_AWAIT)).await;
        // A stream begins behind the last write that the primary has done, and what is looked at is what a
        // majority has. What lies between the two would never be heard of: until there is no such thing
        // any more, looking is too early.
        settle(&self.cluster, None).await?;
        self.look().await?;
        self.growing.note_hubs();
        let mut stream = opened?;
        let mut heads = Vec::new();
        while stream.is_alive() {
            // The server answers by and by even if nothing has changed. One that does not is frozen,
            // or the network is: nobody would ever say that this stream has ended.
            let mut coming = pin!(in_time(stream.next_if_any()));
            let next = match coming.as_mut().now_or_never() {
                Some(next) => next?,
                // All that has come was heard.
                None => {
                    self.growing.note_heads(std::mem::take(&mut heads));
                    coming.await?
                }
            };
            let Some(change) = next else { continue };
            match change.ns.as_ref().and_then(|namespace| namespace.coll.as_deref()) {
                Some("lanes") => heads.extend(self.hear(&change)),
                Some("hubs" | "entries") => self.growing.note_hubs(),
                Some(_) => self.refresh().await?,
                None => {}
            }
        }
        Ok(())
    }

    /// Where a lane ends, if the change says so in full.
    fn hear(&self, change: &ChangeStreamEvent<Document>) -> Option<(Lane, Head, Option<Tail>)> {
        let id = change.document_key.as_ref().and_then(|key| key.get_i64("_id").ok());
        let updated = change.update_description.as_ref().map(|update| &update.updated_fields);
        let (id, fields) = id.zip(updated.or(change.full_document.as_ref()))?;
        let (lane, next) = (lane(id), unsigned(fields.get_i64("next").ok()?));
        // What is told late of a topic that is gone is nobody's business.
        self.table.get().by_id(lane.topic)?;
        match (fields.get_i64("bytes"), fields.get_datetime("appendedAt")) {
            (Ok(bytes), Ok(time)) => {
                let appended_at = Timestamp::from_millis(unsigned(time.timestamp_millis()));
                let head = Head { next, bytes: unsigned(bytes), appended_at, exists: true };
                let tail = fields.get_binary_generic("tail").ok();
                Some((lane, head, tail.and_then(|bytes| Tail::heard(bytes))))
            }
            // It is only said to go on further on: nothing was appended.
            _ => {
                self.growing.note_ends([(lane, next)]);
                None
            }
        }
    }

    /// Looks at everything once.
    pub(crate) async fn look(&self) -> Result<(), Fault> {
        self.refresh().await?;
        let reading = async {
            let mut cursor =
                self.cluster.lanes.find(doc! {}).projection(doc! { "next": 1 }).await?;
            let mut ends = Vec::new();
            while cursor.advance().await? {
                let document = cursor.deserialize_current()?;
                let number = |name| document.get_i64(name).unwrap_or(0);
                ends.push((lane(number("_id")), unsigned(number("next"))));
            }
            Ok(ends)
        };
        self.growing.note_ends(self.cluster.ask(reading).await?);
        Ok(())
    }

    async fn refresh(&self) -> Result<(), Fault> {
        if self.table.refresh(&self.cluster).await? {
            let table = self.table.get();
            self.growing.note_topics(|lane| table.by_id(lane.topic).is_none());
        }
        Ok(())
    }
}

/// What a call of the driver comes to, before it has to be taken for lost.
async fn in_time<T>(call: impl IntoFuture<Output = mongodb::error::Result<T>>) -> Result<T, Fault> {
    let answer = Deadline::after(STREAM_SILENCE_MAX).hold(call).await.ok_or_else(too_late)?;
    answer.map_err(|error| Fault::Refused(describe(&error)))
}

/// Only what says that something grew. That a topic got a lane does not.
fn pipeline() -> [Document; 1] {
    let gets_lane = "updateDescription.updatedFields.lanes";
    // A hub that only says that it is still there changes nothing.
    let only_beats = doc! { "updateDescription.updatedFields.until": { "$exists": true },
    "updateDescription.updatedFields.groups": { "$exists": false } };
    [doc! { "$match": {
        "operationType": { "$in": ["insert", "update", "replace", "delete"] },
        "$or": [
            { "ns.coll": "lanes" },
            { "ns.coll": "topics", gets_lane: { "$exists": false } },
            { "ns.coll": "hubs", "$nor": [only_beats] },
            { "ns.coll": "entries", "documentKey._id.space": { "$in": HEARD_SPACES.to_vec() } },
        ],
    } }]
}
