//! The work on a feed, by the one who has it.

use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::raw::{RawDocument, RawDocumentBuf};
use promethean::changefeed::{
    ClusterTime, Feed, FeedsError, Origin, Phase, Status, Versioned, Wanted,
};
use promethean::store::SaveError;
use promethean_event::NewEvent;

use super::change::{Change, Images};
use super::decide::{Decision, decide, of_snapshot};
use super::runner::Changefeed;
use super::snapshot;
use super::stream::{self, Begin, Break, Changes};
use crate::clock::{Deadline, Stopwatch};
use crate::cluster::Cluster;
use crate::fault::Fault;
use crate::limits::{FEED_BATCH_BYTES, FEED_CHUNK_BYTES};
use crate::views::is_row;

/// How often somebody who has nothing to do looks whether that has changed.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// The feed while it is ours.
pub(super) struct Hold<'a> {
    pub(super) feed: &'a Changefeed,
    pub(super) status: Status,
    /// The newest place up to which all is published; only from there may be gone on. `status` runs
    /// ahead of it while a batch is under way.
    pub(super) settled: Status,
    pub(super) version: u64,
    pub(super) since_save: Stopwatch,
    pub(super) wanted: Versioned<Wanted>,
}

/// A feed with its connection.
pub(super) struct Source {
    pub(super) feed: Feed,
    pub(super) cluster: Cluster,
    pub(super) collection: Collection<RawDocumentBuf>,
    pub(super) images: Images,
    pub(super) origin: Origin,
}

/// Why work on a feed was laid down.
#[derive(Debug)]
pub(super) enum Pause {
    /// Somebody else has it, or wants something else of it: look again.
    LookAgain,
    /// Something is away: look again after a while.
    Fault(String),
    /// The same, and the feed's record says so.
    Noted,
    /// The same as the last time.
    Still,
    /// It cannot go on like this.
    Stop(String),
    /// The same because of one change; if that is passed over, this is how it goes on.
    StopAt(String, Phase),
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

impl Hold<'_> {
    pub(super) async fn save(&mut self) -> Result<(), Pause> {
        self.status.beat += 1;
        // Others count from when they see it, which is later.
        let begun = Stopwatch::start();
        self.version = self.feed.feeds.save(&self.feed.name, &self.status, self.version).await?;
        self.settle();
        self.since_save = begun;
        Ok(())
    }

    /// The same, of what an order has come to, which is none any more.
    async fn save_recovered(&mut self) -> Result<(), Pause> {
        self.status.beat += 1;
        let status = Versioned { value: self.status.clone(), version: self.version };
        self.feed.feeds.save_recovered(&self.feed.name, &status, &self.wanted).await?;
        Ok(())
    }

    /// All is published up to where it stands.
    fn settle(&mut self) {
        self.settled.clone_from(&self.status);
    }

    /// Stops where all is published. Nothing of that is read again when it goes on: by then its ids may
    /// have been compacted away, and what is old would come behind what is new.
    pub(super) async fn halt(&mut self, reason: String, past: Option<Phase>) -> Result<(), Pause> {
        tracing::error!(feed = self.feed.name, reason, "a changefeed has stopped");
        self.status.clone_from(&self.settled);
        let before = Box::new(self.settled.phase.clone());
        self.status.phase = Phase::Stopped { reason, before, past: past.map(Box::new) };
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
        self.look_back(source).await;
        self.status.trouble = None;
        self.save().await?;
        let wanted = self.feed.feeds.wanted(&self.feed.name).await?;
        if wanted.map(|wanted| wanted.value).as_ref() != Some(&self.wanted.value) {
            return Err(Pause::LookAgain);
        }
        Ok(())
    }

    pub(super) async fn work(&mut self, source: &Source) -> Result<(), Pause> {
        if self.wanted.value.paused {
            return self.stand_by(source).await;
        }
        if self.status.read_from.as_ref().is_some_and(|of| !of.is_same(&source.origin)) {
            self.begin_elsewhere(source).await?;
        }
        self.tell_gap(source).await?;
        if let Some(recovery) = self.wanted.value.recover {
            self.recover(source, recovery).await?;
            self.save_recovered().await?;
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
        let refusal = stream::survey(&source.cluster, &source.feed.collection).await?.refusal;
        let needs_images = source.feed.needs_pre_images() && source.images == Images::LookedUp;
        let images = needs_images.then(|| {
            format!(
                "its key is made of the document, which a delete tells only by a pre-image; have \
                 them kept, then resume it: {}",
                images_command(&source.feed)
            )
        });
        refusal.or(images).map_or(Ok(()), |reason| Err(Pause::Stop(reason)))
    }

    /// One page of what is there.
    async fn snapshot(&mut self, source: &Source) -> Result<(), Pause> {
        let Phase::Snapshot { since, ref after, run } = self.status.phase else { return Ok(()) };
        let mut session = snapshot::session(&source.cluster, since).await?;
        let max = self.feed.options.batch;
        let page = snapshot::page(&source.collection, &mut session, (after.as_deref(), max));
        let page = source.cluster.deadline().hold(page).await;
        let page = page.ok_or_else(crate::fault::too_late)??;
        let place = |document| {
            snapshot::place(document).map(|after| Phase::Snapshot {
                since,
                after: Some(after),
                run,
            })
        };
        let (mut events, mut bytes) = (Vec::new(), 0);
        for document in &page {
            let event = match of_snapshot(&source.feed, document, (since, run)) {
                Ok(event) => event,
                Err(reason) => {
                    // What was read before it is published first.
                    self.publish(events).await?;
                    self.settle();
                    return Err(Pause::StopAt(reason, place(document)?));
                }
            };
            self.status.left_out += u64::from(event.is_none());
            bytes += event.as_ref().map_or(0, |event| event.payload.as_bytes().len());
            events.extend(event);
            self.status.phase = place(document)?;
            if bytes > FEED_CHUNK_BYTES {
                self.publish(std::mem::take(&mut events)).await?;
                self.settle();
                bytes = 0;
            }
        }
        self.publish(events).await?;
        self.settle();
        if !page.is_empty() {
            return self.tick(source).await;
        }
        self.status.reached = Some(since);
        // What is from that very moment was part of the snapshot.
        self.status.phase = Phase::Stream { since: since.next(), token: None, run };
        self.save().await
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
        let Source { cluster, collection, images, .. } = source;
        let next = stream::next_without_document(cluster, collection, &begin, *images).await;
        let next = match next {
            Ok(next) => next,
            Err(Break::Lost) => return Err(Pause::Lost),
            Err(Break::Oversize) => {
                return Err(Pause::Stop("a change is too large even without its document".into()));
            }
            Err(Break::Fault(fault)) => return Err(fault.into()),
        };
        let Some(raw) = next else { return Ok(()) };
        let change = Change::read(&raw, source.images);
        let mut change = change.map_err(|why| Pause::Stop(why.to_owned()))?;
        let found = source.look_up(&change).await?;
        complete(&mut change, found.as_deref());
        let decision = decide(&source.feed, &change);
        let decision = decision.map_err(|reason| self.stop_at(reason, change.token))?;
        let mut events = Vec::new();
        let next = self.apply(decision, &change, &mut events);
        self.publish(events).await?;
        match next {
            Next::Close(reason) => self.close(reason).await,
            Next::Change | Next::Stream => self.save().await,
        }
    }

    /// Reads what there is, publishes it, notes it; false at the end of the stream.
    async fn batch(&mut self, source: &Source, changes: &mut Changes) -> Result<bool, BatchEnd> {
        let mut events = Vec::new();
        let mut next = Next::Change;
        let (mut read, mut bytes, mut to_publish) = (0, 0, 0);
        let mut has_rows = false;
        let max = self.feed.options.batch;
        // Published at one stroke: what is refused has published nothing that was read with it.
        let is_full = |read, bytes, to_publish| {
            read >= max || bytes >= FEED_BATCH_BYTES || to_publish > FEED_CHUNK_BYTES
        };
        let broken = loop {
            if is_full(read, bytes, to_publish) || !matches!(next, Next::Change) {
                break None;
            }
            // Longer than the server waits by itself: it is frozen, or the network is.
            let patience = Deadline::after(Duration::from_secs(15));
            let raw = match patience.hold(changes.next_if_any()).await {
                None => break Some(Break::Fault(crate::fault::too_late())),
                Some(Err(error)) => break Some(error.into()),
                Some(Ok(None)) => break None,
                Some(Ok(Some(raw))) => raw,
            };
            let change = Change::read(&raw, source.images);
            let mut change = change.map_err(|why| Pause::Stop(why.to_owned()))?;
            let found = match source.missing_image(&change).await {
                Ok(found) => found,
                Err(fault) => break Some(Break::Fault(fault)),
            };
            complete(&mut change, found.as_deref());
            read += 1;
            bytes +=
                raw.as_bytes().len() + found.as_ref().map_or(0, |found| found.as_bytes().len());
            let decision = match decide(&source.feed, &change) {
                Ok(decision) => decision,
                Err(reason) => {
                    // What was read before it is published first.
                    self.publish(events).await?;
                    self.settle();
                    return Err(self.stop_at(reason, change.token).into());
                }
            };
            has_rows |= change.document.is_some_and(is_row);
            let before = events.len();
            next = self.apply(decision, &change, &mut events);
            let new = events.iter().skip(before);
            to_publish += new.map(|event| event.payload.as_bytes().len()).sum::<usize>();
        };
        let is_full = is_full(read, bytes, to_publish);
        self.publish(events).await?;
        self.settle();
        if let Some(end) = broken {
            return Err(end.into());
        }
        let goes_on = match next {
            Next::Close(reason) => return Ok(self.close(reason).await.map(|()| false)?),
            Next::Stream => false,
            Next::Change => true,
        };
        if goes_on && !is_full {
            self.advance(stream::token_of(changes));
        }
        self.tick(source).await?;
        if has_rows {
            // A view may have been made of it since the feed began: its deletes say nothing of that.
            self.refuse(source).await?;
        }
        Ok(goes_on && changes.is_alive())
    }

    /// Takes a decision; says what comes after it.
    fn apply(
        &mut self,
        decision: Decision,
        change: &Change<'_>,
        events: &mut Vec<NewEvent>,
    ) -> Next {
        self.status.reached = Some(change.at);
        self.advance(Some(change.token.to_owned()));
        match decision {
            Decision::Publish(all) => events.extend(all),
            Decision::LeaveOut => self.status.left_out += 1,
            Decision::BeginAnew => return Next::Stream,
            Decision::Close(reason) => {
                // After it, and not at it: whoever goes on from here must not come to it again.
                if let Phase::Stream { since, token, .. } = &mut self.status.phase {
                    (*since, *token) = (change.at.next(), None);
                }
                return Next::Close(reason);
            }
        }
        Next::Change
    }

    /// Stops after a change that is passed by itself when the feed goes on. All in one step: the
    /// record never says that the change was passed and not that it was there.
    async fn close(&mut self, reason: String) -> Result<(), Pause> {
        tracing::error!(feed = self.feed.name, reason, "a changefeed has stopped");
        self.status.alarm = Some(reason.clone());
        let before = Box::new(self.status.phase.clone());
        self.status.phase = Phase::Stopped { reason, before, past: None };
        self.save().await?;
        Err(Pause::LookAgain)
    }

    /// Stops because of one change, which can be passed over.
    fn stop_at(&self, reason: String, token: &str) -> Pause {
        match self.status.phase {
            Phase::Stream { since, run, .. } => {
                let past = Phase::Stream { since, token: Some(token.to_owned()), run };
                Pause::StopAt(reason, past)
            }
            _ => Pause::Stop(reason),
        }
    }

    fn advance(&mut self, reached: Option<String>) {
        if let (Phase::Stream { token, .. }, Some(reached)) = (&mut self.status.phase, reached) {
            *token = Some(reached);
        }
    }
}

impl Source {
    /// The document that an update came without though images are kept, if it is still there. Where
    /// none are kept the server itself has looked.
    async fn missing_image(&self, change: &Change<'_>) -> Result<Option<RawDocumentBuf>, Fault> {
        match self.images {
            Images::Kept => self.look_up(change).await,
            Images::LookedUp => Ok(None),
        }
    }

    /// The document of a change that came without it, if it is still there.
    async fn look_up(&self, change: &Change<'_>) -> Result<Option<RawDocumentBuf>, Fault> {
        match change.id {
            Some(id) if change.lacks_document() => {
                snapshot::look_up(&self.cluster, &self.collection, (id, change.at)).await
            }
            _ => Ok(None),
        }
    }
}

/// Where a feed stands in the server's history. By the token, not by the last change: a quiet
/// collection has none, however far its stream was read.
pub(super) fn place(phase: &Phase) -> Option<ClusterTime> {
    match phase {
        Phase::New => None,
        Phase::Snapshot { since, .. } => Some(*since),
        Phase::Stream { since, token, .. } => {
            Some(token.as_deref().and_then(stream::time_of).unwrap_or(*since))
        }
        Phase::Lost { gap, .. } => gap.from,
        Phase::Stopped { before, .. } => place(before),
    }
}

/// What has a collection keep images.
pub(super) fn images_command(Feed { database, collection, .. }: &Feed) -> String {
    format!(
        "db.getSiblingDB({database:?}).runCommand({{ collMod: {collection:?}, \
         changeStreamPreAndPostImages: {{ enabled: true }} }})"
    )
}

/// Adds the document that was found.
fn complete<'a>(change: &mut Change<'a>, found: Option<&'a RawDocument>) {
    if let Some(found) = found {
        change.document = Some(found);
        change.is_looked_up = true;
    }
}

/// What comes after a change.
enum Next {
    /// The next one.
    Change,
    /// Another stream: this one ends with it.
    Stream,
    /// Nothing, before somebody says how to go on.
    Close(String),
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
