use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use promethean::store::{TopicEntry, TopicId, TopicTable};

use crate::cluster::Cluster;
use crate::fault::Fault;
use crate::topics;

/// The topics as this hub knows them.
#[derive(Debug, Default)]
pub(crate) struct Table {
    current: Mutex<Current>,
    /// Held by the one who reads them again: of two at once, the one that read earlier could end
    /// later, and a topic that is there would be gone until somebody looks the next time.
    refreshing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Current {
    table: Arc<TopicTable>,
    /// How often this hub has changed it.
    changes: u64,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> Arc<TopicTable> {
        Arc::clone(&self.lock().table)
    }

    /// Reads the topics again; true if there is something new.
    pub(crate) async fn refresh(&self, cluster: &Cluster) -> Result<bool, Fault> {
        let _one_at_a_time = self.refreshing.lock().await;
        loop {
            let changes = self.lock().changes;
            let table = topics::load(cluster).await?;
            let mut current = self.lock();
            // What was read may be older than what this hub has done meanwhile.
            if current.changes == changes {
                let is_new = !current.table.iter().eq(table.iter());
                if is_new {
                    current.table = Arc::new(table);
                }
                return Ok(is_new);
            }
        }
    }

    /// Takes a topic up; true if it was not known so.
    pub(crate) fn insert(&self, entry: &TopicEntry) -> bool {
        let mut current = self.lock();
        current.changes += 1;
        if current.table.get(&entry.definition.topic) == Some(entry) {
            return false;
        }
        let name = &entry.definition.topic;
        let others = current.table.iter().filter(|other| other.definition.topic != *name);
        let table = others.cloned().chain([entry.clone()]).collect();
        current.table = Arc::new(table);
        true
    }

    /// Lets a topic go; true if it was known.
    pub(crate) fn remove(&self, topic: TopicId) -> bool {
        let mut current = self.lock();
        current.changes += 1;
        let is_known = current.table.by_id(topic).is_some();
        if is_known {
            let others = current.table.iter().filter(|entry| entry.id != topic).cloned().collect();
            current.table = Arc::new(others);
        }
        is_known
    }
}
