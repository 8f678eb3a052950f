//! Part 6: Typed topics: a type is a topic; no strings where events are published and consumed.
//!
//! `cargo run --example 6-typed-topics`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use promethean::{Bus, Failure, Start};
use serde::{Deserialize, Serialize};

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[derive(Debug, Serialize, Deserialize)]
struct Heartbeat {
    host: String,
    pid: u32,
    cpu_pct: f64,
}

promethean::topic! {
    Heartbeat => "heartbeat.received", version = 1,
    key = |beat| format!("{}:{}", beat.host, beat.pid)
}

#[tokio::main]
async fn main() -> Outcome {
    run().await
}

pub(crate) async fn run() -> Outcome {
    let bus = Bus::memory();
    let consumer = bus
        .subscribe::<Heartbeat>("ops")
        .from(Start::Earliest)
        .handle(|delivered| async move {
            // What is no heartbeat is a dead letter at once: trying again is useless.
            let beat = delivered.payload().map_err(Failure::park)?;
            println!("{} runs at {} %", beat.host, beat.cpu_pct);
            Ok(())
        })
        .await?;
    for pid in 0..3 {
        let beat = Heartbeat { host: format!("host-{pid}"), pid, cpu_pct: 12.5 };
        bus.publish(&beat).tag("#example").await?;
    }
    bus.caught_up(&"ops".parse()?).await?;
    consumer.stop().await?;
    Ok(())
}
