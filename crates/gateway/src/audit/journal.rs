use std::collections::VecDeque;
use std::sync::Arc;

use promethean::store::{
    Append, AppendError, Cleaning, Durability, Put, ReadError, SaveError, Store, TopicDefinition,
    TopicId,
};
use promethean_event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::record::{FORM, Placed, Record, hash};
use super::refusals::{Refusals, Sum};
use crate::limits::{AUDIT_ATTEMPTS_MAX, AUDIT_RETENTION_MS};
use crate::rejection::{Code, Rejection};

/// Where records stand. No user can read or write a topic with such a name.
pub(crate) const AUDIT_TOPIC: &str = "$audit";
/// Where it is kept how far each chain is.
pub(crate) const HEADS: &str = "audit-heads";
/// The chain of a store that one process has at a time.
const ONLY_CHAIN: &str = "main";

/// How the audit log is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSettings {
    /// The chain of this hub, where several use one store; the same again after a restart.
    /// Default: a new one with each start. A store that one process has at a time has one chain.
    pub chain: Option<String>,
    /// How long records stay. Default: 90 days.
    pub retention: Retention,
}

/// How long records of the audit log stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// As whoever kept the log before has said; 90 days for a new one.
    AsIs,
    /// So many milliseconds.
    Millis(u64),
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self { chain: None, retention: Retention::Millis(AUDIT_RETENTION_MS) }
    }
}

/// Why a record was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuditError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Save(#[from] SaveError),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error("the newest record cannot be read: {0}")]
    Malformed(String),
    #[error("others write the same chain")]
    Contended,
}

impl From<AuditError> for Rejection {
    fn from(error: AuditError) -> Self {
        tracing::warn!(%error, "the audit log could not be written");
        match error {
            AuditError::Read(error) => error.into(),
            AuditError::Save(error) => error.into(),
            AuditError::Append(error) => error.into(),
            AuditError::Malformed(_) => Self::plain(Code::Internal),
            AuditError::Contended => Self::plain(Code::NotReady).after_ms(1_000),
        }
    }
}

fn definition(topic: Topic, retention: Retention) -> TopicDefinition {
    let age_ms_max = match retention {
        Retention::AsIs => Some(AUDIT_RETENTION_MS),
        Retention::Millis(age) => Some(age),
    };
    let cleaning = Cleaning { age_ms_max, ..Cleaning::default() };
    TopicDefinition { cleaning, ..TopicDefinition::new(topic) }
}

/// Where a chain is: after its newest record.
#[derive(Debug, Clone, PartialEq, Eq)]
struct End {
    topic: TopicId,
    n: u64,
    prev: Option<String>,
}

/// How far a chain is, as it is kept beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) n: u64,
    pub(crate) sha256: String,
}

/// The audit log of a hub.
#[derive(Debug)]
pub(crate) struct Audit {
    store: Arc<dyn Store>,
    chain: String,
    /// Whether it is the same after a restart.
    lasts: bool,
    retention: Retention,
    /// Held while a record is written: the next one has to know its hash.
    end: Mutex<Option<End>>,
    pub(crate) refusals: Refusals,
}

impl Audit {
    pub(crate) fn new(store: &Arc<dyn Store>, settings: &AuditSettings) -> Self {
        let is_shared = store.claims().is_some();
        let named = if is_shared { settings.chain.clone() } else { Some(ONLY_CHAIN.to_owned()) };
        Self {
            store: Arc::clone(store),
            lasts: named.is_some(),
            chain: named.unwrap_or_else(|| format!("life-{}", EventId::generate())),
            retention: settings.retention,
            end: Mutex::default(),
            refusals: Refusals::default(),
        }
    }

    /// Writes a record; when this returns, it is durable. If it is not waited for, it may be there
    /// or not, and the chain goes on in either case.
    pub(crate) async fn write(&self, record: Record) -> Result<(), AuditError> {
        let record = record.bounded();
        let mut kept = self.end.lock().await;
        for _ in 0..AUDIT_ATTEMPTS_MAX {
            let end = match kept.take() {
                Some(end) => end,
                None => self.found().await?,
            };
            let (event, next) = self.placed(&end, &record)?;
            match self.appended(event).await {
                Ok(()) => {
                    self.keep_head(&next);
                    *kept = Some(next);
                    return Ok(());
                }
                // Somebody was faster, or one of ours that was not waited for; or the topic is gone.
                Err(AppendError::IdConflict { .. } | AppendError::UnknownTopic(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(AuditError::Contended)
    }

    /// Has a log that is there kept for as long as is wanted now; a new one begins with its first
    /// record.
    pub(crate) async fn settle(&self) -> Result<(), AuditError> {
        let name = Topic::system(AUDIT_TOPIC);
        let name = name.map_err(|error| AuditError::Malformed(error.to_string()))?;
        if self.store.topics().get(&name).is_some() {
            let mut kept = self.end.lock().await;
            if kept.is_none() {
                *kept = Some(self.found().await?);
            }
        }
        Ok(())
    }

    /// Where the chain ends, by what is stored.
    async fn found(&self) -> Result<End, AuditError> {
        let malformed = |error: &dyn std::fmt::Display| AuditError::Malformed(error.to_string());
        let name = Topic::system(AUDIT_TOPIC).map_err(|error| malformed(&error))?;
        let key = Key::new(self.chain.as_str()).map_err(|error| malformed(&error))?;
        let there = self.store.topics().get(&name).map(|entry| entry.id);
        let topic = match (there, self.retention) {
            (Some(topic), Retention::AsIs) => topic,
            (_, retention) => self.store.define(definition(name, retention)).await?,
        };
        let newest = self.store.latest(topic, vec![key.clone()]).await?;
        let mut end = End { topic, n: 0, prev: None };
        if let Some(stored) = newest.into_iter().next().flatten() {
            let bytes = stored.event.payload.as_str();
            let placed: Placed = serde_json::from_str(bytes).map_err(|error| malformed(&error))?;
            end = End { n: placed.n, prev: Some(hash(bytes.as_bytes())), ..end };
        }
        // Retention may have removed it.
        let heads = self.store.entries(HEADS).await?;
        if let Some(entry) = heads.into_iter().find(|entry| entry.key == key) {
            let head: Head = entry.value.decode().map_err(|error| malformed(&error))?;
            if head.n > end.n {
                end = End { n: head.n, prev: Some(head.sha256), ..end };
            }
        }
        Ok(end)
    }

    /// The next record as an event, and where the chain ends with it.
    fn placed(&self, end: &End, record: &Record) -> Result<(NewEvent, End), AuditError> {
        let malformed = |error: &dyn std::fmt::Display| AuditError::Malformed(error.to_string());
        let n = end.n + 1;
        let (chain, prev) = (self.chain.clone(), end.prev.clone());
        let placed = Placed { v: FORM, chain, n, prev, record: record.clone() };
        let payload = Payload::of(&placed).map_err(|error| malformed(&error))?;
        let name = Topic::system(AUDIT_TOPIC).map_err(|error| malformed(&error))?;
        let key = Key::new(self.chain.as_str()).map_err(|error| malformed(&error))?;
        let id = EventId::derived("audit", format!("{}\0{n}", self.chain).as_bytes());
        let prev = Some(hash(payload.as_str().as_bytes()));
        let event = NewEvent::new(id, Timestamp::from_millis(record.at), name, payload);
        Ok((event.with_key(key), End { topic: end.topic, n, prev }))
    }

    /// Appends it. If nobody knows whether it is there, the same id finds out.
    async fn appended(&self, event: NewEvent) -> Result<(), AppendError> {
        let mut last = AppendError::Closed;
        for _ in 0..AUDIT_ATTEMPTS_MAX {
            let append = Append {
                events: vec![event.clone()],
                durability: Durability::Synced,
                ..Append::default()
            };
            match self.store.append(append).await {
                Ok(_) => return Ok(()),
                Err(error @ AppendError::Indeterminate(_)) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Keeps how far the chain is. Nobody waits for it: until it is there, the record itself says.
    fn keep_head(&self, end: &End) {
        let (true, Some(sha256), Ok(key)) =
            (self.lasts, end.prev.clone(), Key::new(self.chain.as_str()))
        else {
            return;
        };
        let Ok(value) = Payload::of(&Head { n: end.n, sha256 }) else { return };
        // Handed over here, so that heads are kept in the order of their records.
        let put = self.store.put(vec![Put { space: HEADS, key, value: Some(value), expect: None }]);
        tokio::spawn(async move {
            if let Err(error) = put.await {
                tracing::warn!(%error, "it was not kept how far the audit log is");
            }
        });
    }

    /// Writes what was summed up since the last time. What cannot be written is kept for the next.
    pub(crate) async fn sum_up(&self, now_ms: u64) -> Result<(), AuditError> {
        let mut unwritten =
            Unwritten { refusals: &self.refusals, sums: self.refusals.take().into() };
        while let Some(sum) = unwritten.sums.front() {
            self.write(sum.record(now_ms)).await?;
            // It is not counted twice.
            unwritten.sums.pop_front();
        }
        Ok(())
    }
}

/// What was taken to be written, and was not yet. It is put back when nobody waits for that any more:
/// rather counted twice than not at all.
struct Unwritten<'a> {
    refusals: &'a Refusals,
    sums: VecDeque<Sum>,
}

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        self.sums.drain(..).for_each(|sum| self.refusals.put_back(sum));
    }
}

#[cfg(test)]
mod tests {
    use promethean::memory::MemoryStore;
    use promethean::store::{PageLimit, Read};

    use super::super::verifier::{Fault, Verifier};
    use super::*;

    fn audit(store: &Arc<dyn Store>) -> Audit {
        Audit::new(store, &AuditSettings::default())
    }

    async fn stored(store: &Arc<dyn Store>) -> Vec<String> {
        let topic = Topic::system(AUDIT_TOPIC).unwrap();
        let lane = store.topics().get(&topic).unwrap().lanes().next().unwrap();
        let limit = PageLimit::default();
        let page = store.read(Read::From { lane, from: promethean_event::Offset::new(0), limit });
        let events = page.await.unwrap().events;
        events.iter().map(|stored| stored.event.payload.as_str().to_owned()).collect()
    }

    fn verdict(records: &[String]) -> super::super::Verdict {
        let mut verifier = Verifier::default();
        for (offset, record) in records.iter().enumerate() {
            verifier.see(offset as u64, record);
        }
        verifier.end(&[])
    }

    #[tokio::test]
    async fn a_chain_goes_on_after_a_restart() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        for life in 0..3 {
            let audit = audit(&store);
            for act in 0..3 {
                audit.write(Record::of(&format!("a{life}{act}"))).await.unwrap();
            }
        }
        let records = stored(&store).await;
        let verdict = verdict(&records);
        assert_eq!((records.len(), &verdict.faults[..]), (9, &[][..]));
        assert_eq!((verdict.chains[0].first, verdict.chains[0].last), (1, 9));
    }

    /// Two who have the same chain take turns, and do not fork it.
    #[tokio::test]
    async fn two_who_share_a_chain_do_not_fork_it() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let (one, two) = (audit(&store), audit(&store));
        for _ in 0..3 {
            one.write(Record::of("one")).await.unwrap();
            two.write(Record::of("two")).await.unwrap();
            let (a, b) = tokio::join!(one.write(Record::of("a")), two.write(Record::of("b")));
            a.unwrap();
            b.unwrap();
        }
        let records = stored(&store).await;
        assert_eq!((records.len(), verdict(&records).faults), (12, vec![]));
    }

    /// Whoever asked may be gone before the record is durable: the chain has no hole by it.
    #[tokio::test]
    async fn a_record_that_nobody_waits_for_breaks_nothing() {
        use futures_util::FutureExt;
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let audit = audit(&store);
        for _ in 0..5 {
            drop(audit.write(Record::of("left")).now_or_never());
            audit.write(Record::of("stayed")).await.unwrap();
        }
        let records = stored(&store).await;
        assert!(records.len() >= 5);
        assert_eq!(verdict(&records).faults, vec![]);
    }

    /// Retention has removed the whole chain: it still does not begin anew.
    #[tokio::test]
    async fn a_chain_outlives_its_records() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        audit(&store).write(Record::of("old")).await.unwrap();
        let old = stored(&store).await.remove(0);
        let topic = Topic::system(AUDIT_TOPIC).unwrap();
        // The note of how far it is goes its own way.
        while store.entries(HEADS).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        store.remove(store.topics().get(&topic).unwrap().id).await.unwrap();
        audit(&store).write(Record::of("new")).await.unwrap();
        let records = stored(&store).await;
        let new: Placed = serde_json::from_str(&records[0]).unwrap();
        assert_eq!((new.n, new.prev), (2, Some(hash(old.as_bytes()))));
        let verdict = verdict(&records);
        // It was not retention, here.
        let missing = Fault::Missing { chain: "main".into(), from: 1, to: 1, offset: 0 };
        assert_eq!((&verdict.faults[..], verdict.chains[0].first), (&[missing][..], 2));
    }

    /// Whoever opens the store without knowing what its server wants does not change it.
    #[tokio::test]
    async fn retention_is_what_the_server_says() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let with = |retention| Audit::new(&store, &AuditSettings { retention, chain: None });
        let age = || {
            let topics = store.topics();
            let entry = topics.get(&Topic::system(AUDIT_TOPIC).unwrap())?;
            entry.definition.cleaning.age_ms_max
        };
        with(Retention::Millis(7)).settle().await.unwrap();
        assert_eq!(age(), None, "there is nothing to keep yet");
        for (retention, kept) in
            [(Retention::AsIs, AUDIT_RETENTION_MS), (Retention::Millis(5), 5), (Retention::AsIs, 5)]
        {
            with(retention).write(Record::of("a")).await.unwrap();
            assert_eq!(age(), Some(kept), "{retention:?}");
        }
        with(Retention::Millis(9)).settle().await.unwrap();
        assert_eq!(age(), Some(9), "before anything is written");
    }

    #[tokio::test]
    async fn what_was_done_to_a_record_shows() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let audit = audit(&store);
        for act in 0..5 {
            audit.write(Record::of(&format!("act-{act}"))).await.unwrap();
        }
        let good = stored(&store).await;
        let mut changed = good.clone();
        changed[2] = changed[2].replace("act-2", "act-9");
        let found = verdict(&changed).faults;
        assert_eq!(found, vec![Fault::Changed { chain: "main".into(), n: 3, offset: 2 }]);
        let mut removed = good.clone();
        removed.remove(2);
        let found = verdict(&removed).faults;
        assert_eq!(found, vec![Fault::Missing { chain: "main".into(), from: 3, to: 3, offset: 2 }]);
        let mut moved = good;
        moved.swap(1, 2);
        assert!(!verdict(&moved).faults.is_empty());
    }

    /// A store that takes nothing: the caller hears of it.
    #[tokio::test]
    async fn what_cannot_be_written_is_said() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let audit = audit(&store);
        audit.write(Record::of("a")).await.unwrap();
        store.close().await;
        let refused: Rejection = audit.write(Record::of("b")).await.unwrap_err().into();
        assert!(refused.code.status() >= 500, "{refused:?}");
        audit.refusals.forbidden("ann", "x", 1);
        assert!(audit.sum_up(2).await.is_err());
        assert!(!audit.refusals.take().is_empty(), "it is kept for the next time");
    }

    /// A server that stopped while refusals were written forgot them, and wrote that there were none.
    #[tokio::test]
    async fn what_is_not_waited_for_is_kept() {
        use futures_util::FutureExt;
        use promethean_harness::conformance::bus::FragileStore;
        let fragile = Arc::new(FragileStore::new(Arc::new(MemoryStore::new())));
        let store: Arc<dyn Store> = Arc::<FragileStore>::clone(&fragile);
        let audit = audit(&store);
        audit.write(Record::of("a")).await.unwrap();
        audit.refusals.forbidden("ann", "x", 1);
        audit.refusals.tokens(vec!["t".to_owned()], vec![]);
        fragile.hold_appends(true);
        assert!(audit.sum_up(2).now_or_never().is_none(), "it waits for the disk");
        fragile.hold_appends(false);
        audit.refusals.forbidden("ann", "x", 3);
        let kept: Vec<Record> = audit.refusals.take().iter().map(|sum| sum.record(4)).collect();
        let actions: Vec<&str> = kept.iter().map(|record| record.action.as_str()).collect();
        assert_eq!(actions, ["access", "tokens"]);
        assert_eq!(kept[0].about.as_ref().unwrap()["refused"][0]["count"], 2);
    }

    /// Of two records the first is written: only the second is kept for the next time.
    #[tokio::test]
    async fn what_was_written_is_not_counted_twice() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let audit = audit(&store);
        audit.write(Record::of("a")).await.unwrap();
        // Somebody has the id of the record after the next, which nobody can write then.
        let id = EventId::derived("audit", b"main\x003");
        let name = Topic::system(AUDIT_TOPIC).unwrap();
        let payload = Payload::of("no record").unwrap();
        let event = NewEvent::new(id, Timestamp::from_millis(1), name, payload);
        let append = Append { events: vec![event], ..Append::default() };
        store.append(append).await.unwrap();
        audit.refusals.forbidden("ann", "x", 1);
        audit.refusals.tokens(vec!["t".to_owned()], vec![]);
        assert!(matches!(audit.sum_up(2).await, Err(AuditError::Contended)));
        let kept: Vec<Record> = audit.refusals.take().iter().map(|sum| sum.record(3)).collect();
        let actions: Vec<&str> = kept.iter().map(|record| record.action.as_str()).collect();
        assert_eq!(actions, ["tokens"]);
        let written: Placed = serde_json::from_str(stored(&store).await.last().unwrap()).unwrap();
        assert_eq!((written.n, written.record.action.as_str()), (2, "access"));
    }
}
