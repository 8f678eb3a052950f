//! Part 2: Groups: each group gets every event; members of a group share them. Events of a key stay in
//! order, whoever handles them.
//!
//! `cargo run --example 2-groups`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use promethean::event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
use promethean::{Bus, Start};

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome {
    run().await
}

pub(crate) async fn run() -> Outcome {
    let bus = Bus::memory();
    let mut consumers = Vec::new();
    for (group, member) in [("billing", "a"), ("billing", "b"), ("audit", "c")] {
        let consumer = bus
            .subscribe_to(["order.placed"], group)
            .from(Start::Earliest)
            .batch_size(2)
            .handle(move |delivered| async move {
                let event = delivered.event();
                let key = event.key.as_ref().map_or("-", Key::as_str);
                println!("{group}/{member}: order {} of {key}", event.payload.as_str());
                Ok(())
            })
            .await?;
        consumers.push(consumer);
    }
    for number in 1..=6 {
        let event = NewEvent::new(
            EventId::generate(),
            Timestamp::from_millis(0),
            Topic::new("order.placed")?,
            Payload::parse(number.to_string())?,
        )
        .with_key(Key::new(if number % 2 == 0 { "anna" } else { "ben" })?);
        bus.publish(event).await?;
    }
    for group in ["billing", "audit"] {
        bus.caught_up(&group.parse()?).await?;
        let lag = bus.lag(&group.parse()?).await?;
        println!("{group} has {} members and {} events to go", lag.members, lag.events());
    }
    for consumer in consumers {
        consumer.stop().await?;
    }
    Ok(())
}
