//! Events of many topics as they come, without a group.

use axum::response::Response;
use futures_util::FutureExt;
use http::header;
use promethean_event::limits::FRAME_TOPICS_MAX;
use promethean_event::{Cursor, Offset, Partition, Pattern};

use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use super::events::{STREAM, begin, stream_of};
use super::scan::reader;
use crate::access::{Action, Resource, authorize};
use crate::filter::Expression;
use crate::rejection::{Code, Rejection};
use crate::tail::{Begin, TailWish};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/events",
    guard: Guard::Topics(Action::Read),
    summary: "Events of topics and patterns as they come; topic=a,b.** and Accept: text/event-stream.",
    query: &["topic", "from", "filter", "reads"],
    act: |call| follow(call).boxed(),
};

fn bad(detail: impl Into<std::borrow::Cow<'static, str>>) -> Rejection {
    Rejection::new(Code::BadRequest, detail)
}

async fn follow(call: Call) -> Result<Response, Rejection> {
    let accept = call.head.headers.get(header::ACCEPT).and_then(|kind| kind.to_str().ok());
    if !accept.is_some_and(|kind| kind.contains(STREAM)) {
        return Err(bad("ask for Accept: text/event-stream; /replay gives pages"));
    }
    let named: String = call.query.needed("topic")?;
    let topics = named.split(',').map(Pattern::new).collect::<Result<Vec<_>, _>>();
    let topics = topics.map_err(|error| bad(error.to_string()))?;
    if topics.len() > FRAME_TOPICS_MAX {
        return Err(bad(format!("{FRAME_TOPICS_MAX} topics and patterns at most; use a pattern")));
    }
    for pattern in &topics {
        if let Some(topic) = pattern.as_topic() {
            authorize(&call.principal, Action::Read, Resource::Topic(&topic, None))?;
        } else if !call.principal.policy().allows_some(Action::Read, pattern) {
            return Err(Rejection::plain(Code::Forbidden));
        }
    }
    let resumed = call.head.headers.get("last-event-id");
    let resumed = resumed.map(|id| id.to_str().unwrap_or("?")).filter(|id| !id.is_empty());
    let after = match resumed {
        Some(id) => read_id(id).ok_or_else(|| bad("Last-Event-ID is not one of ours"))?,
        None => Vec::new(),
    };
    // What the id does not name was made since, and is new from its first event on.
    let begin = if resumed.is_some() { Begin::Earliest } else { begin(&call)? };
    let wish = TailWish {
        topics,
        begin,
        after,
        filter: call.query.text("filter").map(Expression::compile).transpose()?,
        principal: call.principal.clone(),
        reader: reader(&call).await?,
    };
    stream_of(&call, wish, write_id).await
}

/// How far every partition is: `topic/partition/offset`, by commas. An empty one is `-`, so that it
/// is sent back.
fn write_id(cursors: &[Cursor]) -> String {
    let place = |at: &Cursor| format!("{}/{}/{}", at.topic, at.partition, at.next);
    let places: Vec<String> = cursors.iter().map(place).collect();
    if places.is_empty() { "-".to_owned() } else { places.join(",") }
}

fn read_id(id: &str) -> Option<Vec<Cursor>> {
    let cursor = |place: &str| {
        let mut parts = place.split('/');
        let cursor = Cursor {
            topic: parts.next()?.parse().ok()?,
            partition: Partition::new(parts.next()?.parse().ok()?),
            next: Offset::new(parts.next()?.parse().ok()?),
        };
        parts.next().is_none().then_some(cursor)
    };
    if id == "-" {
        return Some(Vec::new());
    }
    id.split(',').map(cursor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back() {
        for id in ["-", "a.b/0/18", "a.b/0/18,c/1/5"] {
            assert_eq!(write_id(&read_id(id).unwrap()), id);
        }
        for id in ["", "a", "a/0", "a/0/", "a/0/1/2", "a/0/1,", "A/0/1", "a/0/-1"] {
            assert_eq!(read_id(id), None, "{id}");
        }
    }
}
