//! Part 4: Partitions: a topic divided by key; in a `partitioned` group each partition has one owner at
//! a time, and moves when members come and go.
//!
//! `cargo run --example 4-partitions`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use promethean::event::{EventId, Key, NewEvent, PartitionCount, Payload, Timestamp, Topic};
use promethean::store::TopicDefinition;
use promethean::{Bus, Mode, Start};

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome {
    run().await
}

pub(crate) async fn run() -> Outcome {
    let bus = Bus::memory();
    let topic = Topic::new("sensor.read")?;
    let partitions = PartitionCount::new(4)?;
    bus.define(TopicDefinition { partitions, ..TopicDefinition::new(topic.clone()) }).await?;
    let mut consumers = Vec::new();
    for member in ["one", "two"] {
        let consumer = bus
            .subscribe_to(["sensor.read"], "plotter")
            .from(Start::Earliest)
            .mode(Mode::Partitioned)
            .handle(move |delivered| async move {
                let event = delivered.event();
                let key = event.key.as_ref().map_or("-", Key::as_str);
                println!("member {member}: {key} in partition {}", event.partition);
                Ok(())
            })
            .await?;
        consumers.push(consumer);
    }
    for number in 0..8 {
        let event = NewEvent::new(
            EventId::generate(),
            Timestamp::from_millis(0),
            topic.clone(),
            Payload::parse(number.to_string())?,
        )
        .with_key(Key::new(format!("sensor-{}", number % 4))?);
        bus.publish(event).await?;
    }
    bus.caught_up(&"plotter".parse()?).await?;
    for cursor in bus.cursors(&"plotter".parse()?).await? {
        println!("partition {} stands at {}", cursor.partition, cursor.next);
    }
    for consumer in consumers {
        consumer.stop().await?;
    }
    Ok(())
}
