//! What is kept of a feed, in the store of its bus: what it is to do, and how far it has come.

use std::sync::Arc;

use promethean_event::{Key, KeyError, Payload};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::definition::{Definition, DefinitionError};
use super::origin::Origin;
use super::position::ClusterTime;
use crate::store::{Put, ReadError, SaveError, Store};

/// Declarations and orders, by name.
const WANTED: &str = "changefeeds";
/// Progress, by name.
const REACHED: &str = "changefeed-progress";

/// What somebody wants of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// What it is to do.
    pub definition: Definition,
    /// Whether it is to wait. Default: no.
    #[serde(default)]
    pub paused: bool,
    /// How it is to go on, if its history is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recover: Option<Recovery>,
}

/// How a feed goes on otherwise than by itself: its history is lost, it has stopped at a change, or
/// what is in its topic is not what is in its collection any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// From a new snapshot: every document comes again, as it is; of any feed. The changes since
    /// where it stood come after it, so that nothing is missing. If its history is lost they cannot:
    /// documents that were deleted in the gap are not noticed.
    Resnapshot,
    /// From this time on, in seconds since 1970, if the server's history reaches so far.
    FromTime(u32),
    /// From now on.
    AcceptGap,
    /// Past the one change (or document of the snapshot) that it stopped at, which is not published.
    Skip,
}

/// How far a feed has come. Default: nowhere.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Who runs it.
    pub owner: String,
    /// Rises with every owner.
    pub epoch: u64,
    /// Rises while the owner lives.
    pub beat: u64,
    /// What it is doing.
    pub phase: Phase,
    /// Snapshots that were begun under its name, by feeds that were removed, too: each has its own
    /// number, which the ids of its events are made of.
    #[serde(default)]
    pub snapshots: u64,
    /// The time of the last change that was passed, by the server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<ClusterTime>,
    /// Events that were published, of all owners; those of a replay count again.
    #[serde(default)]
    pub published: u64,
    /// Events that were not published, because one of the same change (or document of the snapshot)
    /// was there already, with other content: a document that was looked up before, and has changed.
    #[serde(default)]
    pub already_there: u64,
    /// Changes that were left out, by the filter or by their origin.
    #[serde(default)]
    pub left_out: u64,
    /// How much longer than the feed's place the server's history reaches back, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oplog_headroom_seconds: Option<u64>,
    /// How far the server's history reaches back from now, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oplog_window_seconds: Option<u64>,
    /// That the server will have forgotten what the feed has not read yet, if it goes on like this:
    /// less than half of its history is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
    /// Why it does not run, though it should: MongoDB cannot be reached, or will not have it. It is
    /// tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// What somebody should know of: the collection was dropped or renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarm: Option<String>,
    /// The last gap that was accepted; it ends where the feed went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// How it goes on after that gap, in the words of the event that is to tell so: while that is not
    /// published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untold: Option<serde_json::Value>,
    /// What its place is a place of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_from: Option<Origin>,
}

impl Status {
    /// That of a feed that begins anew. Who has it keeps it: he may be publishing yet, and nobody
    /// takes over before he has noticed, or his lease is over.
    #[must_use]
    pub fn begun_anew(&self) -> Self {
        let Self { owner, epoch, beat, snapshots, .. } = self.clone();
        // Records of before counted snapshots by the phase alone.
        let of_phase = self.phase.run().map_or(0, |run| run + 1);
        let snapshots = snapshots.max(of_phase);
        Self { owner, epoch, beat, snapshots, ..Self::default() }
    }
}

/// What a feed is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "kebab-case")]
pub enum Phase {
    /// It has never reached its MongoDB.
    #[default]
    New,
    /// It publishes what is there.
    Snapshot {
        /// The moment before: the stream begins right after it.
        since: ClusterTime,
        /// The `_id` that it has come to: a BSON document, in base 64.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        /// Which snapshot of the feed it is, from 0.
        run: u64,
    },
    /// It publishes changes.
    Stream {
        /// From this moment on, if there is no token yet.
        since: ClusterTime,
        /// The resume token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<String>,
        /// How many snapshots there were.
        run: u64,
    },
    /// The server's history does not reach back to where it was.
    Lost {
        /// What is missing.
        gap: Gap,
        /// How many snapshots there were.
        run: u64,
    },
    /// It cannot go on before something is put right; `resume` tries again from here.
    Stopped {
        /// Why.
        reason: String,
        /// What it was doing.
        before: Box<Phase>,
        /// What it goes on with if what it stopped at is passed over; nothing if it was not a change
        /// that stopped it. All that came before that is published.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        past: Option<Box<Phase>>,
    },
}

impl Phase {
    /// Which snapshot of the feed it is of; nothing if there was none.
    pub fn run(&self) -> Option<u64> {
        match self {
            Self::New => None,
            Self::Snapshot { run, .. } | Self::Stream { run, .. } | Self::Lost { run, .. } => {
                Some(*run)
            }
            Self::Stopped { before, .. } => before.run(),
        }
    }
}

/// Changes that nobody will see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last change that was published is of this time.
    pub from: Option<ClusterTime>,
    /// Until somebody says how to go on: where the server's history begins, as far as it tells. After
    /// that: where the feed went on.
    pub to: Option<ClusterTime>,
}

/// Why feeds could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FeedsError {
    /// No feed has the name.
    #[error("there is no changefeed {0:?}; `prom changefeed ls` lists them")]
    Unknown(String),
    /// The name is not good.
    #[error("the name of a changefeed: {0}")]
    Name(#[from] KeyError),
    /// The declaration is not good.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// The history is lost, and nobody has said what to do.
    #[error(
        "the history of changefeed {0:?} is lost; say how to go on: --recover resnapshot, \
         from-time or accept-gap"
    )]
    Lost(String),
    /// Somebody has said how to go on with lost history, and it is not lost.
    #[error(
        "the history of changefeed {0:?} is not lost, so that there is no gap to accept; resume it \
         without --recover, or with --recover resnapshot, which publishes every document once more"
    )]
    NotLost(String),
    /// Somebody wants a change to be passed over, and none has stopped the feed.
    #[error(
        "changefeed {0:?} has not stopped at a change, so that there is none to pass over; resume it \
         without --recover"
    )]
    NothingToSkip(String),
    /// The store refused.
    #[error(transparent)]
    Save(#[from] SaveError),
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What is kept is not what this program knows.
    #[error("what is kept of a changefeed cannot be read: {0}")]
    Malformed(String),
}

/// The feeds of a bus.
#[derive(Debug, Clone)]
pub struct Feeds(Arc<dyn Store>);

/// A feed, and how it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// What it is to do.
    pub definition: Definition,
    /// Whether it is to wait.
    pub paused: bool,
    /// How far it has come; nothing if it never ran.
    pub status: Option<Status>,
}

/// Something kept, and its version.
#[derive(Debug, Clone)]
pub struct Versioned<T> {
    /// It.
    pub value: T,
    /// Rises with every change.
    pub version: u64,
}

impl Feeds {
    /// Those whose records are in this store.
    pub fn new(store: &Arc<dyn Store>) -> Self {
        Self(Arc::clone(store))
    }

    /// Adds or changes a feed. What it has come to stays, unless it is to read another collection: then
    /// it begins anew. So it does if its MongoDB turns out to be another one when that is reached.
    pub async fn add(&self, name: &str, definition: Definition) -> Result<(), FeedsError> {
        definition.feed(name)?;
        loop {
            let before = self.wanted(name).await?;
            let paused = before.as_ref().is_some_and(|before| before.value.paused);
            let had = before.as_ref().map(|before| &before.value.definition);
            if had == Some(&definition) {
                return Ok(());
            }
            let wanted = Wanted { definition: definition.clone(), paused, recover: None };
            let mut puts = vec![put(WANTED, name, Some(&wanted), None)?];
            match had {
                Some(had) if had.collection != definition.collection => {
                    puts.push(self.begin_anew(name).await?);
                }
                Some(had) if had.url != definition.url => {
                    puts.extend(self.note_origin(name, had).await?);
                }
                _ => {}
            }
            if let Some(done) = settled(self.0.put(puts).await) {
                return done;
            }
        }
    }

    /// What makes a feed begin anew; also one whose first instance is about to begin, and would note a
    /// place in what it is not to read any more.
    async fn begin_anew(&self, name: &str) -> Result<Put, FeedsError> {
        let status = self.status(name).await?;
        let status = status.unwrap_or(Versioned { value: Status::default(), version: 0 });
        put(REACHED, name, Some(&status.value.begun_anew()), Some(status.version))
    }

    /// Notes what a place is one of, before another connection string says where to go on. Whether that
    /// is of another MongoDB is told by what is found there.
    async fn note_origin(&self, name: &str, had: &Definition) -> Result<Option<Put>, FeedsError> {
        let status = self.status(name).await?;
        let Some(mut status) = status.filter(|status| status.value.read_from.is_none()) else {
            return Ok(None);
        };
        status.value.read_from = Some(Origin::declared(had));
        put(REACHED, name, Some(&status.value), Some(status.version)).map(Some)
    }

    /// All of them.
    pub async fn list(&self) -> Result<Vec<Listed>, FeedsError> {
        let mut feeds = Vec::new();
        for entry in self.0.entries(WANTED).await? {
            let name = entry.key.as_str().to_owned();
            let Wanted { definition, paused, .. } = decode(&entry.value)?;
            let status = self.status(&name).await?.map(|status| status.value);
            feeds.push(Listed { name, definition, paused, status });
        }
        Ok(feeds)
    }

    /// Has a feed stop until it is resumed.
    pub async fn pause(&self, name: &str) -> Result<(), FeedsError> {
        let mut wanted = self.known(name).await?;
        wanted.value.paused = true;
        self.write(WANTED, name, Some(&wanted.value), Some(wanted.version)).await
    }

    /// Has a feed go on; one whose history is lost only as it is told. Any may be told to publish what
    /// is there once more.
    pub async fn resume(&self, name: &str, recover: Option<Recovery>) -> Result<(), FeedsError> {
        let mut wanted = self.known(name).await?;
        let status = self.status(name).await?;
        let is_lost = |status: Versioned<Status>| matches!(status.value.phase, Phase::Lost { .. });
        let skips = recover == Some(Recovery::Skip);
        let recover = recover.filter(|_| !skips);
        match (status.is_some_and(is_lost), recover) {
            (true, None) => return Err(FeedsError::Lost(name.to_owned())),
            (false, Some(Recovery::FromTime(_) | Recovery::AcceptGap)) => {
                return Err(FeedsError::NotLost(name.to_owned()));
            }
            _ => {}
        }
        wanted.value.paused = false;
        wanted.value.recover = recover;
        // Who recovers it takes it from where it stands: it must not go on for a moment before that.
        if recover.is_none() {
            self.start_again(name, skips).await?;
        }
        self.write(WANTED, name, Some(&wanted.value), Some(wanted.version)).await
    }

    /// One that has stopped goes on where it stood, or past what it stopped at.
    async fn start_again(&self, name: &str, skips: bool) -> Result<(), FeedsError> {
        let nothing = || FeedsError::NothingToSkip(name.to_owned());
        loop {
            let status = self.status(name).await?;
            let is_stopped = |s: &Versioned<Status>| matches!(s.value.phase, Phase::Stopped { .. });
            let Some(mut status) = status.filter(is_stopped) else {
                return if skips { Err(nothing()) } else { Ok(()) };
            };
            let Phase::Stopped { before, past, reason } = status.value.phase else { return Ok(()) };
            status.value.phase = match skips {
                true => *past.ok_or_else(nothing)?,
                false => *before,
            };
            if skips {
                status.value.left_out += 1;
                status.value.alarm = Some(format!("passed over, as ordered: {reason}"));
            }
            match self.save(name, &status.value, status.version).await {
                // Its sign of life came in between.
                Err(FeedsError::Save(SaveError::Changed { .. } | SaveError::Fenced(_))) => {}
                other => return other.map(drop),
            }
        }
    }

    /// Removes a feed. What it has published stays; so does a record of who had it, and of how many
    /// snapshots there were, for one that is added under its name.
    pub async fn remove(&self, name: &str) -> Result<(), FeedsError> {
        self.known(name).await?;
        loop {
            let mut puts = vec![put::<Wanted>(WANTED, name, None, None)?];
            puts.push(self.begin_anew(name).await?);
            if let Some(done) = settled(self.0.put(puts).await) {
                return done;
            }
        }
    }

    async fn known(&self, name: &str) -> Result<Versioned<Wanted>, FeedsError> {
        self.wanted(name).await?.ok_or_else(|| FeedsError::Unknown(name.to_owned()))
    }

    /// What is wanted of a feed; nothing if there is none.
    pub async fn wanted(&self, name: &str) -> Result<Option<Versioned<Wanted>>, FeedsError> {
        self.read(WANTED, name).await
    }

    /// How far a feed has come; nothing if it never ran.
    pub async fn status(&self, name: &str) -> Result<Option<Versioned<Status>>, FeedsError> {
        self.read(REACHED, name).await
    }

    /// Writes progress on condition of the version before; gives the new one.
    pub async fn save(&self, name: &str, status: &Status, expect: u64) -> Result<u64, FeedsError> {
        self.write(REACHED, name, Some(status), Some(expect)).await?;
        self.saved(name, status).await
    }

    /// Writes progress by which an order is carried out, and that it is one no more: both, or neither.
    /// Each on condition of its version.
    pub async fn save_recovered(
        &self,
        name: &str,
        status: &Versioned<Status>,
        wanted: &Versioned<Wanted>,
    ) -> Result<u64, FeedsError> {
        let done = Wanted { recover: None, ..wanted.value.clone() };
        let puts = vec![
            put(REACHED, name, Some(&status.value), Some(status.version))?,
            put(WANTED, name, Some(&done), Some(wanted.version))?,
        ];
        self.0.put(puts).await?;
        self.saved(name, &status.value).await
    }

    /// Versions are the store's. Nobody else writes one that was written under its condition without
    /// having read it, in which case the next save is refused.
    async fn saved(&self, name: &str, status: &Status) -> Result<u64, FeedsError> {
        let saved = self.status(name).await?;
        let is_own = |saved: &Versioned<Status>| saved.value == *status;
        match saved.filter(is_own) {
            Some(saved) => Ok(saved.version),
            None => Err(FeedsError::Save(SaveError::Fenced(Vec::new()))),
        }
    }

    async fn read<T: DeserializeOwned>(
        &self,
        space: &'static str,
        name: &str,
    ) -> Result<Option<Versioned<T>>, FeedsError> {
        let entries = self.0.entries(space).await?;
        let found = entries.into_iter().find(|entry| entry.key.as_str() == name);
        found
            .map(|entry| Ok(Versioned { value: decode(&entry.value)?, version: entry.version }))
            .transpose()
    }

    async fn write<T: Serialize>(
        &self,
        space: &'static str,
        name: &str,
        value: Option<&T>,
        expect: Option<u64>,
    ) -> Result<(), FeedsError> {
        Ok(self.0.put(vec![put(space, name, value, expect)?]).await?)
    }
}

fn put<T: Serialize>(
    space: &'static str,
    name: &str,
    value: Option<&T>,
    expect: Option<u64>,
) -> Result<Put, FeedsError> {
    let value = value.map(Payload::of).transpose();
    let value = value.map_err(|error| FeedsError::Malformed(error.to_string()))?;
    Ok(Put { space, key: Key::new(name)?, value, expect })
}

/// Nothing if a sign of life of the feed's came in between: it has to be read again.
fn settled(done: Result<(), SaveError>) -> Option<Result<(), FeedsError>> {
    match done {
        Err(SaveError::Changed { .. } | SaveError::Fenced(_)) => None,
        done => Some(done.map_err(FeedsError::from)),
    }
}

fn decode<T: DeserializeOwned>(value: &Payload) -> Result<T, FeedsError> {
    value.decode().map_err(|error| FeedsError::Malformed(error.to_string()))
}
