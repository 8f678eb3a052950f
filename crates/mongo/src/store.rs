use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_core::future::BoxFuture;
use promethean::migration;
use promethean::store::{
    Append, AppendError, Appended, Attend, Claim, Claims, Clock, Entry, GroupRecord, GroupSave,
    Growth, HubId, HubPresence, KeyPage, KeyQuery, Lane, LaneBounds, Page, Put, Read, ReadError,
    Restore, SaveError, Store, Stored, TopicDefinition, TopicEntry, TopicId, TopicTable,
};
use promethean_event::{EventId, GroupName, Key, Offset, Timestamp};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, OpenError};
use crate::growth::Growing;
use crate::limits::REQUESTS_WAITING_MAX;
use crate::news::Teller;
use crate::options::{IfMoved, MongoOptions};
use crate::table::Table;
use crate::watch::Watch;
use crate::writer::{Asked, Known, Reply, Request, Writer};
use crate::{claims, cleaning, entries, groups, lookup, news, reading, topics, views};

/// A store on a MongoDB replica set or sharded cluster, which any number of hubs may use at once.
pub struct MongoStore {
    cluster: Cluster,
    clock: Arc<dyn Clock>,
    table: Arc<Table>,
    growing: Arc<Growing>,
    /// `None` once closed.
    requests: Mutex<Option<mpsc::Sender<Asked>>>,
    watching: JoinHandle<()>,
    teller: Arc<Teller>,
    telling: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for MongoStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let database = self.cluster.database.name();
        f.debug_struct("MongoStore").field("database", &database).finish_non_exhaustive()
    }
}

impl Drop for MongoStore {
    fn drop(&mut self) {
        self.watching.abort();
        // What it has to tell still is.
        self.teller.close();
    }
}

impl MongoStore {
    /// Connects, checks the server, and makes what is missing of collections and indexes. The
    /// database is the one that the connection string names, or that of the options. Refused if
    /// everything was moved elsewhere, or is being moved, unless the options say otherwise.
    pub async fn open(url: &str, options: MongoOptions) -> Result<Self, OpenError> {
        let cluster = Cluster::connect(url, &options).await?;
        Self::over(cluster, options).await
    }

    /// The same without making anything; `None` if the database holds nothing of a store.
    pub async fn open_existing(
        url: &str,
        options: MongoOptions,
    ) -> Result<Option<Self>, OpenError> {
        let cluster = Cluster::reach(url, &options).await?;
        if !cluster.is_prepared().await? {
            return Ok(None);
        }
        Self::over(cluster, options).await.map(Some)
    }

    async fn over(cluster: Cluster, options: MongoOptions) -> Result<Self, OpenError> {
        let (table, growing) = (Arc::new(Table::default()), Arc::new(Growing::default()));
        let watch = Watch {
            cluster: cluster.clone(),
            table: Arc::clone(&table),
            growing: Arc::clone(&growing),
            poll: options.poll,
        };
        watch.look().await.map_err(|fault| OpenError::Unreachable(fault.to_string()))?;
        let teller = Teller::new(cluster.clone());
        let writer = Writer {
            cluster: cluster.clone(),
            clock: Arc::clone(&options.clock),
            table: Arc::clone(&table),
            growing: Arc::clone(&growing),
            teller: Arc::clone(&teller),
            known: Known::default(),
        };
        let (requests, waiting) = mpsc::channel(REQUESTS_WAITING_MAX);
        tokio::spawn(writer.run(waiting));
        let watching = tokio::spawn(watch.run());
        let telling = Mutex::new(Some(tokio::spawn(Arc::clone(&teller).run())));
        let requests = Mutex::new(Some(requests));
        let clock = options.clock;
        let store = Self { cluster, clock, table, growing, requests, watching, teller, telling };
        if options.if_moved == IfMoved::Open {
            return Ok(store);
        }
        let refused = match migration::standing(&store).await {
            Ok(None) => return Ok(store),
            Ok(Some(mark)) => OpenError::Moved(mark),
            Err(error) => OpenError::Preparation(error.to_string()),
        };
        store.close().await;
        Err(refused)
    }

    pub(crate) const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// How many hubs use the database at this moment.
    pub async fn hubs_there(&self) -> Result<usize, ReadError> {
        Ok(claims::there(&self.cluster).await?)
    }

    /// Hands a request to the writer, at once; the future is the answer.
    fn ask<T: Send + 'static, E: From<AppendError> + Send + 'static>(
        &self,
        request: impl FnOnce(Reply<T, E>) -> Request,
    ) -> BoxFuture<'static, Result<T, E>> {
        let (reply, answer) = oneshot::channel();
        // Time in the queue counts.
        let asked = Asked { request: request(reply), deadline: self.cluster.deadline() };
        let handed = {
            let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            requests.as_ref().ok_or(AppendError::Closed).and_then(|requests| {
                requests.try_send(asked).map_err(|error| match error {
                    mpsc::error::TrySendError::Full(_) => AppendError::Busy(REQUESTS_WAITING_MAX),
                    mpsc::error::TrySendError::Closed(_) => AppendError::Closed,
                })
            })
        };
        Box::pin(async move {
            handed?;
            // The writer answers everyone; one that is gone was ended with its runtime.
            let gone = || AppendError::Indeterminate("the store has ended".to_owned());
            answer.await.unwrap_or_else(|_| Err(gone().into()))
        })
    }

    fn entry(&self, topic: TopicId) -> Result<TopicEntry, ReadError> {
        self.table.get().by_id(topic).cloned().ok_or(ReadError::UnknownLane)
    }

    fn entry_of(&self, lane: Lane) -> Result<TopicEntry, ReadError> {
        let entry = self.entry(lane.topic)?;
        let is_there = lane.partition.get() < entry.definition.partitions.get();
        is_there.then_some(entry).ok_or(ReadError::UnknownLane)
    }
}

impl Store for MongoStore {
    fn topics(&self) -> Arc<TopicTable> {
        self.table.get()
    }

    fn define(
        &self,
        definition: TopicDefinition,
    ) -> BoxFuture<'static, Result<TopicId, SaveError>> {
        self.ask(|reply| Request::Define(definition, reply))
    }

    fn remove(&self, topic: TopicId) -> BoxFuture<'static, Result<(), SaveError>> {
        self.ask(|reply| Request::Remove(topic, reply))
    }

    fn append(&self, append: Append) -> BoxFuture<'static, Result<Appended, AppendError>> {
        self.ask(|reply| Request::Append(append, reply))
    }

    fn read(&self, read: Read) -> BoxFuture<'static, Result<Page, ReadError>> {
        let (Read::From { lane, .. } | Read::Before { lane, .. }) = read;
        let (cluster, entry) = (self.cluster.clone(), self.entry_of(lane));
        if let (Read::From { from, limit, .. }, Ok(entry)) = (&read, &entry)
            && let Some(tail) = self.growing.tail(lane, from.get())
            && let Some(page) = reading::page_of(&tail, entry, *limit)
        {
            return Box::pin(std::future::ready(page));
        }
        let end = self.growing.end(lane);
        Box::pin(async move {
            let entry = entry?;
            match read {
                Read::From { lane, from, limit } => {
                    reading::forward(&cluster, &entry, (lane, from, limit), end).await
                }
                Read::Before { lane, before, limit } => {
                    reading::backward(&cluster, &entry, (lane, before, limit)).await
                }
            }
        })
    }

    fn bounds(&self, lane: Lane) -> BoxFuture<'_, Result<LaneBounds, ReadError>> {
        Box::pin(async move {
            self.entry_of(lane)?;
            Ok(reading::bounds(&self.cluster, lane).await?)
        })
    }

    fn offset_at(&self, lane: Lane, time: Timestamp) -> BoxFuture<'_, Result<Offset, ReadError>> {
        Box::pin(async move {
            let entry = self.entry_of(lane)?;
            // Asked first: what is appended after that is not the end that was asked for.
            let LaneBounds { start, next } = reading::bounds(&self.cluster, lane).await?;
            let found = lookup::offset_at(&self.cluster, &entry, lane, time).await?;
            // What has expired may be there still, and is not found.
            Ok(found.unwrap_or(next).max(start))
        })
    }

    fn find(
        &self,
        topic: TopicId,
        id: EventId,
    ) -> BoxFuture<'_, Result<Option<Stored>, ReadError>> {
        Box::pin(async move { lookup::find(&self.cluster, &self.entry(topic)?, id).await })
    }

    fn latest(
        &self,
        topic: TopicId,
        keys: Vec<Key>,
    ) -> BoxFuture<'_, Result<Vec<Option<Stored>>, ReadError>> {
        Box::pin(async move { lookup::latest(&self.cluster, &self.entry(topic)?, keys).await })
    }

    fn keys(&self, query: KeyQuery) -> BoxFuture<'_, Result<KeyPage, ReadError>> {
        Box::pin(
            async move { lookup::keys(&self.cluster, &self.entry(query.topic)?, &query).await },
        )
    }

    fn history(
        &self,
        topic: TopicId,
        key: Key,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<Stored>, ReadError>> {
        Box::pin(async move {
            let entry = self.entry(topic)?;
            if max == 0 {
                return Ok(Vec::new());
            }
            lookup::history(&self.cluster, &entry, &key, max).await
        })
    }

    fn grown(&self, mark: u64) -> BoxFuture<'_, Growth> {
        Box::pin(self.growing.since(mark))
    }

    fn groups(&self) -> BoxFuture<'_, Result<Vec<GroupName>, ReadError>> {
        Box::pin(async move { Ok(groups::names(&self.cluster).await?) })
    }

    fn group(&self, group: GroupName) -> BoxFuture<'_, Result<Option<GroupRecord>, ReadError>> {
        Box::pin(async move {
            let table = self.table.get();
            Ok(groups::record(&self.cluster, &group, &table).await?)
        })
    }

    fn save(&self, save: GroupSave) -> BoxFuture<'static, Result<(), SaveError>> {
        self.ask(|reply| Request::Save(save, reply))
    }

    fn remove_group(&self, group: GroupName) -> BoxFuture<'static, Result<(), SaveError>> {
        self.ask(|reply| Request::RemoveGroup(group, reply))
    }

    fn put(&self, puts: Vec<Put>) -> BoxFuture<'static, Result<(), SaveError>> {
        self.ask(|reply| Request::Put(puts, reply))
    }

    fn entries(&self, space: &'static str) -> BoxFuture<'_, Result<Vec<Entry>, ReadError>> {
        Box::pin(async move { Ok(entries::of(&self.cluster, space).await?) })
    }

    fn clean(&self, mut holds: Vec<(Lane, Offset)>) -> BoxFuture<'_, Result<(), ReadError>> {
        Box::pin(async move {
            let now = self.clock.now();
            // Also those of projections that only other processes have.
            holds.extend(views::held(&self.cluster).await?);
            for entry in self.table.get().iter() {
                cleaning::clean(&self.cluster, entry, &holds, now).await?;
            }
            self.growing.lose_tails();
            news::clear(&self.cluster, now).await?;
            Ok(topics::sweep(&self.cluster).await?)
        })
    }

    fn restoring(&self) -> Option<&dyn Restore> {
        Some(self)
    }

    fn claims(&self) -> Option<&dyn Claims> {
        Some(self)
    }

    fn failure(&self) -> Option<String> {
        None
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
        let telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(async move {
            if let Some(requests) = requests {
                let (reply, done) = oneshot::channel();
                let (request, deadline) = (Request::Close(reply), self.cluster.deadline());
                // Behind everything that waits. A writer that is gone has nothing to end.
                if requests.send(Asked { request, deadline }).await.is_ok() {
                    drop(done.await);
                }
            }
            self.teller.close();
            if let Some(telling) = telling {
                // It has said itself what it could not tell.
                telling.await.ok();
            }
            self.growing.close();
            self.watching.abort();
        })
    }
}

impl Restore for MongoStore {
    fn restore(&self, events: Vec<(Lane, Stored)>) -> BoxFuture<'_, Result<(), AppendError>> {
        self.ask(|reply| Request::Restore(events, reply))
    }

    fn place(&self, lanes: Vec<(Lane, LaneBounds)>) -> BoxFuture<'_, Result<(), AppendError>> {
        self.ask(|reply| Request::Place(lanes, reply))
    }

    fn spaces(&self) -> BoxFuture<'_, Result<Vec<String>, ReadError>> {
        Box::pin(async move { Ok(entries::spaces(&self.cluster).await?) })
    }
}

impl Claims for MongoStore {
    fn attend(&self, attend: Attend) -> BoxFuture<'_, Result<Option<Vec<HubPresence>>, SaveError>> {
        Box::pin(async move { Ok(claims::attend(&self.cluster, attend).await?) })
    }

    fn depart(&self, hub: HubId) -> BoxFuture<'_, Result<(), SaveError>> {
        Box::pin(async move { Ok(claims::depart(&self.cluster, hub).await?) })
    }

    fn holders(&self, group: GroupName) -> BoxFuture<'_, Result<Vec<Claim>, ReadError>> {
        Box::pin(async move { Ok(claims::holders(&self.cluster, &group).await?) })
    }

    fn claim(
        &self,
        hub: HubId,
        group: GroupName,
        mut lanes: Vec<Lane>,
    ) -> BoxFuture<'_, Result<Vec<Claim>, SaveError>> {
        lanes.retain(|lane| self.entry_of(*lane).is_ok());
        Box::pin(claims::claim(&self.cluster, hub, group, lanes))
    }

    fn release(
        &self,
        group: GroupName,
        claims: Vec<Claim>,
    ) -> BoxFuture<'_, Result<(), SaveError>> {
        Box::pin(async move { Ok(claims::release(&self.cluster, group, claims).await?) })
    }
}
