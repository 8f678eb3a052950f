use std::time::Duration;

use mongodb::Client;
use promethean::changefeed::{ClusterTime, Feeds, Phase, Status, Versioned, Wanted};
use promethean::store::{AppendError, SaveError};
use promethean::{Bus, PublishError};
use promethean_event::{EventId, NewEvent};

use super::hold::{Hold, LOOK, Pause, Source};
use super::stream;
use crate::clock::Stopwatch;
use crate::cluster::Cluster;
use crate::fault::Fault;

/// How a feed works.
#[derive(Debug, Clone)]
pub struct FeedOptions {
    /// Changes that are published together at most. Default 500.
    pub batch: usize,
    /// How often progress is saved. Default 1 s.
    pub save_every: Duration,
    /// After so long without a sign of life another instance takes over. Default 15 s.
    pub lease: Duration,
    /// No other instance can be there, because the store is this process's alone: what a process
    /// before this one has left is taken over at once. Default: no.
    pub alone: bool,
}

impl Default for FeedOptions {
    fn default() -> Self {
        Self {
            batch: 500,
            save_every: Duration::from_secs(1),
            lease: Duration::from_secs(15),
            alone: false,
        }
    }
}

/// How a feed's run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedEnd {
    /// It was asked to.
    Stopped,
    /// There is no such feed any more.
    Removed,
}

/// Runs a feed that was added with [`Feeds::add`]. Any number of instances may; one works.
#[derive(Debug)]
pub struct Changefeed {
    pub(super) name: String,
    bus: Bus,
    pub(super) feeds: Feeds,
    pub(super) options: FeedOptions,
    me: String,
}

/// The wait before something that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);

impl Changefeed {
    /// An instance of a feed.
    pub fn new(name: &str, bus: &Bus, options: FeedOptions) -> Self {
        Self {
            name: name.to_owned(),
            bus: bus.clone(),
            feeds: Feeds::new(bus.store()),
            options,
            me: EventId::generate().to_string(),
        }
    }

    /// Works until `stop` completes or the feed is removed. Dropping it is like a crash: what was
    /// published and not noted is published again, which adds nothing.
    pub async fn run(self, stop: impl Future<Output = ()>) -> FeedEnd {
        tokio::select! {
            biased;
            () = stop => {
                self.let_go().await;
                FeedEnd::Stopped
            }
            () = self.drive() => FeedEnd::Removed,
        }
    }

    /// Another instance need not wait for the lease.
    async fn let_go(&self) {
        if let Ok(Some(mut status)) = self.feeds.status(&self.name).await
            && status.value.owner == self.me
        {
            status.value.owner.clear();
            if let Err(error) = self.feeds.save(&self.name, &status.value, status.version).await {
                tracing::debug!(feed = self.name, %error, "its lease runs out by itself");
            }
        }
    }

    async fn drive(&self) {
        let mut seen: Option<(u64, Stopwatch)> = None;
        loop {
            let wanted = match self.feeds.wanted(&self.name).await {
                Ok(Some(wanted)) => wanted.value,
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(feed = self.name, %error, "its record cannot be read");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            if wanted.paused {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            match self.turn(wanted, &mut seen).await {
                Ok(()) | Err(Pause::LookAgain) => tokio::time::sleep(LOOK).await,
                Err(Pause::Fault(error)) => {
                    tracing::warn!(feed = self.name, error, "a changefeed waits");
                    tokio::time::sleep(RETRY).await;
                }
                // Noted in its record where they happen.
                Err(Pause::Stop(_) | Pause::Lost) => tokio::time::sleep(LOOK).await,
            }
        }
    }

    /// Takes the feed if it is free, and works on it.
    async fn turn(&self, wanted: Wanted, seen: &mut Option<(u64, Stopwatch)>) -> Result<(), Pause> {
        let found = self.feeds.status(&self.name).await?;
        if let Some(found) = &found {
            let is_free = found.value.owner.is_empty() || self.options.alone;
            let mine = found.value.owner == self.me;
            let unchanged = match seen {
                Some((version, since)) if *version == found.version => since.elapsed(),
                _ => {
                    *seen = Some((found.version, Stopwatch::start()));
                    Duration::ZERO
                }
            };
            if !mine && !is_free && unchanged < self.options.lease {
                return Ok(());
            }
        }
        let source = self.connect(&wanted).await?;
        let mut hold = self.take(wanted, &source, found).await?;
        let worked = hold.work(&source).await;
        let reason = match worked {
            Err(Pause::Stop(reason)) => reason,
            Err(Pause::Lost) => return hold.lose(&source).await,
            other => return other,
        };
        tracing::error!(feed = self.name, reason, "a changefeed has stopped");
        hold.halt(reason).await
    }

    async fn connect(&self, wanted: &Wanted) -> Result<Source, Pause> {
        let definition = &wanted.definition;
        let feed = definition.feed(&self.name).map_err(|error| Pause::Fault(error.to_string()))?;
        let client = Client::with_uri_str(&definition.url).await.map_err(Fault::from)?;
        let cluster = Cluster::over(&client.database(&feed.database));
        let collection = cluster.database.collection(&feed.collection);
        let (images, _) = stream::survey(&cluster, &feed.collection).await?;
        Ok(Source { feed, cluster, collection, images })
    }

    async fn take(
        &self,
        wanted: Wanted,
        source: &Source,
        found: Option<Versioned<Status>>,
    ) -> Result<Hold<'_>, Pause> {
        let (mut status, version) = match found {
            Some(found) => (found.value, found.version),
            None => {
                let since = stream::now(&source.cluster).await?;
                let phase = first_phase(source.feed.snapshot, since, 0);
                (new_status(phase), 0)
            }
        };
        if status.owner != self.me {
            status.owner.clone_from(&self.me);
            status.epoch += 1;
        }
        let saved = status.clone();
        let since_save = Stopwatch::start();
        let mut hold = Hold { feed: self, status, saved, version, since_save, wanted };
        hold.save().await?;
        Ok(hold)
    }

    /// Publishes, again and again while the store is away.
    pub(super) async fn publish(&self, mut events: Vec<NewEvent>) -> Result<usize, Pause> {
        let count = events.len();
        while !events.is_empty() {
            match self.bus.publish_batch(events.clone()).await {
                Ok(_) => break,
                // It was published before a crash, with the document as it was looked up then.
                // What has changed since comes as a change of its own.
                Err(PublishError::Append(AppendError::IdConflict { id, .. })) => {
                    events.retain(|event| event.id != id);
                }
                Err(error) if is_passing(&error) => {
                    tracing::warn!(feed = self.name, %error, "a changefeed waits for its bus");
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => return Err(Pause::Stop(format!("the bus refused: {error}"))),
            }
        }
        Ok(count)
    }
}

fn is_passing(error: &PublishError) -> bool {
    match error {
        PublishError::Schemas(_) | PublishError::Snapshots(_) => true,
        PublishError::Append(error)
        | PublishError::Define { source: SaveError::Append(error), .. } => matches!(
            error,
            AppendError::Unavailable(_)
                | AppendError::Busy(_)
                | AppendError::NoSpace
                | AppendError::StorageFailed(_)
                | AppendError::Indeterminate(_)
        ),
        _ => false,
    }
}

const fn first_phase(snapshot: bool, since: ClusterTime, run: u64) -> Phase {
    if snapshot {
        Phase::Snapshot { since, after: None, run }
    } else {
        Phase::Stream { since: since.next(), token: None, run }
    }
}

const fn new_status(phase: Phase) -> Status {
    Status {
        owner: String::new(),
        epoch: 0,
        beat: 0,
        phase,
        reached: None,
        published: 0,
        left_out: 0,
        oplog_headroom_seconds: None,
        alarm: None,
        gap: None,
    }
}
