//! The groups that read a topic, and the form that they ask for.

use promethean_event::{GroupName, Topic};

use super::Registry;
use crate::decode::Reads;
use crate::settings::GroupSettings;
use crate::store::ReadError;

/// A group that reads a topic.
#[derive(Debug)]
pub(crate) struct TopicReader {
    pub(crate) group: GroupName,
    pub(crate) reads: Reads,
}

impl Registry {
    /// The groups that read a topic. Fails if the settings of one cannot be read: nobody knows then
    /// what it needs, and nothing may be taken away from it by mistake.
    pub(crate) async fn readers(&self, topic: &Topic) -> Result<Vec<TopicReader>, ReadError> {
        let mut readers = Vec::new();
        for group in self.store.groups().await? {
            let Some(record) = self.store.group(group.clone()).await? else { continue };
            let settings = record.settings.decode::<GroupSettings>().map_err(|error| {
                ReadError::Damaged(format!("the settings of group {group} cannot be read: {error}"))
            })?;
            if settings.reads(topic) {
                readers.push(TopicReader { group, reads: settings.reads_as });
            }
        }
        Ok(readers)
    }
}
