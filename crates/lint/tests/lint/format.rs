//! The formats, against what their readers demand.

use promethean_lint::format::{Colour, github, human, json, sarif};
use promethean_lint::{Report, rules};
use serde_json::Value;

use crate::project::Project;

fn report() -> Report {
    let code = "// ü\nconst N = 'Bad Name';\nbus.publish(N, 1, { headers: { tenant: 1 } });\n\
                bus.publish(other, 1);\nbus.publish(`two\nlines`, 1);\n";
    Project::default()
        .file("src/a b.ts", code)
        .topic("dlq.x", promethean_lint::TopicEntry::default())
        .lint()
}

#[test]
fn people_see_the_line() {
    let text = human(&report(), Colour::Never);
    assert!(!text.contains('\u{1b}'), "no colours unless asked for");
    let expected = "\
error[topic-name]: topic name \"Bad Name\" does not match the naming rule
 --> src/a b.ts:3:13
  |
3 | bus.publish(N, 1, { headers: { tenant: 1 } });
  |             ^
  |
  = help: rename it, e.g. to `bad.name`
";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("note[dynamic-topic]"), "{text}");
    let last = text.lines().last().unwrap();
    assert!(last.ends_with("1 warning, 1 note in 1 file; 3 topics named"), "{last}");
    assert!(human(&report(), Colour::Always).contains('\u{1b}'));
}

#[test]
fn programs_get_one_document() {
    let document: Value = serde_json::from_str(&json(&report()).unwrap()).unwrap();
    assert_eq!(document["version"], 1);
    let findings = document["findings"].as_array().unwrap();
    let counts = &document["counts"];
    let sum = ["error", "warning", "note"].map(|key| counts[key].as_u64().unwrap());
    assert_eq!(sum.iter().sum::<u64>(), findings.len() as u64);
    for key in ["rule", "name", "severity", "path", "message", "help", "subject", "fingerprint"] {
        assert!(findings.iter().all(|finding| finding[key].is_string()), "{key}");
    }
    assert_eq!(document["sites"][0]["topic"], "Bad Name");
}

#[test]
fn github_gets_one_command_per_line() {
    let text = github(&report());
    assert_eq!(text.lines().count(), report().findings.len());
    let first = text.lines().find(|line| line.contains("L001")).unwrap();
    assert_eq!(
        first,
        "::error file=src/a b.ts,line=3,endLine=3,col=13,endColumn=14,\
         title=PROM-L001 topic-name::topic name \"Bad Name\" does not match the naming rule. \
         rename it, e.g. to `bad.name`"
    );
    assert!(text.lines().all(|line| line.starts_with("::")));
}

/// The constraints of the 2.1.0 schema on what we write: required properties, no others than the
/// schema knows (most of its objects are closed), enumerations, minima, unique rule ids.
#[test]
fn sarif_is_sarif() {
    let report = report();
    let log: Value = serde_json::from_str(&sarif(&report).unwrap()).unwrap();
    only(&log, &["$schema", "version", "runs"]);
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    only(run, &["tool", "columnKind", "results"]);
    assert!(["utf16CodeUnits", "unicodeCodePoints"].contains(&run["columnKind"].as_str().unwrap()));
    let driver = &run["tool"]["driver"];
    only(driver, &["name", "semanticVersion", "informationUri", "rules"]);
    let descriptors = driver["rules"].as_array().unwrap();
    assert_eq!(descriptors.len(), rules().len());
    for descriptor in descriptors {
        let keys = [
            "id",
            "name",
            "shortDescription",
            "fullDescription",
            "help",
            "helpUri",
            "defaultConfiguration",
        ];
        only(descriptor, &keys);
        for text in ["shortDescription", "fullDescription", "help"] {
            assert!(descriptor[text]["text"].is_string());
        }
        level(&descriptor["defaultConfiguration"]["level"]);
    }
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), report.findings.len());
    for result in results {
        check_result(result, descriptors);
    }
}

fn check_result(result: &Value, descriptors: &[Value]) {
    only(result, &["ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints"]);
    let index = result["ruleIndex"].as_u64().unwrap() as usize;
    assert_eq!(result["ruleId"], descriptors[index]["id"]);
    level(&result["level"]);
    assert!(result["message"]["text"].is_string());
    let place = &result["locations"][0]["physicalLocation"];
    only(place, &["artifactLocation", "region"]);
    let uri = place["artifactLocation"]["uri"].as_str().unwrap();
    assert!(!uri.starts_with('/') && !uri.contains([' ', '\\']), "{uri}");
    assert_eq!(place["artifactLocation"]["uriBaseId"], "%SRCROOT%");
    let number = |key: &str| place["region"][key].as_u64().unwrap();
    assert!(number("startLine") >= 1 && number("startColumn") >= 1);
    assert!(number("endLine") >= number("startLine"));
    if number("endLine") == number("startLine") {
        assert!(number("endColumn") >= number("startColumn"));
    }
    let prints = result["partialFingerprints"].as_object().unwrap();
    assert!(prints.len() == 2 && prints.values().all(Value::is_string));
}

fn only(object: &Value, keys: &[&str]) {
    for key in object.as_object().unwrap().keys() {
        assert!(keys.contains(&key.as_str()), "{key} is not expected");
    }
}

fn level(level: &Value) {
    assert!(["none", "note", "warning", "error"].contains(&level.as_str().unwrap()));
}
