//! Publishes in every way: `bus.publish("IN A DOC COMMENT", ())`.
mod topics;

pub mod local {
    pub const NAME: &str = "local.name";
    pub mod deep {
        pub const NAME: &str = "local.deep";
    }
}

use crate::topics::{HEARTBEAT, Kind, Kind as K, old::RETIRED};
use topics::*;

const PREFIX: &str = "process";
static STATIC: &str = "static.name";

#[derive(Event)]
#[event(topic = "heartbeat.received", version = 1, key = "{host}")] // @define heartbeat.received
pub struct Heartbeat {
    host: String,
}

pub struct Traced;
impl Event for Traced {
    const TOPIC: &'static str = "traced.event";
}

define_topic!(CpuHigh, "cpu.high"); // @define cpu.high
define_topic! {
    Placed => "order.placed", // @define order.placed
    Paid => "order.paid", // @define order.paid
}

async fn publishes(bus: &Bus) -> Result<(), Error> {
    bus.publish("heartbeat.received", ()).await?; // @publish heartbeat.received
    bus.publish(r#"raw.name"#, ()).await?; // @publish raw.name
    bus.publish(HEARTBEAT, ()).await?; // @publish heartbeat.received
    bus.publish(STATIC, ()).await?; // @publish static.name
    bus.publish(local::NAME, ()).await?; // @publish local.name
    bus.publish(crate::local::deep::NAME, ()).await?; // @publish local.deep
    bus.publish(topics::HEARTBEAT, ()).await?; // @publish heartbeat.received
    bus.publish(RETIRED, ()).await?; // @publish old.retired
    bus.publish(crate::topics::old::RETIRED, ()).await?; // @publish old.retired
    bus.publish(GLOBBED, ()).await?; // @publish globbed.name
    bus.publish(Kind::Started.as_str(), ()).await?; // @publish kind.started
    bus.publish(K::Stopped, ()).await?; // @publish kind.stopped
    bus.publish(Renamed::Wire, ()).await?; // @publish renamed.wire
    bus.publish(&format!("{PREFIX}.started"), ()).await?; // @publish process.started
    bus.publish(&format!("{}.{}", PREFIX, "ended"), ()).await?; // @publish process.ended
    bus.publish(concat!("process", ".", "joined"), ()).await?; // @publish process.joined
    bus.publish(PREFIX.to_owned() + ".added", ()).await?; // @publish process.added
    bus.publish(Topic::new("topic.wrapped")?, ()).await?; // @publish topic.wrapped
    bus.publish(String::from("topic.owned"), ()).await?; // @publish topic.owned
    bus.publish("topic.into".into(), ()).await?; // @publish topic.into
    bus.publish(Heartbeat { host: String::new() }).tag("#a").await?; // @publish heartbeat.received
    bus.publish(Traced).await?; // @publish traced.event
    bus.publish(Traced::TOPIC, ()).await?; // @publish traced.event
    bus.publish::<Heartbeat>("typed.literal", ()).await?; // @publish typed.literal
    bus.publish(CpuHigh, ()).header("x-good", "1").header("Bad-Header", "2").await?; // @publish cpu.high
    bus.publish(named("made"), ()).await?; // @publish named.made
    let topic = if cfg!(unix) { "os.unix" } else { "os.other" };
    bus.publish(topic, ()).await?; // @publish os.unix @publish os.other
    send(bus, "wrapped.rust").await?; // @publish wrapped.rust
    publish!(bus, "macro.literal", ()); // @publish macro.literal
    publish!(bus, topics::HEARTBEAT, ()); // @publish heartbeat.received
    tokio::select! {
        _ = bus.publish("macro.inside", ()) => {} // @publish macro.inside
        _ = other() => assert!(bus.subscribe("macro.nested", "g").is_ok()), // @subscribe macro.nested
    }
    Ok(())
}

fn named(what: &str) -> String {
    format!("named.{what}")
}

async fn send(bus: &Bus, topic: &str) -> Result<(), Error> {
    bus.publish(topic, ()).await
}

async fn reads(bus: &Bus) {
    let mut stream = bus.consume::<Heartbeat>("ops").from(Start::Earliest).stream().await; // @subscribe heartbeat.received
    bus.subscribe("process.**", "ops"); // @subscribe process.**
    bus.subscribe::<serde_json::Value>(Kind::Started.as_str(), "ops"); // @subscribe kind.started
    bus.tail(&[HEARTBEAT, "order.placed"]); // @subscribe heartbeat.received @subscribe order.placed
    subscribe!(bus, "macro.read", "ops"); // @subscribe macro.read
    let unknown = std::env::var("TOPIC").unwrap();
    bus.subscribe(&unknown, "ops"); // @subscribe ?
    let text = "bus.publish(\"IN A STRING\", ())";
    // bus.publish("IN A COMMENT", ());
    println!("publish({})", "IN A MACRO STRING");
    iterator.stream(5);
}
