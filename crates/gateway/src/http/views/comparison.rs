//! What has changed between two moments, and since when a member is what it is.

use axum::response::Response;
use futures_util::FutureExt;
use promethean::Moment;
use promethean::projection::{Operation, Past, PastStep, blame, patch};
use promethean::store::Stored;
use serde::Serialize;
use serde_json::{Value, json};

use super::past::{EventRef, at, now, states};
use super::{Named, moment, named};
use crate::access::Action;
use crate::http::answer;
use crate::http::call::Call;
use crate::http::endpoint::{Endpoint, Guard, Verb};
use crate::rejection::{Code, Rejection};

pub(super) const DIFF: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/views/{view}/diff/{key}",
    guard: Guard::Topics(Action::Read),
    summary: "What has changed in a document since from=TIME|POSITION, until to, as a JSON patch, \
              each change with its event.",
    query: &["from", "to", "by"],
    act: |call| diff(call).boxed(),
};

pub(super) const WHY: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/views/{view}/why/{key}",
    guard: Guard::Topics(Action::Read),
    summary: "The event since which a member of a document, pointer=/status, is what it is; without \
              a pointer, of each member.",
    query: &["pointer", "at", "by"],
    act: |call| why(call).boxed(),
};

#[derive(Serialize)]
struct Changed {
    #[serde(flatten)]
    operation: Operation,
    /// What was there before.
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<Value>,
    /// The last event that changed it.
    event: Option<EventRef>,
}

async fn diff(call: Call) -> Result<Response, Rejection> {
    let named = named(&call)?;
    let key: String = call.param("key")?;
    let from = moment::of_key(&call, "from", &named, &key)?;
    let missing = "parameter from is missing: since when?";
    let from = from.ok_or(Rejection::new(Code::BadRequest, missing))?;
    let to = moment::of_key(&call, "to", &named, &key)?.unwrap_or(now(&call));
    let steps = match named.projection.is_by_key() {
        true => named.projection.steps(&named.view, &key, to).await?.0,
        false => Vec::new(),
    };
    let states = states(&steps);
    let before = value(&named, &key, from).await?;
    let after = value(&named, &key, to).await?;
    let (old, new) = (before.0.unwrap_or(Value::Null), after.0.unwrap_or(Value::Null));
    let changes: Vec<Changed> = patch(&old, &new)
        .into_iter()
        .map(|operation| {
            let event = match blame(&states, &operation.path) {
                Some(place) => steps.get(place).map(|step| EventRef::of(&step.stored)),
                None => deleted_by(&steps).or_else(|| after.1.as_ref().map(EventRef::of)),
            };
            Changed { was: old.pointer(&operation.path).cloned(), operation, event }
        })
        .collect();
    answer::json(200, &json!({ "view": named.view, "key": key, "patch": changes }))
}

/// What removed a document as a whole.
fn deleted_by(steps: &[PastStep]) -> Option<EventRef> {
    let last = steps.iter().rev().find(|step| {
        use promethean::projection::StepEffect;
        matches!(step.effect, StepEffect::Put | StepEffect::Delete)
    })?;
    last.document.is_none().then(|| EventRef::of(&last.stored))
}

async fn value(
    named: &Named,
    key: &str,
    moment: Moment,
) -> Result<(Option<Value>, Option<Stored>), Rejection> {
    Ok(match at(named, key, moment).await? {
        Past::Document { document, event, .. } => (document.decode().ok(), Some(*event)),
        Past::Deleted { event, .. } => (None, Some(*event)),
        Past::NeverExisted => (None, None),
        Past::BeforeHistory { starts_at, .. } => {
            let detail = format!(
                "one of the moments lies before what is kept; history starts at {starts_at}"
            );
            return Err(Rejection::new(Code::NotFound, detail));
        }
    })
}

#[derive(Serialize)]
struct Blamed {
    pointer: String,
    value: Option<Value>,
    /// What it was before.
    was: Option<Value>,
    event: Option<EventRef>,
}

async fn why(call: Call) -> Result<Response, Rejection> {
    let named = named(&call)?;
    let key: String = call.param("key")?;
    let moment = moment::of_key(&call, "at", &named, &key)?.unwrap_or(now(&call));
    let (steps, is_all) = named.projection.steps(&named.view, &key, moment).await?;
    let states = states(&steps);
    let Some(last) = states.last() else {
        let detail = format!("there are no events of key {key:?}");
        return Err(Rejection::new(Code::NotFound, detail));
    };
    let pointers: Vec<String> = match call.query.text("pointer") {
        Some(pointer) if pointer.is_empty() || pointer.starts_with('/') => vec![pointer.to_owned()],
        Some(_) => {
            let detail = "pointer begins with /, as in /status or /owner/name";
            return Err(Rejection::new(Code::BadRequest, detail));
        }
        None => match last {
            Some(Value::Object(members)) => members
                .keys()
                .map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1")))
                .collect(),
            _ => vec![String::new()],
        },
    };
    let mut found = Vec::new();
    for pointer in pointers {
        let Some(place) = blame(&states, &pointer) else {
            let known: Vec<&String> = match last {
                Some(Value::Object(members)) => members.keys().collect(),
                _ => Vec::new(),
            };
            let detail = format!("nothing is or was at {pointer:?}; members now: {known:?}");
            return Err(Rejection::new(Code::NotFound, detail));
        };
        let at = |place: usize| states.get(place)?.as_ref()?.pointer(&pointer).cloned();
        found.push(Blamed {
            value: at(place),
            was: place.checked_sub(1).and_then(at),
            event: steps.get(place).map(|step| EventRef::of(&step.stored)),
            pointer,
        });
    }
    answer::json(
        200,
        &json!({ "view": named.view, "key": key, "complete": is_all, "members": found }),
    )
}
