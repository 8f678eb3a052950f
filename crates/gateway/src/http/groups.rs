use axum::response::Response;
use futures_util::FutureExt;
use promethean::member::MemberOptions;
use promethean::{GroupLag, GroupSettings, Move, Start};
use promethean_event::{Cursor, EventId, GroupName, Offset, Partition, Pattern, Topic};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::answer;
use super::call::{Call, object};
use super::endpoint::{Endpoint, Guard, Verb};
use super::time;
use crate::access::Action;
use crate::audit::About;
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

pub(super) const SHOW: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/groups/{group}",
    guard: Guard::Server(Action::OpsRead),
    summary: "How a group delivers, and how far it is behind.",
    query: &[],
    act: |call| show(call).boxed(),
};

pub(super) const DEFINE: Endpoint = Endpoint {
    method: Verb::Post,
    path: "/groups/{group}",
    guard: Guard::Server(Action::CursorSet),
    summary: "Makes a group, or gives one without members other settings.",
    query: &[],
    act: |call| define(call).boxed(),
};

pub(super) const REMOVE: Endpoint = Endpoint {
    method: Verb::Delete,
    path: "/groups/{group}",
    guard: Guard::Server(Action::CursorSet),
    summary: "Forgets a group that has no members.",
    query: &[],
    act: |call| remove(call).boxed(),
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

#[derive(Serialize)]
struct Shown {
    settings: GroupSettings,
    #[serde(flatten)]
    lag: Lag,
}

async fn show(call: Call) -> Result<Response, Rejection> {
    let group: GroupName = call.param("group")?;
    let bus = &call.edge.bus;
    let settings = bus.group_settings(&group).await?;
    answer::json(200, &Shown { settings, lag: bus.lag(&group).await?.into() })
}

/// What a group is to be.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Definition {
    settings: Box<RawValue>,
    /// Where it begins if it is new.
    #[serde(default)]
    from: Beginning,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Beginning {
    #[default]
    Latest,
    Earliest,
}

/// A setting that there is not would otherwise be passed over: stores may hold those of a later
/// version, people misspell.
fn refuse_unknown(settings: &RawValue) -> Result<(), Rejection> {
    let bad = |detail: String| Rejection::new(Code::BadRequest, detail);
    let named: Map<String, Value> =
        object(settings.get().as_bytes()).map_err(|error| bad(error.to_string()))?;
    let known = serde_json::to_value(GroupSettings::default());
    let known = known.map_err(|_| Rejection::plain(Code::Internal))?;
    let unknown = named.keys().find(|name| known.get(name.as_str()).is_none());
    let Some(unknown) = unknown else {
        return Ok(());
    };
    let known: Vec<&str> =
        known.as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
    let unknown: String = unknown.chars().take(64).collect();
    Err(bad(format!("there is no setting {unknown:?}; there are: {}", known.join(", "))))
}

async fn define(mut call: Call) -> Result<Response, Rejection> {
    let group: GroupName = call.param("group")?;
    let body = call.body(BODY_BYTES_MAX).await?;
    let bad = |error: serde_json::Error| Rejection::new(Code::BadRequest, error.to_string());
    let wish: Definition = object(&body).map_err(bad)?;
    refuse_unknown(&wish.settings)?;
    let settings: GroupSettings = object(wish.settings.get().as_bytes()).map_err(bad)?;
    let from = match wish.from {
        Beginning::Latest => Start::Latest,
        Beginning::Earliest => Start::Earliest,
    };
    tracing::info!(%group, subject = call.principal.subject(), "a group is defined");
    // A group is made by its first member, who need not stay.
    let bus = &call.edge.bus;
    drop(bus.join(&group, settings, from, MemberOptions::default()).await?);
    let settings = bus.group_settings(&group).await?;
    answer::json(200, &Shown { settings, lag: bus.lag(&group).await?.into() })
}

async fn remove(call: Call) -> Result<Response, Rejection> {
    let group: GroupName = call.param("group")?;
    tracing::info!(%group, subject = call.principal.subject(), "a group is removed");
    call.edge.bus.remove_group(&group).await?;
    answer::json(200, &serde_json::json!({ "removed": group }))
}

/// Where to move a group.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    #[serde(default = "every_topic")]
    topics: Pattern,
    /// With an offset: the one partition that is meant.
    #[serde(default)]
    partition: Option<Partition>,
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
    /// Epoch milliseconds, or as people write it.
    Ts(Value),
    AfterId(EventId),
    Offset(Offset),
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
    let wish: Wish =
        object(&body).map_err(|error| Rejection::new(Code::BadRequest, error.to_string()))?;
    let to = match wish.to {
        Goal::Earliest => Start::Earliest,
        Goal::Latest => Start::Latest,
        Goal::Ts(ref at) => Start::At(time::value(&call, "ts", at)?),
        Goal::AfterId(id) => Start::AfterId(id),
        Goal::Offset(next) => return seek_exactly(&call, &group, &wish, next).await,
    };
    let bus = &call.edge.bus;
    let moves = if wish.apply {
        tracing::info!(%group, subject = call.principal.subject(), "a group is moved");
        bus.seek(&group, &wish.topics, to).await?
    } else {
        bus.plan_seek(&group, &wish.topics, to).await?
    };
    let moves = moves.into_iter().map(Moved::from).collect();
    moved_answer(&Moves { applied: wish.apply, moves })
}

/// What was moved, or would be; the audit log is told which.
fn moved_answer(moves: &Moves) -> Result<Response, Rejection> {
    let mut response = answer::json(200, moves)?;
    response.extensions_mut().insert(About(serde_json::json!({ "applied": moves.applied })));
    Ok(response)
}

/// Moves a group in one partition to an offset.
async fn seek_exactly(
    call: &Call,
    group: &GroupName,
    wish: &Wish,
    next: Offset,
) -> Result<Response, Rejection> {
    let needs = || {
        let detail = "an offset needs one topic in \"topics\" and a \"partition\"";
        Rejection::new(Code::BadRequest, detail)
    };
    let topic = wish.topics.as_topic().ok_or_else(needs)?;
    let partition = wish.partition.ok_or_else(needs)?;
    let bus = &call.edge.bus;
    let moved = if wish.apply {
        tracing::info!(%group, subject = call.principal.subject(), "a group is moved");
        bus.set_cursor(group, &Cursor { topic, partition, next }).await?.into()
    } else {
        let cursors = bus.get_cursor(&topic, group).await?;
        let cursor = cursors.into_iter().find(|cursor| cursor.partition == partition);
        let from = cursor.ok_or(Rejection::plain(Code::NotFound))?.next;
        let again = from.get() as i64 - next.get() as i64;
        Moved { topic, partition, from, to: next, again }
    };
    moved_answer(&Moves { applied: wish.apply, moves: vec![moved] })
}
