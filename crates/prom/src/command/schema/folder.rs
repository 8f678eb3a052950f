//! Schemas in files: one directory per topic, `vN.json` for version N, `vN.upcast.json` for what
//! lifts version N to the next, `vN.downcast.json` for what brings it to the one before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use promethean::Hop;
use promethean_schema::Document;
use promethean_schema::limits::SCHEMA_BYTES_MAX;

use super::bad_input::{bad, parse_schema, read_text};
use crate::command::project::Project;

/// The schemas of one topic.
#[derive(Debug, Default)]
pub(super) struct Folder {
    pub(super) topic: String,
    /// The directory.
    pub(super) path: PathBuf,
    pub(super) versions: BTreeMap<u32, Version>,
    /// By the version that they take.
    pub(super) up: BTreeMap<u32, Hop>,
    pub(super) down: BTreeMap<u32, Hop>,
}

/// One version in a file.
#[derive(Debug, Clone)]
pub(super) struct Version {
    /// Where it is from, for people.
    pub(super) name: String,
    pub(super) document: Document,
}

/// Where files are read from.
#[derive(Debug, Clone)]
pub(super) enum Files {
    /// As they are.
    Here,
    /// As they were in this commit.
    Commit {
        /// What was asked for.
        name: String,
        /// Its hash.
        hash: String,
    },
}

/// The directories of a project's topics: those given, those of the manifest, or all below
/// `schemas`.
pub(super) fn directories(
    project: &Project,
    given: &[PathBuf],
) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let declared: Vec<_> = project
        .topics
        .iter()
        .filter_map(|(topic, declared)| {
            Some((topic.clone(), project.root.join(declared.schema.as_ref()?)))
        })
        .collect();
    if given.is_empty() && !declared.is_empty() {
        return Ok(declared);
    }
    let all = [project.root.join("schemas")];
    let mut found = Vec::new();
    for path in if given.is_empty() { &all } else { given } {
        let below = below(path).with_context(|| format!("no schemas in {}", path.display()));
        found.extend(below.map_err(bad)?);
    }
    Ok(found)
}

/// A directory of versions, or all of those in it.
fn below(path: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let named = |path: PathBuf| {
        let name = path.canonicalize().ok()?.file_name()?.to_str()?.to_owned();
        Some((name, path))
    };
    if has_versions(path)? {
        return Ok(named(path.to_owned()).into_iter().collect());
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        if path.is_dir() && has_versions(&path)? {
            found.extend(named(path));
        }
    }
    found.sort();
    Ok(found)
}

fn has_versions(path: &Path) -> anyhow::Result<bool> {
    let names = Files::Here.names(path)?;
    Ok(names.iter().any(|name| matches!(numbered(name), Some((_, "json")))))
}

/// `v2.json` is 2 and `json`.
fn numbered(name: &str) -> Option<(u32, &str)> {
    let (number, rest) = name.strip_prefix('v')?.split_once('.')?;
    Some((number.parse().ok()?, rest))
}

impl Files {
    /// The commit of a name, in the repository of a directory.
    pub(super) fn of_commit(directory: &Path, name: &str) -> anyhow::Result<Self> {
        let commit = format!("{name}^{{commit}}");
        let verify = ["rev-parse", "--verify", "--quiet", "--end-of-options", &commit];
        let hash = git(directory, &verify)
            .with_context(|| format!("git knows no commit {name:?} here"))
            .map_err(bad)?;
        Ok(Self::Commit { name: name.to_owned(), hash: hash.trim().to_owned() })
    }

    /// The names of the files in a directory; none if it is not there.
    fn names(&self, directory: &Path) -> anyhow::Result<Vec<String>> {
        let Self::Commit { hash, .. } = self else {
            if !directory.is_dir() {
                return Ok(Vec::new());
            }
            let names = std::fs::read_dir(directory)?
                .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
            return names.collect::<std::io::Result<_>>().map_err(Into::into);
        };
        let listed = git(directory, &["ls-tree", "-z", "--name-only", hash, "./"])?;
        Ok(listed.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    fn text(&self, directory: &Path, name: &str) -> anyhow::Result<String> {
        match self {
            Self::Here => read_text(&directory.join(name), SCHEMA_BYTES_MAX),
            Self::Commit { hash, .. } => git(directory, &["show", &format!("{hash}:./{name}")]),
        }
    }

    fn shown(&self, directory: &Path, name: &str) -> String {
        let path = directory.join(name);
        let path = path.strip_prefix(".").unwrap_or(&path).display().to_string();
        match self {
            Self::Here => path,
            Self::Commit { name, .. } => format!("{name}:{path}"),
        }
    }
}

fn git(directory: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let done = Command::new("git").arg("-C").arg(directory).args(arguments).output();
    let done = done.context("cannot run git")?;
    if !done.status.success() {
        bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr).trim());
    }
    String::from_utf8(done.stdout).context("what git says is not UTF-8")
}

impl Folder {
    /// Reads the schemas of a topic.
    pub(super) fn read(files: &Files, topic: &str, path: &Path) -> anyhow::Result<Self> {
        let mut folder = Self { topic: topic.to_owned(), path: path.to_owned(), ..Self::default() };
        for name in files.names(path)? {
            let Some((number, rest)) = numbered(&name) else {
                continue;
            };
            let shown = files.shown(path, &name);
            match rest {
                "json" => {
                    let document = parse_schema(&files.text(path, &name)?, &shown)?;
                    folder.versions.insert(number, Version { name: shown, document });
                }
                "upcast.json" => {
                    folder.up.insert(number, read_hop(&files.text(path, &name)?, &shown)?);
                }
                "downcast.json" => {
                    folder.down.insert(number, read_hop(&files.text(path, &name)?, &shown)?);
                }
                _ => {}
            }
        }
        Ok(folder)
    }

    /// The casters from a version to another, along the versions that are there; empty if nothing
    /// has to change on the way.
    pub(super) fn casters(&self, from: u32, to: u32) -> Vec<Hop> {
        let between = self.versions.keys().copied();
        let hops: Vec<Hop> = if from < to {
            let steps = between.filter(|version| (from..to).contains(version));
            steps.filter_map(|version| self.up.get(&version).cloned()).collect()
        } else {
            let steps = between.filter(|version| (to + 1..=from).contains(version));
            let mut steps: Vec<u32> = steps.collect();
            steps.reverse();
            steps.iter().filter_map(|version| self.down.get(version).cloned()).collect()
        };
        hops.into_iter().filter(|hop| *hop != Hop::Same).collect()
    }
}

/// A caster in a file: a list of operations, or what the registry shows of one.
pub(super) fn read_hop(text: &str, place: &str) -> anyhow::Result<Hop> {
    let hop = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).map(Hop::operations)
    } else {
        serde_json::from_str(text)
    };
    hop.with_context(|| format!("{place} is not a caster")).map_err(bad)
}
