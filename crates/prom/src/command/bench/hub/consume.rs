use super::compare::{Comparison, take_turns};
use super::payloads::Payloads;
use super::process::Field;
use super::publish::{publish, store};
use super::seam::{Consumer, Hub};
use crate::command::bench::measure::{rate, timed};

/// Groups of the measurement with many.
const GROUPS: usize = 10;

/// A new group takes what is stored, and acks each event; until the last ack is done.
pub(super) fn stored(field: &Field, rounds: usize, events: usize) -> anyhow::Result<Comparison> {
    let hubs: Vec<&dyn Hub> = field.hubs.iter().map(AsRef::as_ref).collect();
    let compared: Vec<&dyn Hub> =
        hubs.into_iter().filter(|hub| hub.name() != "jetstream synced").collect();
    for hub in &compared {
        store(*hub, "stored", events)?;
    }
    let rounds = take_turns(&field.hubs, rounds, |hub, round| {
        if hub.name() == "jetstream synced" {
            return Ok(None);
        }
        let (done, time) = timed(|| {
            let mut consumer = hub.consumer("stored", &format!("group-{round}"))?;
            consume(consumer.as_mut(), events)
        });
        done?;
        Ok(Some(rate(events, time)))
    })?;
    Ok(Comparison::of("consumed/s", rounds))
}

fn consume(consumer: &mut dyn Consumer, events: usize) -> anyhow::Result<()> {
    let (mut taken, mut bytes) = (0, 0);
    while taken < events {
        taken += consumer.take(&mut |payload| bytes += payload.len())?;
    }
    anyhow::ensure!(bytes > events * 100, "the payloads were not there");
    consumer.settle()
}

/// Ten groups, each on a connection of its own, take what is being published.
pub(super) fn groups(field: &Field, rounds: usize, events: usize) -> anyhow::Result<Comparison> {
    let payloads = Payloads::new();
    let rounds = take_turns(&field.hubs, rounds, |hub, round| {
        if hub.name() == "jetstream synced" {
            return Ok(None);
        }
        let topic = format!("groups.{round}");
        hub.make(&topic)?;
        let mut consumers = (0..GROUPS)
            .map(|number| hub.consumer(&topic, &format!("group-{round}-{number}")))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let mut publisher = hub.publisher(&topic, 100)?;
        let (done, time) = timed(|| {
            std::thread::scope(|scope| {
                let consuming: Vec<_> = consumers
                    .iter_mut()
                    .map(|one| scope.spawn(move || consume(one.as_mut(), events)))
                    .collect();
                publish(publisher.as_mut(), &payloads, events, 4_000)?;
                for one in consuming {
                    one.join().map_err(|_| anyhow::anyhow!("a consumer has panicked"))??;
                }
                anyhow::Ok(())
            })
        });
        done?;
        Ok(Some(rate(events * GROUPS, time)))
    })?;
    Ok(Comparison::of("deliveries/s", rounds))
}
