use promethean_event::Topic;
use serde::{Deserialize, Serialize};

use crate::expression::{Formula, FormulaError};

/// What expressions of a feed speak of: the document after the change and before it (null where
/// there is none), the document's key as text, and what happened.
const NAMES: &[&str] = &["document", "before", "key", "op"];

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
    /// The key of an event, as an expression. Default: the document's `_id`, as text. One that looks
    /// at the document needs pre-images, because a delete tells nothing but the `_id`.
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
pub struct Feed {
    /// Its name.
    pub name: String,
    /// The database that it reads.
    pub database: String,
    /// The collection.
    pub collection: String,
    /// Where its events go.
    pub topic: Topic,
    /// What their keys are made by.
    pub key: Option<Formula>,
    /// What leaves changes out.
    pub filter: Option<Formula>,
    /// What payloads are made by.
    pub map: Option<Formula>,
    /// Whether what is there comes first.
    pub snapshot: bool,
}

impl Feed {
    /// Whether a delete has its key only where the collection keeps what was deleted.
    pub fn needs_pre_images(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.sees("document") || key.sees("before"))
    }
}

impl Definition {
    /// The connection string without its password, to show.
    pub fn shown_url(&self) -> String {
        let Some((scheme, rest)) = self.url.split_once("://") else { return String::new() };
        match rest.split_once('@') {
            Some((user, host)) if !user.contains('/') => {
                let name = user.split(':').next().unwrap_or_default();
                format!("{scheme}://{name}:***@{host}")
            }
            _ => self.url.clone(),
        }
    }

    /// The feed of this name; refused if something is wrong with it.
    pub fn feed(&self, name: &str) -> Result<Feed, DefinitionError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Definition {
        serde_json::from_str(r#"{"url":"mongodb://a:b@c/","collection":"d.e","topic":"f"}"#)
            .unwrap()
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(definition().feed("x").is_ok());
        let refused = |change: fn(&mut Definition)| {
            let mut definition = definition();
            change(&mut definition);
            definition.feed("x").err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(refused(|d| d.collection = "orders".into()).contains("database.collection"));
        assert!(refused(|d| d.topic = "$groups".into()).contains("$groups"));
        assert!(refused(|d| d.filter = Some("payload.n > 1".into())).contains("payload"));
    }

    #[test]
    fn a_key_of_the_document_needs_what_was_deleted() {
        let needs = |key: &str| {
            let key = Some(key.to_owned());
            Definition { key, ..definition() }.feed("x").unwrap().needs_pre_images()
        };
        assert!(!definition().feed("x").unwrap().needs_pre_images());
        assert!(!needs("'order-' + key"));
        assert!(needs("document.n"));
        assert!(needs("has(document.n) ? document.n : key"));
        assert!(needs("before == null ? key : before.n"));
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(definition().shown_url(), "mongodb://a:***@c/");
        let open = Definition { url: "mongodb://c:1/?replicaSet=p".into(), ..definition() };
        assert_eq!(open.shown_url(), "mongodb://c:1/?replicaSet=p");
    }
}
