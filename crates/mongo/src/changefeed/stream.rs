//! The change stream of a collection, and what its end means.

use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::raw::RawDocumentBuf;
use mongodb::bson::{Document, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use mongodb::error::Error;
use mongodb::options::{FullDocumentBeforeChangeType, FullDocumentType};

use super::change::Images;
use crate::cluster::Cluster;
use crate::fault::{Fault, code_of, describe};
use crate::views::VIEWS;
use promethean::changefeed::ClusterTime;

/// Where a stream begins.
#[derive(Debug, Clone)]
pub(super) struct Begin<'a> {
    pub(super) since: ClusterTime,
    pub(super) token: Option<&'a str>,
}

/// Why a stream does not go on.
#[derive(Debug)]
pub(super) enum Break {
    /// The server's history does not reach back so far.
    Lost,
    /// The next change is too large to be sent.
    Oversize,
    /// What may go by itself.
    Fault(Fault),
}

impl From<Fault> for Break {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Codes for history that is gone: ChangeStreamHistoryLost, ChangeStreamFatalError,
/// CappedPositionLost, InvalidResumeToken.
const LOST: [i32; 4] = [286, 280, 136, 260];
/// BSONObjectTooLarge.
const OVERSIZE: i32 = 10334;

impl From<Error> for Break {
    fn from(error: Error) -> Self {
        match code_of(&error) {
            Some(code) if LOST.contains(&code) => Self::Lost,
            Some(OVERSIZE) => Self::Oversize,
            _ => Self::Fault(Fault::Transient(describe(&error))),
        }
    }
}

pub(super) type Changes = ChangeStream<RawDocumentBuf>;

/// Opens the stream. After a token, and not at it, so that one that ended the stream will do.
pub(super) async fn open(
    cluster: &Cluster,
    collection: &Collection<RawDocumentBuf>,
    begin: &Begin<'_>,
    images: Images,
) -> Result<Changes, Break> {
    let mut watch = collection.watch().max_await_time(AWAIT);
    watch = match images {
        Images::Kept => watch
            .full_document(FullDocumentType::WhenAvailable)
            .full_document_before_change(FullDocumentBeforeChangeType::WhenAvailable),
        Images::LookedUp => watch.full_document(FullDocumentType::UpdateLookup),
    };
    watch = match begin.token {
        Some(token) => watch.start_after(resume_token(token)?),
        None => watch.start_at_operation_time(super::timestamp(begin.since)),
    };
    let opened = cluster.deadline().hold(watch).await.ok_or_else(crate::fault::too_late)?;
    Ok(opened?.with_type())
}

/// The next change without its document, because of which it was too large; with the one before it,
/// where that is kept and not too large as well.
pub(super) async fn next_without_document(
    cluster: &Cluster,
    collection: &Collection<RawDocumentBuf>,
    begin: &Begin<'_>,
    images: Images,
) -> Result<Option<RawDocumentBuf>, Break> {
    if images == Images::Kept {
        let with_before = next_slim(cluster, collection, begin, true).await;
        if !matches!(with_before, Err(Break::Oversize)) {
            return with_before;
        }
    }
    next_slim(cluster, collection, begin, false).await
}

async fn next_slim(
    cluster: &Cluster,
    collection: &Collection<RawDocumentBuf>,
    begin: &Begin<'_>,
    with_before: bool,
) -> Result<Option<RawDocumentBuf>, Break> {
    let without = doc! { "$project": { "fullDocument": 0, "updateDescription": 0 } };
    let mut watch = collection.watch().pipeline([without]).max_await_time(AWAIT);
    if with_before {
        watch = watch.full_document_before_change(FullDocumentBeforeChangeType::WhenAvailable);
    }
    let watch = match begin.token {
        Some(token) => watch.start_after(resume_token(token)?),
        None => watch.start_at_operation_time(super::timestamp(begin.since)),
    };
    let opened = cluster.deadline().hold(watch).await.ok_or_else(crate::fault::too_late)?;
    let mut changes = opened?.with_type::<RawDocumentBuf>();
    let next = cluster.deadline().hold(changes.next_if_any()).await;
    Ok(next.ok_or_else(crate::fault::too_late)??)
}

/// How long the server waits for a change before it says that there is none.
const AWAIT: Duration = Duration::from_millis(250);

fn resume_token(text: &str) -> Result<ResumeToken, Fault> {
    mongodb::bson::deserialize_from_document(doc! { "_data": text })
        .map_err(|error| Fault::Refused(format!("the resume token is damaged: {error}")))
}

/// The text of the token up to which a stream was read, also over what nobody was sent.
pub(super) fn token_of(changes: &Changes) -> Option<String> {
    let token = mongodb::bson::serialize_to_document(&changes.resume_token()?).ok()?;
    token.get_str("_data").ok().map(str::to_owned)
}

/// The time that a token stands for. Its text begins with the byte 0x82, which is the kind of a
/// timestamp, and the timestamp; of one that does not, nothing is known.
pub(super) fn time_of(token: &str) -> Option<ClusterTime> {
    let number = |range: std::ops::Range<usize>| u32::from_str_radix(token.get(range)?, 16).ok();
    if token.get(..2) != Some("82") {
        return None;
    }
    Some(ClusterTime { seconds: number(2..10)?, increment: number(10..18)? })
}

/// The server's time.
pub(super) async fn now(cluster: &Cluster) -> Result<ClusterTime, Fault> {
    let hello = cluster.ask(cluster.database.run_command(doc! { "hello": 1 })).await?;
    let time = hello.get_timestamp("operationTime");
    time.map(super::cluster_time).map_err(|_| {
        Fault::Refused("MongoDB did not tell its operation time; a replica set does".into())
    })
}

/// What the server remembers.
#[derive(Debug, Clone, Copy)]
pub(super) struct History {
    pub(super) oldest: ClusterTime,
    /// The server's time when it was asked.
    pub(super) now: ClusterTime,
}

/// The server's history, if we may look.
pub(super) async fn history(cluster: &Cluster) -> Option<History> {
    // As a command, whose answer has the time.
    let first = doc! {
        "find": "oplog.rs", "sort": { "$natural": 1 }, "limit": 1, "projection": { "ts": 1 },
        "singleBatch": true,
    };
    let answer = cluster.ask(cluster.client.database("local").run_command(first)).await.ok()?;
    let batch = answer.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let oldest = batch.ok()?.first()?.as_document()?.get_timestamp("ts").ok()?;
    let now = answer.get_timestamp("operationTime").ok()?;
    Some(History { oldest: super::cluster_time(oldest), now: super::cluster_time(now) })
}

/// The views that are collections of the database.
async fn views(cluster: &Cluster) -> Result<Vec<String>, Fault> {
    let views = cluster.database.collection::<Document>(VIEWS);
    let reading = async {
        let mut cursor = views.find(doc! {}).projection(doc! { "_id": 1 }).await?;
        let mut names = Vec::new();
        while cursor.advance().await? {
            let view = cursor.deserialize_current()?;
            names.extend(view.get_str("_id").ok().map(str::to_owned));
        }
        Ok(names)
    };
    cluster.ask(reading).await
}

/// What is to be known of a collection before it is read.
pub(super) struct Survey {
    /// Whether it keeps documents as they were before and after changes.
    pub(super) images: Images,
    /// Why it is none to feed from, if it is none.
    pub(super) refusal: Option<String>,
    /// What no other collection has; nothing while it is not there.
    pub(super) id: Option<String>,
}

pub(super) async fn survey(cluster: &Cluster, collection: &str) -> Result<Survey, Fault> {
    let names = cluster.ask(cluster.database.list_collection_names()).await?;
    let has_views = names.iter().any(|name| name == VIEWS);
    let views = if has_views { views(cluster).await? } else { Vec::new() };
    let refusal = super::guard::refuse(collection, &names, &views);
    let found = cluster
        .ask(
            cluster
                .database
                .run_command(doc! { "listCollections": 1, "filter": { "name": collection } }),
        )
        .await?;
    let first = found.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let first = first.ok().and_then(|batch| batch.first()).and_then(|first| first.as_document());
    let part = |name: &str| first.and_then(|found| found.get_document(name).ok());
    let keeps_images = part("options")
        .and_then(|options| options.get_document("changeStreamPreAndPostImages").ok())
        .is_some_and(|images| images.get_bool("enabled").unwrap_or(false));
    let images = if keeps_images { Images::Kept } else { Images::LookedUp };
    let id = part("info").and_then(|info| info.get_binary_generic("uuid").ok());
    let id = id.map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect());
    Ok(Survey { images, refusal, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_tell_their_time() {
        let time = ClusterTime { seconds: 0x65f0_1234, increment: 7 };
        assert_eq!(time_of("8265F01234000000072B042C0100296E5A"), Some(time));
        assert_eq!(time_of("8265F0123400000007"), Some(time));
        for other in ["", "82", "8265F01234000000", "9265F0123400000007", "82zzzzzzzz00000007"] {
            assert_eq!(time_of(other), None, "{other}");
        }
    }
}
