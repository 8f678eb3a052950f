//! Whether every collection of the store has its indexes, as they should be. By one that is missing
//! something is slow; where it is a unique one, something may be there twice.

use futures_util::TryStreamExt;
use mongodb::IndexModel;
use mongodb::bson::{Bson, Document, doc};

use super::{Findings, Verdict};
use crate::cluster::{COLLECTIONS, Cluster, indexes_of};
use crate::document::whole;
use crate::fault::{Fault, code_of};

/// The server's code for a collection that is not there.
const NAMESPACE_NOT_FOUND: i32 = 26;

impl Findings {
    pub(super) async fn indexes(&mut self, cluster: &Cluster) {
        let (mut is_there, mut orders) = (false, Vec::new());
        for collection in COLLECTIONS {
            let wanted = indexes_of(collection);
            if wanted.is_empty() {
                continue;
            }
            let found = match indexes_there(cluster, collection).await {
                Ok(found) => found,
                Err(fault) => return self.add("indexes", Verdict::Unknown, fault.to_string()),
            };
            is_there |= !found.is_empty();
            orders.extend(wanted.iter().filter_map(|index| order(collection, index, &found)));
        }
        if !is_there {
            let text = "there is nothing yet; the first hub makes collections and indexes";
            return self.add("indexes", Verdict::Good, text);
        }
        if orders.is_empty() {
            return self.add("indexes", Verdict::Good, "all collections have their indexes");
        }
        let text = format!(
            "indexes are missing, or not as they should be: in the database {}, {}",
            cluster.database.name(),
            orders.join("; ")
        );
        self.add("indexes", Verdict::Error, text);
    }
}

/// The indexes of a collection; none if it is not there.
async fn indexes_there(cluster: &Cluster, collection: &str) -> Result<Vec<IndexModel>, Fault> {
    let collection = cluster.database.collection::<Document>(collection);
    let reading = async {
        match collection.list_indexes().await {
            Ok(cursor) => cursor.try_collect().await,
            Err(error) if code_of(&error) == Some(NAMESPACE_NOT_FOUND) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    };
    cluster.ask(reading).await
}

/// What to tell the server so that it has an index; nothing if it has.
fn order(collection: &str, wanted: &IndexModel, found: &[IndexModel]) -> Option<String> {
    let name = name(wanted)?;
    let there = found.iter().find(|index| self::name(index) == Some(name));
    if there.is_some_and(|there| is_same(there, wanted)) {
        return None;
    }
    let mut options = doc! { "name": name };
    if is_unique(wanted) {
        options.insert("unique", true);
    }
    if let Some(partial) = partial(wanted) {
        options.insert("partialFilterExpression", partial.clone());
    }
    let create = format!("db.{collection}.createIndex({}, {options})", wanted.keys);
    Some(match there {
        Some(_) => format!("db.{collection}.dropIndex(\"{name}\"), then {create}"),
        None => create,
    })
}

fn name(index: &IndexModel) -> Option<&str> {
    index.options.as_ref()?.name.as_deref()
}

fn is_unique(index: &IndexModel) -> bool {
    index.options.as_ref().is_some_and(|options| options.unique == Some(true))
}

fn partial(index: &IndexModel) -> Option<&Document> {
    index.options.as_ref()?.partial_filter_expression.as_ref()
}

fn is_same(there: &IndexModel, wanted: &IndexModel) -> bool {
    // Servers keep directions in whichever kind of number they were given.
    let keys = |index: &IndexModel| -> Vec<(String, Option<i64>)> {
        index.keys.iter().map(|(name, way): (&String, &Bson)| (name.clone(), whole(way))).collect()
    };
    keys(there) == keys(wanted)
        && is_unique(there) == is_unique(wanted)
        && partial(there) == partial(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_or_otherwise_is_told_as_commands() {
        let wanted = indexes_of("topics");
        let [index] = wanted.as_slice() else { panic!("{wanted:?}") };
        let create = r#"db.topics.createIndex({ "name": 1 }, { "name": "topic_by_name", "unique": true, "partialFilterExpression": { "name": { "$type": "string" } } })"#;
        assert_eq!(order("topics", index, &[]).as_deref(), Some(create));
        assert_eq!(order("topics", index, &wanted), None);
        let mut other = index.clone();
        other.keys = doc! { "name": -1 };
        let anew = format!("db.topics.dropIndex(\"topic_by_name\"), then {create}");
        assert_eq!(order("topics", index, &[other]), Some(anew.clone()));
        let mut other = index.clone();
        other.options.as_mut().unwrap().unique = None;
        assert_eq!(order("topics", index, &[other]), Some(anew));
        let mut same = index.clone();
        same.keys = doc! { "name": 1_i64 };
        assert_eq!(order("topics", index, &[same]), None);
    }
}
