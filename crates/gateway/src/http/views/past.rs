//! Documents as they were: one with what it was made of, all of them, and the history of one.

use std::io;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{FutureExt, stream};
use promethean::Moment;
use promethean::projection::{
    Folded, Operation, Past, PastError, PastScan, PastStep, Position, StepEffect, patch,
};
use promethean::store::Stored;
use promethean::{AsOf, EventValues, Formula, REDUCER_NAMES, Reads};
use promethean_event::{EventId, Key, Topic};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Named, moment, named};
use crate::access::Action;
use crate::http::answer;
use crate::http::call::Call;
use crate::http::endpoint::{Endpoint, Guard, Verb};
use crate::rejection::{Code, Rejection};

/// Events that an answer tells of.
const EVENTS_TOLD_MAX: usize = 100;

/// Keys that are looked at between two pieces of an answer.
const KEYS_AT_ONCE: usize = 1_000;

pub(super) const AT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/views/{view}/at/{key}",
    guard: Guard::Topics(Action::Read),
    summary: "The document of a key at=TIME|POSITION, with the event it was made of; or that it was \
              deleted, never there, or from before what is kept. reduce=EXPRESSION folds all events; \
              version brings them to a version of their schema.",
    query: &["at", "by", "reduce", "version"],
    act: |call| explain(call).boxed(),
};

pub(super) const ALL: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/views/{view}/at",
    guard: Guard::Topics(Action::Read),
    summary: "All documents at=TIME, as lines of JSON; the last line says whether it is complete.",
    query: &["at", "by"],
    act: |call| all(call).boxed(),
};

pub(super) const HISTORY: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/views/{view}/history/{key}",
    guard: Guard::Topics(Action::Read),
    summary: "The events of a key, newest first, each with what it changed.",
    query: &["limit", "by"],
    act: |call| history(call).boxed(),
};

/// An event, as the past tells of it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct EventRef {
    pub(super) id: EventId,
    position: Position,
    ts: u64,
    appended_at: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    caused_by: Vec<EventId>,
}

impl EventRef {
    pub(super) fn of(stored: &Stored) -> Self {
        let event = &stored.event;
        Self {
            id: event.id,
            position: Position::of(event),
            ts: event.ts.millis(),
            appended_at: stored.appended_at.millis(),
            caused_by: event.caused_by.clone(),
        }
    }
}

/// A document at a moment, with how it came to be.
#[derive(Debug, Serialize)]
pub(super) struct Explained {
    view: String,
    key: String,
    /// `document`, `deleted`, `never_existed` or `before_history`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Box<RawValue>>,
    /// The events that it was built from, the last one last; no more than `EVENTS_TOLD_MAX`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<EventRef>,
    /// How many events were folded, where that is not one.
    #[serde(skip_serializing_if = "Option::is_none")]
    folded: Option<usize>,
    /// Where history starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    history_starts_at: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    complete: Option<bool>,
}

impl Explained {
    fn nothing(named: &Named, key: &str) -> Self {
        Self {
            view: named.view.clone(),
            key: key.to_owned(),
            outcome: "never_existed",
            document: None,
            events: Vec::new(),
            folded: None,
            history_starts_at: None,
            complete: None,
        }
    }

    pub(super) fn of(named: &Named, key: &str, past: &Past) -> Self {
        let mut explained = Self::nothing(named, key);
        match past {
            Past::Document { document, event, is_complete } => {
                explained.outcome = "document";
                explained.document = RawValue::from_string(document.to_json()).ok();
                explained.events = vec![EventRef::of(event)];
                explained.complete = Some(*is_complete);
            }
            Past::Deleted { event, is_complete } => {
                explained.outcome = "deleted";
                explained.events = vec![EventRef::of(event)];
                explained.complete = Some(*is_complete);
            }
            Past::NeverExisted => {}
            Past::BeforeHistory { first, starts_at } => {
                explained.starts_at(first.as_deref(), starts_at);
            }
        }
        explained
    }

    fn starts_at(&mut self, first: Option<&Stored>, starts_at: &Position) {
        self.outcome = "before_history";
        let first = first.map(EventRef::of);
        self.history_starts_at = Some(json!({ "position": starts_at, "first_of_key": first }));
    }

    /// What came of folding events by an expression.
    fn reduced(mut self, folded: &AsOf<Value>, events: &[Stored], topic: &Topic) -> Self {
        let told = events.len().saturating_sub(EVENTS_TOLD_MAX);
        self.events = events.iter().skip(told).map(EventRef::of).collect();
        self.folded = Some(events.len());
        match folded {
            AsOf::State { value, is_complete, .. } => {
                self.outcome = "document";
                self.document = serde_json::value::to_raw_value(value).ok();
                self.complete = Some(*is_complete);
            }
            AsOf::Deleted { is_complete, .. } => {
                self.outcome = "deleted";
                self.complete = Some(*is_complete);
            }
            AsOf::NeverExisted => {}
            AsOf::BeforeHistory { first, starts_at, partition } => {
                let (partition, offset) = (*partition, *starts_at);
                let starts_at = Position { topic: topic.clone(), partition, offset };
                self.starts_at(first.as_deref(), &starts_at);
            }
        }
        self
    }

    /// In a sentence.
    pub(super) fn said(&self) -> String {
        let key: String = self.key.chars().take(200).collect();
        match (self.outcome, self.events.first()) {
            ("deleted", Some(by)) => {
                format!("{key:?} was deleted then, by event {} at {}", by.id, by.appended_at)
            }
            ("before_history", _) => {
                format!("what {key:?} was then is not kept any more; its history starts later")
            }
            _ => format!("{key:?} had never been there then"),
        }
    }
}

/// The document of a key at a moment: from its own history, or by folding the log.
pub(super) async fn at(named: &Named, key: &str, moment: Moment) -> Result<Past, Rejection> {
    if named.projection.is_by_key() {
        return Ok(named.projection.at(&named.view, key, moment).await?);
    }
    Ok(named.projection.at_folded(&named.view, key, moment).await?)
}

async fn explain(call: Call) -> Result<Response, Rejection> {
    let named = named(&call)?;
    let key: String = call.param("key")?;
    let moment = moment::of_key(&call, "at", &named, &key)?;
    let moment = moment.unwrap_or(now(&call));
    let version: Option<u32> = call.query.parsed("version")?;
    if let Some(source) = call.query.text("reduce") {
        let version = version.or(named.projection.reads());
        let reads = version.map_or(Reads::Written, Reads::Version);
        return reduced(&call, (&named, &key), (moment, reads), source).await;
    }
    let mut past = at(&named, &key, moment).await?;
    if let (Past::Document { document, .. }, Some(version)) = (&mut past, version) {
        let cast = named.projection.in_version(&named.view, (**document).clone(), version).await?;
        **document = cast;
    }
    answer::json(200, &Explained::of(&named, &key, &past))
}

pub(super) fn now(call: &Call) -> Moment {
    Moment::Appended(promethean_event::Timestamp::from_millis(call.edge.clock.now_ms()))
}

/// A key's events folded by an expression over `state` and the event, in one version of their schema
/// if the view or the request names one.
async fn reduced(
    call: &Call,
    (named, key): (&Named, &str),
    (moment, reads): (Moment, Reads),
    source: &str,
) -> Result<Response, Rejection> {
    let bad = |detail: String| Rejection::new(Code::BadRequest, detail);
    let formula =
        Formula::compile(source, REDUCER_NAMES).map_err(|error| bad(error.to_string()))?;
    let not_by_key = || Rejection::from(PastError::NotByKey(named.view.clone()));
    if !named.projection.is_by_key() {
        return Err(not_by_key());
    }
    let topic: &Topic = named.projection.topics().first().ok_or_else(not_by_key)?;
    let key_of_event = Key::new(key).map_err(|error| bad(error.to_string()))?;
    let reader = call.edge.bus.reader(reads).await?;
    let reduce = |state: Option<Value>, event: &promethean_event::Event| {
        let event = reader.decode(event).map_err(|error| error.to_string())?;
        let values = EventValues::of(&event).map_err(|error| error.to_string())?;
        let state = values.reduce(&formula, &state.unwrap_or(Value::Null))?;
        Ok((!state.is_null()).then_some(state))
    };
    let folded = call.edge.bus.as_of_folded(topic, &key_of_event, moment, reduce).await;
    let (folded, events) = folded.map_err(|error| Rejection::from(PastError::from(error)))?;
    answer::json(200, &Explained::nothing(named, key).reduced(&folded, &events, topic))
}

/// Where the documents of a view at a moment come from.
enum Source {
    ByKey(Box<PastScan>),
    Folded { folded: Box<Folded>, after: Option<String> },
}

struct Lines {
    source: Source,
    view: String,
    documents: u64,
    unknown: u64,
    is_complete: bool,
}

async fn all(call: Call) -> Result<Response, Rejection> {
    let named = named(&call)?;
    let moment = moment::of_view(&call, "at")?.unwrap_or(now(&call));
    let (source, is_complete) = if named.projection.is_by_key() {
        (Source::ByKey(Box::new(named.projection.scan_at(&named.view, moment).await?)), true)
    } else {
        let folded = Box::new(named.projection.folded(moment).await?);
        let is_complete = folded.missed == 0;
        (Source::Folded { folded, after: None }, is_complete)
    };
    let lines = Lines { source, view: named.view, documents: 0, unknown: 0, is_complete };
    let pieces = stream::unfold(Some(lines), |lines| async move {
        let mut lines = lines?;
        let (piece, is_over) = lines.piece().await;
        Some((Ok::<Bytes, io::Error>(piece), (!is_over).then_some(lines)))
    });
    Ok(answer::with_body(200, "application/x-ndjson", Body::from_stream(pieces)))
}

impl Lines {
    /// Some lines, and whether they are the last. The next are made when these are on their way.
    async fn piece(&mut self) -> (Bytes, bool) {
        let mut out = String::new();
        let ended = match self.step(&mut out).await {
            Ok(false) => return (out.into(), false),
            Ok(true) => json!({ "end": {
                "complete": self.is_complete, "documents": self.documents,
                "before_history": self.unknown,
            } }),
            // The status is sent; what is wrong can only be said in the body.
            Err(error) => json!({ "end": {
                "complete": false, "documents": self.documents, "error": error.to_string(),
            } }),
        };
        out.push_str(&ended.to_string());
        out.push('\n');
        (out.into(), true)
    }

    async fn step(&mut self, out: &mut String) -> Result<bool, PastError> {
        let (documents, is_over) = match &mut self.source {
            Source::ByKey(scan) => {
                let documents = scan.next().await?;
                (self.unknown, self.is_complete) = (scan.unknown(), scan.is_complete());
                let is_over = documents.is_none();
                (documents.unwrap_or_default(), is_over)
            }
            Source::Folded { folded, after } => {
                let page = folded.scan(&self.view, after.as_deref(), KEYS_AT_ONCE).await?;
                let is_over = page.len() < KEYS_AT_ONCE;
                *after = page.last().map(|document| document.key.clone());
                (page, is_over)
            }
        };
        self.documents += documents.len() as u64;
        for document in &documents {
            out.push_str(&document.to_json());
            out.push('\n');
        }
        Ok(is_over)
    }
}

#[derive(Serialize)]
struct Step {
    #[serde(flatten)]
    event: EventRef,
    effect: StepEffect,
    /// What has changed with it.
    patch: Vec<Operation>,
}

async fn history(call: Call) -> Result<Response, Rejection> {
    let named = named(&call)?;
    let key: String = call.param("key")?;
    let limit = call.query.limit()?;
    let moment = match moment::by(&call)? {
        moment::By::Append => now(&call),
        moment::By::Event => {
            Moment::Happened(promethean_event::Timestamp::from_millis(u64::MAX / 2))
        }
    };
    let (steps, is_all) = named.projection.steps(&named.view, &key, moment).await?;
    if steps.is_empty() {
        let past = named.projection.at(&named.view, &key, moment).await?;
        let explained = Explained::of(&named, &key, &past);
        let detail = format!("there are no events of key {key:?}");
        return Err(Rejection::new(Code::NotFound, detail).with("past", &explained));
    }
    let total = steps.len();
    let states = states(&steps);
    let shown: Vec<Step> = steps
        .iter()
        .enumerate()
        .rev()
        .take(limit)
        .map(|(place, step)| {
            let nothing = Value::Null;
            let before = place.checked_sub(1).and_then(|place| states.get(place)?.as_ref());
            let after = states.get(place).and_then(Option::as_ref);
            Step {
                event: EventRef::of(&step.stored),
                effect: step.effect,
                patch: patch(before.unwrap_or(&nothing), after.unwrap_or(&nothing)),
            }
        })
        .collect();
    answer::json(
        200,
        &json!({
            "view": named.view, "key": key, "events": total, "complete": is_all, "steps": shown,
        }),
    )
}

/// The values of documents, step by step.
pub(super) fn states(steps: &[PastStep]) -> Vec<Option<Value>> {
    steps
        .iter()
        .map(|step| step.document.as_ref().and_then(|document| document.decode().ok()))
        .collect()
}
