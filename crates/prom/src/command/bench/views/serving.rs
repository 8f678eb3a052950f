//! Snapshots over HTTP, against an answer that needs nothing, from the same server.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use promethean::Bus;
use promethean::projection::{Changelog, Views};
use promethean_gateway::{Access, Server, Settings, Shelf};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::load::{TOPIC, event, view};
use crate::command::bench::measure::{Compared, Round, rate, timed};

const CONNECTIONS: usize = 64;
const KEYS: usize = 10_000;
/// Requests of one measurement.
const REQUESTS: usize = 40_000;

#[derive(Serialize)]
pub(super) struct Serving {
    pub(super) get: Compared,
    pub(super) not_modified: Compared,
}

/// One connection, kept for many requests.
struct Wire {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Wire {
    async fn open(at: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(at).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, heard: Vec::with_capacity(4096) })
    }

    /// Sends a request and reads its whole answer; its head.
    async fn ask(&mut self, request: &[u8]) -> anyhow::Result<String> {
        self.stream.write_all(request).await?;
        self.heard.clear();
        let mut piece = [0; 4096];
        loop {
            let read = self.stream.read(&mut piece).await?;
            anyhow::ensure!(read > 0, "the server has closed");
            self.heard.extend_from_slice(piece.get(..read).unwrap_or_default());
            let Some(end) = self.heard.windows(4).position(|four| four == b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8_lossy(self.heard.get(..end).unwrap_or_default());
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let body: usize = length.and_then(|length| length.parse().ok()).unwrap_or(0);
            if self.heard.len() >= end + 4 + body || head.starts_with("HTTP/1.1 304") {
                return Ok(head.into_owned());
            }
        }
    }
}

fn request(at: SocketAddr, path: &str, more: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: {at}\r\n{more}\r\n").into_bytes()
}

/// Requests a second over all connections; each request is one of those given, in turn.
async fn drive(
    at: SocketAddr,
    requests: std::sync::Arc<Vec<Vec<u8>>>,
    status: &'static str,
) -> anyhow::Result<()> {
    let mut wires = JoinSet::new();
    for number in 0..CONNECTIONS {
        let requests = std::sync::Arc::clone(&requests);
        wires.spawn(async move {
            let mut wire = Wire::open(at).await?;
            for n in 0..REQUESTS / CONNECTIONS {
                let which = (number + n * CONNECTIONS) % requests.len().max(1);
                let head = wire.ask(requests.get(which).map_or(&[][..], Vec::as_slice)).await?;
                anyhow::ensure!(head.starts_with(status), "{head}");
            }
            Ok::<_, anyhow::Error>(())
        });
    }
    while let Some(done) = wires.join_next().await {
        done??;
    }
    Ok(())
}

pub(super) fn measure(path: &Path, rounds: usize) -> anyhow::Result<Serving> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (at, running, views) = runtime.block_on(serve(path))?;
    let key = |n: usize| format!("/views/processes/snap/process%3A{n}");
    let gets: Vec<Vec<u8>> = (0..KEYS).map(|n| request(at, &key(n), "")).collect();
    let known = runtime.block_on(async {
        let mut wire = Wire::open(at).await?;
        let mut known = Vec::with_capacity(KEYS);
        for n in 0..KEYS {
            let head = wire.ask(gets.get(n).map_or(&[][..], Vec::as_slice)).await?;
            let tag = head.lines().find_map(|line| line.strip_prefix("etag: "));
            let tag = tag.ok_or_else(|| anyhow::anyhow!("no tag: {head}"))?;
            known.push(request(at, &key(n), &format!("if-none-match: {tag}\r\n")));
        }
        Ok::<_, anyhow::Error>(known)
    })?;
    let constant = std::sync::Arc::new(vec![request(at, "/livez", "")]);
    let (gets, known) = (std::sync::Arc::new(gets), std::sync::Arc::new(known));
    let per_second = |requests: &std::sync::Arc<Vec<Vec<u8>>>, status| {
        let requests = std::sync::Arc::clone(requests);
        let (driven, elapsed) = timed(|| runtime.block_on(drive(at, requests, status)));
        driven.map(|()| rate(REQUESTS, elapsed))
    };
    per_second(&constant, "HTTP/1.1 200")?;
    let (mut get, mut not_modified) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let reference = per_second(&constant, "HTTP/1.1 200")?;
        let ours = per_second(&gets, "HTTP/1.1 200")?;
        get.push(Round { events_per_s: ours, reference_events_per_s: reference });
        let ours = per_second(&known, "HTTP/1.1 304")?;
        not_modified.push(Round { events_per_s: ours, reference_events_per_s: reference });
    }
    running.abort();
    runtime.block_on(views.stop());
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(Serving { get: Compared::of(get), not_modified: Compared::of(not_modified) })
}

type Served = (SocketAddr, tokio::task::JoinHandle<()>, Views);

async fn serve(path: &Path) -> anyhow::Result<Served> {
    let bus = Bus::open(path.join("serve")).await?;
    let events = (0..KEYS).map(|n| event(&format!("process:{n}"), n));
    let events: Vec<_> = events.collect::<Result<_, _>>()?;
    for batch in events.chunks(super::load::BATCH) {
        bus.publish_batch(batch.to_vec()).await?;
    }
    let views = Views::open(&bus, path.join("serve.db")).await?;
    let projection = views.changelog(Changelog::new(view("processes"), TOPIC)).await?;
    projection.caught_up().await?;
    let mut settings = Settings::local(Access::Anonymous);
    settings.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    settings.shelf = Shelf { views: Some(views.clone()), ..Shelf::default() };
    let server = Server::bind(bus, settings).await?;
    let at = *server.addresses().first().ok_or_else(|| anyhow::anyhow!("no address"))?;
    Ok((at, tokio::spawn(server.run()), views))
}
