//! The official JSON-Schema-Test-Suite: what we validate by must decide as it says.
//!
//! It is not ours to copy. `scripts/fetch-schema-suite` brings it to `.cache/json-schema-suite`;
//! `PROM_JSON_SCHEMA_SUITE` names another place. Without it a notice is printed.

use std::path::{Path, PathBuf};

use promethean_schema::{
    CompareOptions, Dialect, Document, Formats, ReadError, Validator, Verdict, compare,
};
use serde_json::Value;

const DRAFTS: [(&str, Dialect); 5] = [
    ("draft2020-12", Dialect::Draft2020),
    ("draft2019-09", Dialect::Draft2019),
    ("draft7", Dialect::Draft7),
    ("draft6", Dialect::Draft6),
    ("draft4", Dialect::Draft4),
];

#[derive(Debug, Default)]
struct Tally {
    tests: usize,
    wrong: Vec<String>,
    /// Schemas that refer to other documents: nothing is ever fetched.
    remote: usize,
    /// Other refusals, which are listed.
    refused: Vec<String>,
}

fn suite() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/json-schema-suite");
    let place = std::env::var_os("PROM_JSON_SCHEMA_SUITE").map_or_else(beside, PathBuf::from);
    place.join("tests").is_dir().then_some(place)
}

fn run(file: &Path, dialect: Dialect, tally: &mut Tally) {
    let text = std::fs::read_to_string(file).unwrap();
    let groups: Vec<Value> = serde_json::from_str(&text).unwrap();
    let name = file.file_stem().unwrap().to_string_lossy().into_owned();
    for group in &groups {
        let title = format!("{dialect:?} {name}: {}", group["description"]);
        let document = match Document::from_value(&group["schema"], Some(dialect)) {
            Ok(document) => document,
            Err(ReadError::Remote { .. } | ReadError::UnknownDialect { .. }) => {
                tally.remote += 1;
                continue;
            }
            Err(error) => {
                tally.refused.push(format!("{title}: {error}"));
                continue;
            }
        };
        for test in group["tests"].as_array().unwrap() {
            tally.tests += 1;
            let valid = document.validator().is_valid(&test["data"]);
            let listed = document.validator().mismatches(&test["data"]).is_empty();
            if valid != listed || Value::Bool(valid) != test["valid"] {
                tally.wrong.push(format!("{title}: {}", test["description"]));
            }
        }
    }
}

#[test]
fn the_official_suite_is_passed() {
    let Some(suite) = suite() else {
        println!("the official suite is not here: scripts/fetch-schema-suite brings it");
        return;
    };
    let mut tally = Tally::default();
    for (draft, dialect) in DRAFTS {
        let mut files: Vec<PathBuf> = std::fs::read_dir(suite.join("tests").join(draft))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .collect();
        files.sort();
        for file in files {
            run(&file, dialect, &mut tally);
        }
    }
    println!(
        "{} tests; {} schemas refer to other documents; refused: {:#?}",
        tally.tests, tally.remote, tally.refused
    );
    assert!(tally.tests > 3_000, "only {} tests", tally.tests);
    assert!(tally.wrong.is_empty(), "{:#?}", tally.wrong);
}

fn constants(group: &Value, dialect: Dialect, path: &Path, wrong: &mut Vec<String>) -> usize {
    let read = |schema: &Value| Document::from_value(schema, Some(dialect));
    let Ok(reader) = read(&group["schema"]) else {
        return 0;
    };
    let tests = group["tests"].as_array().unwrap();
    for test in tests {
        let writer = read(&serde_json::json!({"enum": [test["data"]]})).unwrap();
        let verdict = compare(&reader, &writer, &CompareOptions::strict()).unwrap();
        let right = match verdict {
            Verdict::Compatible { .. } => test["valid"] == true,
            Verdict::Incompatible { .. } => test["valid"] == false,
            Verdict::Undecided { .. } => false,
        };
        if !right {
            wrong.push(format!("{path:?} {}: {verdict}", test["description"]));
        }
    }
    tests.len()
}

/// One value as the writer's whole schema: compatible where the suite says that it is valid. A second
/// opinion on the checker, and one that knows every keyword.
#[test]
fn every_test_of_the_suite_is_also_one_of_compatibility() {
    let Some(suite) = suite() else {
        return;
    };
    let (mut checked, mut wrong) = (0, Vec::new());
    for (draft, dialect) in DRAFTS {
        for entry in std::fs::read_dir(suite.join("tests").join(draft)).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let groups: Vec<Value> = serde_json::from_str(&text).unwrap();
            for group in &groups {
                checked += constants(group, dialect, &path, &mut wrong);
            }
        }
    }
    println!("{checked} constants");
    assert!(checked > 3_000 && wrong.is_empty(), "{checked} {wrong:#?}");
}

/// `format` as a condition, where it is asked for.
#[test]
fn formats_of_the_official_suite() {
    let Some(suite) = suite() else {
        return;
    };
    let (mut tests, mut wrong) = (0, Vec::new());
    let folder = suite.join("tests/draft2020-12/optional/format");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // International names need tables that the engine is built without.
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("idn-")) {
            continue;
        }
        let groups: Vec<Value> =
            serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        for group in &groups {
            let rules = Validator::compile(&group["schema"], Dialect::Draft2020, Formats::Assert);
            let Ok(rules) = rules else { continue };
            for test in group["tests"].as_array().unwrap() {
                tests += 1;
                if Value::Bool(rules.is_valid(&test["data"])) != test["valid"] {
                    wrong.push(format!("{path:?} {}", test["description"]));
                }
            }
        }
    }
    println!("{tests} tests of formats");
    assert!(wrong.is_empty(), "{wrong:#?}");
}
