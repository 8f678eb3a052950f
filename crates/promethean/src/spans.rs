//! Spans with the attribute names of OpenTelemetry's messaging conventions. At debug level: where
//! nobody listens they are not made. They name events, never keys, headers or payloads.

use promethean_event::{Event, GroupName, NewEvent, Topic};
use tracing::Span;

const SYSTEM: &str = "promethean";

/// Around a publish, from the call to the answer.
pub(crate) fn publish(events: &[NewEvent]) -> Span {
    tracing::debug_span!(
        target: "promethean",
        "publish",
        otel.kind = "producer",
        messaging.system = SYSTEM,
        messaging.operation.name = "publish",
        "messaging.operation.type" = "send",
        messaging.destination.name = one_topic(events).map(Topic::as_str),
        messaging.message.id = only(events).map(|event| tracing::field::display(&event.id)),
        messaging.batch.message_count = batch_size(events),
    )
}

/// Whether anybody listens.
pub(crate) fn are_made() -> bool {
    tracing::span_enabled!(target: "promethean", tracing::Level::DEBUG)
}

/// Around the work on one event.
pub(crate) fn process(event: &Event, group: &GroupName, attempt: u16) -> Span {
    tracing::debug_span!(
        target: "promethean",
        "process",
        otel.kind = "consumer",
        messaging.system = SYSTEM,
        messaging.operation.name = "process",
        "messaging.operation.type" = "process",
        messaging.destination.name = event.topic.as_str(),
        messaging.destination.partition.id = event.partition.get(),
        messaging.consumer.group.name = group.as_str(),
        messaging.message.id = %event.id,
        messaging.promethean.offset = event.offset.get(),
        messaging.promethean.attempt = attempt,
    )
}

/// The topic, if they are all of one.
fn one_topic(events: &[NewEvent]) -> Option<&Topic> {
    let first = &events.first()?.topic;
    events.iter().all(|event| event.topic == *first).then_some(first)
}

fn only(events: &[NewEvent]) -> Option<&NewEvent> {
    events.first().filter(|_| events.len() == 1)
}

fn batch_size(events: &[NewEvent]) -> Option<u64> {
    (events.len() > 1).then_some(events.len() as u64)
}
