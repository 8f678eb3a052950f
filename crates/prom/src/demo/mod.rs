//! The demo: this machine's own processes send heartbeats, and a projector tells from them who is
//! alive. It is what a user would write, over the same bus that the server serves.
//!
//! `heartbeat.received` gets a beat of every watched process each second. Group
//! `process-projector` reads it and emits `process.state`, keyed by `host:name:pid`: alive, stale
//! after 15 s without a beat, gone (a tombstone) after 60 s. What it knows is in `process.state`
//! itself: after a restart it begins with the newest state of each key. Views `processes` and
//! `host_stats` are kept from it (`statistics.rs`).

mod census;

mod table;

mod projector;

mod statistics;

use std::time::Duration;

use anyhow::Context;
use promethean::Bus;
use promethean::store::{Cleaning, Compaction, TopicDefinition};
use promethean_event::Topic;
use tokio::task::JoinSet;

pub(crate) use statistics::{VIEWS, start_view};

pub(crate) const HEARTBEATS: &str = "heartbeat.received";
pub(crate) const STATES: &str = "process.state";
pub(crate) const GROUP: &str = "process-projector";

/// A beat of each process comes so often.
const BEAT: Duration = Duration::from_secs(1);
const HOUR_MS: u64 = 3_600_000;

/// A demo that is going on; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Demo {
    projector: projector::Projector,
    _tasks: JoinSet<()>,
}

impl Demo {
    pub(crate) async fn start(bus: &Bus) -> anyhow::Result<Self> {
        define(bus).await.context("the demo's topics could not be made")?;
        let projector = projector::Projector::start(bus).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(beat(bus.clone()));
        Ok(Self { projector, _tasks: tasks })
    }

    /// Stops sending, and finishes what is under way.
    pub(crate) async fn stop(mut self) {
        self._tasks.shutdown().await;
        self.projector.stop().await;
    }
}

/// A topic that is there already stays as it is.
async fn define(bus: &Bus) -> anyhow::Result<()> {
    let beats = Cleaning { age_ms_max: Some(HOUR_MS), ..Cleaning::default() };
    let compaction = Compaction { age_ms_min: 10 * 60_000, tombstone_ms: HOUR_MS };
    let states = Cleaning { compaction: Some(compaction), ..Cleaning::default() };
    for (name, cleaning) in [(HEARTBEATS, beats), (STATES, states)] {
        let topic = Topic::new(name)?;
        if bus.topics().get(&topic).is_none() {
            bus.define(TopicDefinition { cleaning, ..TopicDefinition::new(topic) }).await?;
        }
    }
    Ok(())
}

async fn beat(bus: Bus) {
    let mut census = census::Census::default();
    let mut ticks = tokio::time::interval(BEAT);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let looked = tokio::task::spawn_blocking(move || {
            let beats = census.take();
            (census, beats)
        });
        let Ok((after, beats)) = looked.await else { return };
        census = after;
        let beats = beats.into_iter().filter_map(|beat| beat.event().ok()).collect::<Vec<_>>();
        if !beats.is_empty() && bus.publish_batch(beats).await.is_err() {
            // The store is closed, or takes no more: the server says so itself.
            return;
        }
    }
}
