use std::path::Path;

use serde::Serialize;

use super::ours::Client;
use super::process::{Binaries, Running};
use super::publish::store;
use crate::command::bench::measure::median;

/// What a server takes when it has nothing to do, and how soon it is there.
#[derive(Debug, Serialize)]
pub(super) struct Footprint {
    pub(super) idle_mib: f64,
    pub(super) connections: usize,
    /// On top of idle.
    pub(super) connections_mib: f64,
    pub(super) ready_empty_ms: f64,
    pub(super) stored_events: usize,
    pub(super) ready_stored_ms: f64,
    pub(super) idle_with_stored_mib: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) jetstream_idle_mib: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) redis_idle_mib: Option<f64>,
}

pub(super) fn measure(
    scratch: &Path,
    peers: Option<&Binaries>,
    rounds: usize,
    (connections, stored_events): (usize, usize),
) -> anyhow::Result<Footprint> {
    let mut ready = Vec::new();
    for round in 0..rounds {
        let (running, time) = Running::timed(&scratch.join(format!("empty-{round}")))?;
        ready.push(time.as_secs_f64() * 1e3);
        drop(running);
    }
    let (running, _) = Running::timed(&scratch.join("idle"))?;
    let idle_mib = running.process.rss_mib()?;
    let clients = (0..connections)
        .map(|_| Client::connect(&running.hub))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let connections_mib = running.process.rss_mib()? - idle_mib;
    drop((clients, running));
    let folder = scratch.join("stored");
    let running = Running::ours(&folder)?;
    store(&running.hub, "stored", stored_events)?;
    drop(running);
    let (mut ready_stored, mut idle_stored) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (running, time) = Running::timed(&folder)?;
        ready_stored.push(time.as_secs_f64() * 1e3);
        idle_stored.push(running.process.rss_mib()?);
    }
    let jetstream =
        peers.map(|peers| peers.nats(&scratch.join("idle-nats"), false)?.process.rss_mib());
    let redis = peers.map(|peers| peers.redis(&scratch.join("idle-redis"))?.process.rss_mib());
    Ok(Footprint {
        idle_mib,
        connections,
        connections_mib,
        ready_empty_ms: median(ready),
        stored_events,
        ready_stored_ms: median(ready_stored),
        idle_with_stored_mib: median(idle_stored),
        jetstream_idle_mib: jetstream.transpose()?,
        redis_idle_mib: redis.transpose()?,
    })
}
