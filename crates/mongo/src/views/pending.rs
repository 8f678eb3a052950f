//! What cannot be done in a transaction: renaming and dropping collections. It is noted before, and
//! whoever comes upon the note does what is left of it; doing it twice does no harm.

use mongodb::bson::{Document, doc};
use promethean::projection::view_store::{
    Build, BuildState, DatabaseError, Requested, building_table,
};

use super::record::build;
use super::{MongoViews, refused};
use crate::document::signed;
use crate::fault::Fault;

/// The collection that was to be renamed is not there.
const NAMESPACE_NOT_FOUND: i32 = 26;

impl MongoViews {
    /// Puts the build that was made in the place of the live one.
    pub(super) async fn switch_to(
        &self,
        made: Build,
        wanted: Requested,
    ) -> Result<Build, DatabaseError> {
        let mine = doc! {
            "_id": &wanted.projection, "claim": signed(wanted.claim),
            "building.build": made.number, "pending": { "$exists": false },
        };
        // From here on neither build is written: a commit wants that nothing is pending.
        self.note(mine, doc! { "$set": { "pending": "switch" } }).await?;
        self.finish_pending(&wanted.projection, wanted.claim).await?;
        let record = self.record(&wanted.projection).await.map_err(refused)?;
        let live = record.map_or(Ok(None), |record| build(&record, BuildState::Live))?;
        live.filter(|live| live.number == made.number).ok_or(DatabaseError::Fenced)
    }

    /// Removes all that there is of a projection.
    pub(super) async fn forget_all(&self, projection: String) -> Result<(), DatabaseError> {
        let Some(record) = self.record(&projection).await.map_err(refused)? else {
            return Ok(());
        };
        if self.keeper(&record).await.map_err(refused)?.is_some() {
            let text = format!("a hub keeps projection {projection}; stop it there first");
            return Err(DatabaseError::Refused(text));
        }
        let claim = record.get_i64("claim").unwrap_or(0);
        let same = doc! { "_id": &projection, "claim": claim };
        self.note(same, doc! { "$set": { "pending": "forget" } }).await?;
        self.finish_pending(&projection, claim.cast_unsigned()).await
    }

    async fn note(&self, condition: Document, change: Document) -> Result<(), DatabaseError> {
        let noted = self.cluster.ask(self.projections.update_one(condition, change)).await;
        match noted.map_err(refused)?.matched_count {
            0 => Err(DatabaseError::Fenced),
            _ => Ok(()),
        }
    }

    /// Does what is left of something that was noted.
    pub(super) async fn finish_pending(
        &self,
        projection: &str,
        claim: u64,
    ) -> Result<(), DatabaseError> {
        let Some(record) = self.record(projection).await.map_err(refused)? else {
            return Ok(());
        };
        match record.get_str("pending") {
            Ok("switch") => self.finish_switch(&record, projection, claim).await,
            Ok("forget") => self.finish_forgetting(&record, projection, claim).await,
            _ => Ok(()),
        }
    }

    async fn views_of(&self, projection: &str) -> Result<Vec<String>, DatabaseError> {
        let reading = async {
            let mut cursor = self.views.find(doc! { "projection": projection }).await?;
            let mut names = Vec::new();
            while cursor.advance().await? {
                let view: Document = cursor.deserialize_current()?;
                names.extend(view.get_str("_id").map(str::to_owned));
            }
            Ok(names)
        };
        self.cluster.ask(reading).await.map_err(refused)
    }

    async fn finish_switch(
        &self,
        record: &Document,
        projection: &str,
        claim: u64,
    ) -> Result<(), DatabaseError> {
        let (live, made) = (build(record, BuildState::Live)?, build(record, BuildState::Building)?);
        let made = made.ok_or(DatabaseError::Fenced)?;
        for view in self.views_of(projection).await? {
            self.rename(&building_table(&view, made.number), &view).await?;
        }
        let mine = doc! {
            "_id": projection, "claim": signed(claim), "pending": "switch",
            "building.build": made.number,
        };
        // Replaced by the server itself, so that what was counted last is what is live.
        let change = vec![
            doc! { "$set": { "live": "$building" } },
            doc! { "$unset": ["building", "pending"] },
        ];
        let done = self.cluster.ask(self.projections.update_one(mine, change)).await;
        if done.map_err(refused)?.matched_count == 0 {
            return Err(DatabaseError::Fenced);
        }
        match live {
            Some(live) => self.forget_graves(live.number).await,
            None => Ok(()),
        }
    }

    async fn finish_forgetting(
        &self,
        record: &Document,
        projection: &str,
        claim: u64,
    ) -> Result<(), DatabaseError> {
        let builds = [build(record, BuildState::Live)?, build(record, BuildState::Building)?];
        for view in self.views_of(projection).await? {
            for build in builds.iter().flatten() {
                let collection = self.collection(&build.table(&view));
                self.cluster.ask(collection.drop()).await.map_err(refused)?;
            }
            let by_name = doc! { "_id": &view, "projection": projection };
            self.cluster.ask(self.views.delete_one(by_name)).await.map_err(refused)?;
        }
        for build in builds.iter().flatten() {
            self.forget_graves(build.number).await?;
        }
        let mine = doc! { "_id": projection, "claim": signed(claim), "pending": "forget" };
        self.cluster.ask(self.projections.delete_one(mine)).await.map_err(refused)?;
        Ok(())
    }

    pub(super) async fn forget_graves(&self, build: i64) -> Result<(), DatabaseError> {
        let of_build = self.graves.delete_many(doc! { "build": build });
        self.cluster.ask(of_build).await.map_err(refused)?;
        Ok(())
    }

    /// Readers of the name see the one collection or the other, whole.
    async fn rename(&self, from: &str, to: &str) -> Result<(), DatabaseError> {
        let database = self.cluster.database.name();
        let command = doc! {
            "renameCollection": format!("{database}.{from}"), "to": format!("{database}.{to}"),
            "dropTarget": true, "writeConcern": { "w": "majority", "j": true },
        };
        let admin = self.cluster.client.database("admin");
        let renamed = self.cluster.deadline().hold(admin.run_command(command)).await;
        match renamed {
            None => Err(refused(crate::fault::too_late())),
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) if crate::fault::code_of(&error) == Some(NAMESPACE_NOT_FOUND) => {
                Ok(())
            }
            Some(Err(error)) => Err(refused(Fault::from(error))),
        }
    }
}
