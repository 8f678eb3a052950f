//! Drainers over a table: what must hold whatever happens to them.

use std::time::Duration;

use promethean::outbox::{DrainCounters, DrainMeter, DrainOptions, Drainer, OutboxStats};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::target::{Fate, Target};
use super::{OutboxPlace, add, outbox_checks};
use crate::conformance::check::Check;
use crate::stopwatch::Stopwatch;

outbox_checks!(
    a_crash_after_the_publish_adds_nothing,
    a_drainer_that_comes_back_marks_nothing,
    an_outage_is_waited_for,
    drainers_race_and_crash,
);

/// Long enough that no lease of a living drainer runs out by itself.
const LEASE: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(60);

fn options() -> DrainOptions {
    DrainOptions {
        lease: LEASE,
        publish_timeout: Duration::from_secs(120),
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(20),
        poll: Duration::from_millis(20),
        keep_sent: None,
        ..DrainOptions::default()
    }
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<DrainCounters>,
    meter: DrainMeter,
}

impl Running {
    fn start(place: &dyn OutboxPlace, target: &Target, options: DrainOptions) -> Check<Self> {
        let drainer = Drainer::over(place.table(), target.clone(), options)?;
        let meter = drainer.meter();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(drainer.run(async { drop(stopped.await) }));
        Ok(Self { stop, task, meter })
    }

    async fn stop(self) -> Check<DrainCounters> {
        drop(self.stop);
        Ok(self.task.await?)
    }

    /// As if the process had ended.
    async fn crash(self) {
        self.task.abort();
        drop(self.task.await);
    }
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> Check<bool>) -> Check {
    let waiting = Stopwatch::start();
    while waiting.elapsed() < PATIENCE {
        if holds().await? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Err(format!("never: {what}").into())
}

async fn stats(place: &dyn OutboxPlace) -> Check<OutboxStats> {
    Ok(place.table().stats().await?)
}

/// Waits until all are sent; time passes for those that wait for their next attempt.
async fn all_are_sent(place: &dyn OutboxPlace, count: u64) -> Check {
    let sent = async || {
        place.pass(Duration::from_secs(1)).await?;
        Ok(stats(place).await?.sent == count)
    };
    until("all are sent", sent).await
}

/// Pitfall 37: between publishing and marking.
async fn a_crash_after_the_publish_adds_nothing(place: &dyn OutboxPlace) -> Check {
    add(place, &[(1, "a"), (2, "a"), (3, "")]).await?;
    let target = Target::after([Fate::StoredSilently]);
    let first = Running::start(place, &target, options())?;
    until("they are stored", async || Ok(target.numbers("a")?.len() == 2)).await?;
    first.crash().await;
    ensure_same!(stats(place).await?.pending, 3, "published, and not marked");
    place.pass(LEASE).await?;
    let second = Running::start(place, &target, options())?;
    until("they are marked", async || Ok(stats(place).await?.sent == 3)).await?;
    ensure_same!(target.numbers("a")?, [1, 2], "what is stored");
    ensure_same!(second.stop().await?.duplicates, 3, "published again");
    Ok(())
}

/// Pitfall 42: a drainer that was away for longer than its lease.
async fn a_drainer_that_comes_back_marks_nothing(place: &dyn OutboxPlace) -> Check {
    add(place, &[(1, "a"), (2, "a")]).await?;
    let target = Target::after([Fate::Held]);
    let one = Running::start(place, &target, options())?;
    until("the publish is under way", async || Ok(target.calls() == 1)).await?;
    place.pass(LEASE).await?;
    let two = Running::start(place, &target, options())?;
    until("the other has sent both", async || Ok(stats(place).await?.sent == 2)).await?;
    target.let_go();
    until("the first is fenced", async || Ok(one.meter.counters().fenced == 2)).await?;
    ensure_same!(target.numbers("a")?, [1, 2], "what is stored");
    let sent = (one.stop().await?.sent, two.stop().await?.sent);
    ensure_same!(sent, (0, 2), "who has marked how many");
    Ok(())
}

async fn an_outage_is_waited_for(place: &dyn OutboxPlace) -> Check {
    add(place, &[(1, "a"), (2, "a"), (3, "b"), (4, "")]).await?;
    let target = Target::after([Fate::Refused, Fate::StoredUnsure, Fate::Refused]);
    let running = Running::start(place, &target, options())?;
    all_are_sent(place, 4).await?;
    let counters = running.stop().await?;
    ensure!(counters.failed > 0 && counters.dead == 0, "{counters:?}");
    ensure_same!(target.numbers("a")?, [1, 2], "the order of a key");
    Ok(())
}

/// A little chance, the same for the same seed.
fn chance(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Three drainers that crash and start anew, on a store that does what it likes: nothing is lost,
/// nothing twice, every key in its order.
async fn drainers_race_and_crash(place: &dyn OutboxPlace) -> Check {
    let mut seed = 11;
    let fates = (0..40).map(|_| match chance(&mut seed) % 6 {
        0 => Fate::Refused,
        1 => Fate::StoredUnsure,
        2 => Fate::StoredSilently,
        _ => Fate::Stored,
    });
    let target = Target::after(fates.collect::<Vec<_>>());
    // A publish that is never answered is given up soon, and tried again.
    let publish_timeout = Duration::from_millis(100);
    let options = DrainOptions { batch: 3, publish_timeout, ..options() };
    let start = || Running::start(place, &target, options.clone());
    let mut running = vec![start()?, start()?, start()?];
    let keys = ["a", "b", "c", ""];
    for n in 0..60 {
        let key = keys.get(n as usize % 4).copied().unwrap_or_default();
        add(place, &[(n, key)]).await?;
        if chance(&mut seed).is_multiple_of(4) {
            running.swap_remove(chance(&mut seed) as usize % 3).crash().await;
            running.push(start()?);
            // What the crashed one held comes free; so does what the living ones hold.
            place.pass(LEASE).await?;
        }
    }
    all_are_sent(place, 60).await?;
    for drainer in running {
        drainer.crash().await;
    }
    for (at, key) in (0..).zip(keys) {
        let mut stored = target.numbers(key)?;
        if key.is_empty() {
            stored.sort_unstable();
        }
        ensure_same!(stored, (0..15).map(|n| n * 4 + at).collect::<Vec<u32>>(), "of key {key:?}");
    }
    Ok(())
}
