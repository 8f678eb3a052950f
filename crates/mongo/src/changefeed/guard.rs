//! What must not be fed: what Promethean itself writes, which would go round and round.

use mongodb::bson::raw::RawDocument;

use crate::cluster::COLLECTIONS;

/// The field by which a writer says where a document comes from.
const ORIGIN: &str = "_origin";

/// Whether a document says that it comes from an event: `_origin` begins with `promethean`.
pub(super) fn is_ours(document: Option<&RawDocument>) -> bool {
    document
        .and_then(|document| document.get_str(ORIGIN).ok())
        .is_some_and(|origin| origin.starts_with("promethean"))
}

/// Why a collection is none to feed from, by the names of the database's collections.
pub(super) fn refuse(collection: &str, names: &[String]) -> Option<String> {
    let is_there = |name: &str| names.iter().any(|there| there == name);
    let of_store = COLLECTIONS.contains(&collection) && is_there("lanes") && is_there("cursors");
    let of_outbox = ["outbox", "outbox_turns"].contains(&collection) && is_there("outbox_turns");
    (of_store || of_outbox).then(|| {
        format!(
            "collection {collection:?} is written by Promethean itself; its feed would never end"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_collections_are_refused_and_others_of_their_names_are_not() {
        let ours: Vec<_> = COLLECTIONS.iter().map(ToString::to_string).collect();
        assert!(refuse("events", &ours).is_some());
        assert!(refuse("orders", &ours).is_none());
        assert!(refuse("events", &["events".into()]).is_none());
        assert!(refuse("outbox", &["outbox".into(), "outbox_turns".into()]).is_some());
        assert!(refuse("outbox", &["outbox".into()]).is_none());
    }
}
