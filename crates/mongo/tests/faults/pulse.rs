//! How long it took until things went on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::{Acknowledgment, ClientOptions, CollectionOptions, WriteConcern};
use promethean_harness::stopwatch::Stopwatch;

/// Something that happens again and again.
#[derive(Debug, Default)]
pub(super) struct Pulse(Mutex<Beats>);

#[derive(Debug, Default)]
struct Beats {
    last: Option<Stopwatch>,
    longest: Duration,
    count: u64,
}

impl Pulse {
    pub(super) fn beat(&self) {
        let mut beats = self.0.lock().unwrap();
        let silence = beats.last.map_or(Duration::ZERO, |last| last.elapsed());
        beats.longest = beats.longest.max(silence);
        beats.last = Some(Stopwatch::start());
        beats.count += 1;
    }

    pub(super) fn count(&self) -> u64 {
        self.0.lock().unwrap().count
    }

    /// The longest silence since this was asked for last.
    pub(super) fn longest(&self) -> Duration {
        std::mem::take(&mut self.0.lock().unwrap().longest)
    }
}

/// How long it was silent after something happened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Silence {
    pub(super) publishing: Duration,
    pub(super) consuming: Duration,
    /// Majority writes by the driver alone: sooner than that nobody can go on.
    pub(super) driver: Duration,
}

impl Silence {
    fn ours(&self) -> Duration {
        self.publishing.max(self.consuming)
    }
}

/// Silences by what happened.
#[derive(Debug, Default)]
pub(super) struct Silences(BTreeMap<&'static str, Vec<Silence>>);

impl Silences {
    pub(super) fn note(&mut self, what: &'static str, silence: Silence) {
        self.0.entry(what).or_default().push(silence);
    }

    /// How long they were, a line for each.
    pub(super) fn told(&self) -> String {
        let line = |(what, silences): (&&str, &Vec<Silence>)| {
            let longest = |which: fn(&Silence) -> Duration| {
                silences.iter().map(which).max().unwrap_or_default()
            };
            let (publishing, consuming) = (longest(|s| s.publishing), longest(|s| s.consuming));
            let (driver, times) = (longest(|s| s.driver), silences.len());
            format!(
                "{what} ({times} times): publishing rests {publishing:.1?} at most, consuming \
                 {consuming:.1?}, majority writes of the driver alone {driver:.1?}"
            )
        };
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Holds them against `PROM_FAULT_RESUME_S`: `scripts/faults` sets it, a test on a machine that
    /// others share does not.
    pub(super) fn hold(&self) {
        let bound = std::env::var("PROM_FAULT_RESUME_S").ok().and_then(|text| text.parse().ok());
        let Some(bound) = bound.map(Duration::from_secs) else { return };
        for (what, silences) in &self.0 {
            for silence in silences {
                assert!(silence.ours() <= bound, "{what}: {silence:?}; {bound:?} are allowed");
            }
        }
    }
}

/// Writes to a majority by the driver alone, again and again, for as long as the task lives.
pub(super) async fn beat_by_driver(url: String, pulse: Arc<Pulse>) {
    let mut options = ClientOptions::parse(&url).await.unwrap();
    // As the store has them, so that it notices as soon that a member is gone.
    options.heartbeat_freq = Some(Duration::from_secs(2));
    options.connect_timeout = Some(Duration::from_secs(3));
    let client = Client::with_options(options).unwrap();
    let durable = WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build();
    let durable = CollectionOptions::builder().write_concern(durable).build();
    let plain = client.database("plain").collection_with_options::<Document>("beats", durable);
    loop {
        let writing = plain.insert_one(doc! { "beat": 1 });
        let written = tokio::time::timeout(Duration::from_secs(1), writing.into_future()).await;
        if matches!(written, Ok(Ok(_))) {
            pulse.beat();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
