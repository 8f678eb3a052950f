//! What is there when a feed begins, by pages in the order of `_id`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use mongodb::bson::raw::{RawBsonRef, RawDocumentBuf};
use mongodb::bson::{Document, RawDocument, doc};
use mongodb::{ClientSession, Collection};

use crate::cluster::Cluster;
use crate::fault::Fault;
use crate::limits::FEED_PAGE_BYTES;
use promethean::changefeed::ClusterTime;

/// A session that reads nothing older than a moment, by a majority. Without it a write from before
/// that moment could be missing here, because it was not everywhere yet, and missing in the stream,
/// because it was from before.
pub(super) async fn session(cluster: &Cluster, since: ClusterTime) -> Result<ClientSession, Fault> {
    let session = cluster.client.start_session().causal_consistency(true);
    let mut session = cluster.ask(session).await?;
    session.advance_operation_time(super::timestamp(since));
    Ok(session)
}

/// The next documents: so many, or fewer if they are large; none at the end. By the bounds of the
/// index, because a comparison would see only `_id`s of the same type.
pub(super) async fn page(
    collection: &Collection<RawDocumentBuf>,
    session: &mut ClientSession,
    (after, max): (Option<&str>, usize),
) -> Result<Vec<RawDocumentBuf>, Fault> {
    let after = after.map(decode).transpose()?;
    let limit = i64::try_from(max + 1).unwrap_or(i64::MAX);
    let by_id = doc! { "_id": 1 };
    let mut find = collection.find(doc! {}).sort(by_id.clone()).limit(limit);
    find = find.hint(mongodb::options::Hint::Keys(by_id));
    if let Some(after) = &after {
        find = find.min(after.clone());
    }
    let mut cursor = find.session(&mut *session).await?;
    let mut documents = Vec::new();
    let mut bytes = 0;
    while let Some(document) = cursor.next(session).await.transpose()? {
        // The bound itself is part of what it bounds.
        let is_bound =
            after.as_ref().is_some_and(|after| after.get("_id") == id(&document).as_ref());
        if !is_bound && documents.len() < max {
            bytes += document.as_bytes().len();
            documents.push(document);
        }
        if bytes >= FEED_PAGE_BYTES {
            break;
        }
    }
    Ok(documents)
}

fn id(document: &RawDocument) -> Option<mongodb::bson::Bson> {
    document.get("_id").ok().flatten().and_then(|id| mongodb::bson::Bson::try_from(id).ok())
}

/// The document of an `_id` as it is now, or at least was at a moment; none if it is gone.
pub(super) async fn look_up(
    cluster: &Cluster,
    collection: &Collection<RawDocumentBuf>,
    (id, since): (RawBsonRef<'_>, ClusterTime),
) -> Result<Option<RawDocumentBuf>, Fault> {
    let mut session = session(cluster, since).await?;
    let id = mongodb::bson::Bson::try_from(id);
    let id = id.map_err(|_| Fault::Refused("MongoDB sent an _id that is none".into()))?;
    // Not as it is: an `_id` that is a document could be taken for a condition.
    let by_id = doc! { "_id": { "$eq": id } };
    cluster.ask(collection.find_one(by_id).session(&mut session)).await
}

/// The place of a document, to go on after it.
pub(super) fn place(document: &RawDocument) -> Result<String, Fault> {
    let id = document.get("_id").ok().flatten();
    let id = id.ok_or_else(|| Fault::Refused("MongoDB sent a document without an _id".into()))?;
    let mut place = RawDocumentBuf::new();
    place.append(mongodb::bson::cstr!("_id"), mongodb::bson::raw::RawBson::from(id));
    Ok(BASE64.encode(place.as_bytes()))
}

fn decode(place: &str) -> Result<Document, Fault> {
    let refused = || Fault::Refused("the place that the snapshot had come to is damaged".into());
    let bytes = BASE64.decode(place).map_err(|_| refused())?;
    let raw = RawDocumentBuf::from_bytes(bytes).map_err(|_| refused())?;
    Document::try_from(raw).map_err(|_| refused())
}
