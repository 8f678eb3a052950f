//! `prom.toml`: the server, where it keeps things, who gets in, and which topics and groups there
//! are. What is not known is refused, with what was probably meant.

mod document;

mod quantity;

mod reading;

mod check;

mod plan;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub(crate) use check::{Finding, Severity};
pub(crate) use document::{
    AuthMode, Document, FieldRule, RatesTable, StoreKind, UnkeyedRule, UnknownTopics, ViewTable,
};
pub(crate) use plan::{Existing, Plan, Step};
pub(crate) use quantity::{Limit, bytes_or_none};
pub(crate) use reading::{ManifestError, parse};

/// The name of the file.
pub(crate) const FILE: &str = "prom.toml";

/// A manifest that was read.
#[derive(Debug, Clone)]
pub(crate) struct Manifest {
    pub(crate) path: PathBuf,
    pub(crate) document: Document,
    /// When the file had last been changed when it was read.
    pub(crate) modified: Option<SystemTime>,
}

/// All that is wrong with the text of a file, of which the first thing is known.
pub(crate) fn problems(named: Option<&Path>, first: ManifestError) -> Vec<ManifestError> {
    let path = named.unwrap_or(Path::new(FILE));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let all = reading::problems(path, &text);
    // The environment may be wrong where the file is not.
    if all.is_empty() { vec![first] } else { all }
}

/// When a file was last changed; none if it is not there.
pub(crate) fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|found| found.modified()).ok()
}

impl Manifest {
    /// The one that was named, or the one of this directory if it is there.
    pub(crate) fn find(named: Option<&Path>) -> Result<Option<Self>, ManifestError> {
        match named {
            Some(path) => Self::read(path).map(Some),
            None if Path::new(FILE).exists() => Self::read(Path::new(FILE)).map(Some),
            None => Ok(None),
        }
    }

    /// Reads a file, with what the environment says on top of it.
    pub(crate) fn read(path: &Path) -> Result<Self, ManifestError> {
        // Before the text, so that a change in between is noticed afterwards.
        let modified = modified(path);
        let text = std::fs::read_to_string(path)
            .map_err(|source| ManifestError::Read { path: path.to_owned(), source })?;
        let document = reading::read(path, &text, std::env::vars())?;
        Ok(Self { path: path.to_owned(), document, modified })
    }

    /// A path of the manifest: relative ones are from where it lies.
    pub(crate) fn resolve(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    /// In a few words, for a person.
    pub(crate) fn summary(&self) -> String {
        let (topics, groups) = (self.document.topic.len(), self.document.group.len());
        let topics = crate::output::count(topics, "topic", "topics");
        let groups = crate::output::count(groups, "group", "groups");
        let views = match self.document.views.len() {
            0 => String::new(),
            views => format!(", {}", crate::output::count(views, "view", "views")),
        };
        format!("{}  {topics}, {groups}{views}", self.path.display())
    }
}
