//! What projections have not read, for the cleaner of every hub: whether that hub has them or not,
//! and also while nobody keeps them. The time that nobody does is limited, so that one that was
//! given up without being forgotten does not keep a topic from being cleaned for ever.

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use promethean::projection::view_store::BuildState;
use promethean::store::Lane;
use promethean_event::Offset;

use super::record::{field, lane_of};
use super::tenure::{hubs_now, number};
use super::{AWAY_SINCE, PROJECTIONS};
use crate::cluster::Cluster;
use crate::document::unsigned;
use crate::fault::Fault;
use crate::limits::PROJECTION_AWAY_MAX;

/// Where projections go on, by lane. What cannot be read fails, so that nothing goes by mistake.
pub(crate) async fn held(cluster: &Cluster) -> Result<Vec<(Lane, Offset)>, Fault> {
    let mut held = Vec::new();
    for projection in projections(cluster).await? {
        if projection.is_given_up() {
            continue;
        }
        projection.note(cluster).await?;
        for state in [BuildState::Live, BuildState::Building] {
            cursors_of(&projection.record, state, &mut held)?;
        }
    }
    Ok(held)
}

/// Projections that nobody keeps, each with the days since it was noticed.
pub(crate) async fn unkept(cluster: &Cluster) -> Result<Vec<(String, u64)>, Fault> {
    const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
    let unkept = projections(cluster).await?.into_iter().filter(|projection| !projection.is_kept);
    let told = unkept.map(|one| (one.name().to_owned(), one.away_ms.unwrap_or(0) / DAY_MS));
    Ok(told.collect())
}

/// What is looked at of a projection.
struct Kept {
    record: Document,
    /// A hub that is there keeps it.
    is_kept: bool,
    /// How long it has been noted that nobody does.
    away_ms: Option<u64>,
}

async fn projections(cluster: &Cluster) -> Result<Vec<Kept>, Fault> {
    let projections = cluster.database.collection::<Document>(PROJECTIONS);
    let away_ms = doc! { "$subtract": ["$$NOW", format!("${AWAY_SINCE}")] };
    let looked_at = doc! {
        "hub": 1, "claim": 1, "live.cursors": 1, "building.cursors": 1, "away_ms": away_ms,
    };
    let reading = projections.aggregate(vec![doc! { "$project": looked_at }]);
    let records: Vec<_> = cluster.ask(async { reading.await?.try_collect().await }).await?;
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let hubs = hubs_now(cluster).await?;
    let kept = |record: Document| {
        let is_kept = number(&record, "hub").is_some_and(|hub| hubs.contains(&hub));
        Kept { is_kept, away_ms: number(&record, "away_ms"), record }
    };
    Ok(records.into_iter().map(kept).collect())
}

impl Kept {
    fn name(&self) -> &str {
        self.record.get_str("_id").unwrap_or("?")
    }

    fn is_given_up(&self) -> bool {
        let is_long = |away| u128::from(away) > PROJECTION_AWAY_MAX.as_millis();
        !self.is_kept && self.away_ms.is_some_and(is_long)
    }

    /// Notes it if its hub has gone without a word, or has come since that was noted.
    async fn note(&self, cluster: &Cluster) -> Result<(), Fault> {
        let is_away = self.away_ms.is_some();
        if self.is_kept != is_away {
            return Ok(());
        }
        let same = doc! {
            "_id": self.name(), "claim": self.record.get("claim"),
            AWAY_SINCE: { "$exists": is_away },
        };
        let noted = match is_away {
            true => doc! { "$unset": AWAY_SINCE },
            false => doc! { "$set": { AWAY_SINCE: "$$NOW" } },
        };
        let projections = cluster.database.collection::<Document>(PROJECTIONS);
        cluster.ask(projections.update_one(same, vec![noted])).await?;
        Ok(())
    }
}

fn cursors_of(
    record: &Document,
    state: BuildState,
    held: &mut Vec<(Lane, Offset)>,
) -> Result<(), Fault> {
    let cursors = record.get_document(field(state)).and_then(|build| build.get_document("cursors"));
    for (lane, cursor) in cursors.into_iter().flatten() {
        let next = cursor.as_document().and_then(|cursor| cursor.get_i64("next").ok());
        let (Ok(lane), Some(next)) = (lane.parse(), next) else {
            let id = record.get_str("_id").unwrap_or("?");
            let text = format!("what is kept of projection {id} cannot be read");
            return Err(Fault::Refused(text));
        };
        held.push((lane_of(lane), Offset::new(unsigned(next))));
    }
    Ok(())
}
