use std::fmt;
use std::path::Path;
use std::sync::Arc;

use promethean_event::Topic;
use tokio::runtime::Handle;

use crate::dispatch::Groups;
use crate::memory::MemoryStore;
use crate::options::BusOptions;
use crate::store::{SaveError, Store, TopicDefinition, TopicEntry, TopicTable};

/// The event bus. A cheap handle: clones share one bus, which closes with [`Bus::close`] or with
/// the last of them.
///
/// Made inside a tokio runtime, whose tasks drive it.
#[derive(Clone)]
pub struct Bus {
    pub(crate) inner: Arc<BusInner>,
}

pub(crate) struct BusInner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) options: BusOptions,
    pub(crate) runtime: Handle,
    pub(crate) holds: Arc<crate::projection::Holds>,
}

/// Why a topic was not defined or removed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TopicChangeError {
    /// The system's topics are its own.
    #[error("{0} is a topic of the system")]
    System(Topic),
    /// No such topic.
    #[error("there is no topic {0}")]
    Unknown(Topic),
    /// The store refused it.
    #[error(transparent)]
    Save(#[from] SaveError),
}

impl Bus {
    /// A bus that forgets everything when it goes: for tests.
    pub fn memory() -> Self {
        Self::with_store(Arc::new(MemoryStore::new()), BusOptions::default())
    }

    /// A bus over any store.
    pub fn with_store(store: Arc<dyn Store>, options: BusOptions) -> Self {
        let runtime = Handle::current();
        let groups = Groups::start(Arc::clone(&store), &runtime, &options);
        let inner = Arc::new(BusInner { store, groups, options, runtime, holds: Arc::default() });
        crate::upkeep::start(&inner);
        Self { inner }
    }

    /// Opens the bus in a directory, making it if it is not there. Only one process can. Refused if
    /// everything was moved elsewhere (`prom migrate`), or is being moved.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, crate::embedded::OpenError> {
        Self::open_with(path, BusOptions::default()).await
    }

    /// The same, with options.
    pub async fn open_with(
        path: impl AsRef<Path>,
        options: BusOptions,
    ) -> Result<Self, crate::embedded::OpenError> {
        let path = path.as_ref().to_owned();
        let opening = tokio::task::spawn_blocking(move || {
            crate::embedded::EmbeddedStore::open(&path, crate::embedded::EmbeddedOptions::default())
        });
        let (store, _) = match opening.await {
            Ok(opened) => opened?,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        let refused = match crate::migration::standing(&store).await {
            Ok(None) => return Ok(Self::with_store(Arc::new(store), options)),
            Ok(Some(mark)) => crate::embedded::OpenError::Moved(mark),
            Err(error) => crate::embedded::OpenError::Mark(Box::new(error)),
        };
        store.close().await;
        Err(refused)
    }

    /// The store below.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// All topics, as they are now.
    pub fn topics(&self) -> Arc<TopicTable> {
        self.inner.store.topics()
    }

    /// Defines a topic, or changes how it is cleaned. The same definition again changes nothing.
    pub async fn define(
        &self,
        definition: TopicDefinition,
    ) -> Result<TopicEntry, TopicChangeError> {
        if definition.topic.is_system() {
            return Err(TopicChangeError::System(definition.topic));
        }
        let id = self.inner.store.define(definition.clone()).await?;
        Ok(TopicEntry { id, definition })
    }

    /// Removes a topic with all its events.
    pub async fn remove_topic(&self, topic: &Topic) -> Result<(), TopicChangeError> {
        if topic.is_system() {
            return Err(TopicChangeError::System(topic.clone()));
        }
        let id = self.topics().get(topic).map(|entry| entry.id);
        let id = id.ok_or_else(|| TopicChangeError::Unknown(topic.clone()))?;
        self.inner.store.remove(id).await?;
        Ok(())
    }

    /// Waits until everything that groups have decided is durable, then closes. What consumers
    /// still hold is delivered again when the bus is opened again.
    pub async fn close(&self) {
        for group in self.inner.groups.active().await {
            group.settled().await;
            group.close();
        }
        self.inner.groups.depart().await;
        self.inner.store.close().await;
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").field("store", &self.inner.store).finish_non_exhaustive()
    }
}
