//! Small projects in temporary folders.

use std::fs;
use std::path::{Path, PathBuf};

use promethean_lint::{Catalogue, Report, Request, Settings, TopicEntry, lint};

/// The folder of the checked-in corpus.
pub(crate) fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// A project that is written when it is linted.
#[derive(Default)]
pub(crate) struct Project {
    pub(crate) files: Vec<(String, String)>,
    pub(crate) settings: Settings,
    pub(crate) catalogue: Catalogue,
}

impl Project {
    pub(crate) fn file(mut self, path: &str, text: &str) -> Self {
        self.files.push((path.to_owned(), text.to_owned()));
        self
    }

    pub(crate) fn topic(mut self, name: &str, entry: TopicEntry) -> Self {
        self.catalogue.topics.insert(name.to_owned(), entry);
        self
    }

    /// A topic with these schema versions.
    pub(crate) fn versions(self, name: &str, versions: &[u32]) -> Self {
        self.topic(name, TopicEntry { versions: versions.to_vec(), ..TopicEntry::default() })
    }

    pub(crate) fn lint(&self) -> Report {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in &self.files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let (settings, catalogue) = (&self.settings, &self.catalogue);
        lint(&Request { root: folder.path(), settings, catalogue, paths: None }).unwrap()
    }

    /// `path:line rule subject` of every finding.
    pub(crate) fn found(&self) -> Vec<String> {
        shown(&self.lint())
    }
}

/// `path:line rule subject` of every finding.
pub(crate) fn shown(report: &Report) -> Vec<String> {
    let findings = report.findings.iter();
    findings.map(|of| format!("{}:{} {} {}", of.path, of.line, of.name, of.subject)).collect()
}
