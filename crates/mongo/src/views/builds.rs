//! Builds: making them, and the collections and indexes of their views.

use std::collections::BTreeSet;

use futures_core::future::BoxFuture;
use mongodb::bson::{Document, doc};
use mongodb::options::IndexOptions;
use mongodb::{ClientSession, IndexModel};
use promethean::projection::View;
use promethean::projection::view_store::{
    Build, BuildClaim, BuildState, DatabaseError, Plan, Requested, building_table,
};

use super::record::{begun, build, cursor_document, field, lane_number, plan_document};
use super::row::SYSTEM;
use super::{MongoViews, refused};
use crate::cluster::COLLECTIONS;
use crate::document::signed;
use crate::fault::Fault;
use crate::limits::VIEW_INDEX_WAIT;
use crate::topics::next_number;
use crate::transaction::{Attempt, Step, transact_anew};

/// Collections of ours besides those of the store, which no view may be.
const MORE_COLLECTIONS: [&str; 2] = ["outbox", "outbox_turns"];
/// What the names of indexes begin with that a view declares.
const DECLARED: &str = "declared_";

impl MongoViews {
    pub(super) async fn obtain_build(&self, wanted: Requested) -> Result<Build, DatabaseError> {
        check(&wanted.views)?;
        self.finish_pending(&wanted.projection, wanted.claim).await?;
        let there = self.cluster.ask(self.cluster.database.list_collection_names()).await;
        let there: BTreeSet<String> = there.map_err(refused)?.into_iter().collect();
        let attempt =
            || Obtaining { views: self.clone(), wanted: wanted.clone(), there: there.clone() };
        let build = transact_anew(&self.cluster, attempt).await.map_err(refused)??;
        for view in &wanted.views {
            self.arrange(&build.table(&view.name), view, &there).await?;
        }
        if build.state == BuildState::Building {
            self.sweep(&build, &wanted.views, &there).await?;
        }
        Ok(build)
    }

    /// Takes away what is left of builds that came to nothing.
    async fn sweep(
        &self,
        build: &Build,
        views: &[View],
        there: &BTreeSet<String>,
    ) -> Result<(), DatabaseError> {
        for view in views {
            // A name that only begins like one of ours is somebody else's.
            let numbers = there.iter().filter_map(|name| built(&view.name, name));
            for number in numbers.filter(|number| *number != build.number) {
                let collection = self.collection(&building_table(&view.name, number));
                self.cluster.ask(collection.drop()).await.map_err(refused)?;
                self.forget_graves(number).await?;
            }
        }
        Ok(())
    }

    /// Makes the collection of a view with the indexes that it declares, and takes others of ours
    /// away. Those of users stay.
    async fn arrange(
        &self,
        name: &str,
        view: &View,
        there: &BTreeSet<String>,
    ) -> Result<(), DatabaseError> {
        if !there.contains(name) {
            self.cluster.make_collection(name).await.map_err(refused)?;
        }
        let collection = self.collection(name);
        let names = self.cluster.ask(collection.list_index_names()).await.map_err(refused)?;
        let wanted: Vec<(String, Document)> = indexes(view);
        let is_other = |name: &&String| {
            name.starts_with(DECLARED) && !wanted.iter().any(|(wanted, _)| wanted == *name)
        };
        for name in names.iter().filter(is_other) {
            self.cluster.ask(collection.drop_index(name)).await.map_err(refused)?;
        }
        let mut missing: Vec<IndexModel> = Vec::new();
        for (index, keys) in wanted {
            if !names.contains(&index) {
                let is_unique = index == BY_KEY;
                let options = IndexOptions::builder().name(index).unique(is_unique).build();
                missing.push(IndexModel::builder().keys(keys).options(options).build());
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        // Over a large collection it takes its time, and goes on if nobody waits for it.
        let making = tokio::time::timeout(VIEW_INDEX_WAIT, collection.create_indexes(missing));
        let late = || DatabaseError::Unavailable(format!("the indexes of {name} are being made"));
        making.await.map_err(|_| late())?.map_err(|error| refused(error.into()))?;
        Ok(())
    }

    pub(super) async fn keep_order(
        &self,
        of: &BuildClaim,
        plan: &Plan,
    ) -> Result<(), DatabaseError> {
        let state = field(of.state);
        let mine = doc! {
            "_id": &of.projection, "claim": signed(of.claim), format!("{state}.build"): of.build,
        };
        let keep = doc! { "$set": { format!("{state}.plan"): plan_document(plan) } };
        let kept = self.cluster.ask(self.projections.update_one(mine, keep)).await;
        match kept.map_err(refused)?.matched_count {
            0 => Err(DatabaseError::Fenced),
            _ => Ok(()),
        }
    }
}

/// The number of the build that a collection is of, if it is one of this view.
fn built(view: &str, collection: &str) -> Option<i64> {
    let number = collection.strip_prefix(view)?.strip_prefix("__build_")?.parse().ok()?;
    // Only as we write it: `+7` and `007` are numbers, too.
    (building_table(view, number) == collection).then_some(number)
}

/// Views that cannot be collections, or fields that cannot be searched there.
fn check(views: &[View]) -> Result<(), DatabaseError> {
    for view in views {
        let name = &view.name;
        if COLLECTIONS.iter().chain(&MORE_COLLECTIONS).any(|ours| ours == name) {
            let why = "is the name of a collection that the store itself has; choose another one";
            return Err(DatabaseError::Refused(format!("{name:?} {why}")));
        }
        for field in &view.fields {
            let is_bad = |part: &String| part.contains('.') || part.starts_with('$');
            let is_system =
                field.path.first().is_some_and(|first| SYSTEM.contains(&first.as_str()));
            if is_system || field.path.iter().any(is_bad) {
                let why = "is at a place that MongoDB cannot search: a name with a dot, one that \
                           begins with a dollar, or one of the system's";
                return Err(DatabaseError::Refused(format!("field {:?} {why}", field.name)));
            }
        }
    }
    Ok(())
}

/// The index that makes keys unique for whoever asks by `_key`.
const BY_KEY: &str = "_key";

/// Indexes by name, with their keys.
fn indexes(view: &View) -> Vec<(String, Document)> {
    let mut indexes = vec![(BY_KEY.to_owned(), doc! { "_key": 1 })];
    for fields in &view.indexes {
        let paths = fields.iter().filter_map(|name| view.declared(name));
        let paths: Vec<String> = paths.map(|field| field.path.join(".")).collect();
        let mut keys = Document::new();
        for path in &paths {
            keys.insert(path.as_str(), 1);
        }
        keys.insert("_key", 1);
        indexes.push((format!("{DECLARED}{}", paths.join("_")), keys));
    }
    indexes.sort_by(|a, b| a.0.cmp(&b.0));
    indexes.dedup_by(|a, b| a.0 == b.0);
    indexes
}

struct Obtaining {
    views: MongoViews,
    wanted: Requested,
    /// The collections that there were before.
    there: BTreeSet<String>,
}

type Obtained = Result<Build, DatabaseError>;

impl Attempt for Obtaining {
    type Outcome = Obtained;

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<Obtained>, Fault>> {
        Box::pin(self.obtain(session))
    }
}

impl Obtaining {
    async fn obtain(&self, session: &mut ClientSession) -> Result<Step<Obtained>, Fault> {
        let (views, wanted) = (&self.views, &self.wanted);
        let mine = doc! { "_id": &wanted.projection, "claim": signed(wanted.claim) };
        let record = views.projections.find_one(mine.clone()).session(&mut *session).await?;
        let Some(record) = record.filter(|record| !record.contains_key("pending")) else {
            return Ok(Step::Abandon(Err(DatabaseError::Fenced)));
        };
        if let Some(error) = self.own(session).await? {
            return Ok(Step::Abandon(Err(error)));
        }
        let state = field(wanted.state);
        let found = match build(&record, wanted.state) {
            Ok(found) => found,
            Err(error) => return Ok(Step::Abandon(Err(error))),
        };
        let found = found.filter(|build| wanted.goes_on_with(build));
        let mut set = Document::new();
        match &found {
            Some(found) => {
                let new = wanted.cursors.iter();
                let new = new.filter(|new| found.cursors.iter().all(|old| old.lane != new.lane));
                for cursor in new {
                    let lane = lane_number(cursor.lane);
                    set.insert(format!("{state}.cursors.{lane}"), cursor_document(cursor));
                }
            }
            None => {
                let number = next_number(&views.cluster, session, "builds").await?;
                let mut begun = begun(number, wanted);
                let mut cursors = Document::new();
                for cursor in &wanted.cursors {
                    cursors.insert(lane_number(cursor.lane).to_string(), cursor_document(cursor));
                }
                begun.insert("cursors", cursors);
                set.insert(state, begun);
            }
        }
        // A write in any case: whoever takes over meanwhile is in conflict with it.
        let change = match set.is_empty() {
            true => doc! { "$inc": { "looks": 1_i64 } },
            false => doc! { "$set": set },
        };
        views.projections.update_one(mine.clone(), change).session(&mut *session).await?;
        let record = views.projections.find_one(mine).session(session).await?;
        let gone = || DatabaseError::Fenced;
        let build = record.ok_or_else(gone).and_then(|record| build(&record, wanted.state));
        Ok(Step::Commit(build.and_then(|build| build.ok_or_else(gone))))
    }

    /// Sees that the views are this projection's, and makes them so.
    async fn own(&self, session: &mut ClientSession) -> Result<Option<DatabaseError>, Fault> {
        for view in &self.wanted.views {
            let by_name = doc! { "_id": &view.name };
            let known = self.views.views.find_one(by_name.clone()).session(&mut *session).await?;
            let owner = known.as_ref().and_then(|known| known.get_str("projection").ok());
            match owner {
                Some(owner) if owner == self.wanted.projection => {}
                Some(owner) => {
                    let (view, owner) = (view.name.clone(), owner.to_owned());
                    return Ok(Some(DatabaseError::Taken { view, owner }));
                }
                None if self.there.contains(&view.name) => {
                    let why = "is a collection that no projection has made, and is left alone; \
                               choose another name for the view";
                    let text = format!("{:?} {why}", view.name);
                    return Ok(Some(DatabaseError::Refused(text)));
                }
                None => {
                    let owned = doc! { "_id": &view.name, "projection": &self.wanted.projection };
                    self.views.views.insert_one(owned).session(&mut *session).await?;
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::built;

    #[test]
    fn only_what_is_named_as_builds_are_is_one() {
        assert_eq!(built("orders", "orders__build_17"), Some(17));
        for other in [
            "orders",
            "orders__build_",
            "orders__build_notes",
            "orders__build_7_old",
            "orders__build_+7",
            "orders__build_007",
            "my_orders__build_7",
            "orders2__build_7",
        ] {
            assert_eq!(built("orders", other), None, "{other}");
        }
    }
}
