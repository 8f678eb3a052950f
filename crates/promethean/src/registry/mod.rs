//! The schemas of topics: kept in the store, compiled in memory, enforced on the way in.
//!
//! [`record`] says what is kept. [`catalog`] is all of it, compiled, as one value that is replaced
//! when the store has something newer: publishers and readers take it without waiting.
//! [`registration`] adds a version after [`plan`] has found nothing against it, [`enforce`] checks
//! what is published, [`dual`] writes the forms of other versions beside it. Reading goes through
//! [`crate::decode`].

mod policy;

mod record;

mod counters;

mod expression;

mod hop;

mod subject;

mod catalog;

mod registration;

mod trial;

mod evidence;

mod stored;

mod plan;

mod enforce;

mod dual;

mod readers;

mod retire;

mod evolution;

mod numbering;

mod survey;

mod schemas;

#[cfg(feature = "schemars")]
mod typed;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use promethean_event::Topic;

pub(crate) use catalog::{Catalog, Found, versioned};
pub use counters::SchemaCounts;
pub(crate) use enforce::{Checked, KnownStamps};
pub use enforce::{RefusedEvent, SchemaRefusal, WhyRefused};
pub use evolution::{Evolution, EvolutionError, Stage, StartEvolution};
pub(crate) use hop::CastFunction;
pub use hop::Hop;
pub use plan::{Compared, Objection, Plan, ReaderFate, ReaderPlan, Tried};
pub use policy::{PayloadPolicy, RegistryPolicy, TopicPolicy, Unregistered, Unversioned};
pub use registration::{RegisterError, Registered, Registration, Sample};
pub use retire::RetireError;
pub use schemas::{PolicyError, Schemas};
pub use subject::SchemaVersion;
pub(crate) use subject::walk;
pub use survey::{Retained, VersionCount};
pub use trial::{TrialError, try_casters};

use crate::clock::Clock;
use crate::store::{Entry, ReadError, Store};
use counters::Counters;

/// The header of a copy that a dual write made: the id of the event that it is a copy of.
pub const DUAL_OF: &str = "x-dual-of";

/// Reads of the store that are made until two in a row agree.
const READS_MAX: usize = 8;

/// The schemas of one bus.
pub(crate) struct Registry {
    store: Arc<dyn Store>,
    pub(super) clock: Clock,
    catalog: RwLock<Option<Arc<Catalog>>>,
    /// Held by whoever reads the store, so that an older reading never replaces a newer one.
    reading: tokio::sync::Mutex<()>,
    /// Held by whoever of this process writes what it has just looked at: they wait for each other
    /// instead of failing in turn. Those of other processes are told apart by the store.
    writing: tokio::sync::Mutex<()>,
    functions: RwLock<HashMap<String, CastFunction>>,
    counters: Mutex<HashMap<Topic, Arc<Counters>>>,
    /// When the store was last looked at because of something unknown.
    asked_ms: AtomicU64,
    /// Rung when another hub may have changed something.
    news: Arc<tokio::sync::Notify>,
}

impl Registry {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Clock) -> Self {
        Self {
            store,
            clock,
            catalog: RwLock::default(),
            reading: tokio::sync::Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            functions: RwLock::default(),
            counters: Mutex::default(),
            asked_ms: AtomicU64::new(0),
            news: Arc::default(),
        }
    }

    /// Rung when another hub may have changed something.
    pub(crate) const fn news(&self) -> &Arc<tokio::sync::Notify> {
        &self.news
    }

    /// All schemas as they were last seen, if the store was looked at before.
    pub(crate) fn seen(&self) -> Option<Arc<Catalog>> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the store was looked at and there is nothing to check events against.
    pub(crate) fn is_idle(&self) -> bool {
        let catalog = self.catalog.read().unwrap_or_else(PoisonError::into_inner);
        catalog.as_ref().is_some_and(|catalog| catalog.is_idle())
    }

    /// All schemas; the store is read the first time.
    pub(crate) async fn catalog(&self) -> Result<Arc<Catalog>, ReadError> {
        match self.seen() {
            Some(catalog) => Ok(catalog),
            None => self.refresh().await,
        }
    }

    /// Looks at the store again, and compiles what has changed.
    pub(crate) async fn refresh(&self) -> Result<Arc<Catalog>, ReadError> {
        let _reading = self.reading.lock().await;
        let topics = self.store.entries(record::TOPICS).await?;
        let before = self.seen();
        if let Some(before) = before.as_ref().filter(|before| !before.has_changed(&topics)) {
            return Ok(Arc::clone(before));
        }
        let (topics, versions) = self.consistent(topics).await?;
        let before = before.unwrap_or_default();
        let catalog = Catalog::build(&topics, &versions, &before, |topic| self.counters(topic));
        let catalog = Arc::new(catalog);
        let mut place = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        *place = Some(Arc::clone(&catalog));
        Ok(catalog)
    }

    /// Reads versions until the topics' entries have not changed around it: both are then of one
    /// moment.
    async fn consistent(
        &self,
        mut topics: Vec<Entry>,
    ) -> Result<(Vec<Entry>, Vec<Entry>), ReadError> {
        for _ in 0..READS_MAX {
            let versions = self.store.entries(record::VERSIONS).await?;
            let again = self.store.entries(record::TOPICS).await?;
            let same = again.len() == topics.len()
                && again
                    .iter()
                    .zip(&topics)
                    .all(|(a, b)| (&a.key, a.version) == (&b.key, b.version));
            topics = again;
            if same {
                return Ok((topics, versions));
            }
        }
        Err(ReadError::Failed("the schemas change faster than they can be read".to_owned()))
    }

    /// Looks at the store again because of something unknown: another hub may have registered it.
    /// Not more often than now and then, so that unknown things cost little.
    async fn refresh_for_unknown(&self) -> Result<Option<Arc<Catalog>>, ReadError> {
        let (now, last) = (self.clock.now_ms(), self.asked_ms.load(Ordering::Relaxed));
        if now < last + crate::limits::UNKNOWN_VERSION_RETRY_MS {
            return Ok(None);
        }
        self.asked_ms.store(now, Ordering::Relaxed);
        let before = self.seen();
        let after = self.refresh().await?;
        let same = before.is_some_and(|before| Arc::ptr_eq(&before, &after));
        Ok((!same).then_some(after))
    }

    pub(crate) fn counters(&self, topic: &Topic) -> Arc<Counters> {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(counters.entry(topic.clone()).or_default())
    }

    /// What was done with the schemas of each topic, by name; nothing of topics without any.
    pub(crate) fn all_counts(&self) -> BTreeMap<Topic, SchemaCounts> {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = counters.iter().map(|(topic, counters)| (topic.clone(), counters.counts()));
        counts.filter(|(_, counts)| *counts != SchemaCounts::default()).collect()
    }

    /// The function that the program has provided under a name.
    pub(crate) fn function(&self, name: &str) -> Option<CastFunction> {
        self.functions.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn provide(&self, name: String, function: CastFunction) {
        self.functions.write().unwrap_or_else(PoisonError::into_inner).insert(name, function);
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("store", &self.store).finish_non_exhaustive()
    }
}
