use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::compare::{Comparison, take_turns};
use super::process::Field;
use super::seam::{Hub, Publisher};
use crate::command::bench::events::text;

/// One event each.
const PERIOD: Duration = Duration::from_millis(1);

#[derive(Debug, Serialize)]
pub(super) struct Latency {
    pub(super) p50: Comparison,
    pub(super) p99: Comparison,
}

/// From before the publish to the consumer, at 1,000 events a second.
pub(super) fn measure(field: &Field, rounds: usize, events: usize) -> anyhow::Result<Latency> {
    let mut tails: BTreeMap<(&'static str, usize), f64> = BTreeMap::new();
    let middles = take_turns(&field.hubs, rounds, |hub, round| {
        if hub.name() == "jetstream synced" {
            return Ok(None);
        }
        let mut times = paced(hub, round, events)?;
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times.get(times.len() * percent / 100).copied();
        tails.insert((hub.name(), round), at(99).unwrap_or(f64::NAN));
        Ok(at(50))
    })?;
    let tails = (1..=rounds).map(|round| {
        let of_round = tails.iter().filter(|((_, in_round), _)| *in_round == round);
        of_round.map(|((name, _), figure)| (*name, *figure)).collect()
    });
    Ok(Latency { p99: Comparison::of("us", tails.collect()), p50: Comparison::of("us", middles) })
}

/// Microseconds of each event.
fn paced(hub: &dyn Hub, round: usize, events: usize) -> anyhow::Result<Vec<f64>> {
    let topic = format!("paced.{round}");
    hub.make(&topic)?;
    let mut consumer = hub.consumer(&topic, &format!("group-{round}"))?;
    let mut publisher = hub.publisher(&topic, 1)?;
    let begun = now();
    let sent: Vec<AtomicU64> = (0..events).map(|_| AtomicU64::new(0)).collect();
    let mut times = Vec::with_capacity(events);
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| keep_pace(publisher.as_mut(), begun, &sent));
        let mut taken = 0;
        while taken < events {
            let note = &mut |payload: &[u8]| {
                let arrived = begun.elapsed().as_nanos() as u64;
                let sent = sent.get(number_of(payload)).map(|sent| sent.load(Ordering::Acquire));
                times.push(arrived.saturating_sub(sent.unwrap_or(0)) as f64 / 1e3);
            };
            taken += consumer.take(note)?;
        }
        publishing.join().map_err(|_| anyhow::anyhow!("the publisher has panicked"))?
    })?;
    Ok(times)
}

#[expect(clippy::disallowed_methods, reason = "keeping a pace is what is measured")]
fn keep_pace(
    publisher: &mut dyn Publisher,
    begun: Instant,
    sent: &[AtomicU64],
) -> anyhow::Result<()> {
    let mut due = begun.elapsed();
    for (number, sent) in sent.iter().enumerate() {
        due += PERIOD;
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let payload = text(number as u64);
        sent.store(begun.elapsed().as_nanos() as u64, Ordering::Release);
        publisher.put(payload.as_bytes());
        publisher.flush()?;
        publisher.answered()?;
    }
    Ok(())
}

/// Payloads begin with their number: `{"pid":17,...`.
fn number_of(payload: &[u8]) -> usize {
    let digits = payload.iter().skip(7).take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'))
}

#[expect(clippy::disallowed_methods, reason = "measuring time is what a benchmark is for")]
fn now() -> Instant {
    Instant::now()
}
