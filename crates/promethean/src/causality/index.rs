use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use promethean_event::{EventId, Offset};
use rusqlite::{Connection, OptionalExtension, params};

use crate::bus::Bus;
use crate::store::{Lane, LaneBounds, PageLimit, Read, ReadError, TopicEntry};

/// Events that are indexed in one transaction.
const EVENTS_AT_ONCE: usize = 4_096;
/// The index follows no more often than this.
const REST: Duration = Duration::from_millis(500);

const LAYOUT: &str = "
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS effects (
  cause BLOB NOT NULL,
  lane INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  PRIMARY KEY (cause, lane, offset)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS effects_by_place ON effects (lane, offset);
CREATE TABLE IF NOT EXISTS cursors (
  lane INTEGER PRIMARY KEY NOT NULL,
  next INTEGER NOT NULL
) WITHOUT ROWID;
";

/// Why the index does not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CausalityError {
    /// The file of the index.
    #[error("the index of causes")]
    Database(#[from] rusqlite::Error),
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The thread was lost.
    #[error("the index of causes was broken off")]
    BrokenOff,
}

/// Where an effect stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EffectRef {
    /// Topic and partition.
    pub lane: Lane,
    /// The place there.
    pub offset: Offset,
}

/// The index of causes. A cheap handle.
#[derive(Clone)]
pub struct Causes {
    pub(super) bus: Bus,
    connection: Arc<Mutex<Connection>>,
    /// One at a time brings it up to date. Holds where each lane began when the effects before that
    /// were forgotten.
    following: Arc<tokio::sync::Mutex<HashMap<Lane, Offset>>>,
}

impl std::fmt::Debug for Causes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Causes").finish_non_exhaustive()
    }
}

/// Follows the log until it is dropped.
#[derive(Debug)]
pub struct FollowingCauses(tokio::task::JoinHandle<()>);

impl Drop for FollowingCauses {
    fn drop(&mut self) {
        self.0.abort();
    }
}

type Row = (EventId, Lane, Offset);

impl Causes {
    /// Opens the index of a bus, making it if it is not there.
    pub async fn open(bus: &Bus, path: impl AsRef<Path>) -> Result<Self, CausalityError> {
        let path = path.as_ref().to_owned();
        let opening = tokio::task::spawn_blocking(move || {
            let connection = Connection::open(path)?;
            connection.busy_timeout(Duration::from_secs(5))?;
            connection.execute_batch(LAYOUT)?;
            Ok::<_, rusqlite::Error>(connection)
        });
        let connection = opening.await.map_err(|_| CausalityError::BrokenOff)??;
        let connection = Arc::new(Mutex::new(connection));
        Ok(Self { bus: bus.clone(), connection, following: Arc::default() })
    }

    /// Keeps it near the end of the log, so that questions need not wait.
    pub fn follow(&self) -> FollowingCauses {
        let causes = self.clone();
        FollowingCauses(self.bus.inner.runtime.spawn(async move {
            let mut mark = 0;
            loop {
                let growth = causes.bus.store().grown(mark).await;
                mark = growth.mark;
                if growth.closed {
                    return;
                }
                if let Err(error) = causes.catch_up().await {
                    tracing::warn!(%error, "the index of causes is behind");
                }
                tokio::time::sleep(REST).await;
            }
        }))
    }

    async fn with<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, CausalityError> {
        let connection = Arc::clone(&self.connection);
        let done = tokio::task::spawn_blocking(move || {
            job(&mut connection.lock().unwrap_or_else(PoisonError::into_inner))
        });
        Ok(done.await.map_err(|_| CausalityError::BrokenOff)??)
    }

    /// Reads everything that has been appended since.
    pub async fn catch_up(&self) -> Result<(), CausalityError> {
        let mut forgotten = self.following.lock().await;
        let topics = self.bus.topics();
        let lanes: HashSet<Lane> = topics.users().flat_map(TopicEntry::lanes).collect();
        self.with({
            let lanes = lanes.clone();
            move |connection| forget_others(connection, &lanes)
        })
        .await?;
        forgotten.retain(|lane, _| lanes.contains(lane));
        for lane in lanes {
            let bounds = match self.bus.store().bounds(lane).await {
                Ok(bounds) => bounds,
                // Removed since the topics were listed: next time it is forgotten.
                Err(ReadError::UnknownLane) => continue,
                Err(error) => return Err(error.into()),
            };
            if forgotten.get(&lane).is_none_or(|start| *start < bounds.start) {
                self.with(move |connection| forget_before(connection, lane, bounds.start)).await?;
                forgotten.insert(lane, bounds.start);
            }
            self.catch_up_lane(lane, bounds).await?;
        }
        Ok(())
    }

    async fn catch_up_lane(&self, lane: Lane, bounds: LaneBounds) -> Result<(), CausalityError> {
        let number = lane.id().get().cast_signed();
        let find = move |connection: &mut Connection| {
            let sql = "SELECT next FROM cursors WHERE lane = ?1";
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_row(params![number], |row| row.get::<_, i64>(0)).optional()
        };
        let kept =
            self.with(find).await?.map_or(Offset::ZERO, |next| Offset::new(next.cast_unsigned()));
        let mut next = kept.max(bounds.start);
        while next < bounds.next {
            let limit = PageLimit { events: EVENTS_AT_ONCE, ..PageLimit::default() };
            let page = self.bus.store().read(Read::From { lane, from: next, limit }).await?;
            let rows: Vec<Row> = page
                .events
                .iter()
                .flat_map(|stored| {
                    let offset = stored.event.offset;
                    stored.event.caused_by.iter().map(move |&cause| (cause, lane, offset))
                })
                .collect();
            if page.next == next {
                break;
            }
            next = page.next;
            self.with(move |connection| keep(connection, &rows, lane, next)).await?;
        }
        Ok(())
    }

    /// What an event has given rise to, directly; in the order of topics and places.
    pub async fn effects(
        &self,
        cause: EventId,
        max: usize,
    ) -> Result<Vec<EffectRef>, CausalityError> {
        self.with(move |connection| {
            let sql = "SELECT lane, offset FROM effects WHERE cause = ?1 \
                       ORDER BY lane, offset LIMIT ?2";
            let mut statement = connection.prepare_cached(sql)?;
            let found = statement.query_map(params![cause.as_bytes(), max as i64], |row| {
                let lane = promethean_delivery::LaneId::new(row.get::<_, i64>(0)?.cast_unsigned());
                let offset = Offset::new(row.get::<_, i64>(1)?.cast_unsigned());
                Ok(EffectRef { lane: Lane::of(lane), offset })
            })?;
            found.collect()
        })
        .await
    }
}

/// Effects that the lane does not keep any more are nothing that could be told.
fn forget_before(connection: &mut Connection, lane: Lane, start: Offset) -> rusqlite::Result<()> {
    let (lane, start) = (lane.id().get().cast_signed(), start.get().cast_signed());
    let sql = "DELETE FROM effects WHERE lane = ?1 AND offset < ?2";
    connection.prepare_cached(sql)?.execute(params![lane, start]).map(drop)
}

/// Nor are those of topics that are gone.
fn forget_others(connection: &mut Connection, lanes: &HashSet<Lane>) -> rusqlite::Result<()> {
    let known: HashSet<i64> = lanes.iter().map(|lane| lane.id().get().cast_signed()).collect();
    let transaction = connection.transaction()?;
    let indexed: Vec<i64> = {
        let mut statement = transaction.prepare_cached("SELECT lane FROM cursors")?;
        statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?
    };
    for lane in indexed.into_iter().filter(|lane| !known.contains(lane)) {
        for sql in ["DELETE FROM effects WHERE lane = ?1", "DELETE FROM cursors WHERE lane = ?1"] {
            transaction.prepare_cached(sql)?.execute(params![lane])?;
        }
    }
    transaction.commit()
}

/// Rows and the cursor change together.
fn keep(
    connection: &mut Connection,
    rows: &[Row],
    lane: Lane,
    next: Offset,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    {
        let sql = "INSERT OR IGNORE INTO effects (cause, lane, offset) VALUES (?1, ?2, ?3)";
        let mut insert = transaction.prepare_cached(sql)?;
        for (cause, lane, offset) in rows {
            let (lane, offset) = (lane.id().get().cast_signed(), offset.get().cast_signed());
            insert.execute(params![cause.as_bytes(), lane, offset])?;
        }
        let sql = "INSERT INTO cursors (lane, next) VALUES (?1, ?2) \
                   ON CONFLICT (lane) DO UPDATE SET next = excluded.next";
        let (lane, next) = (lane.id().get().cast_signed(), next.get().cast_signed());
        transaction.prepare_cached(sql)?.execute(params![lane, next])?;
    }
    transaction.commit()
}
