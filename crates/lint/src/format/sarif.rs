//! For code scanning: SARIF 2.1.0, with stable rule ids, paths relative to the repository, and
//! fingerprints that survive moved lines (without which GitHub reports the same alert again).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::finding::{Finding, Severity};
use crate::report::Report;
use crate::rules::{RuleDescription, rules};
use crate::settings::Level;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// What paths are relative to; whoever reads the file knows where it is.
const ROOT: &str = "%SRCROOT%";
const PAGES: &str = "https://promethean.dev/rules/";

#[derive(Serialize)]
struct Log<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run<'a> {
    tool: Tool,
    column_kind: &'static str,
    results: Vec<ResultOf<'a>>,
}

#[derive(Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Driver {
    name: &'static str,
    semantic_version: &'static str,
    information_uri: &'static str,
    rules: Vec<Descriptor>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    id: &'static str,
    name: String,
    short_description: Text<'static>,
    full_description: Text<'static>,
    help: Help,
    help_uri: String,
    default_configuration: Configuration,
}

#[derive(Serialize)]
struct Help {
    text: &'static str,
    markdown: &'static str,
}

#[derive(Serialize)]
struct Configuration {
    enabled: bool,
    level: &'static str,
}

#[derive(Serialize)]
struct Text<'a> {
    text: std::borrow::Cow<'a, str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResultOf<'a> {
    rule_id: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_index: Option<usize>,
    level: &'static str,
    message: Text<'a>,
    locations: [Location; 1],
    partial_fingerprints: BTreeMap<&'static str, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    physical_location: PhysicalLocation,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PhysicalLocation {
    artifact_location: ArtifactLocation,
    region: Region,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ArtifactLocation {
    uri: String,
    uri_base_id: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: usize,
    start_column: usize,
    end_line: usize,
    end_column: usize,
}

/// A SARIF 2.1.0 log with one run.
pub fn sarif(report: &Report) -> Result<String, serde_json::Error> {
    let driver = Driver {
        name: "prom lint",
        semantic_version: env!("CARGO_PKG_VERSION"),
        information_uri: "https://promethean.dev/",
        rules: rules().map(|rule| descriptor(&rule)).collect(),
    };
    let run = Run {
        tool: Tool { driver },
        column_kind: "unicodeCodePoints",
        results: report.findings.iter().map(result).collect(),
    };
    let log = Log { schema: SCHEMA, version: "2.1.0", runs: [run] };
    serde_json::to_string_pretty(&log).map(|text| text + "\n")
}

fn descriptor(rule: &RuleDescription) -> Descriptor {
    Descriptor {
        id: rule.id,
        name: pascal(rule.name),
        short_description: Text { text: rule.summary.into() },
        full_description: Text { text: rule.summary.into() },
        help: Help { text: rule.doc, markdown: rule.doc },
        help_uri: format!("{PAGES}{}", rule.id),
        default_configuration: Configuration {
            enabled: rule.default != Level::Off,
            level: rule.default.severity().map_or("none", Severity::as_str),
        },
    }
}

/// `topic-name` as `TopicName`, which is how SARIF wants names of rules.
fn pascal(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    name.split('-').map(capital).collect()
}

fn result(finding: &Finding) -> ResultOf<'_> {
    let fingerprints = [
        ("promethean/v1", finding.fingerprint.clone()),
        // The one that GitHub looks at.
        ("primaryLocationLineHash", format!("{}:1", finding.fingerprint)),
    ];
    ResultOf {
        rule_id: finding.rule,
        rule_index: rules().position(|rule| rule.id == finding.rule),
        level: finding.severity.as_str(),
        message: Text { text: format!("{}. Help: {}", finding.message, finding.help).into() },
        locations: [Location {
            physical_location: PhysicalLocation {
                artifact_location: ArtifactLocation { uri: uri(&finding.path), uri_base_id: ROOT },
                region: Region {
                    start_line: finding.line,
                    start_column: finding.column,
                    end_line: finding.end_line,
                    end_column: finding.end_column,
                },
            },
        }],
        partial_fingerprints: fingerprints.into(),
    }
}

/// A relative path as a URI reference: what is not allowed in one is written by its bytes.
fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(char::from(byte));
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths() {
        assert_eq!(pascal("dlq-owner"), "DlqOwner");
        assert_eq!(uri("a b/ä:c.ts"), "a%20b/%C3%A4%3Ac.ts");
    }
}
