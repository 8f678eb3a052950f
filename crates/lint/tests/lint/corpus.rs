//! The checked-in corpus: every call site is found, and nothing else.

use std::collections::BTreeSet;
use std::fs;

use promethean_lint::{CallRule, Catalogue, Report, Request, Settings, lint};
use serde_json::Value;

use crate::project::{corpus, shown};

fn settings() -> Settings {
    let configured: Vec<CallRule> = serde_json::from_str(
        r#"[{"name": "announce", "argument": 0},
            {"name": "startChangefeed", "argument": 2, "property": "topic"}]"#,
    )
    .unwrap();
    Settings { calls: configured, ..Settings::default() }
}

fn run() -> Report {
    let (settings, catalogue) = (settings(), Catalogue::default());
    let root = corpus();
    lint(&Request { root: &root, settings: &settings, catalogue: &catalogue, paths: None }).unwrap()
}

/// `path:line kind topic` for each line of `sites.ndjson`.
fn expected_sites() -> BTreeSet<String> {
    let text = fs::read_to_string(corpus().join("sites.ndjson")).unwrap();
    let sites = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let word = |site: &Value, key: &str| site[key].as_str().unwrap_or("?").to_owned();
    sites
        .map(|site| {
            let (path, kind) = (word(&site, "path"), word(&site, "kind"));
            format!("{path}:{} {kind} {}", site["line"], word(&site, "topic"))
        })
        .collect()
}

fn found_sites(report: &Report) -> BTreeSet<String> {
    let site = |site: &promethean_lint::Site| {
        let kind = serde_json::to_value(site.kind).unwrap();
        let topic = site.topic.as_deref().unwrap_or("?");
        format!("{}:{} {} {topic}", site.path, site.line, kind.as_str().unwrap())
    };
    report.sites.iter().map(site).collect()
}

#[test]
fn every_call_site_is_found_and_nothing_else() {
    let (expected, found) = (expected_sites(), found_sites(&run()));
    assert!(expected.len() > 150, "{} sites", expected.len());
    let missed: Vec<_> = expected.difference(&found).collect();
    let invented: Vec<_> = found.difference(&expected).collect();
    assert!(missed.is_empty() && invented.is_empty(), "missed {missed:#?}\ninvented {invented:#?}");
}

#[test]
fn findings_are_as_expected() {
    let text = fs::read_to_string(corpus().join("findings.ndjson")).unwrap();
    let findings = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let expected: Vec<String> = findings
        .map(|of| {
            let word = |key: &str| of[key].as_str().unwrap();
            format!("{}:{} {} {}", word("path"), of["line"], word("rule"), word("subject"))
        })
        .collect();
    let found = shown(&run());
    assert_eq!(found, expected, "found\n{found:#?}");
}
