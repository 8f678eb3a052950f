//! Bad input: a clear error, or an undecided verdict, within bounds.

use promethean_schema::{CompareOptions, Document, ReadError, Verdict, compare, limits};
use serde_json::{Value, json};

fn refusal(schema: &Value) -> ReadError {
    Document::from_value(schema, None).unwrap_err()
}

#[test]
fn what_is_no_schema_is_refused_with_its_line() {
    let error = Document::parse("{\n  \"type\": \n}").unwrap_err();
    assert!(matches!(error, ReadError::NotJson { line: 3, .. }), "{error}");
    assert!(matches!(refusal(&json!([1])), ReadError::NotASchema { .. }));
    let error = Document::parse("{\n  \"minLength\": -1\n}").unwrap_err();
    assert!(matches!(error, ReadError::Invalid { line: 2, .. }), "{error}");
    let unknown = json!({"$schema": "https://example.com/my"});
    assert!(matches!(refusal(&unknown), ReadError::UnknownDialect { .. }));
}

#[test]
fn references_must_stay_inside_and_lead_somewhere() {
    let remote = refusal(&json!({"properties": {"a": {"$ref": "https://example.com/s.json"}}}));
    assert!(matches!(&remote, ReadError::Remote { line: 4, .. }), "{remote}");
    assert!(remote.to_string().contains("$defs"), "says what to do: {remote}");
    assert!(matches!(refusal(&json!({"$ref": "#/$defs/x"})), ReadError::Dangling { .. }));
    assert!(matches!(refusal(&json!({"not": {"$ref": "#"}})), ReadError::Endless { .. }));
}

#[test]
fn what_explodes_is_refused() {
    let huge: Vec<usize> = (0..=limits::ENUM_VALUES_MAX).collect();
    assert!(matches!(refusal(&json!({"enum": huge})), ReadError::Explodes { .. }));
    let long = "a".repeat(limits::PATTERN_BYTES_MAX + 1);
    assert!(matches!(refusal(&json!({"pattern": long})), ReadError::Explodes { .. }));
    let mut deep = json!({});
    for _ in 0..80 {
        deep = json!({"properties": {"a": deep}});
    }
    assert!(Document::from_value(&deep, None).is_err());
    let text = format!("{}{}", "{\"not\":".repeat(100_000), "}".repeat(100_000));
    let error = Document::parse(&text).unwrap_err();
    assert!(error.to_string().starts_with("too deep nesting"), "{error}");
    let big = format!("{{\"title\":\"{}\"}}", "x".repeat(limits::SCHEMA_BYTES_MAX));
    assert!(matches!(Document::parse(&big).unwrap_err(), ReadError::TooLarge { .. }));
}

/// Twice the next, sixty times: few words, and nobody would live to see an event checked.
#[test]
fn definitions_that_double_are_refused() {
    let doubling = |keyword: &str, steps: usize| {
        let next = |n: usize| json!({"$ref": format!("#/$defs/d{}", n + 1)});
        let mut table: serde_json::Map<String, Value> =
            (0..steps).map(|n| (format!("d{n}"), json!({keyword: [next(n), next(n)]}))).collect();
        table.insert(format!("d{steps}"), json!({"type": "string"}));
        json!({"$ref": "#/$defs/d0", "$defs": table})
    };
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let error = refusal(&doubling(keyword, 60));
        assert!(error.to_string().starts_with("too many schemas for one value"), "{error}");
        assert!(Document::from_value(&doubling(keyword, 8), None).is_ok());
    }
    // Parts are other values: a wide document is not a deep one.
    let wide: serde_json::Map<String, Value> = (0..2_000)
        .map(|n| (format!("p{n}"), doubling("allOf", 4)["$defs"]["d0"].clone()))
        .collect();
    let mut document = doubling("allOf", 4);
    document["properties"] = Value::Object(wide);
    assert!(Document::from_value(&document, None).is_ok());
}

#[test]
fn a_comparison_that_explodes_ends() {
    let read = |schema: Value| Document::from_value(&schema, None).unwrap();
    // Each pattern doubles the states of the joint automaton.
    let blowup: Vec<Value> = (0..30).map(|n| json!({"pattern": format!("a.{{{n}}}b")})).collect();
    let writer = read(json!({"type": "string", "allOf": blowup, "maxLength": 20}));
    let reader = read(json!({"type": "string", "pattern": "z"}));
    let verdict = compare(&reader, &writer, &CompareOptions::strict()).unwrap();
    assert!(!matches!(verdict, Verdict::Compatible { .. }), "{verdict}");
    // Pigeons and holes: easy to say, hard to search.
    let hole = |pigeon: usize| -> Value {
        let holes: Vec<Value> =
            (0..8).map(|h| json!({"required": [format!("p{pigeon}h{h}")]})).collect();
        json!({"anyOf": holes})
    };
    let mut all: Vec<Value> = (0..9).map(hole).collect();
    for h in 0..8 {
        for (a, b) in (0..9).flat_map(|a| (0..a).map(move |b| (a, b))) {
            all.push(json!({"not": {"required": [format!("p{a}h{h}"), format!("p{b}h{h}")]}}));
        }
    }
    let writer = read(json!({"type": "object", "allOf": all}));
    let verdict = compare(&read(json!(false)), &writer, &CompareOptions::strict()).unwrap();
    assert!(!matches!(verdict, Verdict::Incompatible { .. }), "{verdict}");
}

/// Ends, with a verdict or without one; a runner that waits for ever is the failure.
fn ends(writer: &Value, reader: &Value) {
    let document = |schema: &Value| Document::from_value(schema, None).unwrap();
    let verdict = compare(&document(reader), &document(writer), &CompareOptions::strict()).unwrap();
    assert!(!verdict.is_compatible(), "{verdict}");
}

#[test]
fn long_numbers_are_reckoned_as_long() {
    let grid = |step: f64| json!({"type": "number", "multipleOf": step, "minimum": -1e308});
    ends(&grid(1e-300), &grid(7.1e-301));
}

#[test]
fn long_lists_of_names_are_reckoned_as_long() {
    let wide: serde_json::Map<String, Value> =
        (0..5_000).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
    let many = json!({"type": "object", "minProperties": 100_000_000});
    ends(&many, &json!({ "properties": wide }));
}

#[test]
fn great_counts_are_reckoned_as_great() {
    let many = json!({"contains": {"const": 1}, "minContains": 100_000_000});
    ends(&many, &json!({"type": "array", "maxItems": 3}));
}
