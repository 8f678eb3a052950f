mod bounds;
mod names;
mod run;
mod spans;
mod text;

use promethean::Bus;
use promethean::event::{EventId, NewEvent, Payload, Timestamp, Topic};

fn event(topic: &str) -> NewEvent {
    let topic = Topic::new(topic).unwrap();
    NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic, Payload::null())
}

async fn scrape(bus: &Bus) -> text::Scrape {
    text::Scrape::parse(&bus.metrics().encode().await)
}
