use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http::{HeaderValue, header};
use promethean_event::frame::write_event;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::Peer;
use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use super::scan::{Found, Scan};
use crate::access::{Action, Principal};
use crate::attendance::Presence;
use crate::edge::Edge;
use crate::limits::PAGE_EVENTS_MAX;
use crate::rejection::{Code, Rejection};
use crate::tenure::Tenure;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/export",
    guard: Guard::Topics(Action::Read),
    summary: "All stored events of a topic or pattern as lines of JSON; the last line says where it \
              ended, and whether it is complete.",
    query: super::scan::QUERY,
    act: |call| export(call).boxed(),
};

async fn export(call: Call) -> Result<Response, Rejection> {
    let scan = Scan::of(&call).await?;
    let export = Export {
        scan,
        _presence: call.edge.attend(&call.principal, call.peer.address.ip())?,
        tenure: Tenure::new(&call.edge, &call.principal),
        edge: call.edge,
        principal: call.principal,
        peer: call.peer,
        paced: None,
    };
    let lines = stream::unfold(Some(export), |export| async move { Some(export?.step().await) });
    let mut response = answer::with_body(200, "application/x-ndjson", Body::from_stream(lines));
    let attachment = HeaderValue::from_static("attachment; filename=\"events.ndjson\"");
    response.headers_mut().insert(header::CONTENT_DISPOSITION, attachment);
    Ok(response)
}

/// An export under way.
struct Export {
    scan: Scan,
    edge: Arc<Edge>,
    principal: Principal,
    peer: Peer,
    tenure: Tenure,
    /// More came than rates allow: nothing until then.
    paced: Option<Instant>,
    /// Counts as a connection of its subject.
    _presence: Option<Presence>,
}

impl Export {
    /// One page of lines. The next one is read only when this one is on its way: memory is constant.
    async fn step(mut self) -> (io::Result<Bytes>, Option<Self>) {
        let mut out = Vec::new();
        let last = match self.page().await {
            Ok(found) => {
                for stored in &found.events {
                    write_event(&mut out, &stored.event);
                    out.push(b'\n');
                }
                for gap in &found.gaps {
                    line(&mut out, &json!({ "gap": gap }));
                }
                for event in &found.unreadable {
                    line(&mut out, &json!({ "unreadable": event }));
                }
                match found.next {
                    Some(_) => return (Ok(out.into()), Some(self)),
                    None => json!({ "end": { "complete": true } }),
                }
            }
            // The status is sent; what is wrong can only be said in the body.
            Err(refusal) => {
                json!({ "end": { "complete": false, "code": refusal.code.as_str() } })
            }
        };
        line(&mut out, &last);
        (Ok(out.into()), None)
    }

    /// The next page, if it may go on. Cut off by a server that stops, it would end without a word.
    async fn page(&mut self) -> Result<Found, Rejection> {
        let topic = self.scan.topic();
        let owed = self.edge.owed(&self.principal, &mut self.peer.buckets().delivered, topic);
        let owed = owed.map(|wait| self.edge.clock.instant() + wait);
        if let Some(until) = owed.max(self.paced.take()) {
            tokio::select! {
                () = sleep_until(until) => {}
                () = self.tenure.over() => {}
            }
        }
        if self.edge.is_draining() {
            return Err(Rejection::plain(Code::GoingAway));
        }
        if !self.tenure.lasts() {
            return Err(Rejection::plain(Code::TokenExpired));
        }
        self.scan.extend(&self.edge);
        let found = self.scan.page(&self.edge, PAGE_EVENTS_MAX).await?;
        let mut buckets = self.peer.buckets();
        let wait = self.edge.pace(&self.principal, &mut buckets.delivered, found.topics());
        drop(buckets);
        self.paced = wait.map(|wait| self.edge.clock.instant() + wait);
        Ok(found)
    }
}

fn line(out: &mut Vec<u8>, value: &serde_json::Value) {
    let _ = serde_json::to_writer(&mut *out, value);
    out.push(b'\n');
}
