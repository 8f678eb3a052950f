//! One document of a change stream, read.

use mongodb::bson::raw::{RawBsonRef, RawDocument};

use crate::document::unsigned;
use promethean::changefeed::ClusterTime;

/// Where the documents of updates come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Images {
    /// The collection keeps them, as a rule: not those from before it began to or after it ceased,
    /// nor those that have expired.
    Kept,
    /// The server looks them up when the change is read.
    LookedUp,
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Insert,
    Update,
    Replace,
    Delete,
    Drop,
    Rename,
    /// The stream ends with it.
    Invalidate,
    /// Nothing that is about documents.
    Other,
}

impl Op {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Replace => "replace",
            Self::Delete => "delete",
            Self::Drop => "drop",
            Self::Rename => "rename",
            Self::Invalidate => "invalidate",
            Self::Other => "other",
        }
    }
}

/// A change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) op: Op,
    /// The text of its resume token.
    pub(super) token: &'a str,
    pub(super) at: ClusterTime,
    /// The collection that it happened to; of a rename, by the name before.
    pub(super) collection: Option<&'a str>,
    /// The server's clock, in milliseconds.
    pub(super) millis: Option<u64>,
    /// The `_id` of the document.
    pub(super) id: Option<RawBsonRef<'a>>,
    pub(super) document: Option<&'a RawDocument>,
    /// The document is the one that was there when the change was read.
    pub(super) is_looked_up: bool,
    pub(super) before: Option<&'a RawDocument>,
}

impl<'a> Change<'a> {
    /// Reads it; the reason, if it is none.
    pub(super) fn read(raw: &'a RawDocument, images: Images) -> Result<Self, &'static str> {
        let part = |name: &str| raw.get(name).ok().flatten();
        let document = |name: &str| part(name).and_then(RawBsonRef::as_document);
        let token = document("_id").and_then(|id| id.get_str("_data").ok());
        let at = part("clusterTime").and_then(RawBsonRef::as_timestamp);
        let id = document("documentKey").and_then(|key| key.get("_id").ok().flatten());
        let collection = document("ns").and_then(|ns| ns.get_str("coll").ok());
        let millis = part("wallTime").and_then(RawBsonRef::as_datetime);
        let op = match raw.get_str("operationType").map_err(|_| "it has no operationType")? {
            "insert" => Op::Insert,
            "update" => Op::Update,
            "replace" => Op::Replace,
            "delete" => Op::Delete,
            "drop" | "dropDatabase" => Op::Drop,
            "rename" => Op::Rename,
            "invalidate" => Op::Invalidate,
            _ => Op::Other,
        };
        Ok(Self {
            op,
            token: token.ok_or("it has no resume token")?,
            at: super::cluster_time(at.ok_or("it has no clusterTime")?),
            collection,
            millis: millis.map(|time| unsigned(time.timestamp_millis())),
            id,
            document: document("fullDocument"),
            is_looked_up: op == Op::Update && images == Images::LookedUp,
            before: document("fullDocumentBeforeChange"),
        })
    }

    /// Whether there was a document after it that it does not tell.
    pub(super) const fn lacks_document(&self) -> bool {
        matches!(self.op, Op::Insert | Op::Update | Op::Replace) && self.document.is_none()
    }
}
