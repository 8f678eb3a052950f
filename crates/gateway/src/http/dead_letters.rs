use axum::response::Response;
use futures_util::FutureExt;
use promethean::{DeadLetterEntry, DeadLetterQuery, DeadLetterState, ReplayDeadLetters};
use promethean_event::{EventId, GroupName, Offset};
use serde::Serialize;

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use crate::access::Action;
use crate::rejection::{Code, Rejection};

pub(super) const LIST: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/dead-letters",
    guard: Guard::Server(Action::DlqRead),
    summary: "Events that groups have given up, oldest first by topic.",
    query: &["topic", "group", "fingerprint", "limit"],
    act: |call| list(call).boxed(),
};

pub(super) const REPLAY: Endpoint = Endpoint {
    method: Verb::Post,
    path: "/dead-letters/{id}/replay",
    guard: Guard::Server(Action::DlqReplay),
    summary: "Gives a dead letter back to the group that gave it up, and to no other.",
    query: &[],
    act: |call| replay(call).boxed(),
};

pub(super) const DISCARD: Endpoint = Endpoint {
    method: Verb::Post,
    path: "/dead-letters/{id}/discard",
    guard: Guard::Server(Action::DlqReplay),
    summary: "Gives a dead letter up for good; its key goes on.",
    query: &[],
    act: |call| discard(call).boxed(),
};

#[derive(Serialize)]
struct Letters {
    dead_letters: Vec<Letter>,
}

#[derive(Serialize)]
struct Letter {
    id: EventId,
    offset: Offset,
    state: DeadLetterState,
    #[serde(flatten)]
    letter: promethean::DeadLetter,
}

/// A dead letter shows the event: who may not read the topic does not see it.
fn readable(call: &Call, entry: &DeadLetterEntry) -> bool {
    call.authorize(Action::Read, &entry.letter.topic, None).is_ok()
}

async fn list(call: Call) -> Result<Response, Rejection> {
    let mut query = DeadLetterQuery::waiting();
    query.topics = call.query.parsed("topic")?;
    query.group = call.query.parsed::<GroupName>("group")?;
    query.fingerprint = call.query.text("fingerprint").map(str::to_owned);
    query.max = call.query.limit()?;
    let found = call.edge.bus.dead_letters(&query).await?;
    let found = found.into_iter().filter(|entry| readable(&call, entry));
    let dead_letters = found
        .map(|entry| {
            let DeadLetterEntry { id, offset, letter, state, .. } = entry;
            Letter { id, offset, state, letter }
        })
        .collect();
    answer::json(200, &Letters { dead_letters })
}

/// The dead letter of the address, if it is one that the caller may see.
async fn named(call: &Call) -> Result<EventId, Rejection> {
    let id: EventId = call.param("id")?;
    let found = call.edge.bus.dead_letters(&DeadLetterQuery::default().id(id)).await?;
    let visible = found.iter().any(|entry| readable(call, entry));
    visible.then_some(id).ok_or(Rejection::plain(Code::NotFound))
}

#[derive(Serialize)]
struct Outcome {
    replayed: usize,
    left: usize,
}

async fn replay(call: Call) -> Result<Response, Rejection> {
    let id = named(&call).await?;
    let wish = ReplayDeadLetters::new(DeadLetterQuery::waiting().id(id));
    let report = call.edge.bus.replay_dead_letters(&wish).await?;
    let outcome = Outcome { replayed: report.replayed.len(), left: report.left.len() };
    if outcome.replayed == 0 {
        return Err(Rejection::new(
            Code::Conflict,
            "it does not wait any more, or its group is gone",
        ));
    }
    answer::json(200, &outcome)
}

async fn discard(call: Call) -> Result<Response, Rejection> {
    let id = named(&call).await?;
    call.edge.bus.discard_dead_letter(id).await?;
    answer::json(200, &serde_json::json!({ "discarded": id }))
}
