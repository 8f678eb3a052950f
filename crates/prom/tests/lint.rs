//! `prom lint`, on the example project and on its own.

use std::path::{Path, PathBuf};

use crate::project::{Files, json, prom_in};
use crate::{stderr, stdout};

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/lint-project")
}

#[test]
fn the_example_project_in_every_format() {
    let human = prom_in(&example(), &["lint"]);
    assert_eq!(human.status.code(), Some(100), "{}", stderr(&human));
    assert!(stdout(&human).contains("error[topic-name]"), "{}", stdout(&human));
    let expected = std::fs::read_to_string(example().join("expected.txt")).unwrap();
    let (code, document) = json(&prom_in(&example(), &["lint", "--format", "json"]));
    assert_eq!(code, Some(100));
    assert_eq!(document["findings"].as_array().unwrap().len(), expected.lines().count());
    assert_eq!(json(&prom_in(&example(), &["lint", "--json"])).1, document);
    let (code, log) = json(&prom_in(&example(), &["lint", "--format", "sarif"]));
    assert_eq!((code, &log["version"]), (Some(100), &"2.1.0".into()));
    let github = prom_in(&example(), &["lint", "--format", "github"]);
    assert!(stdout(&github).lines().all(|line| line.starts_with("::")), "{}", stdout(&github));
}

/// `scripts/fetch-sarif-schema` brings the schema; `PROM_SARIF_SCHEMA` names another place. What it
/// asks of us is also written down in the tests of `promethean-lint`, which always run.
#[test]
fn sarif_is_valid_by_its_schema() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/sarif-2.1.0.json");
    let named = std::env::var_os("PROM_SARIF_SCHEMA").map(PathBuf::from);
    if named.is_none() && !beside.exists() {
        println!("the schema of SARIF is not here: scripts/fetch-sarif-schema brings it");
        return;
    }
    let schema = std::fs::read_to_string(named.unwrap_or(beside)).unwrap();
    let log = prom_in(&example(), &["lint", "--format", "sarif"]);
    let files = Files::new(&[("schema.json", &schema), ("log.sarif", &stdout(&log))]);
    let validate = ["schema", "validate", "schema.json", "log.sarif", "--assert-formats"];
    let done = files.prom(&validate);
    assert_eq!(done.status.code(), Some(0), "{}{}", stdout(&done), stderr(&done));
    // It would be found.
    files.write("log.sarif", &stdout(&log).replace("\"error\"", "\"fatal\""));
    assert_eq!(files.prom(&validate).status.code(), Some(100));
}

#[test]
fn a_project_without_findings_is_good() {
    let files = Files::new(&[("src/hub.ts", "bus.publish('heartbeat.received', {});\n")]);
    let good = files.prom(&["lint"]);
    assert_eq!(good.status.code(), Some(0), "{}", stdout(&good));
    files.write("src/hub.ts", "bus.publish('Heart Beat', {});\n");
    assert_eq!(files.prom(&["lint"]).status.code(), Some(100));
    assert_eq!(files.prom(&["lint", "src"]).status.code(), Some(100));
    assert_eq!(files.prom(&["lint", "elsewhere"]).status.code(), Some(2));
}

#[test]
fn what_is_known_is_not_reported_again() {
    let files = Files::new(&[("hub.py", "bus.publish('Heart Beat', {})\n")]);
    let written = files.prom(&["lint", "--write-baseline", "--baseline", "known.json"]);
    assert_eq!(written.status.code(), Some(0), "{}", stderr(&written));
    assert_eq!(files.prom(&["lint", "--baseline", "known.json"]).status.code(), Some(0));
    files.write("hub.py", "x = 1\nbus.publish('Heart Beat', {})\nbus.publish('Other Beat', {})\n");
    let (code, document) = json(&files.prom(&["lint", "--json", "--baseline", "known.json"]));
    assert_eq!((code, document["findings"].as_array().unwrap().len()), (Some(100), 1));
    assert_eq!((&document["known"], &document["findings"][0]["line"]), (&1.into(), &3.into()));
    // The manifest may name the file.
    files.write("prom.toml", "[lint]\nbaseline = \"known.json\"\n");
    assert_eq!(json(&files.prom(&["lint", "--json"])).1["known"], 1);
    files.write("known.json", "{}");
    assert_eq!(files.prom(&["lint"]).status.code(), Some(2));
}

#[test]
fn severities_that_fail() {
    let files = Files::new(&[("hub.ts", "bus.publish(name, {});\n")]);
    assert_eq!(files.prom(&["lint"]).status.code(), Some(0), "a note");
    assert_eq!(files.prom(&["lint", "--fail-on", "note"]).status.code(), Some(100));
    files.write("prom.toml", "[lint]\nseverity = { dynamic-topic = \"warning\" }\n");
    assert_eq!(files.prom(&["lint"]).status.code(), Some(100));
    assert_eq!(files.prom(&["lint", "--fail-on", "error"]).status.code(), Some(0));
    files.write("prom.toml", "[lint]\nseverity = { dynamic-topics = \"off\" }\n");
    let wrong = files.prom(&["lint"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("dynamic-topic"), "{}", stderr(&wrong));
}

/// A table whose name is misspelt would be passed over, with all that it declares.
#[test]
fn what_the_manifest_misspells_is_refused() {
    let files = Files::new(&[("hub.ts", "bus.publish('a.b', {});\n")]);
    for (manifest, meant) in [
        ("[topics.\"a.b\"]\nowner = \"me\"\n", "topic"),
        ("[lnt]\npaths = [\"src\"]\n", "lint"),
        ("[lint]\nexcludes = [\"src\"]\n", "exclude"),
        ("[topic.\"a.b\"]\nownr = \"me\"\n", "owner"),
        ("[sevrer]\n", "server"),
    ] {
        files.write("prom.toml", manifest);
        let wrong = files.prom(&["lint"]);
        assert_eq!(wrong.status.code(), Some(2), "{manifest}");
        let said = stderr(&wrong);
        assert!(said.contains("prom.toml:"), "where: {said}");
        assert!(said.contains(&format!("did you mean `{meant}`?")), "{manifest}: {said}");
    }
}

#[test]
fn rules_explain_themselves() {
    let files = Files::new(&[]);
    let page = files.prom(&["lint", "--explain", "PROM-L001"]);
    assert!(stdout(&page).starts_with("# topic-name (PROM-L001)"), "{}", stdout(&page));
    let unknown = files.prom(&["lint", "--explain", "topic-names"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("did you mean topic-name?"), "{}", stderr(&unknown));
    assert_eq!(stdout(&files.prom(&["lint", "--rules"])).lines().count(), 11);
}
