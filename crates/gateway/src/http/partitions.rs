use axum::response::Response;
use futures_util::FutureExt;
use promethean_event::{Offset, Partition, Topic};
use serde::Serialize;

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use crate::access::Action;
use crate::rejection::Rejection;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/ops/partitions",
    guard: Guard::Server(Action::OpsRead),
    summary: "Every partition of every topic: where it starts and where it ends.",
    query: &[],
    act: |call| partitions(call).boxed(),
};

#[derive(Serialize)]
struct Partitions {
    partitions: Vec<Bounds>,
}

#[derive(Serialize)]
struct Bounds {
    topic: Topic,
    partition: Partition,
    start: Offset,
    next: Offset,
}

async fn partitions(call: Call) -> Result<Response, Rejection> {
    let topics = call.edge.bus.topics();
    let mut partitions = Vec::new();
    for entry in topics.users() {
        for lane in entry.lanes() {
            let bounds = call.edge.bus.store().bounds(lane).await?;
            partitions.push(Bounds {
                topic: entry.definition.topic.clone(),
                partition: lane.partition,
                start: bounds.start,
                next: bounds.next,
            });
        }
    }
    answer::json(200, &Partitions { partitions })
}
