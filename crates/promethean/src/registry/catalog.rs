//! All schemas, as they were when the store was last looked at.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use promethean_event::Topic;

use super::counters::Counters;
use super::policy::{RegistryPolicy, Unregistered};
use super::record::{ALL_TOPICS, TopicRecord, VersionRecord, version_key};
use super::subject::{Subject, Version};
use crate::store::Entry;

#[derive(Debug, Default)]
pub(crate) struct Catalog {
    subjects: HashMap<Topic, Known>,
    pub(super) policy: RegistryPolicy,
    /// The version of the entry of the policy; 0 if there is none.
    pub(super) policy_entry: u64,
    /// The versions of the entries that it was made from, to see whether anything has changed.
    seen: BTreeMap<String, u64>,
}

/// What is known of a topic's schemas: an error if what is kept cannot be understood. Then nothing
/// is let through.
type Known = Result<Arc<Subject>, Arc<str>>;

/// The schemas that hold for a topic.
pub(crate) struct Found {
    pub(crate) subject: Arc<Subject>,
    /// The one version of a topic that dual writes fill.
    pub(crate) only: Option<u32>,
}

impl Catalog {
    /// Whether no event has to be looked at.
    pub(super) fn is_idle(&self) -> bool {
        self.subjects.is_empty() && self.policy.unregistered == Unregistered::Allow
    }

    pub(super) fn has_changed(&self, topics: &[Entry]) -> bool {
        self.seen.len() != topics.len()
            || topics.iter().any(|e| self.seen.get(e.key.as_str()) != Some(&e.version))
    }

    /// The schemas of a topic itself.
    pub(super) fn subject(&self, topic: &Topic) -> Option<Known> {
        self.subjects.get(topic).cloned()
    }

    pub(super) fn topics(&self) -> Vec<Topic> {
        let mut topics: Vec<Topic> = self.subjects.keys().cloned().collect();
        topics.sort_unstable();
        topics
    }

    /// The schemas that hold for the events of a topic: its own, or, of `topic.vN`, version N of
    /// `topic`.
    pub(crate) fn find(&self, topic: &Topic) -> Result<Option<Found>, Arc<str>> {
        let with_versions = |subject: &Arc<Subject>| !subject.versions.is_empty();
        if let Some(known) = self.subjects.get(topic) {
            let subject = known.clone()?;
            let found = with_versions(&subject).then_some(Found { subject, only: None });
            return Ok(found);
        }
        let Some((of, version)) = versioned(topic) else {
            return Ok(None);
        };
        let Some(known) = self.subjects.get(&of) else {
            return Ok(None);
        };
        let subject = known.clone()?;
        let has = subject.versions.contains_key(&version);
        Ok(has.then_some(Found { subject, only: Some(version) }))
    }

    /// Compiles what is kept; what has not changed is taken over.
    pub(super) fn build(
        topics: &[Entry],
        versions: &[Entry],
        before: &Self,
        counters: impl Fn(&Topic) -> Arc<Counters>,
    ) -> Self {
        let documents: HashMap<&str, &Entry> =
            versions.iter().map(|entry| (entry.key.as_str(), entry)).collect();
        let mut catalog = Self::default();
        for entry in topics {
            catalog.seen.insert(entry.key.as_str().to_owned(), entry.version);
            if entry.key.as_str() == ALL_TOPICS {
                catalog.take_policy(entry);
            }
        }
        for entry in topics.iter().filter(|entry| entry.key.as_str() != ALL_TOPICS) {
            let Ok(topic) = Topic::new(entry.key.as_str()) else {
                tracing::error!(key = entry.key.as_str(), "schemas of no topic");
                continue;
            };
            let earlier = before.subject(&topic).and_then(Result::ok);
            let made = catalog.compile(&topic, entry, &documents, earlier.as_deref());
            let known = made.map(|mut subject| {
                subject.counters = counters(&topic);
                Arc::new(subject)
            });
            let known = known.map_err(|reason| {
                tracing::error!(%topic, reason, "the schemas of a topic cannot be understood");
                Arc::from(reason)
            });
            catalog.subjects.insert(topic, known);
        }
        catalog
    }

    fn take_policy(&mut self, entry: &Entry) {
        self.policy_entry = entry.version;
        match entry.value.decode() {
            Ok(policy) => self.policy = policy,
            Err(error) => {
                tracing::error!(%error, "the policy of schemas cannot be understood");
                // Closed, not open.
                self.policy.unregistered = Unregistered::Refuse;
            }
        }
    }

    fn compile(
        &self,
        topic: &Topic,
        entry: &Entry,
        documents: &HashMap<&str, &Entry>,
        earlier: Option<&Subject>,
    ) -> Result<Subject, String> {
        let record: TopicRecord = entry.value.decode().map_err(|error| error.to_string())?;
        let mut versions = BTreeMap::new();
        for head in &record.versions {
            let key = version_key(topic, head.version);
            let kept = key.and_then(|key| documents.get(key.as_str()).copied());
            let kept = kept.ok_or_else(|| format!("version {} is missing", head.version))?;
            let same = earlier.and_then(|subject| subject.versions.get(&head.version));
            let version = match same.filter(|version| version.entry == kept.version) {
                Some(version) => Arc::clone(version),
                None => {
                    let record: VersionRecord =
                        kept.value.decode().map_err(|error| error.to_string())?;
                    Arc::new(Version::new(head.version, record, kept.version)?)
                }
            };
            versions.insert(head.version, version);
        }
        let policy = record.policy.clone().unwrap_or_else(|| self.policy.topics.clone());
        let (topic, entry) = (topic.clone(), entry.version);
        Ok(Subject { topic, policy, versions, counters: Arc::default(), record, entry })
    }
}

/// The topic and version that `topic.vN` is of.
pub(crate) fn versioned(topic: &Topic) -> Option<(Topic, u32)> {
    let (of, version) = topic.as_str().rsplit_once(".v")?;
    let number = crate::decode::parse_version(version)?;
    Some((Topic::new(of).ok()?, number))
}
