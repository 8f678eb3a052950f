//! Part 1: Publish and consume: an event that was acknowledged is on disk, and a group gets it.
//!
//! `cargo run --example 1-publish-and-consume`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use promethean::event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
use promethean::{Bus, Start};

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome {
    run().await
}

pub(crate) async fn run() -> Outcome {
    // Everything is in this folder; open it again and it is all still there.
    let folder = tempfile::tempdir()?;
    let bus = Bus::open(folder.path()).await?;

    for pid in 1..=3 {
        let event = NewEvent::new(
            EventId::generate(),
            Timestamp::from_millis(1_700_000_000_000),
            Topic::new("heartbeat.received")?,
            Payload::parse(format!(r#"{{"host":"dev","pid":{pid}}}"#))?,
        )
        .with_key(Key::from_parts(["dev", &pid.to_string()])?);
        let published = bus.publish(event).await?;
        println!("published {} at offset {}", published.id, published.offset);
    }

    let mut events =
        bus.subscribe_to(["heartbeat.*"], "ops").from(Start::Earliest).stream().await?;
    for _ in 0..3 {
        let Some(delivered) = events.next().await else { break };
        let delivered = delivered?;
        let event = delivered.event();
        println!("got {} from {} at offset {}", event.payload.as_str(), event.topic, event.offset);
        // Until this returns the event is ours; afterwards it is done, whatever happens.
        delivered.ack().await?;
    }
    drop(events);
    for cursor in bus.cursors(&"ops".parse()?).await? {
        println!("the group stands at offset {} of {}", cursor.next, cursor.topic);
    }
    bus.close().await;
    Ok(())
}
