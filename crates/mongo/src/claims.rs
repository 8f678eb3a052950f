//! Which hubs are there, and which lanes of groups they hold.
//!
//! A hub is a document of `hubs`, with the time until which it counts as there. That time is the
//! server's, as is everything it is compared with. A document that was deleted never comes back, so
//! that a hub which was forgotten cannot go on as if nothing had been.
//!
//! A claim is two fields of the document that a save changes: the cursor of the lane. So there is
//! no moment between the check of a claim and the write that it allows.

use std::collections::{BTreeMap, BTreeSet};

use futures_core::future::BoxFuture;
use mongodb::ClientSession;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;
use promethean::store::{Attend, Claim, HubId, HubPresence, Lane, SaveError};
use promethean_event::GroupName;

use crate::carry_out::cursor_id;
use crate::cluster::Cluster;
use crate::document::{signed, unsigned};
use crate::fault::Fault;
use crate::groups::lane;
use crate::news::{self, About};
use crate::topics::next_number;
use crate::transaction::{Attempt, Step, transact, transact_anew};

/// Says that a hub is there.
pub(crate) async fn attend(
    cluster: &Cluster,
    attend: Attend,
) -> Result<Option<Vec<HubPresence>>, Fault> {
    let me = signed(attend.hub.get());
    let lease_ms = i64::try_from(attend.lease.as_millis()).unwrap_or(i64::MAX);
    let groups: Vec<&str> = attend.groups.iter().map(GroupName::as_str).collect();
    let beat = doc! { "$set": {
        "late": { "$lt": ["$until", "$$NOW"] },
        "before": "$until",
        "until": { "$add": ["$$NOW", lease_ms] },
        "groups": { "$literal": &groups },
        "changed": { "$ne": ["$groups", { "$literal": &groups }] },
    } };
    let mut said = cluster.hubs.find_one_and_update(doc! { "_id": me }, vec![beat]);
    said = said.upsert(attend.arrives).return_document(ReturnDocument::After);
    let Some(known) = cluster.ask(said).await? else { return Ok(None) };
    let mut is_news = known.get_bool("changed").unwrap_or(true);
    let mut hubs = present(cluster).await?;
    let before = known.get_datetime("before").ok().filter(|_| !attend.arrives);
    let since = match (known.get_bool("late"), before) {
        (Ok(true), Some(before)) => {
            Bson::DateTime(DateTime::from_millis(before.timestamp_millis() - lease_ms))
        }
        _ => Bson::String("$$NOW".to_owned()),
    };
    if hubs.iter().any(|(_, late)| *late) {
        let silent = doc! { "_id": { "$ne": me }, "$expr": { "$lt": ["$until", since] } };
        is_news |= cluster.ask(cluster.hubs.delete_many(silent)).await?.deleted_count > 0;
        hubs = present(cluster).await?;
    }
    if is_news {
        news::tell(cluster, About::Hubs).await?;
    }
    Ok(Some(hubs.into_iter().map(|(hub, _)| hub).collect()))
}

/// All hubs, and whether they should have been heard of again by now.
async fn present(cluster: &Cluster) -> Result<Vec<(HubPresence, bool)>, Fault> {
    let pipeline = [
        doc! { "$sort": { "_id": 1 } },
        doc! { "$project": { "groups": 1, "late": { "$lt": ["$until", "$$NOW"] } } },
    ];
    let reading = async {
        let mut cursor = cluster.hubs.aggregate(pipeline).await?;
        let mut found = Vec::new();
        while cursor.advance().await? {
            found.push(cursor.deserialize_current()?);
        }
        Ok(found)
    };
    let found: Vec<Document> = cluster.ask(reading).await?;
    let presence = |document: &Document| {
        let groups = document.get_array("groups").ok()?.iter();
        let groups = groups.filter_map(|name| GroupName::new(name.as_str()?).ok()).collect();
        let late = document.get_bool("late").unwrap_or(false);
        Some((HubPresence { hub: hub_of(document, "_id")?, groups }, late))
    };
    Ok(found.iter().filter_map(presence).collect())
}

/// How many hubs count as there.
pub(crate) async fn there(cluster: &Cluster) -> Result<usize, Fault> {
    Ok(present(cluster).await?.iter().filter(|(_, late)| !late).count())
}

fn hub_of(document: &Document, field: &str) -> Option<HubId> {
    document.get_i64(field).ok().map(|number| HubId::new(unsigned(number)))
}

/// A hub goes.
pub(crate) async fn depart(cluster: &Cluster, hub: HubId) -> Result<(), Fault> {
    cluster.ask(cluster.hubs.delete_one(doc! { "_id": signed(hub.get()) })).await?;
    news::tell(cluster, About::Hubs).await
}

/// The lanes of a group that hubs hold.
pub(crate) async fn holders(cluster: &Cluster, group: &GroupName) -> Result<Vec<Claim>, Fault> {
    let reading = async {
        let held = doc! { "group": group.as_str(), "hub": { "$type": "long" } };
        let mut cursor = cluster.cursors.find(held).projection(doc! { "state": 0 }).await?;
        let mut found: Vec<Document> = Vec::new();
        while cursor.advance().await? {
            found.push(cursor.deserialize_current()?);
        }
        Ok(found)
    };
    let found = cluster.ask(reading).await?;
    // Read after the claims: one that is listed was made by a hub that was there by then.
    let hubs: BTreeSet<HubId> =
        present(cluster).await?.into_iter().map(|(hub, _)| hub.hub).collect();
    let claims = found.iter().filter_map(claim_of);
    Ok(claims.filter(|claim| hubs.contains(&claim.hub)).collect())
}

fn claim_of(document: &Document) -> Option<Claim> {
    let lane = lane(document.get_i64("lane").ok()?);
    let epoch = unsigned(document.get_i64("claim").ok()?);
    Some(Claim { lane, hub: hub_of(document, "hub")?, epoch })
}

/// Claims lanes that are free.
pub(crate) async fn claim(
    cluster: &Cluster,
    hub: HubId,
    group: GroupName,
    lanes: Vec<Lane>,
) -> Result<Vec<Claim>, SaveError> {
    let attempt = || {
        let (group, lanes) = (group.clone(), lanes.clone());
        ClaimAll { cluster: cluster.clone(), hub, group, lanes }
    };
    transact_anew(cluster, attempt).await?
}

struct ClaimAll {
    cluster: Cluster,
    hub: HubId,
    group: GroupName,
    lanes: Vec<Lane>,
}

impl Attempt for ClaimAll {
    type Outcome = Result<Vec<Claim>, SaveError>;

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<Self::Outcome>, Fault>> {
        Box::pin(self.claim_all(session))
    }
}

impl ClaimAll {
    async fn claim_all(
        &self,
        session: &mut ClientSession,
    ) -> Result<Step<Result<Vec<Claim>, SaveError>>, Fault> {
        let by_name = doc! { "_id": self.group.as_str() };
        if self.cluster.groups.find_one(by_name.clone()).session(&mut *session).await?.is_none() {
            return Ok(Step::Abandon(Err(SaveError::UnknownGroup(self.group.clone()))));
        }
        let hubs = self.hubs(session).await?;
        if !hubs.contains(&self.hub) {
            return Ok(Step::Abandon(Ok(Vec::new())));
        }
        let known = self.known(session).await?;
        let is_free = |lane: &&Lane| {
            let holder = known.get(lane).and_then(|document| hub_of(document, "hub"));
            holder.is_none_or(|holder| holder == self.hub || !hubs.contains(&holder))
        };
        let free: Vec<Lane> = self.lanes.iter().filter(is_free).copied().collect();
        if free.is_empty() {
            return Ok(Step::Abandon(Ok(Vec::new())));
        }
        let epoch = next_number(&self.cluster, session, "claims").await?;
        let (there, new): (Vec<Lane>, Vec<Lane>) =
            free.iter().partition(|lane| known.contains_key(lane));
        let claimed = doc! { "hub": signed(self.hub.get()), "claim": epoch };
        let cursors = &self.cluster.cursors;
        if !there.is_empty() {
            let ids: Vec<Document> =
                there.iter().map(|lane| cursor_id(&self.group, *lane)).collect();
            let by_id = doc! { "_id": { "$in": ids } };
            let claimed = doc! { "$set": claimed.clone() };
            cursors.update_many(by_id, claimed).session(&mut *session).await?;
        }
        if !new.is_empty() {
            // Touched, so that the group cannot be removed while it gets a lane.
            let touch = doc! { "$inc": { "writes": 1_i64 } };
            self.cluster.groups.update_one(by_name, touch).session(&mut *session).await?;
            let documents = new.iter().map(|lane| {
                let mut document = empty_cursor(&self.group, *lane);
                document.extend(claimed.clone());
                document
            });
            cursors.insert_many(documents).session(&mut *session).await?;
        }
        let (hub, epoch) = (self.hub, unsigned(epoch));
        Ok(Step::Commit(Ok(free.into_iter().map(|lane| Claim { lane, hub, epoch }).collect())))
    }

    async fn hubs(&self, session: &mut ClientSession) -> Result<BTreeSet<HubId>, Fault> {
        let all = self.cluster.hubs.find(doc! {}).projection(doc! { "_id": 1 });
        let mut cursor = all.session(&mut *session).await?;
        let mut hubs = BTreeSet::new();
        while let Some(found) = cursor.next(session).await {
            hubs.extend(hub_of(&found?, "_id"));
        }
        Ok(hubs)
    }

    /// The cursors that there are, without their states.
    async fn known(&self, session: &mut ClientSession) -> Result<BTreeMap<Lane, Document>, Fault> {
        let lanes: Vec<i64> = self.lanes.iter().map(|lane| signed(lane.id().get())).collect();
        let wanted = doc! { "group": self.group.as_str(), "lane": { "$in": lanes } };
        let found = self.cluster.cursors.find(wanted).projection(doc! { "state": 0 });
        let mut cursor = found.session(&mut *session).await?;
        let mut known = BTreeMap::new();
        while let Some(found) = cursor.next(session).await {
            let found = found?;
            if let Ok(number) = found.get_i64("lane") {
                known.insert(lane(number), found);
            }
        }
        Ok(known)
    }
}

/// The cursor of a lane of which nothing is known yet.
fn empty_cursor(group: &GroupName, lane: Lane) -> Document {
    doc! {
        "_id": cursor_id(group, lane),
        "group": group.as_str(),
        "lane": signed(lane.id().get()),
        "topic_id": i64::from(lane.topic.get()),
        "partition": i64::from(lane.partition.get()),
        "version": 0_i64,
    }
}

/// Gives claims back.
pub(crate) async fn release(
    cluster: &Cluster,
    group: GroupName,
    claims: Vec<Claim>,
) -> Result<(), Fault> {
    if claims.is_empty() {
        return Ok(());
    }
    transact(cluster, cluster.deadline(), Release { cluster: cluster.clone(), group, claims }).await
}

struct Release {
    cluster: Cluster,
    group: GroupName,
    claims: Vec<Claim>,
}

impl Attempt for Release {
    type Outcome = ();

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<()>, Fault>> {
        Box::pin(async move {
            let mut by_epoch: BTreeMap<(HubId, u64), Vec<Document>> = BTreeMap::new();
            for claim in &self.claims {
                let ids = by_epoch.entry((claim.hub, claim.epoch)).or_default();
                ids.push(cursor_id(&self.group, claim.lane));
            }
            for ((hub, epoch), ids) in by_epoch {
                let mine = doc! {
                    "_id": { "$in": ids }, "hub": signed(hub.get()), "claim": signed(epoch),
                };
                let free = doc! { "$unset": { "hub": "", "claim": "" } };
                self.cluster.cursors.update_many(mine, free).session(&mut *session).await?;
            }
            news::tell_within(&self.cluster, session, About::Hubs).await?;
            Ok(Step::Commit(()))
        })
    }
}
