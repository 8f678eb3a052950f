use axum::response::Response;
use futures_util::FutureExt;
use promethean::Published;
use promethean_event::{EventId, Offset, Partition, Topic};
use serde::Serialize;
use tokio::time::timeout;

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use super::time;
use crate::access::Action;
use crate::edge::weaker;
use crate::intake::{self, Described, Form};
use crate::rejection::{Code, Rejection};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Post,
    path: "/publish/{topic}",
    guard: Guard::Topics(Action::Publish),
    summary: "Stores events: all of them or none. Answered when they are durable, or as durable as \
              their topic asks for.",
    query: &["key", "id", "ts"],
    act: |call| publish(call).boxed(),
};

/// Where a published event stands.
#[derive(Serialize)]
struct Receipt {
    id: EventId,
    partition: Partition,
    offset: Offset,
    duplicate: bool,
    /// How far it had travelled, where its topic asks for less than a disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<&'static str>,
}

#[derive(Serialize)]
struct Receipts {
    events: Vec<Receipt>,
}

impl From<&Published> for Receipt {
    fn from(published: &Published) -> Self {
        let &Published { id, partition, offset, duplicate, durability, .. } = published;
        Self { id, partition, offset, duplicate, durability: weaker(durability) }
    }
}

async fn publish(mut call: Call) -> Result<Response, Rejection> {
    let topic: Topic = call.param("topic")?;
    call.authorize(Action::Publish, &topic, None)?;
    let form = Form::of(&call.head.headers)?;
    let described = Described {
        id: call.query.parsed("id")?,
        ts: time::parameter(&call, "ts")?,
        key: call.query.parsed("key")?,
        ..Described::default()
    };
    let body = call.body(form.body_bytes_max()).await?;
    let request = intake::Request {
        topic: &topic,
        subject: call.principal.subject(),
        described,
        headers: &call.head.headers,
        now: call.edge.clock.now(),
    };
    let mut intake = intake::read(&request, form, &body)?;
    intake::name_events(&mut intake);
    let topics = intake.events.iter().map(|event| &event.topic);
    call.edge.admit(&call.principal, &mut call.peer.buckets().published, topics)?;

    let begun = call.edge.clock.elapsed();
    let batch = intake.batch;
    let ids: Vec<EventId> = intake.events.iter().map(|event| event.id).collect();
    let options = call.edge.publish_options(intake.events.iter().map(|event| &event.topic));
    // What the store does not answer goes on there: it is not taken back.
    let published = call.edge.bus.publish_with(intake.events, options);
    let published = timeout(call.edge.settings.bounds.publish, published).await;
    let published = match published {
        Ok(published) => published.map_err(Rejection::from),
        Err(_) => Err(Rejection::indeterminate()),
    };
    let published = published.map_err(|refusal| match refusal.code {
        // The same ids are needed to publish again.
        Code::Indeterminate => refusal.with("ids", &ids),
        _ => refusal,
    })?;
    call.edge.metrics.publishing.record(call.edge.clock.elapsed().saturating_sub(begun));
    call.edge.count_published(published.iter().map(|one| &one.topic));

    let mut receipts: Vec<Receipt> = published.iter().map(Receipt::from).collect();
    match receipts.pop() {
        Some(one) if !batch => answer::json(if one.duplicate { 200 } else { 201 }, &one),
        last => {
            receipts.extend(last);
            answer::json(201, &Receipts { events: receipts })
        }
    }
}
