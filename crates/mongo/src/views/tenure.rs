//! Which hub keeps a projection: its number and an epoch, in the document that every commit changes.

use std::collections::BTreeSet;

use futures_core::future::BoxFuture;
use mongodb::ClientSession;
use mongodb::bson::{Bson, Document, doc};
use promethean::projection::view_store::Right;
use promethean::store::HubId;

use super::{AWAY_SINCE, MongoViews};
use crate::cluster::Cluster;
use crate::document::{signed, unsigned};
use crate::fault::Fault;
use crate::topics::next_number;
use crate::transaction::{Attempt, Step, transact_anew};

impl MongoViews {
    pub(super) async fn try_claim(
        &self,
        projection: String,
        hub: Option<HubId>,
        right: Right,
    ) -> Result<Option<u64>, Fault> {
        // Mostly another hub has it, and goes on having it: that needs no transaction.
        if let (Some(hub), Right::Free) = (hub, right) {
            let record = self.record(&projection).await?;
            let hubs = hubs_now(&self.cluster).await?;
            if !hubs.contains(&hub.get()) || holder(record.as_ref(), &hubs, hub).is_some() {
                return Ok(None);
            }
        }
        let attempt = || Claiming {
            views: self.clone(),
            projection: projection.clone(),
            hub,
            right,
            gone: None,
        };
        transact_anew(&self.cluster, attempt).await
    }

    /// The hub that keeps a projection, if it is there.
    pub(super) async fn keeper(&self, record: &Document) -> Result<Option<u64>, Fault> {
        let hubs = hubs_now(&self.cluster).await?;
        Ok(number(record, "hub").filter(|hub| hubs.contains(hub)))
    }

    pub(super) async fn try_holds(&self, projection: &str, claim: u64) -> Result<bool, Fault> {
        let mine = doc! { "_id": projection, "claim": signed(claim) };
        let found = self.projections.find_one(mine).projection(doc! { "_id": 1 });
        Ok(self.cluster.ask(found).await?.is_some())
    }

    pub(super) async fn try_release(&self, projection: &str, claim: u64) -> Result<(), Fault> {
        let mine = doc! { "_id": projection, "claim": signed(claim) };
        let free = vec![doc! { "$set": { AWAY_SINCE: "$$NOW" } }, doc! { "$unset": "hub" }];
        self.cluster.ask(self.projections.update_one(mine, free)).await?;
        Ok(())
    }
}

/// The hubs that are there.
pub(super) async fn hubs_now(cluster: &Cluster) -> Result<BTreeSet<u64>, Fault> {
    let reading = async {
        let mut cursor = cluster.hubs.find(doc! {}).projection(doc! { "_id": 1 }).await?;
        let mut hubs = BTreeSet::new();
        while cursor.advance().await? {
            hubs.extend(number(&cursor.deserialize_current()?, "_id"));
        }
        Ok(hubs)
    };
    cluster.ask(reading).await
}

pub(super) fn number(document: &Document, field: &str) -> Option<u64> {
    document.get_i64(field).ok().map(unsigned)
}

/// The hub that has a projection, if it is another one and is there.
fn holder(record: Option<&Document>, hubs: &BTreeSet<u64>, me: HubId) -> Option<u64> {
    let holder = record.and_then(|record| number(record, "hub"));
    holder.filter(|holder| *holder != me.get() && hubs.contains(holder))
}

/// What the connections are called by which the handlers of who has a projection write.
const HANDLERS: &str = "handlers";

struct Claiming {
    views: MongoViews,
    projection: String,
    hub: Option<HubId>,
    right: Right,
    /// What the handlers' connections are called of the hub that has it, and is not there any more.
    gone: Option<String>,
}

impl Attempt for Claiming {
    type Outcome = Option<u64>;

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<Option<u64>>, Fault>> {
        Box::pin(self.claim(session))
    }

    fn gone(&self) -> Option<&str> {
        self.gone.as_deref()
    }
}

impl Claiming {
    async fn claim(&mut self, session: &mut ClientSession) -> Result<Step<Option<u64>>, Fault> {
        let by_name = doc! { "_id": &self.projection };
        let (projections, cluster) = (&self.views.projections, &self.views.cluster);
        let record = projections.find_one(by_name.clone()).session(&mut *session).await?;
        if let Some(hub) = self.hub {
            let hubs = self.hubs(session).await?;
            let is_anothers = holder(record.as_ref(), &hubs, hub).is_some();
            let of_gone = record.as_ref().filter(|record| {
                number(record, "hub").is_some_and(|holder| !hubs.contains(&holder))
            });
            let gone = of_gone.and_then(|record| record.get_str(HANDLERS).ok());
            self.gone = gone.map(str::to_owned);
            if !hubs.contains(&hub.get()) || (is_anothers && self.right == Right::Free) {
                return Ok(Step::Abandon(None));
            }
        }
        // Out of the counter of all claims: one that was forgotten and made anew begins above it.
        let claim = next_number(cluster, session, "claims").await?;
        let hub = self.hub.map_or(Bson::Null, |hub| Bson::Int64(signed(hub.get())));
        let claimed = doc! { "hub": hub, "claim": claim, HANDLERS: cluster.handlers_app_name() };
        let claimed = doc! { "$set": claimed, "$unset": { AWAY_SINCE: "" } };
        projections.update_one(by_name, claimed).upsert(true).session(session).await?;
        Ok(Step::Commit(Some(unsigned(claim))))
    }

    async fn hubs(&self, session: &mut ClientSession) -> Result<BTreeSet<u64>, Fault> {
        let all = self.views.cluster.hubs.find(doc! {}).projection(doc! { "_id": 1 });
        let mut cursor = all.session(&mut *session).await?;
        let mut hubs = BTreeSet::new();
        while let Some(found) = cursor.next(session).await {
            hubs.extend(number(&found?, "_id"));
        }
        Ok(hubs)
    }
}
