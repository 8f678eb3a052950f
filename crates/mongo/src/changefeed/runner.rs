use std::time::Duration;

use mongodb::Client;
use promethean::Bus;
use promethean::changefeed::{ClusterTime, Feeds, Origin, Phase, Status, Versioned, Wanted};
use promethean_event::EventId;

use super::hold::{Hold, LOOK, Pause, Source};
use super::origin::origin;
use super::stream::{self, Survey};
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
    pub(super) bus: Bus,
    pub(super) feeds: Feeds,
    pub(super) options: FeedOptions,
    me: String,
}

/// The wait before something that failed is tried again.
pub(super) const RETRY: Duration = Duration::from_millis(500);
/// The same for what fails as it did before: a refused login is not put right within a second, and
/// every attempt is a line in somebody's log.
const RETRY_STILL: Duration = Duration::from_secs(5);

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
            () = self.drive() => {
                self.let_go().await;
                FeedEnd::Removed
            }
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
        // What was said last of a store that is away: once, not with every attempt.
        let mut told = None;
        loop {
            let turned = match self.feeds.wanted(&self.name).await {
                Ok(Some(wanted)) => self.turn(wanted, &mut seen).await,
                Ok(None) => return,
                Err(error) => Err(error.into()),
            };
            let wait = match turned {
                // What stops a feed is in its record.
                Ok(())
                | Err(Pause::LookAgain | Pause::Stop(_) | Pause::StopAt(..) | Pause::Lost) => LOOK,
                Err(Pause::Noted) => RETRY,
                Err(Pause::Still) => RETRY_STILL,
                Err(Pause::Fault(error)) => {
                    if told.as_ref() != Some(&error) {
                        tracing::warn!(
                            feed = self.name,
                            error,
                            "a changefeed waits for its record"
                        );
                    }
                    told = Some(error);
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            told = None;
            tokio::time::sleep(wait).await;
        }
    }

    /// Takes the feed if it is free, and works on it.
    async fn turn(
        &self,
        wanted: Versioned<Wanted>,
        seen: &mut Option<(u64, Stopwatch)>,
    ) -> Result<(), Pause> {
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
        let found = found.unwrap_or(Versioned { value: Status::default(), version: 0 });
        if wanted.value.paused && found.value.phase == Phase::New {
            // It begins when it is resumed, with what is there then.
            return Ok(());
        }
        let (source, phase) = match self.reach(&wanted.value, &found.value).await {
            Ok(reached) => reached,
            Err(Pause::Fault(why)) => return self.note(found, why).await,
            Err(other) => return Err(other),
        };
        let mut hold = self.take(wanted, found, (&source.origin, phase)).await?;
        match hold.work(&source).await {
            Err(Pause::Stop(reason)) => hold.halt(reason, None).await,
            Err(Pause::StopAt(reason, past)) => hold.halt(reason, Some(past)).await,
            Err(Pause::Lost) => hold.lose(&source).await,
            // What it has read since may not be published.
            Err(Pause::Fault(why)) => {
                let settled = Versioned { value: hold.settled, version: hold.version };
                self.note(settled, why).await
            }
            other => other,
        }
    }

    /// Has the record say why the feed does not run, and leaves it to whoever comes further.
    async fn note(&self, found: Versioned<Status>, why: String) -> Result<(), Pause> {
        let Versioned { value: mut status, version } = found;
        let is_known = status.trouble.as_ref() == Some(&why);
        if !is_known {
            tracing::warn!(feed = self.name, error = why, "a changefeed waits");
        }
        if !is_known || !status.owner.is_empty() {
            status.owner.clear();
            status.trouble = Some(why);
            self.feeds.save(&self.name, &status, version).await?;
        }
        Err(if is_known { Pause::Still } else { Pause::Noted })
    }

    /// Connects; and tells what a feed does that comes so far for the first time.
    async fn reach(&self, wanted: &Wanted, status: &Status) -> Result<(Source, Phase), Pause> {
        let definition = &wanted.definition;
        let feed = definition.feed(&self.name).map_err(|error| Pause::Fault(error.to_string()))?;
        let client = Client::with_uri_str(&definition.url).await.map_err(Fault::from)?;
        let cluster = Cluster::over(&client.database(&feed.database));
        let collection = cluster.database.collection(&feed.collection);
        let Survey { images, id, .. } = stream::survey(&cluster, &feed.collection).await?;
        let origin = origin(&cluster, definition, id).await?;
        let now = stream::now(&cluster).await?;
        let phase = match &status.phase {
            Phase::New => first_phase(feed.snapshot, now, status.snapshots),
            other => other.clone(),
        };
        Ok((Source { feed, cluster, collection, images, origin }, phase))
    }

    async fn take(
        &self,
        wanted: Versioned<Wanted>,
        found: Versioned<Status>,
        (origin, phase): (&Origin, Phase),
    ) -> Result<Hold<'_>, Pause> {
        let Versioned { value: mut status, version } = found;
        // Noted in one with the place that it is of, which is no place anywhere else.
        let is_elsewhere = status.read_from.as_ref().is_some_and(|of| !of.is_same(origin));
        if status.phase == Phase::New || !is_elsewhere {
            status.read_from = Some(origin.clone());
        }
        status.snapshots = status.snapshots.max(phase.run().map_or(0, |run| run + 1));
        status.phase = phase;
        if status.owner != self.me {
            status.owner.clone_from(&self.me);
            status.epoch += 1;
        }
        let settled = status.clone();
        let since_save = Stopwatch::start();
        let mut hold = Hold { feed: self, status, settled, version, since_save, wanted };
        hold.save().await?;
        Ok(hold)
    }
}

pub(super) const fn first_phase(snapshot: bool, since: ClusterTime, run: u64) -> Phase {
    if snapshot {
        Phase::Snapshot { since, after: None, run }
    } else {
        Phase::Stream { since: since.next(), token: None, run }
    }
}
