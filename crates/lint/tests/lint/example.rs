//! The example project under `examples/lint-project`: its findings are the ones it promises.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use promethean_lint::{Catalogue, Manifest, Request, Settings, TopicEntry, lint, rules};
use serde::Deserialize;

use crate::project::shown;

/// The part of a manifest that the linter is given.
#[derive(Deserialize)]
struct Document {
    lint: Settings,
    topic: BTreeMap<String, Declared>,
}

#[derive(Deserialize)]
struct Declared {
    owner: Option<String>,
    schema: Option<PathBuf>,
}

#[test]
fn shows_every_rule_once_at_least() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/lint-project");
    let text = fs::read_to_string(root.join("prom.toml")).unwrap();
    let document: Document = toml::from_str(&text).unwrap();
    let entry =
        |of: Declared| TopicEntry { owner: of.owner, schema: of.schema, ..TopicEntry::default() };
    let catalogue = Catalogue {
        manifest: Some(Manifest { path: "prom.toml".to_owned(), text }),
        topics: document.topic.into_iter().map(|(name, of)| (name, entry(of))).collect(),
    };
    let request =
        Request { root: &root, settings: &document.lint, catalogue: &catalogue, paths: None };
    let found = shown(&lint(&request).unwrap());
    let expected = fs::read_to_string(root.join("expected.txt")).unwrap();
    assert_eq!(found, expected.lines().collect::<Vec<_>>(), "found\n{}", found.join("\n"));
    for rule in rules() {
        let name = format!(" {} ", rule.name);
        assert!(found.iter().any(|finding| finding.contains(&name)), "{name}");
    }
}
