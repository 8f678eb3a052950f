use axum::response::Response;
use futures_util::FutureExt;
use promethean::snapshot::SOURCE_OFFSET;
use promethean::{DeadLetterEntry, DeadLetterQuery, DeadLetterState, ReplayDeadLetters, ReplayTo};
use promethean_event::{EventId, GroupName, Headers, Key, NewEvent, Payload};
use serde::{Deserialize, Serialize};

use super::answer;
use super::call::{Call, object};
use super::endpoint::{Endpoint, Guard, Verb};
use super::scan::reader;
use crate::access::Action;
use crate::intake::check_headers;
use crate::limits::{BODY_BYTES_MAX, PAGE_BYTES_MAX};
use crate::rejection::{Code, Rejection};

pub(super) const LIST: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/dead-letters",
    guard: Guard::Server(Action::DlqRead),
    summary: "Events that groups have given up, oldest first by topic.",
    query: &["topic", "group", "fingerprint", "id", "state", "after", "limit", "reads"],
    act: |call| list(call).boxed(),
};

pub(super) const REPLAY: Endpoint = Endpoint {
    method: Verb::Post,
    path: "/dead-letters/{id}/replay",
    guard: Guard::Server(Action::DlqReplay),
    summary: "Gives a dead letter back to the group that gave it up and to no other, or as the body says.",
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
    /// Goes into `after` of the next request, if there may be more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<EventId>,
}

#[derive(Serialize)]
struct Letter {
    id: EventId,
    state: DeadLetterState,
    #[serde(flatten)]
    letter: promethean::DeadLetter,
    /// Why the original is as it was written, though another form was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<String>,
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
    query.ids = call.query.parsed::<EventId>("id")?.into_iter().collect();
    query.state = match call.query.text("state") {
        None | Some("waiting") => Some(DeadLetterState::Waiting),
        Some("replayed") => Some(DeadLetterState::Replayed),
        Some("discarded") => Some(DeadLetterState::Discarded),
        Some("all") => None,
        Some(_) => {
            let known = "state is waiting, replayed, discarded or all";
            return Err(Rejection::new(Code::BadRequest, known));
        }
    };
    query.after = call.query.parsed("after")?;
    query.max = call.query.limit()?;
    let reader = reader(&call).await?;
    let page = call.edge.bus.dead_letter_page(&query, PAGE_BYTES_MAX).await?;
    let next = page.letters.last().filter(|_| page.more).map(|entry| entry.id);
    let dead_letters = page
        .letters
        .into_iter()
        .filter(|entry| readable(&call, entry))
        .map(|entry| {
            let (entry, error) = match &reader {
                Some(reader) => reader.dead_letter(entry),
                None => (entry, None),
            };
            let DeadLetterEntry { id, letter, state, .. } = entry;
            Letter { id, state, letter, unreadable: error.map(|error| error.to_string()) }
        })
        .collect();
    answer::json(200, &Letters { dead_letters, next })
}

/// The dead letter of the address, if it is one that the caller may see.
async fn named(call: &Call) -> Result<DeadLetterEntry, Rejection> {
    let id: EventId = call.param("id")?;
    let found = call.edge.bus.dead_letters(&DeadLetterQuery::default().id(id)).await?;
    let mut visible = found.into_iter().filter(|entry| readable(call, entry));
    visible.next().ok_or(Rejection::plain(Code::NotFound))
}

#[derive(Serialize)]
struct Outcome {
    replayed: usize,
    left: usize,
}

/// To whom a dead letter goes, and as what. Absent: to the group that gave it up, as it was.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wish {
    to: Receiver,
    /// Publishes this instead of what was given up.
    event: Option<Changed>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Receiver {
    #[default]
    FailingGroup,
    AllGroups,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Changed {
    payload: Payload,
    #[serde(default)]
    key: Option<Key>,
    #[serde(default)]
    headers: Headers,
}

async fn replay(mut call: Call) -> Result<Response, Rejection> {
    let DeadLetterEntry { id, letter, .. } = named(&call).await?;
    let body = call.body(BODY_BYTES_MAX).await?;
    let asked = if body.is_empty() { Ok(Wish::default()) } else { object(&body) };
    let Wish { to, event } =
        asked.map_err(|error| Rejection::new(Code::BadRequest, error.to_string()))?;
    // What others get, or what was not there before, is published.
    if event.is_some() || matches!(to, Receiver::AllGroups) {
        call.authorize(Action::Publish, &letter.topic, None)?;
    }
    let mut wish = ReplayDeadLetters::new(DeadLetterQuery::waiting().id(id));
    if matches!(to, Receiver::AllGroups) {
        wish = wish.to(ReplayTo::AllGroups);
    }
    if let Some(Changed { payload, key, mut headers }) = event {
        // It is published like anything else that a client gives.
        check_headers(&headers)?;
        headers.remove(SOURCE_OFFSET);
        wish = wish.transform(move |original| {
            let (payload, key, headers) = (payload.clone(), key.clone(), headers.clone());
            Some(NewEvent { payload, key, headers, ..original })
        });
    }
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
    let id = named(&call).await?.id;
    call.edge.bus.discard_dead_letter(id).await?;
    answer::json(200, &serde_json::json!({ "discarded": id }))
}
