use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use promethean::Start;
use serde::Serialize;
use tokio::sync::mpsc;

use super::{open, runtime};
use crate::command::bench::events::Source;
use crate::command::bench::measure::{median, timed};

/// Events of one round.
const EVENTS: usize = 1_000;
/// One event each.
const PERIOD: Duration = Duration::from_millis(1);

#[derive(Debug, Serialize)]
pub(super) struct Latency {
    /// Median over the rounds.
    pub(super) ratio: f64,
    pub(super) median_us: f64,
    pub(super) p99_us: f64,
    pub(super) fdatasync_us: f64,
}

/// From publish to handler at 1,000 events a second, against a plain append with a sync of the
/// same size, at the same pace.
pub(super) fn measure(scratch: &Path, rounds: usize) -> anyhow::Result<Latency> {
    let runtime = runtime()?;
    let (mut ratios, mut medians, mut tails, mut syncs) = (vec![], vec![], vec![], vec![]);
    for round in 0..=rounds {
        let sync = median(plain(&scratch.join("raw"))?);
        let path = scratch.join("latency");
        let mut times = runtime.block_on(paced(&path))?;
        std::fs::remove_dir_all(&path)?;
        if round > 0 {
            let middle = median(times.clone());
            times.sort_by(f64::total_cmp);
            tails.push(times.get(times.len() * 99 / 100).copied().unwrap_or(f64::NAN));
            ratios.push(middle / sync);
            medians.push(middle);
            syncs.push(sync);
        }
    }
    Ok(Latency {
        ratio: median(ratios),
        median_us: median(medians),
        p99_us: median(tails),
        fdatasync_us: median(syncs),
    })
}

/// Microseconds of each sync of a plain file.
fn plain(path: &Path) -> anyhow::Result<Vec<f64>> {
    let mut file = File::create(path)?;
    let mut times = Vec::with_capacity(EVENTS);
    let mut ticks = Ticks::start();
    for _ in 0..EVENTS {
        ticks.wait();
        let (written, time) = timed(|| {
            file.write_all(&[7; 300])?;
            file.sync_data()
        });
        written?;
        times.push(micros(time));
    }
    std::fs::remove_file(path)?;
    Ok(times)
}

async fn paced(path: &Path) -> anyhow::Result<Vec<f64>> {
    let opened = open(path).await?;
    let (sender, mut received) = mpsc::channel(EVENTS);
    let sender = Arc::new(sender);
    let consumer = opened
        .bus
        .subscribe_to(["bench.0"], "latency")
        .from(Start::Earliest)
        .handle(move |_| {
            let (sender, at) = (Arc::clone(&sender), now());
            async move {
                sender.send(at).await?;
                Ok(())
            }
        })
        .await?;
    let mut source = Source::new(1, 20_000)?;
    let mut times = Vec::with_capacity(EVENTS);
    let mut due = tokio::time::interval(PERIOD);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for _ in 0..EVENTS {
        due.tick().await;
        let event = source.event()?;
        let start = now();
        let bus = opened.bus.clone();
        let publishing = tokio::spawn(async move { bus.publish(event).await });
        let arrived = received.recv().await.unwrap_or(start);
        times.push(micros(arrived - start));
        publishing.await??;
    }
    consumer.stop().await?;
    opened.bus.close().await;
    Ok(times)
}

/// A plain thread's way to keep pace.
struct Ticks {
    next: Instant,
}

impl Ticks {
    fn start() -> Self {
        Self { next: now() }
    }

    #[expect(clippy::disallowed_methods, reason = "keeping a pace is what is measured")]
    fn wait(&mut self) {
        self.next += PERIOD;
        std::thread::sleep(self.next.saturating_duration_since(now()));
    }
}

#[expect(clippy::disallowed_methods, reason = "measuring time is what a benchmark is for")]
fn now() -> Instant {
    Instant::now()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
