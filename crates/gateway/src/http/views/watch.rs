//! Following one document: by waiting for another one, or as an event stream.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use promethean::projection::query::Outcome;
use promethean::projection::{Document, Progress};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Named, representation};
use crate::attendance::Presence;
use crate::http::answer;
use crate::http::call::Call;
use crate::http::events::STREAM;
use crate::limits::VIEW_WATCH_S_MAX;
use crate::rejection::{Code, Rejection};
use crate::tenure::Tenure;

/// A comment keeps proxies from closing a stream that is quiet.
const QUIET: Duration = Duration::from_secs(15);

/// How long to wait for another document.
pub(super) fn seconds(call: &Call) -> Result<Option<Duration>, Rejection> {
    match call.query.parsed::<u64>("watch")? {
        None => Ok(None),
        Some(seconds @ 1..=VIEW_WATCH_S_MAX) => Ok(Some(Duration::from_secs(seconds))),
        Some(_) => {
            let detail = format!("watch is 1 to {VIEW_WATCH_S_MAX} seconds");
            Err(Rejection::new(Code::BadRequest, detail))
        }
    }
}

/// Waits until there is another document than the client has; no longer than a time. Without
/// `If-None-Match`, than there is now.
pub(super) async fn until_other(
    call: &Call,
    named: &Named,
    key: &str,
    version: Option<u32>,
    time: Duration,
) -> Result<Option<Document>, Rejection> {
    let mut deadline = pin!(sleep(time));
    let mut progress = named.projection.watch();
    let mut tenure = Tenure::new(&call.edge, &call.principal);
    let first = current(named, key, version).await?;
    loop {
        progress.mark_unchanged();
        let (document, tag) = current(named, key, version).await?;
        let is_other = if representation::has_conditions(call) {
            let is_same = |tag: &str| representation::judged(call, tag) == Outcome::NotModified;
            // With or without compression it is the same document.
            !tag.as_deref().is_some_and(|tag| {
                is_same(tag) || is_same(&format!("{};gzip\"", tag.trim_end_matches('"')))
            })
        } else {
            tag != first.1
        };
        if is_other {
            return Ok(document);
        }
        tokio::select! {
            changed = progress.changed() => {
                if changed.is_err() {
                    return Ok(document);
                }
            }
            () = &mut deadline => return Ok(document),
            () = tenure.over() => {
                let ended = Rejection::plain(Code::TokenExpired);
                return if tenure.lasts() { Ok(document) } else { Err(ended) };
            }
        }
    }
}

type Current = (Option<Document>, Option<String>);

async fn current(named: &Named, key: &str, version: Option<u32>) -> Result<Current, Rejection> {
    let document = named.projection.get(&named.view, key).await?;
    let definition = named.projection.definition();
    let tag = document.as_ref().map(|document| representation::tag(document, &definition, version));
    Ok((document, tag))
}

struct Watching {
    named: Named,
    key: String,
    version: Option<u32>,
    /// What was told last; `None` before anything was.
    told: Option<Option<String>>,
    progress: watch::Receiver<Progress>,
    tenure: Tenure,
    /// Counts as a connection of its subject.
    _presence: Option<Presence>,
}

/// The id of what is told of a key without a document.
const NOTHING: &str = "none";

/// What was told last, by its id.
fn told_by(id: &str) -> Option<String> {
    (id != NOTHING).then(|| id.to_owned())
}

/// The document, and every other one that takes its place. Those in between two looks are passed
/// over: it is a state, not a history.
pub(super) fn stream(
    call: &Call,
    named: Named,
    key: String,
    version: Option<u32>,
) -> Result<Response, Rejection> {
    let resumed = call.head.headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let watching = Watching {
        _presence: call.edge.attend(&call.principal, call.peer.address.ip())?,
        progress: named.projection.watch(),
        tenure: Tenure::new(&call.edge, &call.principal),
        told: resumed.filter(|id| !id.is_empty()).map(told_by),
        named,
        key,
        version,
    };
    let pieces = stream::unfold(Some(watching), |watching| async move {
        let mut watching = watching?;
        let piece = watching.piece().await?;
        Some((Ok::<_, Infallible>(piece), Some(watching)))
    });
    Ok(answer::with_body(200, STREAM, Body::from_stream(pieces)))
}

impl Watching {
    /// The next piece; `None` when the stream ends: the client connects again by itself.
    async fn piece(&mut self) -> Option<Bytes> {
        let mut quiet = pin!(sleep(QUIET));
        loop {
            self.progress.mark_unchanged();
            let (document, tag) = current(&self.named, &self.key, self.version).await.ok()?;
            if self.told.as_ref() != Some(&tag) {
                let text = self.said(document, tag.as_deref()).await?;
                self.told = Some(tag);
                return Some(text.into());
            }
            tokio::select! {
                changed = self.progress.changed() => {
                    if changed.is_err() {
                        return None;
                    }
                }
                () = &mut quiet => return Some(Bytes::from_static(b": quiet\n\n")),
                () = self.tenure.over() => return None,
            }
        }
    }

    async fn said(&self, document: Option<Document>, tag: Option<&str>) -> Option<String> {
        let Some(document) = document else {
            // Nothing is there: the id says so, for one who comes back.
            return Some(format!("event: deleted\ndata: null\nid: {NOTHING}\n\n"));
        };
        let document = match self.version {
            None => document,
            Some(version) => {
                self.named.projection.in_version(&self.named.view, document, version).await.ok()?
            }
        };
        let tag = tag.unwrap_or_default();
        Some(format!("event: document\ndata: {}\nid: {tag}\n\n", document.to_json()))
    }
}
