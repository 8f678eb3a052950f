use axum::response::Response;
use futures_util::FutureExt;
use promethean_event::frame::write_event;
use promethean_event::{EventId, Pattern};

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use crate::access::Action;
use crate::rejection::{Code, Rejection};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/event/{id}",
    guard: Guard::Topics(Action::Read),
    summary: "The events with an id: one for each topic that has it; topic=PATTERN narrows it.",
    query: &["topic"],
    act: |call| event(call).boxed(),
};

/// Only topics that the caller may read are looked at: what he may not see is not there for him.
async fn event(call: Call) -> Result<Response, Rejection> {
    let id: EventId = call.param("id")?;
    let pattern: Option<Pattern> = call.query.parsed("topic")?;
    let bus = &call.edge.bus;
    let topics = bus.topics();
    let mut out = b"{\"events\":[".to_vec();
    let mut found = 0;
    for entry in topics.users() {
        let topic = &entry.definition.topic;
        let wanted = pattern.as_ref().is_none_or(|pattern| pattern.matches(topic));
        if !wanted || call.authorize(Action::Read, topic, None).is_err() {
            continue;
        }
        if let Some(stored) = bus.find(topic, id).await? {
            if found > 0 {
                out.push(b',');
            }
            write_event(&mut out, &stored.event);
            found += 1;
        }
    }
    if found == 0 {
        return Err(Rejection::plain(Code::NotFound));
    }
    out.extend_from_slice(b"]}");
    Ok(answer::bytes(200, answer::JSON, out))
}
