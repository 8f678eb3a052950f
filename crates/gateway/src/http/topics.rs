use std::num::NonZeroU64;

use axum::response::Response;
use futures_util::FutureExt;
use promethean::store::{Cleaning, Compaction, PageLimit, Read, TopicDefinition, TopicEntry};
use promethean::{Bus, TopicChangeError};
use promethean_event::{Offset, Partition, PartitionCount, Pattern, Timestamp, Topic};
use serde::{Deserialize, Serialize};

use super::answer;
use super::call::{Call, object};
use super::endpoint::{Endpoint, Guard, Verb};
use crate::access::Action;
use crate::limits::BODY_BYTES_MAX;
use crate::rejection::{Code, Rejection};

pub(super) const LIST: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/topics",
    guard: Guard::Server(Action::OpsRead),
    summary: "Topics: what they are, how much they hold, and when something last came.",
    query: &["topic"],
    act: |call| list(call).boxed(),
};

pub(super) const DEFINE: Endpoint = Endpoint {
    method: Verb::Post,
    path: "/topics/{topic}",
    guard: Guard::Server(Action::TopicAdmin),
    summary: "Makes a topic, or changes what may be removed from it. The number of partitions stays.",
    query: &[],
    act: |call| define(call).boxed(),
};

pub(super) const REMOVE: Endpoint = Endpoint {
    method: Verb::Delete,
    path: "/topics/{topic}",
    guard: Guard::Server(Action::TopicAdmin),
    summary: "Removes a topic with all its events.",
    query: &[],
    act: |call| remove(call).boxed(),
};

#[derive(Serialize)]
struct Topics {
    topics: Vec<Shown>,
}

#[derive(Serialize)]
struct Shown {
    topic: Topic,
    #[serde(flatten)]
    rules: Rules,
    /// Events between the ends of its partitions; compaction may have removed some of them.
    events: u64,
    /// When the newest event was taken; null if there is none.
    newest: Option<Timestamp>,
    bounds: Vec<Bounds>,
}

#[derive(Serialize)]
struct Bounds {
    partition: Partition,
    start: Offset,
    next: Offset,
}

/// What a topic is, besides its name. Absent: one partition, and nothing is removed.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    #[serde(default = "one")]
    partitions: u32,
    /// Events older than this go.
    #[serde(default)]
    retention_ms: Option<NonZeroU64>,
    /// The oldest events go while a partition has more than this.
    #[serde(default)]
    retention_bytes: Option<NonZeroU64>,
    /// Only the newest event of each key stays.
    #[serde(default)]
    compaction: Option<Compacted>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Compacted {
    #[serde(default)]
    age_ms_min: u64,
    #[serde(default)]
    tombstone_ms: u64,
}

const fn one() -> u32 {
    1
}

impl Rules {
    fn of(definition: &TopicDefinition) -> Self {
        let Cleaning { age_ms_max, bytes_max, compaction } = definition.cleaning;
        Self {
            partitions: definition.partitions.get(),
            retention_ms: age_ms_max.and_then(NonZeroU64::new),
            retention_bytes: bytes_max.and_then(NonZeroU64::new),
            compaction: compaction.map(|kept| Compacted {
                age_ms_min: kept.age_ms_min,
                tombstone_ms: kept.tombstone_ms,
            }),
        }
    }

    fn define(self, topic: Topic) -> Result<TopicDefinition, Rejection> {
        let partitions = PartitionCount::new(self.partitions)
            .map_err(|error| Rejection::new(Code::BadRequest, error.to_string()))?;
        let cleaning = Cleaning {
            age_ms_max: self.retention_ms.map(NonZeroU64::get),
            bytes_max: self.retention_bytes.map(NonZeroU64::get),
            compaction: self.compaction.map(|wish| Compaction {
                age_ms_min: wish.age_ms_min,
                tombstone_ms: wish.tombstone_ms,
            }),
        };
        Ok(TopicDefinition { partitions, cleaning, ..TopicDefinition::new(topic) })
    }
}

async fn shown(bus: &Bus, entry: &TopicEntry) -> Result<Shown, Rejection> {
    let store = bus.store();
    let mut bounds = Vec::new();
    let mut events = 0;
    let mut newest = None;
    for lane in entry.lanes() {
        let ends = store.bounds(lane).await?;
        events += ends.next.get().saturating_sub(ends.start.get());
        let limit = PageLimit { events: 1, bytes: 1 };
        let page = store.read(Read::Before { lane, before: ends.next, limit }).await?;
        newest = newest.max(page.events.first().map(|stored| stored.appended_at));
        bounds.push(Bounds { partition: lane.partition, start: ends.start, next: ends.next });
    }
    let rules = Rules::of(&entry.definition);
    Ok(Shown { topic: entry.definition.topic.clone(), rules, events, newest, bounds })
}

async fn list(call: Call) -> Result<Response, Rejection> {
    let pattern: Option<Pattern> = call.query.parsed("topic")?;
    let bus = &call.edge.bus;
    let table = bus.topics();
    let mut topics = Vec::new();
    for entry in table.users() {
        if pattern.as_ref().is_none_or(|pattern| pattern.matches(&entry.definition.topic)) {
            topics.push(shown(bus, entry).await?);
        }
    }
    answer::json(200, &Topics { topics })
}

async fn define(mut call: Call) -> Result<Response, Rejection> {
    let topic: Topic = call.param("topic")?;
    let body = call.body(BODY_BYTES_MAX).await?;
    let rules: Rules =
        object(&body).map_err(|error| Rejection::new(Code::BadRequest, error.to_string()))?;
    let bus = &call.edge.bus;
    tracing::info!(%topic, subject = call.principal.subject(), "a topic is defined");
    let entry = bus.define(rules.define(topic)?).await.map_err(refused)?;
    answer::json(200, &shown(bus, &entry).await?)
}

async fn remove(call: Call) -> Result<Response, Rejection> {
    let topic: Topic = call.param("topic")?;
    tracing::info!(%topic, subject = call.principal.subject(), "a topic is removed");
    call.edge.bus.remove_topic(&topic).await.map_err(refused)?;
    answer::json(200, &serde_json::json!({ "removed": topic }))
}

fn refused(error: TopicChangeError) -> Rejection {
    match error {
        TopicChangeError::System(_) => Rejection::plain(Code::Forbidden),
        TopicChangeError::Unknown(_) => Rejection::new(Code::NotFound, error.to_string()),
        TopicChangeError::Save(error) => error.into(),
        _ => Rejection::plain(Code::Internal),
    }
}
