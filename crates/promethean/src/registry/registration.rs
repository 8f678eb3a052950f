//! Adding a version. Whoever registers a document looks at the topic as it is, finds nothing
//! against the document, and writes only if the topic still is as it was; otherwise it looks again.

use std::sync::Arc;

use promethean_event::{Topic, TopicError};
use promethean_schema::{CompareError, Dialect, Document, ReadError as SchemaReadError};

use super::Registry;
use super::evidence::{Candidate, ExamineError, Examined};
use super::hop::Hop;
use super::plan::Plan;
use super::record::{
    TOPICS, TopicRecord, VERSIONS, VersionHead, encode, fingerprint, topic_key, version_key,
};
use super::subject::{Subject, Version};
use crate::limits::{
    REGISTER_ATTEMPTS_MAX, SAMPLE_EVENTS, SCHEMA_TEXT_BYTES_MAX, SCHEMA_VERSIONS_MAX,
};
use crate::store::{Put, ReadError, SaveError};

/// A schema to be registered.
#[derive(Debug, Clone)]
#[must_use = "nothing is registered unless this is given to `Schemas::register`"]
pub struct Registration {
    text: String,
    dialect: Option<Dialect>,
    up: Option<Hop>,
    down: Option<Hop>,
    version: Option<u32>,
    pub(super) force: Option<String>,
    pub(super) sample: Sample,
}

/// How many stored events a new version is tried on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sample {
    /// None.
    None,
    /// So many of the newest, over all partitions.
    Newest(usize),
    /// All.
    All,
}

impl Registration {
    /// A schema as JSON text.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            dialect: None,
            up: None,
            down: None,
            version: None,
            force: None,
            sample: Sample::Newest(SAMPLE_EVENTS),
        }
    }

    /// Of this dialect, if the document does not say.
    pub const fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// How events of the version before become events of this one. Default: unchanged, if that is
    /// proven to be good.
    pub fn up(mut self, hop: Hop) -> Self {
        self.up = Some(hop);
        self
    }

    /// How events of this version become events of the one before. Default: unchanged, if that is
    /// proven to be good; otherwise not at all.
    pub fn down(mut self, hop: Hop) -> Self {
        self.down = Some(hop);
        self
    }

    /// It must become this version, or be it already.
    pub const fn version(mut self, version: u32) -> Self {
        self.version = Some(version);
        self
    }

    /// Against objections, except those by which stored events would be lost. The reason is kept.
    pub fn force(mut self, reason: impl Into<String>) -> Self {
        self.force = Some(reason.into());
        self
    }

    /// On how many stored events it is tried. Default: the newest 1,000.
    pub const fn sample(mut self, sample: Sample) -> Self {
        self.sample = sample;
        self
    }
}

/// A schema that is registered.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Registered {
    /// Its version.
    pub version: u32,
    /// The same for all documents that say the same.
    pub fingerprint: String,
    /// Whether it was added now; otherwise it was there.
    pub added: bool,
    /// What was looked at.
    pub plan: Plan,
}

/// Why a schema was not registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The system's topics have no schemas.
    #[error("{0} is a topic of the system")]
    System(Topic),
    /// The topic of a type is no topic.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The document is no schema.
    #[error(transparent)]
    Document(#[from] SchemaReadError),
    /// Too large to be kept.
    #[error(
        "the schema with its casters is too large to be kept; {SCHEMA_TEXT_BYTES_MAX} bytes at most"
    )]
    TooLarge,
    /// Too many versions.
    #[error("the topic has {SCHEMA_VERSIONS_MAX} versions already; remove old ones")]
    TooMany,
    /// Something speaks against it.
    #[error("refused: {0}")]
    Refused(Box<Plan>),
    /// A caster is not good.
    #[error("the caster is not good: {0}")]
    BadHop(String),
    /// A caster from or to nothing.
    #[error("this is the first version: there is nothing to cast from or to")]
    NothingBefore,
    /// The document is there, with other casters.
    #[error("version {0} is this document, with other casters; change them by themselves")]
    OtherCasters(u32),
    /// The version is not the one that was asked for.
    #[error("the document is, or would be, version {version}, not {wanted}")]
    OtherVersion {
        /// What it is.
        version: u32,
        /// What was asked for.
        wanted: u32,
    },
    /// What is kept of the topic cannot be understood; written by a newer program?
    #[error("the schemas of {topic} cannot be understood: {reason}")]
    Unreadable {
        /// The topic.
        topic: Topic,
        /// What is wrong.
        reason: String,
    },
    /// The comparison broke off.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// Others were always faster.
    #[error("others change the schemas of the topic all the time; try again")]
    Contended,
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store could not be written.
    #[error(transparent)]
    Save(#[from] SaveError),
}

impl From<ExamineError> for RegisterError {
    fn from(error: ExamineError) -> Self {
        match error {
            ExamineError::BadHop(reason) => Self::BadHop(reason),
            ExamineError::NothingBefore => Self::NothingBefore,
            ExamineError::Compare(error) => Self::Compare(error),
        }
    }
}

/// What a registration comes to.
pub(super) enum Outcome {
    /// The document is there already.
    Known(Plan),
    /// It would be new.
    New(Box<Examined>),
}

impl Registry {
    /// The schemas of a topic as they are in the store now.
    pub(super) async fn fresh(
        self: &Arc<Self>,
        topic: &Topic,
    ) -> Result<Arc<Subject>, RegisterError> {
        if topic.is_system() {
            return Err(RegisterError::System(topic.clone()));
        }
        let catalog = self.refresh().await?;
        match catalog.subject(topic) {
            Some(Ok(subject)) => Ok(subject),
            Some(Err(reason)) => {
                let (topic, reason) = (topic.clone(), reason.to_string());
                Err(RegisterError::Unreadable { topic, reason })
            }
            None => {
                let policy = catalog.policy.topics.clone();
                Ok(Arc::new(Subject::empty(topic.clone(), policy, self.counters(topic))))
            }
        }
    }

    /// Looks at a registration from all sides.
    pub(super) async fn look_at(
        self: &Arc<Self>,
        topic: &Topic,
        wish: &Registration,
    ) -> Result<Outcome, RegisterError> {
        if wish.text.len() > SCHEMA_TEXT_BYTES_MAX {
            return Err(RegisterError::TooLarge);
        }
        let document = Document::parse_as(&wish.text, wish.dialect)?;
        let subject = self.fresh(topic).await?;
        let canonical = document.canonical();
        let known = subject.versions.values().find(|version| {
            version.document.dialect() == document.dialect()
                && version.document.canonical() == canonical
        });
        let number = known.map_or(subject.record.next, |version| version.number);
        if let Some(wanted) = wish.version.filter(|wanted| *wanted != number) {
            return Err(RegisterError::OtherVersion { version: number, wanted });
        }
        let known = known.cloned();
        let registry = Arc::clone(self);
        let candidate = Candidate {
            subject,
            number,
            document,
            up: wish.up.clone(),
            down: wish.down.clone(),
            functions: Arc::new(move |name| registry.function(name)),
        };
        if let Some(known) = known {
            return known_plan(&candidate, &known).map(Outcome::Known);
        }
        if candidate.subject.versions.len() >= SCHEMA_VERSIONS_MAX {
            return Err(RegisterError::TooMany);
        }
        let examining = tokio::task::spawn_blocking(move || candidate.examine());
        let mut examined = match examining.await {
            Ok(examined) => examined?,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        self.try_stored(&mut examined, wish.sample).await?;
        self.ask_groups(&mut examined).await?;
        Ok(Outcome::New(Box::new(examined)))
    }

    pub(super) async fn register(
        self: &Arc<Self>,
        topic: &Topic,
        wish: &Registration,
    ) -> Result<Registered, RegisterError> {
        let mut turn = None;
        for _ in 0..REGISTER_ATTEMPTS_MAX {
            let examined = match self.look_at(topic, wish).await? {
                Outcome::Known(plan) => return Ok(self.known(plan)),
                Outcome::New(examined) => examined,
            };
            let force = wish.force.as_ref().filter(|_| !examined.plan.is_good());
            let goes = examined.plan.is_good() || force.is_some() && examined.plan.can_be_forced();
            if !goes {
                return Err(RegisterError::Refused(Box::new(examined.plan)));
            }
            if let Some(reason) = force {
                let version = examined.version.number;
                tracing::warn!(%topic, version, reason, plan = %examined.plan, "registered by force");
            }
            let head = VersionHead {
                version: examined.version.number,
                fingerprint: fingerprint_of(&examined.version),
                registered_at: self.clock.now(),
                retired: false,
                forced: force.cloned(),
            };
            // Looking takes long, and is done side by side at first. Whoever comes too late by that
            // looks again, and nobody else of this process writes meanwhile.
            if turn.is_none() {
                turn = Some(self.writing.lock().await);
            }
            match self.keep(&examined, head.clone()).await {
                Ok(()) => {
                    self.refresh().await?;
                    let (version, fingerprint) = (head.version, head.fingerprint);
                    return Ok(Registered {
                        version,
                        fingerprint,
                        added: true,
                        plan: examined.plan,
                    });
                }
                // Another one was faster: what it has registered is looked at, too.
                Err(RegisterError::Save(SaveError::Changed { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Err(RegisterError::Contended)
    }

    fn known(&self, plan: Plan) -> Registered {
        let catalog = self.seen();
        let subject = catalog.and_then(|catalog| catalog.subject(&plan.topic)?.ok());
        let head = subject.as_ref().and_then(|subject| subject.head(plan.version));
        let fingerprint = head.map(|head| head.fingerprint.clone()).unwrap_or_default();
        Registered { version: plan.version, fingerprint, added: false, plan }
    }

    async fn keep(&self, examined: &Examined, head: VersionHead) -> Result<(), RegisterError> {
        let subject = &examined.subject;
        let mut record: TopicRecord = subject.record.clone();
        record.next = examined.version.number + 1;
        record.versions.push(head);
        self.put(subject, &record, &[(&examined.version, 0)]).await
    }

    /// Writes a topic's record and versions of it, if the topic still is as it was.
    pub(super) async fn put(
        &self,
        subject: &Subject,
        record: &TopicRecord,
        versions: &[(&Version, u64)],
    ) -> Result<(), RegisterError> {
        let topic = &subject.topic;
        let key = topic_key(topic).ok_or(RegisterError::TooLarge)?;
        let value = Some(encode(record).ok_or(RegisterError::TooLarge)?);
        let mut puts = vec![Put { space: TOPICS, key, value, expect: Some(subject.entry) }];
        for (version, entry) in versions {
            let key = version_key(topic, version.number).ok_or(RegisterError::TooLarge)?;
            let value = Some(encode(&version.record()).ok_or(RegisterError::TooLarge)?);
            puts.push(Put { space: VERSIONS, key, value, expect: Some(*entry) });
        }
        Ok(self.store.put(puts).await?)
    }
}

fn fingerprint_of(version: &Version) -> String {
    fingerprint(&version.document.canonical(), version.document.dialect())
}

/// The plan of a document that is there already: nothing, unless it is to have other casters.
fn known_plan(candidate: &Candidate, known: &Version) -> Result<Plan, RegisterError> {
    let record = known.record();
    let same = |given: &Option<Hop>, kept: &Option<Hop>| given.is_none() || given == kept;
    if !same(&candidate.up, &record.up) || !same(&candidate.down, &record.down) {
        return Err(RegisterError::OtherCasters(known.number));
    }
    let plan = candidate.plan();
    Ok(Plan { exists: true, up: record.up, down: record.down, ..plan })
}
