//! What hubs tell each other, in a collection of its own. To listen to all that is written would make
//! the server take every transaction apart, event by event, for every hub that listens: more work than
//! the events themselves are.
//!
//! What a small commit has to tell goes with it. What a large one has is told right behind it, so that
//! its events are nobody's to take apart: if the hub is killed between the two, the others see it when
//! they look the next time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mongodb::ClientSession;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Document, doc};
use mongodb::change_stream::event::ChangeStreamEvent;
use promethean::store::Lane;
use promethean_event::Timestamp;
use tokio::sync::Notify;

use crate::carry_out::end_of;
use crate::clock::Deadline;
use crate::cluster::Cluster;
use crate::document::{date, signed, unsigned};
use crate::fault::Fault;
use crate::groups::lane;
use crate::limits::{NEWS_KEPT, NEWS_PAUSE, TAIL_KEPT};
use crate::plan::{Head, Plan};
use crate::tail::{self, Tail};

/// Where a lane ends by now, and with which events, if that was told.
pub(crate) type Heard = (Lane, Head, Option<Tail>);

/// Something that changed.
#[derive(Debug)]
pub(crate) enum News {
    Heads(Vec<Heard>),
    Changed(About),
}

/// What is told of without saying how it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// Topics came, changed or went.
    Topics,
    /// Hubs came, went or let go of something, or want something of each other.
    Hubs,
    /// Lanes were said to end elsewhere.
    Ends,
}

impl About {
    const ALL: [Self; 3] = [Self::Topics, Self::Hubs, Self::Ends];

    const fn name(self) -> &'static str {
        match self {
            Self::Topics => "topics",
            Self::Hubs => "hubs",
            Self::Ends => "ends",
        }
    }
}

/// What the large commits of a hub are told by.
const HEADS: &str = "heads";

/// Tells that something has changed. Each hub has documents of its own, so that none is in the way of
/// another one that has the same to tell.
pub(crate) async fn tell(cluster: &Cluster, about: About) -> Result<(), Fault> {
    let (of, change) = telling(cluster, about);
    cluster.ask(cluster.news.update_one(of, change).upsert(true)).await?;
    Ok(())
}

/// The same as part of the transaction that changes it.
pub(crate) async fn tell_within(
    cluster: &Cluster,
    session: &mut ClientSession,
    about: About,
) -> Result<(), Fault> {
    let (of, change) = telling(cluster, about);
    cluster.news.update_one(of, change).upsert(true).session(session).await?;
    Ok(())
}

fn telling(cluster: &Cluster, about: About) -> (Document, Document) {
    let change = doc! { "$inc": { "times": 1_i64 }, "$currentDate": { "at": true } };
    (doc! { "_id": id_of(about.name(), &cluster.name) }, change)
}

fn id_of(kind: &str, hub: &str) -> String {
    format!("{kind} {hub}")
}

/// The updates that tell of what a plan appends, with the events themselves where they are few.
pub(crate) fn of_plan(plan: &Plan) -> Vec<Document> {
    let update = |(lane, head): (Lane, Head)| {
        let mut end = end_of(head);
        if let Some(bytes) = tail::told(plan, lane) {
            end.insert("tail", Binary { subtype: BinarySubtype::Generic, bytes });
        }
        doc! { "q": { "_id": signed(lane.id().get()) }, "u": { "$set": end }, "upsert": true }
    };
    plan.grown().map(update).collect()
}

/// What a change of the collection says; `None` if nothing.
pub(crate) fn of_change(change: &ChangeStreamEvent<Document>) -> Option<News> {
    let key = change.document_key.as_ref()?;
    let updated = change.update_description.as_ref().map(|update| &update.updated_fields);
    let fields = updated.or(change.full_document.as_ref())?;
    if let Ok(id) = key.get_i64("_id") {
        let tail = fields.get_binary_generic("tail").ok();
        let heard = (lane(id), head_of(fields)?, tail.and_then(|bytes| Tail::heard(bytes)));
        return Some(News::Heads(vec![heard]));
    }
    let (kind, _) = key.get_str("_id").ok()?.split_once(' ')?;
    if kind != HEADS {
        return About::ALL.into_iter().find(|about| about.name() == kind).map(News::Changed);
    }
    let read = |lanes: &mongodb::bson::Array| {
        let one = |document: &mongodb::bson::Bson| {
            let document = document.as_document()?;
            Some((lane(document.get_i64("lane").ok()?), head_of(document)?, None))
        };
        lanes.iter().map(one).collect::<Option<Vec<_>>>()
    };
    // Only what was changed of them is told by some servers: then they are to be looked at.
    let heads = fields.get_array("lanes").ok().and_then(read);
    Some(heads.map_or(News::Changed(About::Ends), News::Heads))
}

fn head_of(fields: &Document) -> Option<Head> {
    let time = fields.get_datetime("appendedAt").ok()?.timestamp_millis();
    Some(Head {
        next: unsigned(fields.get_i64("next").ok()?),
        bytes: unsigned(fields.get_i64("bytes").ok()?),
        appended_at: Timestamp::from_millis(unsigned(time)),
        exists: true,
    })
}

/// Takes away what was told: of events that are deleted, nothing must stay there.
pub(crate) async fn clear(cluster: &Cluster, now: Timestamp) -> Result<(), Fault> {
    let since = |kept: std::time::Duration| {
        let kept = u64::try_from(kept.as_millis()).unwrap_or(u64::MAX);
        date(Timestamp::from_millis(now.millis().saturating_sub(kept)))
    };
    let old = doc! { "tail": { "$exists": true }, "appendedAt": { "$lt": since(TAIL_KEPT) } };
    cluster.ask(cluster.news.update_many(old, doc! { "$unset": { "tail": "" } })).await?;
    // Of hubs that have gone.
    let gone = doc! { "at": { "$lt": since(NEWS_KEPT) } };
    cluster.ask(cluster.news.delete_many(gone)).await?;
    Ok(())
}

/// Tells where lanes end after large commits: one write at a time, of all that came together meanwhile.
#[derive(Debug)]
pub(crate) struct Teller {
    cluster: Cluster,
    waiting: Mutex<Waiting>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    heads: BTreeMap<Lane, Head>,
    closed: bool,
}

impl Waiting {
    /// What could not be told, except where there is something newer.
    fn take_back(&mut self, heads: BTreeMap<Lane, Head>) {
        for (lane, head) in heads {
            self.heads.entry(lane).or_insert(head);
        }
    }
}

impl Teller {
    pub(crate) fn new(cluster: Cluster) -> Arc<Self> {
        Arc::new(Self { cluster, waiting: Mutex::default(), more: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of them by and by. Of one lane, in the order of its growth.
    pub(crate) fn tell(&self, heads: impl IntoIterator<Item = (Lane, Head)>) {
        self.lock().heads.extend(heads);
        self.more.notify_one();
    }

    /// Nothing more is to be told. Whatever waits still is.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.more.notify_one();
    }

    /// Runs until it is closed or the task is ended.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let (heads, closed) = {
                let mut waiting = self.lock();
                (std::mem::take(&mut waiting.heads), waiting.closed)
            };
            if heads.is_empty() {
                if closed {
                    return;
                }
                self.more.notified().await;
                continue;
            }
            if let Err(fault) = self.write(&heads).await {
                if closed {
                    tracing::debug!(%fault, "other hubs will see only by looking what was appended");
                    return;
                }
                tracing::debug!(%fault, "other hubs were not told of what was appended; once more");
                self.lock().take_back(heads);
                Deadline::after(NEWS_PAUSE).pause(NEWS_PAUSE).await;
            }
        }
    }

    async fn write(&self, heads: &BTreeMap<Lane, Head>) -> Result<(), Fault> {
        let one = |(lane, head): (&Lane, &Head)| {
            let mut document = doc! { "lane": signed(lane.id().get()) };
            document.extend(end_of(*head));
            document
        };
        let lanes: Vec<Document> = heads.iter().map(one).collect();
        let of = doc! { "_id": id_of(HEADS, &self.cluster.name) };
        let change = doc! { "$set": { "lanes": lanes }, "$currentDate": { "at": true } };
        self.cluster.ask(self.cluster.news.update_one(of, change).upsert(true)).await?;
        Ok(())
    }
}
