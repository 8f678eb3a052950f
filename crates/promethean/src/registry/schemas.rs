use std::sync::Arc;

use promethean_event::{Key, Topic};
use serde_json::Value;

use super::evidence::Candidate;
use super::hop::Hop;
use super::plan::Plan;
use super::policy::{PayloadPolicy, RegistryPolicy, TopicPolicy};
use super::readers::TopicReader;
use super::record::{ALL_TOPICS, TOPICS, encode};
use super::registration::{Outcome, RegisterError, Registered, Registration};
use super::retire::RetireError;
use super::subject::{SchemaVersion, Subject};
use super::{Registry, SchemaCounts, dual};
use crate::bus::Bus;
use crate::store::{Put, ReadError, SaveError};

/// The schemas of a bus's topics. A cheap handle.
#[derive(Debug, Clone)]
pub struct Schemas {
    pub(super) registry: Arc<Registry>,
}

/// Why a policy was not set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A dual write to a version that there is no way to.
    #[error("events cannot be written as version {version} too: {reason}")]
    DualWrite {
        /// The version.
        version: u32,
        /// Why.
        reason: String,
    },
    /// The registry could not be changed.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

impl Bus {
    /// The schemas of the topics.
    pub fn schemas(&self) -> Schemas {
        Schemas { registry: Arc::clone(&self.inner.groups.site().schemas) }
    }
}

impl Schemas {
    /// Registers a schema as the next version of a topic. The same document again is the same
    /// version, and changes nothing.
    pub async fn register(
        &self,
        topic: &Topic,
        registration: Registration,
    ) -> Result<Registered, RegisterError> {
        self.registry.register(topic, &registration).await
    }

    /// What registering a schema would do.
    pub async fn plan(
        &self,
        topic: &Topic,
        registration: &Registration,
    ) -> Result<Plan, RegisterError> {
        Ok(match self.registry.look_at(topic, registration).await? {
            Outcome::Known(plan) => plan,
            Outcome::New(examined) => examined.plan,
        })
    }

    /// Gives a version other casters than it has; those that are not given stay.
    pub async fn recast(
        &self,
        topic: &Topic,
        version: u32,
        up: Option<Hop>,
        down: Option<Hop>,
    ) -> Result<Plan, RegisterError> {
        let subject = self.registry.fresh(topic).await?;
        let known = subject.versions.get(&version);
        let known = known.ok_or_else(|| RegisterError::Unreadable {
            topic: topic.clone(),
            reason: format!("there is no version {version}"),
        })?;
        let kept = known.record();
        let mut before =
            Subject::empty(topic.clone(), subject.policy.clone(), Arc::clone(&subject.counters));
        let earlier = subject.versions.range(..version);
        before.versions = earlier.map(|(number, version)| (*number, Arc::clone(version))).collect();
        let registry = Arc::clone(&self.registry);
        let candidate = Candidate {
            subject: Arc::new(before),
            number: version,
            document: known.document.clone(),
            up: up.or(kept.up),
            down: down.or(kept.down),
            functions: Arc::new(move |name| registry.function(name)),
        };
        let examining = tokio::task::spawn_blocking(move || candidate.examine());
        let examined = match examining.await {
            Ok(examined) => examined?,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        if !examined.plan.is_good() {
            return Err(RegisterError::Refused(Box::new(examined.plan)));
        }
        let versions = [(&examined.version, known.entry)];
        self.registry.put(&subject, &subject.record, &versions).await?;
        self.registry.refresh().await?;
        Ok(examined.plan)
    }

    /// Provides a function that [`Hop::function`] names. It must give the same answer for the same
    /// payload, always; it is part of the program, so every program that reads has to provide it.
    pub fn provide(
        &self,
        name: impl Into<String>,
        function: impl Fn(Value) -> Result<Value, String> + Send + Sync + 'static,
    ) {
        self.registry.provide(name.into(), Arc::new(function));
    }

    /// The topics that have schemas or a policy of their own.
    pub async fn topics(&self) -> Result<Vec<Topic>, ReadError> {
        Ok(self.registry.catalog().await?.topics())
    }

    /// The versions of a topic, oldest first; none if it has no schema.
    pub async fn versions(&self, topic: &Topic) -> Result<Vec<SchemaVersion>, RegisterError> {
        let subject = self.known(topic).await?;
        let versions = subject.versions.values();
        Ok(versions.map(|version| subject.tell(version)).collect())
    }

    /// One version of a topic.
    pub async fn version(
        &self,
        topic: &Topic,
        version: u32,
    ) -> Result<Option<SchemaVersion>, RegisterError> {
        let subject = self.known(topic).await?;
        Ok(subject.versions.get(&version).map(|version| subject.tell(version)))
    }

    /// The latest version of a topic.
    pub async fn latest(&self, topic: &Topic) -> Result<Option<SchemaVersion>, RegisterError> {
        let subject = self.known(topic).await?;
        Ok(subject.latest().map(|version| subject.tell(version)))
    }

    /// What holds for a topic.
    pub async fn policy(&self, topic: &Topic) -> Result<TopicPolicy, RegisterError> {
        Ok(self.known(topic).await?.policy.clone())
    }

    /// What a topic says of its own; `None` if it goes by the registry's policy.
    pub async fn own_policy(&self, topic: &Topic) -> Result<Option<TopicPolicy>, RegisterError> {
        Ok(self.known(topic).await?.record.policy.clone())
    }

    /// What holds where a topic says nothing of its own.
    pub async fn registry_policy(&self) -> Result<RegistryPolicy, ReadError> {
        Ok(self.registry.catalog().await?.policy.clone())
    }

    /// Sets what holds for a topic.
    pub async fn set_policy(&self, topic: &Topic, policy: TopicPolicy) -> Result<(), PolicyError> {
        self.change_policy(topic, Some(policy)).await
    }

    /// Has a topic go by the registry's policy.
    pub async fn clear_policy(&self, topic: &Topic) -> Result<(), PolicyError> {
        self.change_policy(topic, None).await
    }

    async fn change_policy(
        &self,
        topic: &Topic,
        policy: Option<TopicPolicy>,
    ) -> Result<(), PolicyError> {
        let _turn = self.registry.writing.lock().await;
        for _ in 0..crate::limits::REGISTER_ATTEMPTS_MAX {
            let subject = self.registry.fresh(topic).await?;
            if let Some(policy) = &policy {
                check_policy(&subject, policy)?;
            }
            let mut record = subject.record.clone();
            record.policy.clone_from(&policy);
            match self.registry.put(&subject, &record, &[]).await {
                Ok(()) => {
                    self.registry.refresh().await.map_err(RegisterError::from)?;
                    return Ok(());
                }
                Err(RegisterError::Save(SaveError::Changed { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(RegisterError::Contended.into())
    }

    /// Sets what holds where a topic says nothing of its own.
    pub async fn set_registry_policy(&self, policy: RegistryPolicy) -> Result<(), RegisterError> {
        let catalog = self.registry.refresh().await?;
        let (Ok(key), Some(value)) = (Key::new(ALL_TOPICS), encode(&policy)) else {
            return Err(RegisterError::TooLarge);
        };
        let expect = Some(catalog.policy_entry);
        self.registry
            .store
            .put(vec![Put { space: TOPICS, key, value: Some(value), expect }])
            .await?;
        self.registry.refresh().await?;
        Ok(())
    }

    /// New events of a version are refused from now on; stored ones stay readable.
    pub async fn retire(&self, topic: &Topic, version: u32) -> Result<(), RetireError> {
        self.registry.set_retired(topic, version, true).await
    }

    /// New events of a retired version are taken again.
    pub async fn restore(&self, topic: &Topic, version: u32) -> Result<(), RetireError> {
        self.registry.set_retired(topic, version, false).await
    }

    /// Removes a retired version that nothing needs any more. Its number is never given again.
    pub async fn remove(&self, topic: &Topic, version: u32) -> Result<(), RetireError> {
        self.registry.remove(topic, version).await
    }

    /// What has been done with a topic's schemas since the bus was opened.
    pub fn counts(&self, topic: &Topic) -> SchemaCounts {
        self.registry.counters(topic).counts()
    }

    /// Looks at the store again, for what others have registered. Done by itself from time to time.
    pub async fn refresh(&self) -> Result<(), ReadError> {
        self.registry.refresh().await.map(drop)
    }

    pub(super) async fn known(&self, topic: &Topic) -> Result<Arc<Subject>, RegisterError> {
        self.registry.fresh(topic).await
    }

    /// The groups that read a topic.
    pub(crate) async fn readers(&self, topic: &Topic) -> Result<Vec<TopicReader>, ReadError> {
        self.registry.readers(topic).await
    }

    /// Whether events of one version can be brought to another.
    pub(crate) async fn has_way(
        &self,
        topic: &Topic,
        (from, to): (u32, u32),
    ) -> Result<bool, RegisterError> {
        Ok(self.known(topic).await?.path(from, to).is_ok())
    }
}

pub(super) fn check_policy(subject: &Subject, policy: &TopicPolicy) -> Result<(), PolicyError> {
    for &version in &policy.dual_write {
        let fail = |reason: String| PolicyError::DualWrite { version, reason };
        if policy.payload == PayloadPolicy::Off {
            return Err(fail("payloads are not looked at; set payload to enforce or warn".into()));
        }
        if !subject.versions.contains_key(&version) {
            return Err(fail("it is not registered".into()));
        }
        if dual::topic_of(&subject.topic, version).is_none() {
            return Err(fail("the name of its topic would be too long".into()));
        }
        for (&written, _) in subject.versions.iter() {
            if subject.is_retired(written) {
                continue;
            }
            subject.path(written, version).map_err(|hop| {
                fail(format!("there is no caster from {} to {}", hop.from, hop.to))
            })?;
        }
    }
    Ok(())
}
