use promethean::Bus;
use promethean::projection::{Field, View};
use promethean_event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};

/// Events that are published, and upserted, together.
pub(super) const BATCH: usize = 4_096;
pub(super) const TOPIC: &str = "process.state";

/// The key of an event: spread, the same in every run.
pub(super) fn key(n: usize, keys: usize) -> String {
    let spread = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    format!("process:{}", spread % keys as u64)
}

pub(super) fn document(n: usize) -> String {
    let filler = "x".repeat(120);
    format!(
        r#"{{"host":"host-{}","name":"worker","pid":{n},"status":"alive","cpu_pct":1.5,"note":"{filler}"}}"#,
        n % 100
    )
}

pub(super) fn view(name: &str) -> View {
    View::new(name).field(Field::text("host")).field(Field::text("status")).index(["host"])
}

pub(super) fn event(key: &str, n: usize) -> anyhow::Result<NewEvent> {
    let payload = Payload::parse(document(n))?;
    let ts = Timestamp::from_millis(n as u64);
    let event = NewEvent::new(EventId::generate(), ts, Topic::new(TOPIC)?, payload);
    Ok(event.with_key(Key::new(key)?))
}

/// Publishes events from one number to another.
pub(super) async fn publish(
    bus: &Bus,
    numbers: std::ops::Range<usize>,
    keys: usize,
) -> anyhow::Result<()> {
    let mut from = numbers.start;
    while from < numbers.end {
        let to = (from + BATCH).min(numbers.end);
        let events = (from..to).map(|n| event(&key(n, keys), n)).collect::<Result<_, _>>()?;
        bus.publish_batch(events).await?;
        from = to;
    }
    Ok(())
}
