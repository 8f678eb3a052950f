//! Groups as they stand in the database.

use std::collections::BTreeMap;

use futures_core::future::BoxFuture;
use mongodb::ClientSession;
use mongodb::bson::{Document, doc};
use mongodb::options::ReadConcern;
use promethean::store::{GroupRecord, Lane, LaneState, TopicId, TopicTable};
use promethean_event::{GroupName, Partition, Payload};

use crate::cluster::Cluster;
use crate::document::unsigned;
use crate::fault::Fault;
use crate::plan::{KnownCursor, KnownGroup};
use crate::transaction::{Attempt, Step};

pub(crate) async fn names(cluster: &Cluster) -> Result<Vec<GroupName>, Fault> {
    let reading = async {
        let by_name = cluster.groups.find(doc! {}).projection(doc! { "_id": 1 });
        let mut cursor = by_name.sort(doc! { "_id": 1 }).await?;
        let mut found: Vec<Document> = Vec::new();
        while cursor.advance().await? {
            found.push(cursor.deserialize_current()?);
        }
        Ok(found)
    };
    let found = cluster.ask(reading).await?;
    let name = |document: &Document| {
        let name = document.get_str("_id").ok().and_then(|name| GroupName::new(name).ok());
        name.ok_or_else(|| unreadable("groups", document))
    };
    found.iter().map(name).collect()
}

/// What is kept of a group; nothing of topics that are gone.
pub(crate) async fn record(
    cluster: &Cluster,
    group: &GroupName,
    table: &TopicTable,
) -> Result<Option<GroupRecord>, Fault> {
    let Some((document, known)) = load(cluster, group, ReadConcern::majority()).await? else {
        return Ok(None);
    };
    let settings = document.get_str("settings").map_err(|_| unreadable("groups", &document))?;
    let settings = Payload::from_stored(settings.to_owned().into());
    let live = known.lanes.into_iter().filter(|(lane, _)| table.by_id(lane.topic).is_some());
    // One that was claimed and never saved has no state.
    let begun = live.filter_map(|(lane, cursor)| Some((lane, cursor.state?)));
    Ok(Some(GroupRecord { settings, lanes: begun.collect() }))
}

/// What is known of a group, for planning: the newest there is, whoever may still take it back.
pub(crate) async fn known(
    cluster: &Cluster,
    group: &GroupName,
) -> Result<Option<KnownGroup>, Fault> {
    Ok(load(cluster, group, ReadConcern::local()).await?.map(|(_, known)| known))
}

async fn load(
    cluster: &Cluster,
    group: &GroupName,
    concern: ReadConcern,
) -> Result<Option<(Document, KnownGroup)>, Fault> {
    let by_name = doc! { "_id": group.as_str() };
    let reading = async {
        let found = cluster.groups.find_one(by_name).read_concern(concern.clone()).await?;
        let Some(found) = found else { return Ok(None) };
        let of_group = doc! { "group": group.as_str() };
        let mut cursor = cluster.cursors.find(of_group).read_concern(concern).await?;
        let mut cursors: Vec<Document> = Vec::new();
        while cursor.advance().await? {
            cursors.push(cursor.deserialize_current()?);
        }
        Ok(Some((found, cursors)))
    };
    let Some((found, cursors)) = cluster.ask(reading).await? else { return Ok(None) };
    let incarnation = found.get_str("incarnation").map_err(|_| unreadable("groups", &found))?;
    let state =
        |document: &Document| state(document).ok_or_else(|| unreadable("cursors", document));
    let lanes: Result<BTreeMap<Lane, KnownCursor>, Fault> = cursors.iter().map(state).collect();
    let known = KnownGroup { incarnation: incarnation.to_owned(), lanes: lanes? };
    Ok(Some((found, known)))
}

fn state(document: &Document) -> Option<(Lane, KnownCursor)> {
    let lane = lane(document.get_i64("lane").ok()?);
    let state = match document.get_binary_generic("state") {
        Ok(bytes) => Some(LaneState::decode(bytes).ok()?),
        Err(_) => None,
    };
    let claim = document.get_i64("claim").ok().map(unsigned);
    Some((lane, KnownCursor { state, claim }))
}

/// The lane with this number.
pub(crate) fn lane(number: i64) -> Lane {
    let number = unsigned(number);
    let topic = TopicId::new((number >> 32) as u32);
    Lane { topic, partition: Partition::new(number as u32) }
}

fn unreadable(collection: &str, document: &Document) -> Fault {
    let id = document.get("_id");
    Fault::Refused(format!("a document of `{collection}` cannot be read: {id:?}"))
}

/// Forgets a group and where it stands.
#[derive(Debug)]
pub(crate) struct RemoveGroup {
    pub(crate) cluster: Cluster,
    pub(crate) group: GroupName,
}

impl Attempt for RemoveGroup {
    type Outcome = ();

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<()>, Fault>> {
        Box::pin(async move {
            let by_name = doc! { "_id": self.group.as_str() };
            self.cluster.groups.delete_one(by_name).session(&mut *session).await?;
            let of_group = doc! { "group": self.group.as_str() };
            self.cluster.cursors.delete_many(of_group).session(&mut *session).await?;
            Ok(Step::Commit(()))
        })
    }
}
