mod bounds;
mod names;
mod run;
mod spans;
mod text;

use promethean::Bus;
use promethean::event::{EventId, NewEvent, Payload, Timestamp, Topic};
use promethean::store::TopicDefinition;

fn event(topic: &str) -> NewEvent {
    let topic = Topic::new(topic).unwrap();
    NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic, Payload::null())
}

/// A bus with a topic.
async fn bus_with(topic: &str) -> Bus {
    let bus = Bus::memory();
    bus.define(TopicDefinition::new(Topic::new(topic).unwrap())).await.unwrap();
    bus
}

async fn scrape(bus: &Bus) -> text::Scrape {
    text::Scrape::parse(&bus.metrics().encode().await)
}
