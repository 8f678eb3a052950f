//! The topics that exist, as plain data: what the manifest and the registry know.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use promethean_event::{Pattern, Topic};
use serde::{Deserialize, Serialize};

use crate::facts::Span;

/// Every declared topic, and the manifest that declares them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Catalogue {
    /// The manifest, for the places of findings about topics. Without one, and without topics,
    /// nothing is said about registration.
    pub manifest: Option<Manifest>,
    /// By name.
    pub topics: BTreeMap<String, TopicEntry>,
}

/// The manifest as it stands in its file.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// From the root, with `/`: `prom.toml`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// One topic: what of its `[topic."…"]` table and its registered schemas matters here.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopicEntry {
    /// Who answers for it. Default nobody.
    pub owner: Option<String>,
    /// The directory of its schemas, from the root: `vN.json`, and `vN.upcast.json` for what lifts
    /// version N to N + 1. Read where `versions` is empty. Default none.
    pub schema: Option<PathBuf>,
    /// Versions of its schema, if the caller knows them. Default none.
    pub versions: Vec<u32>,
    /// Versions from which an upcaster leads to the next. Default none.
    pub upcasters: Vec<u32>,
    /// Whether it has no schema on purpose. Default false.
    pub schemaless: bool,
    /// Whether others than the linted code use it. Default false.
    pub external: bool,
}

/// Why a directory of schemas could not be read.
#[derive(Debug, thiserror::Error)]
#[error("schemas of topic {topic:?} cannot be read from {}", path.display())]
pub struct SchemaDirectoryError {
    /// The topic.
    pub topic: String,
    /// The directory.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: std::io::Error,
}

impl TopicEntry {
    /// The newest version.
    pub fn latest(&self) -> Option<u32> {
        self.versions.iter().copied().max()
    }

    /// Reads versions and upcasters from a directory; other files in it are left alone.
    fn read(&mut self, directory: &Path) -> std::io::Result<()> {
        for file in fs::read_dir(directory)? {
            let name = file?.file_name();
            let Some((number, rest)) = name.to_str().and_then(numbered) else {
                continue;
            };
            if rest == "json" {
                self.versions.push(number);
            } else if rest.starts_with("upcast.") {
                self.upcasters.push(number);
            }
        }
        self.versions.sort_unstable();
        self.upcasters.sort_unstable();
        Ok(())
    }
}

/// `v2.json` is 2 and `json`.
fn numbered(name: &str) -> Option<(u32, &str)> {
    let (number, rest) = name.strip_prefix('v')?.split_once('.')?;
    Some((number.parse().ok()?, rest))
}

/// `heartbeat.received.v2` is `heartbeat.received` and 2.
pub(crate) fn without_version(topic: &str) -> Option<(&str, u32)> {
    let (name, last) = topic.rsplit_once('.')?;
    let digits = last.strip_prefix('v')?;
    let number =
        digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((name, number))
}

/// Whether a name is that of a dead-letter topic: `dlq.` before or `.dlq` after another.
pub(crate) fn is_dead_letter(topic: &str) -> bool {
    let first = topic.split('.').next();
    let last = topic.rsplit('.').next();
    first == Some("dlq") || last == Some("dlq")
}

impl Catalogue {
    /// The same with the versions that the schema directories hold.
    pub(crate) fn with_versions(&self, root: &Path) -> Result<Self, SchemaDirectoryError> {
        let mut filled = self.clone();
        for (topic, entry) in &mut filled.topics {
            let Some(directory) = entry.schema.clone().filter(|_| entry.versions.is_empty()) else {
                continue;
            };
            let path = root.join(&directory);
            entry.read(&path).map_err(|source| SchemaDirectoryError {
                topic: topic.clone(),
                path: directory,
                source,
            })?;
        }
        Ok(filled)
    }

    /// Whether there is anything to compare code with.
    pub(crate) fn is_given(&self) -> bool {
        self.manifest.is_some() || !self.topics.is_empty()
    }

    /// The topic that a name in code means, and the version where it is a versioned form of one:
    /// `heartbeat.received.v2` only if version 2 of `heartbeat.received` is registered.
    pub(crate) fn find(&self, name: &str) -> Option<(&TopicEntry, Option<u32>)> {
        if let Some(entry) = self.topics.get(name) {
            return Some((entry, None));
        }
        let (of, version) = without_version(name)?;
        let entry = self.topics.get(of)?;
        entry.versions.contains(&version).then_some((entry, Some(version)))
    }

    /// The declared topics that a pattern covers.
    pub(crate) fn covered<'a>(&'a self, pattern: &'a Pattern) -> impl Iterator<Item = &'a str> {
        let fits = |name: &&str| Topic::stored(name).is_ok_and(|topic| pattern.matches(&topic));
        self.topics.keys().map(String::as_str).filter(fits)
    }

    /// Where the manifest declares a topic.
    pub(crate) fn declared_at(&self, topic: &str) -> Span {
        let text = self.manifest.as_ref().map_or("", |manifest| &manifest.text);
        let headers = [
            format!("[topic.\"{topic}\"]"),
            format!("[topic.'{topic}']"),
            format!("[topic.{topic}]"),
        ];
        let found =
            headers.iter().find_map(|header| Some((text.find(header.as_str())?, header.len())));
        found.map_or(0..0, |(start, length)| start..start + length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_versions() {
        assert_eq!(without_version("a.b.v12"), Some(("a.b", 12)));
        for name in ["v1", "a.v", "a.v1x", "a.v+1", "a.version1", "a.v1.b"] {
            assert_eq!(without_version(name), None, "{name}");
        }
    }

    #[test]
    fn dead_letters_by_segment() {
        assert!(is_dead_letter("dlq.a.b") && is_dead_letter("a.b.dlq"));
        assert!(!is_dead_letter("dlqs.a") && !is_dead_letter("a.dlq.b"));
    }
}
