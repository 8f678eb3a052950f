//! Verdicts in the corners: what a search could pass over, run out of, or not reach.

use promethean_schema::{CompareOptions, Dialect, Document, Verdict, compare};
use serde_json::{Value, json};

/// `(writer, reader, contained)`.
fn hold(cases: &[(Value, Value, bool)]) {
    for (writer, reader, contained) in cases {
        let read = |schema: &Value| Document::from_value(schema, None).unwrap();
        let verdict = compare(&read(reader), &read(writer), &CompareOptions::strict()).unwrap();
        let said = match &verdict {
            Verdict::Compatible { .. } => Some(true),
            Verdict::Incompatible { .. } => Some(false),
            Verdict::Undecided { .. } => None,
        };
        assert_eq!(said, Some(*contained), "{writer} in {reader}: {verdict}");
    }
}

fn text(pattern: &str) -> Value {
    json!({"type": "string", "pattern": pattern})
}

#[test]
fn patterns_that_look_around() {
    hold(&[
        (text(r"\bfoo\b"), text("foo"), true),
        (text("foo"), text(r"\bfoo\b"), false),
        (text("^(?:(?!ab).)*$"), text("^(?!.*ab)"), true),
        (text("(?<=a)b"), text("ab"), true),
        (text("ab"), text("(?<=a)b"), true),
        (text(r"^(?=.*\d)(?=.*[a-z]).{8,}$"), json!({"minLength": 8, "pattern": r"\d"}), true),
        (text("^{.+}$"), text(r"^\{"), true),
        (text("^(?i)abc$"), text("^[aA][bB][cC]$"), true),
        (text("^[a-z]{1,9000}$"), json!({"type": "string", "maxLength": 9000}), true),
        (text("^.{0,5000}$"), json!({"type": "string", "maxLength": 4999}), false),
    ]);
}

/// `.` takes no line end, in what is proven and in what is checked.
#[test]
fn a_dot_is_read_in_one_way() {
    let one = json!({"type": "string", "minLength": 1, "maxLength": 1});
    hold(&[(one.clone(), text("^.$"), false), (one, text(r"^[\s\S]$"), true)]);
    let document = Document::from_value(&text("^.$"), None).unwrap();
    for line_end in ["\n", "\r", "\u{2028}"] {
        assert!(!document.validator().is_valid(&json!(line_end)), "{line_end:?}");
    }
    let mismatch = document.validator().mismatches(&json!("\r")).remove(0);
    assert!(mismatch.expected.contains("\"^.$\""), "in the author's words: {}", mismatch.expected);
}

#[test]
fn great_numbers_and_counts() {
    let object = |key: &str, count: u64| json!({"type": "object", key: count});
    hold(&[
        (object("maxProperties", 1000), object("maxProperties", 600), false),
        (object("minProperties", 600), object("minProperties", 1000), false),
        (json!({"type": "array", "uniqueItems": true, "minItems": 600}), json!(false), false),
        (json!({"type": "string", "minLength": 1_000_000}), json!({"minLength": 999_999}), true),
        (json!({"type": "string", "minLength": 999_999}), json!({"minLength": 1_000_000}), false),
        (json!({"type": "integer", "exclusiveMinimum": 1e20}), json!({"minimum": 1e21}), false),
        (json!({"type": "integer", "minimum": -1e308}), json!({"minimum": -1e307}), false),
        (
            json!({"exclusiveMinimum": 1, "exclusiveMaximum": 1.0000000000000005, "type": "number"}),
            json!(false),
            false,
        ),
        (
            json!({"type": "integer", "multipleOf": 7, "minimum": 1e18}),
            json!({"multipleOf": 14}),
            false,
        ),
    ]);
}

#[test]
fn many_patterns_for_names() {
    for prefix in ["^", ""] {
        let table: serde_json::Map<String, Value> =
            (10..30).map(|n| (format!("{prefix}p{n}"), json!({"type": "string"}))).collect();
        let writer =
            json!({"type": "object", "patternProperties": table, "additionalProperties": false});
        let all = |value: Value| json!({"type": "object", "additionalProperties": value});
        hold(&[
            (writer.clone(), all(json!({"type": "string"})), true),
            (writer.clone(), all(json!({"type": "string", "minLength": 1})), false),
            (all(json!({"type": "string"})), writer, false),
        ]);
    }
}

#[test]
fn what_branches_leave_unevaluated() {
    let branch = |n: usize| json!({"properties": {format!("p{n}"): {"const": n}}, "required": [format!("p{n}")]});
    let branches: Vec<Value> = (0..10).map(branch).collect();
    let writer = |keyword: &str| json!({"type": "object", keyword: branches, "unevaluatedProperties": false});
    let named =
        |count: usize| json!({"propertyNames": {"pattern": format!("^p[0-{}]$", count - 1)}});
    hold(&[
        (writer("anyOf"), named(10), true),
        (writer("anyOf"), named(9), false),
        (writer("oneOf"), json!({"maxProperties": 1}), true),
        (writer("anyOf"), json!({"maxProperties": 1}), false),
    ]);
    let matched = |first: &str| {
        json!({"type": "object", "unevaluatedProperties": false, "properties": {"k": true},
               "if": {"required": ["k"]}, "then": {"patternProperties": {first: true}}})
    };
    hold(&[
        (matched("^a"), matched("a"), true),
        (matched("a"), matched("^a"), false),
        (matched("^a"), json!({"dependentRequired": {"ab": ["k"]}}), true),
        (
            json!({"type": "array", "unevaluatedItems": false, "anyOf": [{"prefixItems": [true, {"const": 1}]}, {"contains": {"type": "null"}}]}),
            json!({"anyOf": [{"maxItems": 2}, {"items": {"type": "null"}}, {"prefixItems": [true, {"const": 1}], "items": {"type": "null"}}]}),
            true,
        ),
    ]);
}

#[test]
fn references_that_are_bound_late() {
    let tree = json!({"$id": "tree", "$dynamicAnchor": "node", "type": "object",
        "properties": {"data": true, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}}});
    let strict = json!({"$id": "http://example.com/strict", "$dynamicAnchor": "node", "$ref": "tree",
        "unevaluatedProperties": false, "$defs": {"tree": tree}});
    let plain = json!({"$id": "http://example.com/plain", "$ref": "tree", "$defs": {"tree": tree}});
    let named = json!({"propertyNames": {"enum": ["data", "children"]}});
    let below = json!({"properties": {"children": {"items": named}}});
    hold(&[
        (strict.clone(), below.clone(), true),
        (plain.clone(), below, false),
        (strict.clone(), plain.clone(), true),
        (plain, strict, false),
    ]);
    let dialect = Dialect::Draft2019.uri();
    let list = |anchor: bool| {
        json!({"$schema": dialect, "$id": "http://example.com/a", "$recursiveAnchor": anchor,
            "anyOf": [{"type": "integer"}, {"$ref": "b"}],
            "$defs": {"b": {"$id": "b", "$recursiveAnchor": true, "type": "array", "items": {"$recursiveRef": "#"}}}})
    };
    hold(&[(list(false), list(true), true), (list(true), list(false), false)]);
}

#[test]
fn schemas_as_values() {
    let draft7 = "http://json-schema.org/draft-07/schema#";
    let schema = json!({"$schema": draft7, "$ref": draft7});
    let part = |fragment: &str| json!({"$schema": draft7, "$ref": format!("{draft7}/definitions/{fragment}")});
    hold(&[
        (schema.clone(), json!({"type": ["object", "boolean"]}), true),
        (schema.clone(), json!({"type": "object"}), false),
        (schema, json!({"properties": {"minLength": {"minimum": 0}}}), true),
        (part("nonNegativeInteger"), json!({"type": "integer", "minimum": 0}), true),
        (part("nonNegativeInteger"), json!({"minimum": 1}), false),
    ]);
    for dialect in [Dialect::Draft4, Dialect::Draft6, Dialect::Draft2019, Dialect::Draft2020] {
        let schema = json!({"$schema": dialect.uri(), "$ref": dialect.uri()});
        hold(&[
            (schema.clone(), json!({"properties": {"title": {"type": "string"}}}), true),
            (schema, json!({"properties": {"title": {"minLength": 1}}}), false),
        ]);
    }
}

#[test]
fn what_many_write_is_read() {
    let generic = json!({"$ref": "#/definitions/Page<A B>", "definitions": {"Page<A B>": {"type": "string"}}});
    hold(&[
        (generic, json!({"type": "string"}), true),
        (text("^[a-z]{2}]?$"), text("^[a-z]{2}"), true),
        (text(r"^/[^\0]+$"), text("^/."), false),
        (text(r"^[\w-.]+$"), text(r"^[\w.\-]+$"), true),
    ]);
}
