//! Which files are read: by `.gitignore`, by globs, and by a known extension.

use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use ignore::overrides::{Override, OverrideBuilder};

use crate::language::Language;
use crate::settings::{Settings, SettingsError};

/// Folders of built or fetched files, whether or not git ignores them.
const SKIPPED: &[&str] = &["node_modules", "target", "dist", ".git", "__pycache__", ".venv"];

/// A file to read.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Listed {
    /// From the root, with `/`.
    pub(crate) path: String,
    pub(crate) full: PathBuf,
    pub(crate) language: Language,
}

/// What a walk gave: files in the order of their paths, and what could not be entered.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub(crate) files: Vec<Listed>,
    pub(crate) failures: Vec<(String, String)>,
}

/// Lists the files under `paths` (from the root) that are source code.
pub(crate) fn walk(
    root: &Path,
    paths: &[PathBuf],
    settings: &Settings,
) -> Result<Walked, SettingsError> {
    let included = globs(root, &settings.include)?;
    let excluded = globs(root, &settings.exclude)?;
    let mut walked = Walked::default();
    for path in paths {
        let start = root.join(path);
        let mut builder = WalkBuilder::new(&start);
        builder.require_git(false).filter_entry(|entry| {
            let name = entry.file_name().to_str().unwrap_or("");
            entry.depth() == 0 || !SKIPPED.contains(&name)
        });
        for entry in builder.build() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    walked.failures.push((relative(root, &start), error.to_string()));
                    continue;
                }
            };
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            let full = entry.into_path();
            let Some(language) = Language::of(&full).filter(|_| is_file) else {
                continue;
            };
            let named = |globs: &Override| globs.matched(&full, false).is_whitelist();
            if excluded.as_ref().is_some_and(named)
                || included.as_ref().is_some_and(|of| !named(of))
            {
                continue;
            }
            walked.files.push(Listed { path: relative(root, &full), full, language });
        }
    }
    walked.files.sort();
    walked.files.dedup();
    Ok(walked)
}

fn globs(root: &Path, globs: &[String]) -> Result<Option<Override>, SettingsError> {
    if globs.is_empty() {
        return Ok(None);
    }
    let mut builder = OverrideBuilder::new(root);
    let refused =
        |glob: &str, error| SettingsError::Glob { glob: glob.to_owned(), source: Box::new(error) };
    for glob in globs {
        builder.add(glob).map_err(|error| refused(glob, error))?;
    }
    builder.build().map(Some).map_err(|error| refused("", error))
}

fn relative(root: &Path, path: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    let parts = path.components().filter_map(|part| match part {
        std::path::Component::Normal(name) => Some(name.to_string_lossy()),
        _ => None,
    });
    parts.collect::<Vec<_>>().join("/")
}
