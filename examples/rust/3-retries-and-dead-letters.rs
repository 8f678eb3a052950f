//! Part 3: Retries and dead letters: what fails is tried again, what keeps failing is set aside with its
//! history, and given back to the group that failed once the fault is mended.
//!
//! `cargo run --example 3-retries-and-dead-letters`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use promethean::event::{EventId, NewEvent, Payload, Timestamp, Topic};
use promethean::{Bus, DeadLetterQuery, Failure, ReplayDeadLetters, Start};

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome {
    run().await
}

pub(crate) async fn run() -> Outcome {
    let bus = Bus::memory();
    let mended = Arc::new(AtomicBool::new(false));
    let works = Arc::clone(&mended);
    let consumer = bus
        .subscribe_to(["mail.send"], "mailer")
        .from(Start::Earliest)
        .max_attempts(3)
        .backoff(Duration::from_millis(5), Duration::from_millis(20))
        .handle(move |delivered| {
            let works = works.load(Ordering::Relaxed);
            async move {
                println!(
                    "attempt {} of {}",
                    delivered.attempt(),
                    delivered.event().payload.as_str()
                );
                if works { Ok(()) } else { Err(Failure::retry("connection refused")) }
            }
        })
        .await?;
    let letter = NewEvent::new(
        EventId::generate(),
        Timestamp::from_millis(0),
        Topic::new("mail.send")?,
        Payload::parse(r#"{"to":"anna"}"#)?,
    );
    bus.publish(letter).await?;
    bus.caught_up(&"mailer".parse()?).await?;

    let query = DeadLetterQuery::waiting().group("mailer".parse()?);
    for dead in bus.dead_letters(&query).await? {
        let letter = &dead.letter;
        println!(
            "dead after {} attempts: {} (kind {})",
            letter.attempts, letter.err, letter.fingerprint
        );
    }
    mended.store(true, Ordering::Relaxed);
    let report = bus.replay_dead_letters(&ReplayDeadLetters::new(query.clone())).await?;
    println!("replayed {}", report.replayed.len());
    bus.caught_up(&"mailer".parse()?).await?;
    println!("still dead: {}", bus.dead_letters(&query).await?.len());
    consumer.stop().await?;
    Ok(())
}
