//! What must not be fed: what Promethean itself writes, which would go round and round.

use mongodb::bson::raw::RawDocument;

use crate::cluster::COLLECTIONS;
use crate::views::{self, is_row};

/// The field by which a writer says where a document comes from.
const ORIGIN: &str = "_origin";

/// Whether a document comes from an event: `_origin` begins with `promethean`, or it is a row of a
/// view.
pub(super) fn is_ours(document: Option<&RawDocument>) -> bool {
    document.is_some_and(|document| {
        let origin = document.get_str(ORIGIN).ok();
        origin.is_some_and(|origin| origin.starts_with("promethean")) || is_row(document)
    })
}

/// Why a collection is none to feed from, by the names of the database's collections and of the
/// views in it.
pub(super) fn refuse(collection: &str, names: &[String], views: &[String]) -> Option<String> {
    let is_there = |name: &str| names.iter().any(|there| there == name);
    let of_store = COLLECTIONS.contains(&collection) && is_there("lanes") && is_there("cursors");
    let of_outbox = ["outbox", "outbox_turns"].contains(&collection) && is_there("outbox_turns");
    let of_views = views::COLLECTIONS.contains(&collection);
    let is_view = views.iter().any(|view| is_of_view(collection, view));
    (of_store || of_outbox || of_views || is_view).then(|| {
        let what = if is_view { "is a view, which is" } else { "is" };
        format!(
            "collection {collection:?} {what} written by Promethean itself; its feed would never end"
        )
    })
}

/// Whether a collection is a view, or one that is being built to become it.
fn is_of_view(collection: &str, view: &str) -> bool {
    collection.strip_prefix(view).is_some_and(|rest| {
        let build = rest.strip_prefix("__build_");
        rest.is_empty() || build.is_some_and(|number| number.parse::<u64>().is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_collections_are_refused_and_others_of_their_names_are_not() {
        let ours: Vec<_> = COLLECTIONS.iter().map(ToString::to_string).collect();
        let refuse = |collection, names: &[String]| refuse(collection, names, &[]);
        assert!(refuse("events", &ours).is_some());
        assert!(refuse("orders", &ours).is_none());
        assert!(refuse("events", &["events".into()]).is_none());
        assert!(refuse("outbox", &["outbox".into(), "outbox_turns".into()]).is_some());
        assert!(refuse("outbox", &["outbox".into()]).is_none());
    }

    /// Pitfall 122: a view over the topic of its own feed went round without end.
    #[test]
    fn views_are_refused_while_they_are_built_too() {
        let views = ["processes".to_owned()];
        let is_refused = |collection| refuse(collection, &[], &views).is_some();
        assert!(is_refused("processes"));
        assert!(is_refused("processes__build_7"));
        assert!(is_refused("promethean_projections"));
        assert!(is_refused("promethean_views"));
        assert!(is_refused("promethean_graves"));
        assert!(!is_refused("processes_old"));
        assert!(!is_refused("processes__build_plan"));
        assert!(!is_refused("process"));
    }
}
