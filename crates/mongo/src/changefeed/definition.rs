use promethean::{Formula, FormulaError};
use promethean_event::Topic;
use serde::{Deserialize, Serialize};

/// What expressions of a feed speak of: the document after the change and before it (null where
/// there is none), the document's key as text, and what happened.
pub(super) const NAMES: &[&str] = &["document", "before", "key", "op"];

/// A feed as its user declares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The connection string of the user's MongoDB.
    pub url: String,
    /// The collection, as `database.collection`.
    pub collection: String,
    /// The topic that the events go to.
    pub topic: String,
    /// The key of an event, as an expression. Default: the document's `_id`, as text. Anything else
    /// needs pre-images, because a delete tells nothing but the `_id`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Only changes for which this expression is true. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The payload, as an expression. Default: the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<String>,
    /// Whether what is there already comes first. Default: yes.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub snapshot: bool,
}

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
const fn is_yes(value: &bool) -> bool {
    *value
}

/// Why a feed is refused as it is declared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// Not a collection.
    #[error("{0:?} is not a collection; write it as database.collection")]
    Collection(String),
    /// Not a topic.
    #[error(transparent)]
    Topic(#[from] promethean_event::TopicError),
    /// An expression that does not hold.
    #[error(transparent)]
    Expression(#[from] FormulaError),
}

/// A feed that was checked.
#[derive(Debug, Clone)]
pub(super) struct Feed {
    pub(super) name: String,
    pub(super) database: String,
    pub(super) collection: String,
    pub(super) topic: Topic,
    pub(super) key: Option<Formula>,
    pub(super) filter: Option<Formula>,
    pub(super) map: Option<Formula>,
    pub(super) snapshot: bool,
}

impl Definition {
    /// Checks what can be checked without a server.
    pub fn check(&self) -> Result<(), DefinitionError> {
        self.feed("feed").map(drop)
    }

    pub(super) fn feed(&self, name: &str) -> Result<Feed, DefinitionError> {
        let (database, collection) = self
            .collection
            .split_once('.')
            .filter(|(database, collection)| !database.is_empty() && !collection.is_empty())
            .ok_or_else(|| DefinitionError::Collection(self.collection.clone()))?;
        let formula = |source: &Option<String>| {
            source.as_deref().map(|source| Formula::compile(source, NAMES)).transpose()
        };
        Ok(Feed {
            name: name.to_owned(),
            database: database.to_owned(),
            collection: collection.to_owned(),
            topic: Topic::new(&self.topic)?,
            key: formula(&self.key)?,
            filter: formula(&self.filter)?,
            map: formula(&self.map)?,
            snapshot: self.snapshot,
        })
    }
}
