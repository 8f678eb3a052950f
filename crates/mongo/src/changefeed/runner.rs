use std::time::Duration;

use mongodb::bson::raw::RawDocumentBuf;
use mongodb::{Client, Collection};
use promethean::store::{AppendError, SaveError};
use promethean::{Bus, PublishError};
use promethean_event::{EventId, NewEvent};

use super::change::Change;
use super::decide::{Decision, Images, decide, of_oversize, of_snapshot};
use super::snapshot;
use super::stream::{self, Begin, Break, Changes};
use crate::clock::{Deadline, Stopwatch};
use crate::cluster::Cluster;
use crate::fault::Fault;
use promethean::changefeed::Feed;
use promethean::changefeed::{Feeds, FeedsError, Gap, Phase, Recovery, Status, Versioned, Wanted};

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
    name: String,
    bus: Bus,
    feeds: Feeds,
    options: FeedOptions,
    me: String,
}

/// The feed while it is ours.
struct Hold<'a> {
    feed: &'a Changefeed,
    status: Status,
    /// As it was saved last. `status` runs ahead of what is published while a batch is under way:
    /// only what is saved after publishing may be gone on from.
    saved: Status,
    version: u64,
    since_save: Stopwatch,
    wanted: Wanted,
}

/// A feed with its connection.
struct Source {
    feed: Feed,
    cluster: Cluster,
    collection: Collection<RawDocumentBuf>,
    images: Images,
}

/// Why work on a feed was laid down.
#[derive(Debug)]
enum Pause {
    /// Somebody else has it, or wants something else of it: look again.
    LookAgain,
    /// Something is away: look again after a while.
    Fault(String),
    /// It cannot go on like this.
    Stop(String),
    Lost,
}

impl From<FeedsError> for Pause {
    fn from(error: FeedsError) -> Self {
        match error {
            FeedsError::Save(SaveError::Changed { .. } | SaveError::Fenced(_)) => Self::LookAgain,
            other => Self::Fault(other.to_string()),
        }
    }
}

impl From<Fault> for Pause {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault.to_string())
    }
}

/// The wait before something that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How often somebody who has nothing to do looks whether that has changed.
const LOOK: Duration = Duration::from_millis(200);

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
    async fn publish(&self, mut events: Vec<NewEvent>) -> Result<usize, Pause> {
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

const fn first_phase(
    snapshot: bool,
    since: promethean::changefeed::ClusterTime,
    run: u64,
) -> Phase {
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

impl Hold<'_> {
    async fn save(&mut self) -> Result<(), Pause> {
        self.status.beat += 1;
        self.version = self.feed.feeds.save(&self.feed.name, &self.status, self.version).await?;
        self.saved.clone_from(&self.status);
        self.since_save = Stopwatch::start();
        Ok(())
    }

    /// Stops where it was saved last. What was published since is read again when it goes on, which
    /// adds nothing; what was read and not published is not passed over.
    async fn halt(&mut self, reason: String) -> Result<(), Pause> {
        self.status.clone_from(&self.saved);
        let before = Box::new(self.saved.phase.clone());
        self.status.phase = Phase::Stopped { reason, before };
        self.save().await
    }

    /// Signs of life, until something else is wanted: the feed is somebody's.
    async fn stand_by(&mut self, source: &Source) -> Result<(), Pause> {
        loop {
            tokio::time::sleep(LOOK).await;
            self.tick(source).await?;
        }
    }

    /// Saves once in a while; looks then whether something else is wanted.
    async fn tick(&mut self, source: &Source) -> Result<(), Pause> {
        if self.since_save.elapsed() < self.feed.options.save_every {
            return Ok(());
        }
        let oldest = stream::oldest(&source.cluster).await;
        self.status.oplog_headroom_seconds = oldest
            .zip(self.status.reached)
            .map(|(oldest, reached)| u64::from(reached.seconds.saturating_sub(oldest.seconds)));
        self.save().await?;
        let wanted = self.feed.feeds.wanted(&self.feed.name).await?;
        if wanted.map(|wanted| wanted.value).as_ref() != Some(&self.wanted) {
            return Err(Pause::LookAgain);
        }
        Ok(())
    }

    async fn work(&mut self, source: &Source) -> Result<(), Pause> {
        if let Some(recovery) = self.wanted.recover {
            self.recover(source, recovery).await?;
            self.feed.feeds.recovered(&self.feed.name).await?;
            return Err(Pause::LookAgain);
        }
        if matches!(self.status.phase, Phase::Lost { .. } | Phase::Stopped { .. }) {
            return self.stand_by(source).await;
        }
        self.refuse(source).await?;
        while let Phase::Snapshot { .. } = self.status.phase {
            self.snapshot(source).await?;
        }
        self.stream(source).await
    }

    async fn refuse(&self, source: &Source) -> Result<(), Pause> {
        let (_, refusal) = stream::survey(&source.cluster, &source.feed.collection).await?;
        let needs_images = source.feed.key.is_some() && source.images == Images::LookedUp;
        let images = needs_images.then(|| {
            "its key is not the _id, so that deletes need pre-images: run collMod with \
             changeStreamPreAndPostImages: { enabled: true }"
                .to_owned()
        });
        refusal.or(images).map_or(Ok(()), |reason| Err(Pause::Stop(reason)))
    }

    async fn recover(&mut self, source: &Source, recovery: Recovery) -> Result<(), Pause> {
        let Phase::Lost { gap, run } = self.status.phase.clone() else { return Ok(()) };
        let now = stream::now(&source.cluster).await?;
        self.status.phase = match recovery {
            Recovery::Resnapshot => Phase::Snapshot { since: now, after: None, run: run + 1 },
            Recovery::AcceptGap => Phase::Stream { since: now.next(), token: None, run },
            Recovery::FromTime(seconds) => {
                let since = promethean::changefeed::ClusterTime { seconds, increment: 1 };
                Phase::Stream { since, token: None, run }
            }
        };
        self.status.gap = Some(gap);
        self.save().await
    }

    /// The history is gone: the record says so, and what is missing.
    async fn lose(&mut self, source: &Source) -> Result<(), Pause> {
        let (Phase::Stream { run, since, .. } | Phase::Snapshot { run, since, .. }) =
            self.status.phase
        else {
            return Ok(());
        };
        let to = stream::oldest(&source.cluster).await;
        let gap = Gap { from: Some(self.status.reached.unwrap_or(since)), to };
        tracing::error!(
            feed = self.feed.name,
            ?gap,
            "MongoDB has forgotten changes that were not read yet; say how to go on: \
             prom changefeed resume --recover"
        );
        self.status.phase = Phase::Lost { gap, run };
        self.save().await
    }

    /// One page of what is there.
    async fn snapshot(&mut self, source: &Source) -> Result<(), Pause> {
        let Phase::Snapshot { since, ref after, run } = self.status.phase else { return Ok(()) };
        let mut session = snapshot::session(&source.cluster, since).await?;
        let max = self.feed.options.batch;
        let page = snapshot::page(&source.collection, &mut session, (after.as_deref(), max));
        let page = source.cluster.deadline().hold(page).await;
        let page = page.ok_or_else(crate::fault::too_late)??;
        let mut events = Vec::new();
        for document in &page {
            let event = of_snapshot(&source.feed, document, (since, run)).map_err(Pause::Stop)?;
            self.status.left_out += u64::from(event.is_none());
            events.extend(event);
        }
        self.publish(events).await?;
        self.status.phase = match page.last() {
            Some(last) => Phase::Snapshot { since, after: Some(snapshot::place(last)?), run },
            None => {
                self.status.reached = Some(since);
                // What is from that very moment was part of the snapshot.
                Phase::Stream { since: since.next(), token: None, run }
            }
        };
        if page.is_empty() { self.save().await } else { self.tick(source).await }
    }

    async fn publish(&mut self, events: Vec<NewEvent>) -> Result<(), Pause> {
        // Documents may be large, and a batch has its limit.
        const CHUNK_BYTES: usize = promethean_event::limits::BATCH_BYTES_MAX / 4;
        let mut chunk = Vec::new();
        let mut bytes = 0;
        for event in events {
            bytes += event.payload.as_bytes().len();
            chunk.push(event);
            if bytes > CHUNK_BYTES {
                self.status.published +=
                    self.feed.publish(std::mem::take(&mut chunk)).await? as u64;
                bytes = 0;
            }
        }
        self.status.published += self.feed.publish(chunk).await? as u64;
        Ok(())
    }

    /// Changes, from where the feed stands, until something ends it.
    async fn stream(&mut self, source: &Source) -> Result<(), Pause> {
        let Phase::Stream { since, ref token, .. } = self.status.phase else { return Ok(()) };
        let token = token.clone();
        let begin = Begin { since, token: token.as_deref() };
        let opened = stream::open(&source.cluster, &source.collection, &begin, source.images).await;
        let mut changes = match opened {
            Ok(changes) => changes,
            Err(end) => return self.broken(source, end).await,
        };
        loop {
            match self.batch(source, &mut changes).await {
                Ok(true) => {}
                // The stream has ended by itself: it is opened anew after what ended it.
                Ok(false) => return self.save().await,
                Err(BatchEnd::Pause(pause)) => return Err(pause),
                Err(BatchEnd::Break(end)) => return self.broken(source, end).await,
            }
        }
    }

    async fn broken(&mut self, source: &Source, end: Break) -> Result<(), Pause> {
        match end {
            Break::Lost => Err(Pause::Lost),
            Break::Fault(fault) => Err(fault.into()),
            Break::Oversize => self.pass_oversize(source).await,
        }
    }

    /// Passes the one change that is too large.
    async fn pass_oversize(&mut self, source: &Source) -> Result<(), Pause> {
        let Phase::Stream { since, ref token, .. } = self.status.phase else { return Ok(()) };
        let token = token.clone();
        let begin = Begin { since, token: token.as_deref() };
        let next = stream::next_without_document(&source.cluster, &source.collection, &begin).await;
        let next = match next {
            Ok(next) => next,
            Err(Break::Lost) => return Err(Pause::Lost),
            Err(Break::Oversize) => {
                return Err(Pause::Stop("a change is too large even without its document".into()));
            }
            Err(Break::Fault(fault)) => return Err(fault.into()),
        };
        let Some(raw) = next else { return Ok(()) };
        let change = Change::read(&raw).map_err(|why| Pause::Stop(why.to_owned()))?;
        let decision = of_oversize(&source.feed, &change).map_err(Pause::Stop)?;
        let mut events = Vec::new();
        self.apply(decision, &change, &mut events);
        self.publish(events).await?;
        self.save().await
    }

    /// Reads what there is, publishes it, notes it; false at the end of the stream.
    async fn batch(&mut self, source: &Source, changes: &mut Changes) -> Result<bool, BatchEnd> {
        let mut events = Vec::new();
        let mut goes_on = true;
        let mut read = 0;
        let broken = loop {
            if read >= self.feed.options.batch {
                break None;
            }
            // Longer than the server waits by itself: it is frozen, or the network is.
            let patience = Deadline::after(Duration::from_secs(15));
            let next = match patience.hold(changes.next_if_any()).await {
                None => break Some(Break::Fault(crate::fault::too_late())),
                Some(Err(error)) => break Some(error.into()),
                Some(Ok(None)) => break None,
                Some(Ok(Some(next))) => next,
            };
            read += 1;
            let change = Change::read(&next).map_err(|why| Pause::Stop(why.to_owned()));
            let change = change?;
            let decided = decide(&source.feed, source.images, &change);
            let decision = match decided {
                Ok(decision) => decision,
                Err(reason) => {
                    // What was read before it is published first.
                    self.publish(events).await?;
                    return Err(Pause::Stop(reason).into());
                }
            };
            goes_on = self.apply(decision, &change, &mut events);
            if !goes_on {
                break None;
            }
        };
        self.publish(events).await?;
        if let Some(end) = broken {
            return Err(end.into());
        }
        if goes_on && read < self.feed.options.batch {
            self.advance(stream::token_of(changes));
        }
        self.tick(source).await?;
        Ok(goes_on && changes.is_alive())
    }

    /// Takes a decision; false if the stream ends with it.
    fn apply(
        &mut self,
        decision: Decision,
        change: &Change<'_>,
        events: &mut Vec<NewEvent>,
    ) -> bool {
        let mut goes_on = true;
        match decision {
            Decision::Publish(event) => events.push(*event),
            Decision::LeaveOut => self.status.left_out += 1,
            Decision::Alarm(text) => {
                tracing::warn!(feed = self.feed.name, alarm = text, "a changefeed's collection");
                self.status.alarm = Some(text);
            }
            Decision::BeginAnew => goes_on = false,
        }
        self.status.reached = Some(change.at);
        self.advance(Some(change.token.to_owned()));
        goes_on
    }

    fn advance(&mut self, reached: Option<String>) {
        if let (Phase::Stream { token, .. }, Some(reached)) = (&mut self.status.phase, reached) {
            *token = Some(reached);
        }
    }
}

/// Why a batch did not come to its end.
enum BatchEnd {
    Pause(Pause),
    Break(Break),
}

impl From<Pause> for BatchEnd {
    fn from(pause: Pause) -> Self {
        Self::Pause(pause)
    }
}

impl From<Break> for BatchEnd {
    fn from(end: Break) -> Self {
        Self::Break(end)
    }
}
