//! Versions that are not written any more, and those that can go because nothing needs them.

use std::sync::Arc;

use promethean_event::{GroupName, SCHEMA_VERSION, Topic};

use super::record::{TOPICS, VERSIONS, encode, topic_key, version_key};
use super::registration::RegisterError;
use super::subject::Subject;
use super::{Registry, dual};
use crate::decode::{Want, parse_version};
use crate::store::{Put, ReadError, SaveError};

/// Why a version was not retired or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetireError {
    /// No such version.
    #[error("{topic} has no version {version}")]
    Unknown {
        /// The topic.
        topic: Topic,
        /// The version.
        version: u32,
    },
    /// Nothing could be written any more.
    #[error("version {0} is the last that can be written; register another one first")]
    LastOne(u32),
    /// Events are still written by it.
    #[error("version {0} can still be written; retire it first")]
    NotRetired(u32),
    /// Older versions need it as a step.
    #[error("version {version} is a step from version {oldest}, which is still there")]
    NotOldest {
        /// The version.
        version: u32,
        /// The oldest one.
        oldest: u32,
    },
    /// Events that were written by it are still stored.
    #[error("{events} events of version {version} are still stored; they would be unreadable")]
    StillStored {
        /// The version.
        version: u32,
        /// How many.
        events: u64,
    },
    /// A group reads it.
    #[error("group {group} reads version {version}")]
    StillRead {
        /// The version.
        version: u32,
        /// The group.
        group: GroupName,
    },
    /// Dual writes make it.
    #[error("dual writes make version {0}; end them first")]
    DualWritten(u32),
    /// The registry could not be changed.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Registry {
    /// New events of a version are refused from now on, or taken again.
    pub(super) async fn set_retired(
        self: &Arc<Self>,
        topic: &Topic,
        version: u32,
        retired: bool,
    ) -> Result<(), RetireError> {
        let _turn = self.writing.lock().await;
        for _ in 0..crate::limits::REGISTER_ATTEMPTS_MAX {
            let subject = self.fresh(topic).await?;
            let mut record = subject.record.clone();
            let head = record.versions.iter_mut().find(|head| head.version == version);
            let unknown = || RetireError::Unknown { topic: topic.clone(), version };
            let head = head.ok_or_else(unknown)?;
            if head.retired == retired {
                return Ok(());
            }
            head.retired = retired;
            if record.versions.iter().all(|head| head.retired) {
                return Err(RetireError::LastOne(version));
            }
            match self.put(&subject, &record, &[]).await {
                Ok(()) => {
                    self.refresh().await?;
                    return Ok(());
                }
                Err(RegisterError::Save(SaveError::Changed { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(RegisterError::Contended.into())
    }

    /// Removes a version that nothing needs any more.
    pub(super) async fn remove(
        self: &Arc<Self>,
        topic: &Topic,
        version: u32,
    ) -> Result<(), RetireError> {
        let subject = self.fresh(topic).await?;
        self.check_removal(&subject, version).await?;
        let mut record = subject.record.clone();
        record.versions.retain(|head| head.version != version);
        let (Some(topic_key), Some(version_key), Some(value)) =
            (topic_key(topic), version_key(topic, version), encode(&record))
        else {
            return Err(RegisterError::TooLarge.into());
        };
        let puts = vec![
            Put { space: TOPICS, key: topic_key, value: Some(value), expect: Some(subject.entry) },
            Put { space: VERSIONS, key: version_key, value: None, expect: None },
        ];
        self.store.put(puts).await.map_err(RegisterError::from)?;
        self.refresh().await?;
        Ok(())
    }

    async fn check_removal(&self, subject: &Subject, version: u32) -> Result<(), RetireError> {
        let topic = &subject.topic;
        if !subject.versions.contains_key(&version) {
            return Err(RetireError::Unknown { topic: topic.clone(), version });
        }
        if !subject.is_retired(version) {
            return Err(RetireError::NotRetired(version));
        }
        if let Some(oldest) = subject.oldest().filter(|oldest| oldest.number != version) {
            return Err(RetireError::NotOldest { version, oldest: oldest.number });
        }
        if subject.policy.dual_write.contains(&version) {
            return Err(RetireError::DualWritten(version));
        }
        let mut readers = self.readers(topic).await?.into_iter();
        let wanted = Want::Version(version);
        if let Some(reader) = readers.find(|reader| reader.reads.of(topic, None) == wanted) {
            return Err(RetireError::StillRead { version, group: reader.group });
        }
        // Events without a version are of the oldest one, which this is.
        let mut events = self.count_stored(topic, |said| said.is_none_or(|v| v == version)).await?;
        if let Some(copies) = dual::topic_of(topic, version) {
            events += self.count_stored(&copies, |_| true).await?;
        }
        match events {
            0 => Ok(()),
            events => Err(RetireError::StillStored { version, events }),
        }
    }

    async fn count_stored(
        &self,
        topic: &Topic,
        counts: impl Fn(Option<u32>) -> bool + Send + Sync,
    ) -> Result<u64, ReadError> {
        let mut events = 0;
        self.each_stored(topic, |stored| {
            let said = stored.event.headers.get(SCHEMA_VERSION).and_then(parse_version);
            events += u64::from(counts(said));
        })
        .await?;
        Ok(events)
    }
}
