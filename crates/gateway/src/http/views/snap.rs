//! The document of a key: now, or at an earlier moment.

use std::time::Duration;

use axum::response::Response;
use futures_util::FutureExt;
use http::header;
use promethean::Moment;
use promethean::projection::{Document, Past, Position};

use super::{Named, called, moment, named, past, representation, watch};
use crate::access::Action;
use crate::http::call::Call;
use crate::http::endpoint::{Endpoint, Guard, Verb};
use crate::http::events::STREAM;
use crate::limits::VIEW_WAIT_MS_MAX;
use crate::rejection::{Code, Rejection};

const QUERY: &[&str] = &["at", "by", "version", "min_position", "wait_ms", "watch"];

pub(super) const SNAP: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/views/{view}/snap/{key}",
    guard: Guard::Topics(Action::Read),
    summary: "The document of a key, now or at=TIME|POSITION, with an ETag; watch=SECONDS waits for \
              another one, Accept: text/event-stream follows it.",
    query: QUERY,
    act: |call| {
        async move {
            let named = named(&call)?;
            snap(&call, named).await
        }
        .boxed()
    },
};

pub(super) const DEFAULT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/snap/{key}",
    guard: Guard::Topics(Action::Read),
    summary: "The same of the default view.",
    query: QUERY,
    act: |call| {
        async move {
            let none = "there is no default view; name one: /views/{view}/snap/{key}";
            let view = call.edge.settings.shelf.default_view.clone();
            let view = view.ok_or(Rejection::new(Code::BadRequest, none))?;
            let named = called(&call, view)?;
            snap(&call, named).await
        }
        .boxed()
    },
};

async fn snap(call: &Call, named: Named) -> Result<Response, Rejection> {
    let key: String = call.param("key")?;
    let version: Option<u32> = call.query.parsed("version")?;
    let at = moment::of_key(call, "at", &named, &key)?;
    wait_for_position(call, &named).await?;
    let accept = call.head.headers.get(header::ACCEPT).and_then(|kind| kind.to_str().ok());
    let is_stream = accept.is_some_and(|kind| kind.contains(STREAM));
    if at.is_some() && (is_stream || call.query.has("watch")) {
        return Err(Rejection::new(Code::BadRequest, "what was does not change: at or watch"));
    }
    if is_stream {
        return watch::stream(call, named, key, version);
    }
    if let Some(moment) = at {
        let document = then(&named, &key, moment).await?;
        return shown(call, &named, (document, None), version).await;
    }
    let before = named.projection.progress();
    let found = match watch::seconds(call)? {
        Some(time) => watch::until_other(call, &named, &key, version, time).await?,
        None => named.projection.get(&named.view, &key).await?,
    };
    match found {
        Some(document) => {
            let reached = named.projection.freshness(&before, &document);
            shown(call, &named, (document, Some(reached)), version).await
        }
        // Whatever conditions there are: what would be refused without them is refused as that
        // (RFC 9110, 13.2.1).
        None => {
            let key: String = key.chars().take(200).collect();
            let detail = format!("view {} has no document of key {key:?}", named.view);
            Err(Rejection::new(Code::NotFound, detail))
        }
    }
}

async fn shown(
    call: &Call,
    named: &Named,
    (document, reached): (Document, Option<Position>),
    version: Option<u32>,
) -> Result<Response, Rejection> {
    let caching = call.edge.settings.shelf.caching(&named.view);
    let definition = named.projection.definition();
    let tag = representation::tag(&document, &definition, version);
    let document = match version {
        None => document,
        Some(version) => named.projection.in_version(&named.view, document, version).await?,
    };
    let standing = representation::Standing { tag, caching, reached };
    representation::answer(call, &document, standing)
}

/// The document at a moment, or a refusal that says why there is none.
async fn then(named: &Named, key: &str, moment: Moment) -> Result<Document, Rejection> {
    let past = past::at(named, key, moment).await?;
    if let Past::Document { document, .. } = past {
        return Ok(*document);
    }
    let explained = past::Explained::of(named, key, &past);
    let detail = explained.said();
    Err(Rejection::new(Code::NotFound, detail).with("past", &explained))
}

/// Reads one's own writes: waits until the view has come to a position.
pub(super) async fn wait_for_position(call: &Call, named: &Named) -> Result<(), Rejection> {
    let wait: Option<u64> = call.query.parsed("wait_ms")?;
    if wait.is_some_and(|ms| ms > VIEW_WAIT_MS_MAX) {
        let detail = format!("wait_ms is {VIEW_WAIT_MS_MAX} at most");
        return Err(Rejection::new(Code::BadRequest, detail));
    }
    let Some(position) = call.query.parsed::<Position>("min_position")? else {
        return Ok(());
    };
    let wait = Duration::from_millis(wait.unwrap_or(2_000));
    Ok(named.projection.wait_for(&position, wait).await?)
}
