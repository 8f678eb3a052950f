//! Two files, and payloads against one.

use crate::project::{Files, json};
use crate::{stderr, stdout};

const V1: &str = r#"{
  "type": "object",
  "required": ["host", "mem_mb"],
  "properties": {
    "host": {"type": "string"},
    "mem_mb": {"type": "number", "minimum": 0}
  }
}"#;

fn files() -> Files {
    let wider = V1.replace(r#""minimum": 0"#, r#""minimum": -1"#);
    let required = V1.replace(r#"["host", "mem_mb"]"#, r#"["host", "mem_mb", "region"]"#);
    // Every word that is twice a word of `a` has an even length; but words that repeat an earlier
    // part are no regular language, so nobody proves it.
    let twice = r#"{"type": "string", "pattern": "^(a+)\\1$"}"#;
    let even = r#"{"type": "string", "pattern": "^(aa)+$"}"#;
    Files::new(&[
        ("v1.json", V1),
        ("wider.json", &wider),
        ("required.json", &required),
        ("twice.json", twice),
        ("even.json", even),
        ("broken.json", "{\"type\": \"object\",\n"),
        ("no-schema.json", "[1]"),
        ("remote.json", r#"{"$ref": "https://example.org/s.json"}"#),
    ])
}

/// `null` is an event like any other, and is shown like one.
#[test]
fn the_event_that_shows_it_may_be_null() {
    let files = files();
    files.write("text-or-null.json", r#"{"type": ["string", "null"]}"#);
    files.write("text.json", r#"{"type": "string"}"#);
    let done = files.prom(&["schema", "check", "text-or-null.json", "text.json"]);
    assert_eq!(done.status.code(), Some(100));
    assert!(stdout(&done).contains("  example  null\n"), "{}", stdout(&done));
}

#[test]
fn compatible_is_zero() {
    let files = files();
    let check = ["schema", "check", "v1.json", "wider.json", "--compat", "backward", "--json"];
    let (code, document) = json(&files.prom(&check));
    assert_eq!(code, Some(0));
    assert_eq!(document["verdict"], "compatible");
    assert_eq!(document["findings"].as_array().unwrap().len(), 0);
    let full = files.prom(&["schema", "check", "v1.json", "wider.json", "--compat", "full"]);
    assert_eq!(full.status.code(), Some(100), "{}", stdout(&full));
    assert!(stdout(&full).contains("PROM-S103"), "{}", stdout(&full));
}

#[test]
fn incompatible_is_a_hundred_with_an_event_that_shows_it() {
    let files = files();
    let check = ["schema", "check", "v1.json", "required.json", "--compat", "backward", "--json"];
    let (code, document) = json(&files.prom(&check));
    assert_eq!((code, &document["verdict"]), (Some(100), &"incompatible".into()));
    let finding = &document["findings"][0];
    assert_eq!((&finding["rule"], &finding["pointer"]), (&"PROM-S104".into(), &"/required".into()));
    assert!(finding["message"].as_str().unwrap().contains("region"), "{finding}");
    assert_eq!((&finding["direction"], &finding["reader_line"]), (&"backward".into(), &3.into()));
    // The event is one of the old schema and none of the new one.
    files.write("example.json", &finding["counter_example"].to_string());
    assert_eq!(
        files.prom(&["schema", "validate", "v1.json", "example.json"]).status.code(),
        Some(0)
    );
    let refused = files.prom(&["schema", "validate", "required.json", "example.json"]);
    assert_eq!(refused.status.code(), Some(100), "{}", stdout(&refused));

    let words = stdout(&files.prom(&["schema", "check", "v1.json", "required.json"]));
    for part in ["required.json:3: error PROM-S104", "  example  {", "  fix      make it optional"]
    {
        assert!(words.contains(part), "{words}");
    }
    // Nobody reads backward under forward, and nothing is asked under none.
    for mode in ["forward", "none"] {
        let done = files.prom(&["schema", "check", "v1.json", "required.json", "--compat", mode]);
        assert_eq!(done.status.code(), Some(0), "{mode}: {}", stdout(&done));
    }
}

#[test]
fn undecided_is_eight() {
    let files = files();
    let (code, document) =
        json(&files.prom(&["--json", "schema", "check", "twice.json", "even.json"]));
    assert_eq!((code, &document["verdict"]), (Some(8), &"undecided".into()), "{document}");
    assert_eq!(document["undecided"][0]["pointer"], "/pattern", "{document}");
}

#[test]
fn bad_input_is_two_and_says_where() {
    let files = files();
    for (new, says) in [
        ("broken.json", "line 2"),
        ("no-schema.json", "not an array"),
        ("remote.json", "leads outside"),
        ("missing.json", "cannot open missing.json"),
    ] {
        let done = files.prom(&["schema", "check", "v1.json", new, "--json"]);
        assert_eq!(done.status.code(), Some(2), "{new}");
        assert!(done.stdout.is_empty(), "{new}");
        let problem: serde_json::Value = serde_json::from_slice(&done.stderr).unwrap();
        assert!(problem["detail"].as_str().unwrap().contains(says), "{new}: {problem}");
    }
    for arguments in [&["schema", "check", "v1.json"][..], &["schema", "check", "--compat", "x"]] {
        assert_eq!(files.prom(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn options_are_the_policies_of_others() {
    let files = files();
    files.write("open.json", r#"{"type": "object"}"#);
    files.write("typed.json", r#"{"type": "object", "properties": {"a": {"type": "string"}}}"#);
    let filled = r#"{"type": "object", "required": ["a"], "properties": {"a": {"default": 1}}}"#;
    files.write("filled.json", filled);
    files.write("format.json", r#"{"type": "object", "properties": {"a": {"format": "ipv4"}}}"#);
    for (new, options, expected) in [
        ("typed.json", &[][..], 100),
        ("typed.json", &["--strict"], 100),
        ("typed.json", &["--lenient"], 0),
        ("filled.json", &[], 100),
        ("filled.json", &["--fill-defaults"], 0),
        ("format.json", &[], 0),
        ("format.json", &["--assert-formats"], 100),
        // Nothing stood under the name before, as the lenient reading has it.
        ("format.json", &["--assert-formats", "--lenient"], 0),
        ("format.json", &["--strict", "--lenient"], 2),
    ] {
        let check = ["schema", "check", "open.json", new];
        let arguments: Vec<&str> = check.iter().chain(options).copied().collect();
        assert_eq!(files.prom(&arguments).status.code(), Some(expected), "{new} {options:?}");
    }
}

#[test]
fn payloads() {
    let files = files();
    files.write("good.json", r#"{"host": "a", "mem_mb": 1}"#);
    files.write("bad.json", r#"{"host": 7}"#);
    files.write("lines.ndjson", "{\"host\": \"a\", \"mem_mb\": 1}\n\n{\"mem_mb\": -1}\n");
    let (code, document) =
        json(&files.prom(&["schema", "validate", "v1.json", "good.json", "bad.json", "--json"]));
    assert_eq!((code, &document["valid"]), (Some(100), &false.into()));
    assert_eq!(document["payloads"][0]["valid"], true);
    let mismatches = document["payloads"][1]["mismatches"].as_array().unwrap();
    assert!(mismatches.iter().any(|m| m["pointer"] == "/host" && m["keyword"] == "type"));
    let lines = files.prom(&["schema", "validate", "--lines", "v1.json", "lines.ndjson"]);
    assert_eq!(lines.status.code(), Some(100));
    assert!(stdout(&lines).contains("lines.ndjson:3: "), "{}", stdout(&lines));
    let not_json = files.prom(&["schema", "validate", "v1.json", "broken.json"]);
    assert_eq!(not_json.status.code(), Some(2));
    assert!(stderr(&not_json).contains("broken.json is not JSON"), "{}", stderr(&not_json));
}

#[test]
fn a_diff_says_what_changed_and_what_it_means() {
    let files = files();
    let (code, document) =
        json(&files.prom(&["schema", "diff", "v1.json", "required.json", "--json"]));
    assert_eq!(code, Some(0));
    assert_eq!(document["changes"][0]["pointer"], "/required");
    assert_eq!(document["backward"]["verdict"], "incompatible");
    assert_eq!(document["forward"]["verdict"], "compatible");
    let words = stdout(&files.prom(&["schema", "diff", "v1.json", "wider.json"]));
    assert!(words.contains("~ /properties/mem_mb/minimum: 0 -> -1 (line 6)"), "{words}");
}
