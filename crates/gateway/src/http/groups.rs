use axum::response::Response;
use futures_util::FutureExt;
use promethean::{GroupLag, Move, Start};
use promethean_event::{Cursor, EventId, GroupName, Offset, Partition, Pattern, Timestamp, Topic};
use serde::{Deserialize, Serialize};

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use crate::access::Action;
use crate::limits::BODY_BYTES_MAX;
use crate::rejection::{Code, Rejection};

pub(super) const CURSORS: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/cursors",
    guard: Guard::Server(Action::OpsRead),
    summary: "How far a group has come, by topic and partition.",
    query: &["group"],
    act: |call| cursors(call).boxed(),
};

pub(super) const LAG: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/lag",
    guard: Guard::Server(Action::OpsRead),
    summary: "How far a group, or every group, is behind: in events and in time.",
    query: &["group"],
    act: |call| lag(call).boxed(),
};

pub(super) const SEEK: Endpoint = Endpoint {
    method: Verb::Post,
    path: "/groups/{group}/seek",
    guard: Guard::Server(Action::CursorSet),
    summary: "Says where a group would be moved, and moves it if the body says apply.",
    query: &[],
    act: |call| seek(call).boxed(),
};

#[derive(Serialize)]
struct Cursors {
    group: GroupName,
    cursors: Vec<Cursor>,
}

async fn cursors(call: Call) -> Result<Response, Rejection> {
    let group: GroupName = call.query.needed("group")?;
    let cursors = call.edge.bus.cursors(&group).await?;
    answer::json(200, &Cursors { group, cursors })
}

#[derive(Serialize)]
struct Lags {
    groups: Vec<Lag>,
}

#[derive(Serialize)]
struct Lag {
    group: GroupName,
    members: usize,
    events: u64,
    age_ms: u64,
    partitions: Vec<LaneLag>,
}

#[derive(Serialize)]
struct LaneLag {
    topic: Topic,
    partition: Partition,
    cursor: Offset,
    end: Offset,
    events: u64,
    out: u64,
    holes: u64,
    parked: u64,
    age_ms: u64,
}

impl From<GroupLag> for Lag {
    fn from(lag: GroupLag) -> Self {
        let (events, age_ms) = (lag.events(), lag.age_ms());
        let partitions = lag.partitions.into_iter().map(|part| LaneLag {
            topic: part.topic,
            partition: part.partition,
            cursor: part.cursor,
            end: part.end,
            events: part.events,
            out: part.out,
            holes: part.holes,
            parked: part.parked,
            age_ms: part.age_ms,
        });
        let partitions = partitions.collect();
        Self { group: lag.group, members: lag.members, events, age_ms, partitions }
    }
}

async fn lag(call: Call) -> Result<Response, Rejection> {
    let bus = &call.edge.bus;
    let names = match call.query.parsed::<GroupName>("group")? {
        Some(group) => vec![group],
        None => bus.groups().await?,
    };
    let mut groups = Vec::with_capacity(names.len());
    for name in names {
        groups.push(bus.lag(&name).await?.into());
    }
    answer::json(200, &Lags { groups })
}

/// Where to move a group.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    #[serde(default = "every_topic")]
    topics: Pattern,
    to: Goal,
    /// Without it, nothing is moved.
    #[serde(default)]
    apply: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Goal {
    Earliest,
    Latest,
    Ts(Timestamp),
    AfterId(EventId),
}

#[expect(clippy::expect_used, reason = "the pattern is written down here, and is one")]
fn every_topic() -> Pattern {
    Pattern::new("**").expect("** is a pattern")
}

#[derive(Serialize)]
struct Moves {
    applied: bool,
    moves: Vec<Moved>,
}

#[derive(Serialize)]
struct Moved {
    topic: Topic,
    partition: Partition,
    from: Offset,
    to: Offset,
    /// Events that come again; negative: that are passed over.
    again: i64,
}

impl From<Move> for Moved {
    fn from(planned: Move) -> Self {
        let again = planned.again();
        let Move { topic, partition, from, to, .. } = planned;
        Self { topic, partition, from, to, again }
    }
}

async fn seek(mut call: Call) -> Result<Response, Rejection> {
    let group: GroupName = call.param("group")?;
    let body = call.body(BODY_BYTES_MAX).await?;
    let wish: Wish = serde_json::from_slice(&body)
        .map_err(|error| Rejection::new(Code::BadRequest, error.to_string()))?;
    let to = match wish.to {
        Goal::Earliest => Start::Earliest,
        Goal::Latest => Start::Latest,
        Goal::Ts(time) => Start::At(time),
        Goal::AfterId(id) => Start::AfterId(id),
    };
    let bus = &call.edge.bus;
    let moves = if wish.apply {
        tracing::info!(%group, subject = call.principal.subject(), "a group is moved");
        bus.seek(&group, &wish.topics, to).await?
    } else {
        bus.plan_seek(&group, &wish.topics, to).await?
    };
    let moves = moves.into_iter().map(Moved::from).collect();
    answer::json(200, &Moves { applied: wish.apply, moves })
}
