//! Hears what other hubs do: lanes that grow, topics that come and go. By a change stream, which
//! costs one document for each commit and lane; by looking, while that is not to be had.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use mongodb::bson::{Document, doc};
use promethean::store::HEARD_SPACES;

use crate::clock::Deadline;
use crate::cluster::Cluster;
use crate::document::unsigned;
use crate::fault::{Fault, describe};
use crate::groups::lane;
use crate::growth::Growing;
use crate::table::Table;

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
            if let Err(fault) = self.follow().await {
                tracing::warn!(%fault, "the change stream broke; looking by itself meanwhile");
            }
            // Not longer than that behind, whatever becomes of the stream.
            Deadline::after(self.poll).pause(self.poll).await;
        }
    }

    /// Listens first and looks then, so that nothing falls between.
    async fn follow(&self) -> Result<(), Fault> {
        let streams = self.cluster.database.watch().pipeline(pipeline());
        let opened = self.cluster.ask(streams).await;
        self.look().await?;
        self.growing.note_hubs();
        let mut stream = opened?;
        while let Some(change) = stream.next().await {
            let change = change.map_err(|error| Fault::Refused(describe(&error)))?;
            let Some(namespace) = &change.ns else { continue };
            match namespace.coll.as_deref() {
                Some("lanes") => self.note(&change),
                Some("hubs" | "entries") => self.growing.note_hubs(),
                _ => self.refresh().await?,
            }
        }
        Ok(())
    }

    fn note(&self, change: &mongodb::change_stream::event::ChangeStreamEvent<Document>) {
        let id = change.document_key.as_ref().and_then(|key| key.get_i64("_id").ok());
        let updated = change.update_description.as_ref();
        let next = updated.and_then(|update| update.updated_fields.get_i64("next").ok());
        let inserted = || change.full_document.as_ref()?.get_i64("next").ok();
        if let (Some(id), Some(next)) = (id, next.or_else(inserted))
            // What is told late of a topic that is gone is nobody's business.
            && self.table.get().by_id(lane(id).topic).is_some()
        {
            self.growing.note_ends([(lane(id), unsigned(next))]);
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
