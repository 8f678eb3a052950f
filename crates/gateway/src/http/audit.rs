//! The audit log, for those who may look at how the server is doing. Records are given as they are
//! stored, byte by byte, so that whoever reads them can verify them.

use axum::response::Response;
use futures_util::FutureExt;
use promethean::store::{Gap, GapReason, Page, PageLimit, Read, ReadError, Stored};
use promethean_event::{Offset, Topic};
use serde::Serialize;
use serde_json::value::RawValue;

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use crate::access::Action;
use crate::audit::{AUDIT_TOPIC, ChainHead, HEADS, Head};
use crate::limits::PAGE_BYTES_MAX;
use crate::rejection::{Code, Rejection};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/audit",
    guard: Guard::Server(Action::OpsRead),
    summary: "Records of the audit log: the newest first, or from an offset on in their order.",
    query: &["from", "before", "limit"],
    act: |call| list(call).boxed(),
};

#[derive(Serialize)]
struct Shown {
    offset: Offset,
    record: Box<RawValue>,
}

#[derive(Serialize)]
struct Missing {
    from: Offset,
    to: Offset,
    reason: &'static str,
}

#[derive(Default, Serialize)]
struct Records {
    records: Vec<Shown>,
    /// Offsets that are not there any more.
    missing: Vec<Missing>,
    /// What the next request says, if there is more.
    next: Option<Offset>,
    /// How far each chain was when it was last noted.
    chains: Vec<ChainHead>,
}

async fn list(call: Call) -> Result<Response, Rejection> {
    let limit = PageLimit { events: call.query.limit()?, bytes: PAGE_BYTES_MAX };
    let from = call.query.parsed::<u64>("from")?.map(Offset::new);
    let before = call.query.parsed::<u64>("before")?.map(Offset::new);
    if from.is_some() && before.is_some() {
        return Err(Rejection::new(Code::BadRequest, "give one of from and before"));
    }
    let store = call.edge.bus.store();
    // Before the records: what is noted here has to be among them.
    let mut answered = Records { chains: heads(&call).await?, ..Records::default() };
    let name = Topic::system(AUDIT_TOPIC).map_err(|_| Rejection::plain(Code::Internal))?;
    let topics = store.topics();
    let Some(lane) = topics.get(&name).and_then(|entry| entry.lanes().next()) else {
        return answer::json(200, &answered);
    };
    let bounds = store.bounds(lane).await?;
    let read = match from {
        Some(from) => Read::From { lane, from, limit },
        None => Read::Before { lane, before: before.unwrap_or(bounds.next), limit },
    };
    let page = match store.read(read).await {
        Ok(page) => page,
        Err(ReadError::BeyondEnd { .. }) => return answer::json(200, &answered),
        Err(error) => return Err(error.into()),
    };
    let Page { events, gaps, next } = page;
    let is_over = if from.is_some() { next >= bounds.next } else { next <= bounds.start };
    answered.next = (!is_over).then_some(next);
    answered.missing = gaps.into_iter().map(missing).collect();
    answered.records = events.iter().map(shown).collect::<Result<_, _>>()?;
    answer::json(200, &answered)
}

async fn heads(call: &Call) -> Result<Vec<ChainHead>, Rejection> {
    let entries = call.edge.bus.store().entries(HEADS).await?;
    let read = |entry: promethean::store::Entry| {
        let head: Head = entry.value.decode().map_err(|_| Rejection::plain(Code::Internal))?;
        Ok(ChainHead { chain: entry.key.as_str().to_owned(), n: head.n, sha256: head.sha256 })
    };
    entries.into_iter().map(read).collect()
}

fn shown(stored: &Stored) -> Result<Shown, Rejection> {
    let record = RawValue::from_string(stored.event.payload.as_str().to_owned());
    let record = record.map_err(|_| Rejection::plain(Code::Internal))?;
    Ok(Shown { offset: stored.event.offset, record })
}

fn missing(gap: Gap) -> Missing {
    let reason = match gap.reason {
        GapReason::Expired => "retention",
        GapReason::Compacted => "compaction",
        _ => "corrupt",
    };
    Missing { from: gap.from, to: gap.to, reason }
}
