use super::compare::{Comparison, take_turns};
use super::payloads::Payloads;
use super::process::Field;
use super::seam::{Hub, Publisher};
use crate::command::bench::measure::{rate, timed};

/// How publishing is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) name: &'static str,
    /// Most events without an answer.
    pub(super) window: usize,
    /// Events that go together, where the protocol has a word for it.
    pub(super) batch: usize,
    pub(super) events: usize,
}

/// One connection publishes and waits for its answers.
pub(super) fn measure(field: &Field, rounds: usize, way: Way) -> anyhow::Result<Comparison> {
    let payloads = Payloads::new();
    let rounds = take_turns(&field.hubs, rounds, |hub, round| {
        let topic = format!("{}.{round}", way.name);
        hub.make(&topic)?;
        let mut publisher = hub.publisher(&topic, way.batch)?;
        // One that syncs for each event is a hundred times slower.
        let events = if hub.name() == "jetstream synced" { way.events / 20 } else { way.events };
        let (done, time) = timed(|| publish(publisher.as_mut(), &payloads, events, way.window));
        done?;
        Ok(Some(rate(events, time)))
    })?;
    Ok(Comparison::of("acked/s", rounds))
}

/// Publishes so many events, with a bound on how many wait for their answers.
pub(super) fn publish(
    publisher: &mut dyn Publisher,
    payloads: &Payloads,
    events: usize,
    window: usize,
) -> anyhow::Result<()> {
    let (mut sent, mut answered) = (0, 0);
    while answered < events {
        let due = events.min(answered + window);
        if sent < due {
            for number in sent..due {
                publisher.put(payloads.get(number));
            }
            sent = due;
            publisher.flush()?;
        }
        answered += publisher.answered()?;
    }
    Ok(())
}

/// Stores events, as fast as it goes.
pub(super) fn store(hub: &dyn Hub, topic: &str, events: usize) -> anyhow::Result<()> {
    hub.make(topic)?;
    publish(hub.publisher(topic, 100)?.as_mut(), &Payloads::new(), events, 4_000)
}
