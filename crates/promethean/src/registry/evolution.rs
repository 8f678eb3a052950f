//! The change of a topic from one version to another, as one thing that is started, ended or taken
//! back. It is kept with the topic, so that each step is one write, and whoever looks knows where
//! the change stands.

use std::collections::BTreeSet;
use std::sync::Arc;

use promethean_event::{Timestamp, Topic};
use serde::{Deserialize, Serialize};

use super::Registry;
use super::policy::{TopicPolicy, Unversioned};
use super::record::TopicRecord;
use super::registration::{RegisterError, Registered, Registration};
use super::schemas::{PolicyError, Schemas, check_policy};
use super::subject::Subject;
use crate::limits::REGISTER_ATTEMPTS_MAX;
use crate::store::SaveError;

/// The change of a topic from one version to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Evolution {
    /// The version that is left.
    pub from: u32,
    /// The version that is gone to.
    pub to: u32,
    /// Where it stands.
    pub stage: Stage,
    /// When it was started.
    pub started_at: Timestamp,
    /// When it came to where it stands.
    pub changed_at: Timestamp,
    /// The policy that the topic had before, for the way back.
    pub before: Option<TopicPolicy>,
    /// Why a step was made against objections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forced: Vec<String>,
}

/// Where a change stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stage {
    /// Both versions are written.
    DualWrite,
    /// Only the new version is written.
    CutOver,
    /// It was taken back: only the old version is written.
    RolledBack,
}

/// How a change is started.
#[derive(Debug, Clone, Default)]
pub struct StartEvolution {
    /// Versions in whose form events are also written. Default: the new one.
    pub dual_write: Option<BTreeSet<u32>>,
}

/// Why a step was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvolutionError {
    /// There is nothing to change from.
    #[error("{0} has no version to change from; register the first one by itself")]
    NothingBefore(Topic),
    /// Nothing is under way.
    #[error("no change of {0} is under way; start one")]
    NotStarted(Topic),
    /// Another change is under way.
    #[error("the change of {topic} from {from} to {to} is under way; end it or take it back first")]
    UnderWay {
        /// The topic.
        topic: Topic,
        /// The version that is left.
        from: u32,
        /// The version that is gone to.
        to: u32,
    },
    /// Something speaks against the step.
    #[error("{}", .0.join("; "))]
    Objections(Vec<String>),
    /// The version was refused.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The dual write is not possible.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// Changes what is kept of a topic, looking again as long as others are faster.
async fn change(
    registry: &Arc<Registry>,
    topic: &Topic,
    mut change: impl FnMut(&Subject, &mut TopicRecord) -> Result<(), EvolutionError> + Send,
) -> Result<Evolution, EvolutionError> {
    let _turn = registry.writing.lock().await;
    for _ in 0..REGISTER_ATTEMPTS_MAX {
        let subject = registry.fresh(topic).await?;
        let mut record = subject.record.clone();
        change(&subject, &mut record)?;
        match registry.put(&subject, &record, &[]).await {
            Ok(()) => {
                registry.refresh().await.map_err(RegisterError::from)?;
                let evolution = record.evolution;
                return evolution.ok_or_else(|| EvolutionError::NotStarted(topic.clone()));
            }
            Err(RegisterError::Save(SaveError::Changed { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(RegisterError::Contended.into())
}

impl Schemas {
    /// The change that is under way, or was the last.
    pub async fn evolution(&self, topic: &Topic) -> Result<Option<Evolution>, RegisterError> {
        Ok(self.known(topic).await?.record.evolution.clone())
    }

    /// Registers a version and has events written in its form too, to `<topic>.v<version>`.
    /// Until the change is ended, events that do not say their version are of the old one, where
    /// that is the oldest. Doing it again goes on where it stood.
    pub async fn start_evolution(
        &self,
        topic: &Topic,
        registration: Registration,
        start: StartEvolution,
    ) -> Result<(Registered, Evolution), EvolutionError> {
        let registry = &self.registry;
        let subject = registry.fresh(topic).await?;
        let under_way = subject.record.evolution.clone().filter(|e| e.stage == Stage::DualWrite);
        if under_way.is_none() && subject.versions.is_empty() {
            return Err(EvolutionError::NothingBefore(topic.clone()));
        }
        if let Some(Evolution { from, to, .. }) = under_way {
            // Only the same document may come again.
            let plan = self.plan(topic, &registration).await?;
            if !plan.exists || plan.version != to {
                return Err(EvolutionError::UnderWay { topic: topic.clone(), from, to });
            }
        }
        let forced = registration.force.clone();
        let registered = registry.register(topic, &registration).await?;
        let (to, now) = (registered.version, registry.clock.now());
        let evolution = change(registry, topic, |subject, record| {
            begin(subject, record, (to, now), &start, forced.as_ref())
        })
        .await?;
        Ok((registered, evolution))
    }

    /// Ends a change: only the new version is written from now on. Stored events of the old one
    /// stay readable.
    pub(crate) async fn end_evolution(
        &self,
        topic: &Topic,
        forced: Option<String>,
    ) -> Result<Evolution, EvolutionError> {
        let now = self.registry.clock.now();
        let registrys = self.registry_policy().await.map_err(RegisterError::from)?.topics;
        change(&self.registry, topic, |_, record| {
            let evolution = started(topic, record)?;
            let Evolution { from, to, before, .. } = evolution.clone();
            evolution.stage = Stage::CutOver;
            evolution.changed_at = now;
            evolution.forced.extend(forced.clone());
            restore_policy(record, before, &registrys);
            retire(record, from, true);
            retire(record, to, false);
            Ok(())
        })
        .await
    }

    /// Takes a change back: only the old version is written from now on. Events of the new one stay
    /// readable, and without force they must have a way back to the old one.
    pub async fn roll_back(
        &self,
        topic: &Topic,
        force: Option<String>,
    ) -> Result<Evolution, EvolutionError> {
        let subject = self.registry.fresh(topic).await?;
        let evolution = subject.record.evolution.as_ref();
        let evolution = evolution.filter(|evolution| evolution.stage != Stage::RolledBack);
        let not_started = || EvolutionError::NotStarted(topic.clone());
        let (from, to) = evolution.map(|e| (e.from, e.to)).ok_or_else(not_started)?;
        let counts = self.registry.survey(topic).await.map_err(RegisterError::from)?;
        let stored = counts.of(to);
        if stored > 0 && subject.path(to, from).is_err() && force.is_none() {
            return Err(EvolutionError::Objections(vec![format!(
                "{stored} events of version {to} are stored, and there is no caster back to {from}: \
                 give version {to} one, or force it"
            )]));
        }
        let now = self.registry.clock.now();
        let registrys = self.registry_policy().await.map_err(RegisterError::from)?.topics;
        change(&self.registry, topic, |_, record| {
            let Some(evolution) = record.evolution.as_mut() else {
                return Err(EvolutionError::NotStarted(topic.clone()));
            };
            evolution.stage = Stage::RolledBack;
            evolution.changed_at = now;
            evolution.forced.extend(force.clone());
            let before = evolution.before.clone();
            restore_policy(record, before, &registrys);
            retire(record, from, false);
            retire(record, to, true);
            Ok(())
        })
        .await
    }
}

/// The first step: what is written into the topic's record.
fn begin(
    subject: &Subject,
    record: &mut TopicRecord,
    (to, now): (u32, Timestamp),
    start: &StartEvolution,
    forced: Option<&String>,
) -> Result<(), EvolutionError> {
    let topic = &subject.topic;
    if let Some(known) = &record.evolution
        && known.stage == Stage::DualWrite
    {
        let (from, known) = (known.from, known.to);
        let topic = topic.clone();
        return match known == to {
            true => Ok(()),
            false => Err(EvolutionError::UnderWay { topic, from, to: known }),
        };
    }
    let earlier = subject.versions.range(..to).next_back();
    let Some((&from, _)) = earlier else {
        return Err(EvolutionError::NothingBefore(topic.clone()));
    };
    let before = record.policy.clone();
    let mut policy = subject.policy.clone();
    policy.dual_write = start.dual_write.clone().unwrap_or_else(|| BTreeSet::from([to]));
    let oldest = subject.oldest().is_some_and(|oldest| oldest.number == from);
    if policy.unversioned == Unversioned::Latest && oldest {
        policy.unversioned = Unversioned::Oldest;
    }
    check_policy(subject, &policy)?;
    record.policy = Some(policy);
    retire(record, to, false);
    let forced = forced.cloned().into_iter().collect();
    let stage = Stage::DualWrite;
    record.evolution =
        Some(Evolution { from, to, stage, started_at: now, changed_at: now, before, forced });
    Ok(())
}

fn started<'a>(
    topic: &Topic,
    record: &'a mut TopicRecord,
) -> Result<&'a mut Evolution, EvolutionError> {
    let evolution = record.evolution.as_mut();
    let evolution = evolution.filter(|evolution| evolution.stage == Stage::DualWrite);
    evolution.ok_or_else(|| EvolutionError::NotStarted(topic.clone()))
}

/// What the change has set goes back to what it was; what others have set since stays.
/// A topic that had no policy of its own follows the registry's again.
fn restore_policy(record: &mut TopicRecord, before: Option<TopicPolicy>, registrys: &TopicPolicy) {
    let Some(now) = record.policy.as_mut() else {
        record.policy = before;
        return;
    };
    let meant = before.as_ref().unwrap_or(registrys);
    now.dual_write.clone_from(&meant.dual_write);
    now.unversioned = meant.unversioned;
    if before.is_none() && now == registrys {
        record.policy = None;
    }
}

fn retire(record: &mut TopicRecord, version: u32, retired: bool) {
    if let Some(head) = record.versions.iter_mut().find(|head| head.version == version) {
        head.retired = retired;
    }
}
