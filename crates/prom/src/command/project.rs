//! What the commands that work without a server need of a project: its manifest, as far as they
//! read it, and the directories of its schemas.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use promethean_lint::{Catalogue, Manifest, Settings, TopicEntry};
use promethean_schema::Mode;
use serde::Deserialize;

use crate::manifest::{self, FILE, ManifestError};

/// The parts of a manifest that are about schemas and source code.
#[derive(Debug, Default, Deserialize)]
struct Document {
    #[serde(default)]
    topic: BTreeMap<String, Declared>,
    #[serde(default)]
    lint: Option<Settings>,
}

/// A topic of the manifest.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Declared {
    owner: Option<String>,
    /// The directory of its schemas, from the manifest.
    pub(super) schema: Option<PathBuf>,
    schemaless: bool,
    external: bool,
    /// What a new version must keep.
    pub(super) compat: Option<Mode>,
    /// Whether open objects may hold anything under names that they do not declare.
    pub(super) strict: Option<bool>,
}

/// A project: where it is, and what its manifest says.
#[derive(Debug, Default)]
pub(super) struct Project {
    pub(super) root: PathBuf,
    pub(super) topics: BTreeMap<String, Declared>,
    lint: Option<Settings>,
    manifest: Option<Manifest>,
}

impl Project {
    /// The project of a manifest, or of a directory without one.
    pub(super) fn read(root: &Path, manifest: Option<&Path>) -> anyhow::Result<Self> {
        let path = manifest.map_or_else(|| root.join(FILE), Path::to_owned);
        if manifest.is_none() && !path.exists() {
            return Ok(Self { root: root.to_owned(), ..Self::default() });
        }
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let told = |error: ManifestError| anyhow::anyhow!(error.with_suggestion());
        // All of it must make sense, also what only the server reads: a table whose name is
        // misspelt would be passed over, with every topic that is in it.
        manifest::parse::<manifest::Document>(&path, &text).map_err(told)?;
        let document: Document = manifest::parse(&path, &text).map_err(told)?;
        let root = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let root = root.map_or_else(|| root_or_here(root), |parent| root_or_here(Some(parent)));
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let manifest = Manifest { path: name.unwrap_or_else(|| FILE.to_owned()), text };
        Ok(Self { root, topics: document.topic, lint: document.lint, manifest: Some(manifest) })
    }

    /// The `[lint]` table.
    pub(super) fn lint_settings(&self) -> Settings {
        self.lint.clone().unwrap_or_default()
    }

    /// The topics as the linter wants them.
    pub(super) fn catalogue(&self) -> Catalogue {
        let entry = |declared: &Declared| TopicEntry {
            owner: declared.owner.clone(),
            schema: declared.schema.clone(),
            schemaless: declared.schemaless,
            external: declared.external,
            ..TopicEntry::default()
        };
        let topics = self.topics.iter().map(|(name, declared)| (name.clone(), entry(declared)));
        Catalogue { manifest: self.manifest.clone(), topics: topics.collect() }
    }
}

fn root_or_here(root: Option<&Path>) -> PathBuf {
    match root {
        Some(root) if !root.as_os_str().is_empty() => root.to_owned(),
        _ => PathBuf::from("."),
    }
}
