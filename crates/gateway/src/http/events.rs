//! The events of a topic: a page of them, or, for those who accept an event stream, all of them as
//! they come. The id of a streamed event says how far every partition was: a browser that connects
//! again sends it back, and misses nothing.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderName, HeaderValue, header};
use promethean::store::ReadError;
use promethean_event::frame::write_event;
use promethean_event::{Cursor, Offset, Partition, Pattern, Topic};
use tokio::time::{Instant, sleep_until, timeout};

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use super::replay::page;
use super::scan::{Found, Scan, reader};
use super::time;
use crate::access::{Action, Principal};
use crate::attendance::Presence;
use crate::edge::Edge;
use crate::filter::Expression;
use crate::intake::write_cloud_event;
use crate::quota::Bucket;
use crate::rejection::{Code, Rejection};
use crate::tail::{Begin, Followed, Tail, TailWish};
use crate::tenure::Tenure;
use crate::times::When;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/events/{topic}",
    guard: Guard::Topics(Action::Read),
    summary: "Events of a topic: a page, or with Accept: text/event-stream all as they come.",
    query: &["from", "until", "after", "filter", "limit", "partition", "reads"],
    act: |call| events(call).boxed(),
};

pub(super) const STREAM: &str = "text/event-stream";
const CLOUD_BATCH: &str = "application/cloudevents-batch+json";
/// A comment keeps proxies from closing a stream that is quiet.
const QUIET: Duration = Duration::from_secs(15);

async fn events(mut call: Call) -> Result<Response, Rejection> {
    let topic: Topic = call.param("topic")?;
    call.authorize(Action::Read, &topic, None)?;
    let accept = call.head.headers.get(header::ACCEPT).and_then(|kind| kind.to_str().ok());
    let accept = accept.unwrap_or_default().to_owned();
    if accept.contains(STREAM) {
        return follow(call, topic).await;
    }
    let limit = call.query.limit()?;
    call.may_read(Some(&topic))?;
    call.query.insert("topic", topic.as_str());
    let mut scan = Scan::of(&call).await?;
    let found = scan.page(&call.edge, limit).await?;
    call.has_read(found.topics());
    if !accept.contains(CLOUD_BATCH) {
        return Ok(answer::bytes(200, answer::JSON, page(&found)));
    }
    Ok(cloud_events(&call, &topic, &found))
}

/// A page as CloudEvents. The body has room for nothing else: where it goes on, and what is left out, is
/// in the head.
fn cloud_events(call: &Call, topic: &Topic, found: &Found) -> Response {
    let mut out = b"[".to_vec();
    for (index, stored) in found.events.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_cloud_event(&mut out, &stored.event);
    }
    out.push(b']');
    let mut response = answer::bytes(200, CLOUD_BATCH, out);
    let next = found.next.as_ref().map(|next| {
        let asked = call.query.pairs().filter(|(name, _)| !["topic", "after"].contains(name));
        let mut query = form_urlencoded::Serializer::new(String::new());
        let query = query.extend_pairs(asked).append_pair("after", &next.to_string()).finish();
        format!("</events/{topic}?{query}>; rel=\"next\"")
    });
    let missing = found.missing();
    let said = [(header::LINK, next), (HeaderName::from_static("x-missing"), missing)];
    for (name, value) in said {
        if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

async fn follow(call: Call, topic: Topic) -> Result<Response, Rejection> {
    let resumed = call.head.headers.get("last-event-id");
    let after = match resumed.map(|id| id.to_str().unwrap_or("?")).filter(|id| !id.is_empty()) {
        Some(id) => read_id(id, &topic)
            .ok_or_else(|| Rejection::new(Code::BadRequest, "Last-Event-ID is not one of ours"))?,
        None => Vec::new(),
    };
    let begin = begin(&call)?;
    let wish = TailWish {
        topics: vec![Pattern::exact(&topic)],
        begin,
        after,
        filter: call.query.text("filter").map(Expression::compile).transpose()?,
        principal: call.principal.clone(),
        reader: reader(&call).await?,
    };
    stream_of(&call, wish, write_id).await
}

/// Where a stream begins, unless it goes on from somewhere.
pub(super) fn begin(call: &Call) -> Result<Begin, Rejection> {
    let Some(text) = call.query.text("from") else {
        return Ok(Begin::Latest);
    };
    Ok(match time::read(call, "from", text)? {
        When::Latest => Begin::Latest,
        When::Earliest => Begin::Earliest,
        When::After(id) => Begin::AfterId(id),
        When::At(at) => Begin::At(time::timestamp(at)),
    })
}

/// What is followed, as an event stream that says at once where it begins: a client that is cut
/// off before the first event misses nothing either.
pub(super) async fn stream_of(
    call: &Call,
    wish: TailWish,
    id: fn(&[Cursor]) -> String,
) -> Result<Response, Rejection> {
    let presence = call.edge.attend(&call.principal, call.peer.address.ip())?;
    let tail = Tail::start(Arc::clone(&call.edge), wish).await?;
    let first = Bytes::from(format!("id: {}\n\n", id(&tail.cursors())));
    let follow = Follow {
        tail,
        tenure: Tenure::new(&call.edge, &call.principal),
        id,
        edge: Arc::clone(&call.edge),
        principal: call.principal.clone(),
        bucket: Bucket::default(),
        paced: None,
        _presence: presence,
    };
    let pieces = stream::unfold(Some(follow), |follow| async move {
        let mut follow = follow?;
        let piece = follow.piece().await?;
        Some((Ok::<_, Infallible>(piece), Some(follow)))
    });
    let pieces = stream::once(async { Ok(first) }).chain(pieces);
    Ok(answer::with_body(200, STREAM, Body::from_stream(pieces)))
}

struct Follow {
    tail: Tail,
    tenure: Tenure,
    id: fn(&[Cursor]) -> String,
    edge: Arc<Edge>,
    principal: Principal,
    bucket: Bucket,
    /// More came than its rates allow: nothing until then.
    paced: Option<Instant>,
    /// Counts as a connection of its subject.
    _presence: Option<Presence>,
}

impl Follow {
    /// The next piece of the stream; `None` when it ends: the client connects again by itself.
    async fn piece(&mut self) -> Option<Bytes> {
        if let Some(until) = self.paced.take() {
            tokio::select! {
                () = sleep_until(until) => {}
                () = self.tenure.over() => return None,
            }
        }
        let followed = tokio::select! {
            followed = timeout(QUIET, self.tail.next()) => followed,
            () = self.tenure.over() => return None,
        };
        let Ok(followed) = followed else {
            return Some(Bytes::from_static(b": quiet\n\n"));
        };
        // The client connects again, and is told why if it is still so.
        let failed = |error: &ReadError| tracing::warn!(%error, "an event stream is broken off");
        let followed = followed.inspect_err(failed).ok()??;
        let mut out = Vec::new();
        let last = followed.len().saturating_sub(1);
        for (index, one) in followed.iter().enumerate() {
            match one {
                Followed::Event(event) => {
                    out.extend_from_slice(b"event: event\ndata: ");
                    write_event(&mut out, event);
                }
                Followed::Gap(gap) => {
                    out.extend_from_slice(b"event: gap\ndata: ");
                    let _ = serde_json::to_writer(&mut out, gap);
                }
            }
            // Only the last of a page knows how far all partitions are.
            if index == last {
                out.extend_from_slice(b"\nid: ");
                out.extend_from_slice((self.id)(&self.tail.cursors()).as_bytes());
            }
            out.extend_from_slice(b"\n\n");
        }
        let topics = followed.iter().filter_map(|one| match one {
            Followed::Event(event) => Some(&event.topic),
            Followed::Gap(_) => None,
        });
        let wait = self.edge.pace(&self.principal, &mut self.bucket, topics);
        self.paced = wait.map(|wait| self.edge.clock.instant() + wait);
        Some(out.into())
    }
}

fn write_id(cursors: &[Cursor]) -> String {
    let parts: Vec<String> =
        cursors.iter().map(|cursor| format!("{}:{}", cursor.partition, cursor.next)).collect();
    parts.join(",")
}

fn read_id(id: &str, topic: &Topic) -> Option<Vec<Cursor>> {
    let cursor = |part: &str| {
        let (partition, next) = part.split_once(':')?;
        Some(Cursor {
            topic: topic.clone(),
            partition: Partition::new(partition.parse().ok()?),
            next: Offset::new(next.parse().ok()?),
        })
    };
    id.split(',').map(cursor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back() {
        let topic: Topic = "a".parse().unwrap();
        for id in ["0:18", "0:18,1:5"] {
            assert_eq!(write_id(&read_id(id, &topic).unwrap()), id);
        }
        for id in ["", "a", "0", "0:", ":1", "0:1,", "0:-1"] {
            assert_eq!(read_id(id, &topic), None, "{id}");
        }
    }
}
