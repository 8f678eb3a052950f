//! Part 5: Outbox: an event is published if, and only if, your own transaction commits.
//!
//! `cargo run --example 5-outbox`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use promethean::event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
use promethean::outbox::{DrainOptions, Drainer, Outbox};
use promethean::{Bus, Start};
use rusqlite::Connection;

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome {
    run().await
}

pub(crate) async fn run() -> Outcome {
    let bus = Bus::memory();
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.db");
    let mut shop = Connection::open(&path)?;
    shop.execute_batch("CREATE TABLE orders (number INTEGER PRIMARY KEY, total INTEGER)")?;
    let outbox = Outbox::install(&shop)?;
    let drainer = Drainer::new(&outbox, path.as_path(), bus.clone(), DrainOptions::default())?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let draining = tokio::spawn(drainer.run(async { drop(stopped.await) }));

    for (number, commits) in [(1, true), (2, false), (3, true)] {
        let transaction = shop.transaction()?;
        transaction.execute("INSERT INTO orders VALUES (?1, 100)", [number])?;
        let placed = NewEvent::new(
            EventId::generate(),
            Timestamp::from_millis(0),
            Topic::new("order.placed")?,
            Payload::parse(format!(r#"{{"number":{number}}}"#))?,
        );
        outbox.add(&transaction, &placed.with_key(Key::new(number.to_string())?))?;
        if commits {
            outbox.commit(transaction)?;
        } else {
            transaction.rollback()?;
            println!("order {number} was rolled back, and its event with it");
        }
    }
    let mut events =
        bus.subscribe_to(["order.placed"], "packing").from(Start::Earliest).stream().await?;
    for _ in 0..2 {
        let Some(delivered) = events.next().await else { break };
        let delivered = delivered?;
        println!("to pack: {}", delivered.event().payload.as_str());
        delivered.ack().await?;
    }
    drop(stop);
    println!("the outbox has published {}", draining.await?.sent);
    Ok(())
}
