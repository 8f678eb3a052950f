//! Verdicts on pairs that are told apart by one keyword each, or by several together.

use promethean_schema::{
    CompareOptions, Dialect, Document, Formats, Mode, OpenObjects, RequiredDefaults, Verdict,
    check_history, compare,
};
use serde_json::{Value, json};

pub(crate) fn read(schema: &Value) -> Document {
    Document::from_value(schema, None).unwrap()
}

fn contained(writer: &Value, reader: &Value, options: &CompareOptions) -> Option<bool> {
    match compare(&read(reader), &read(writer), options).unwrap() {
        Verdict::Compatible { .. } => Some(true),
        Verdict::Incompatible { .. } => Some(false),
        Verdict::Undecided { .. } => None,
    }
}

/// `(small, large)`: small is in large, and large is not in small.
fn strictly_smaller(pairs: &[(Value, Value)]) {
    let options = CompareOptions::strict();
    for (small, large) in pairs {
        assert_eq!(contained(small, large, &options), Some(true), "{small} in {large}");
        assert_eq!(contained(large, small, &options), Some(false), "{large} in {small}");
        assert_eq!(contained(small, small, &options), Some(true), "{small} in itself");
    }
}

fn equal(pairs: &[(Value, Value)]) {
    let options = CompareOptions::strict();
    for (left, right) in pairs {
        assert_eq!(contained(left, right, &options), Some(true), "{left} in {right}");
        assert_eq!(contained(right, left, &options), Some(true), "{right} in {left}");
    }
}

#[test]
fn scalars() {
    strictly_smaller(&[
        (json!({"type": "integer"}), json!({"type": "number"})),
        (json!({"type": "number", "multipleOf": 0.5, "minimum": 1}), json!({"multipleOf": 0.25})),
        (json!({"enum": [1, "a"]}), json!({"enum": [1.0, "a", null]})),
        (json!({"type": "string", "minLength": 2}), json!({"type": "string", "minLength": 1})),
        (json!({"type": "string", "pattern": "^[a-c]+$"}), json!({"pattern": "^[a-z]*$"})),
        (json!({"enum": ["ab", "b"]}), json!({"pattern": "b$", "maxLength": 2})),
        (json!({"exclusiveMinimum": 3, "type": "integer"}), json!({"minimum": 3})),
        (json!({"const": {"a": [1]}}), json!({"type": "object", "required": ["a"]})),
    ]);
    equal(&[
        (json!({"enum": [true, false]}), json!({"type": "boolean"})),
        (json!({"type": "integer", "minimum": 0.5, "maximum": 2.5}), json!({"enum": [1, 2.0]})),
        (json!({"type": "string", "maxLength": 0}), json!({"const": ""})),
        (json!({"type": "integer"}), json!({"type": "number", "multipleOf": 1})),
        (json!({"type": "number", "minimum": 2, "maximum": 1}), json!(false)),
        (json!({"pattern": "^(?=[a-c]+$)(?!b)"}), json!({"pattern": "^[ac][a-c]*$"})),
        (json!({"const": [{"a": 1.0}]}), json!({"enum": [[{"a": 1}]]})),
    ]);
}

#[test]
fn arrays() {
    strictly_smaller(&[
        (json!({"type": "array", "minItems": 2}), json!({"type": "array", "minItems": 1})),
        (json!({"items": {"type": "integer"}}), json!({"items": {"type": "number"}})),
        (
            json!({"type": "array", "contains": {"const": 1}, "minContains": 2}),
            json!({"contains": {"type": "integer"}}),
        ),
        (json!({"type": "array", "maxItems": 1}), json!({"uniqueItems": true})),
        (
            json!({"type": "array", "prefixItems": [{"type": "string"}], "items": false}),
            json!({"type": "array", "items": {"type": "string"}}),
        ),
    ]);
    equal(&[
        (
            json!({"type": "array", "items": {"type": "boolean"}, "uniqueItems": true, "minItems": 3}),
            json!(false),
        ),
        (
            json!({"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": true}),
            json!({"enum": [[], [1], [2], [1, 2], [2, 1]]}),
        ),
        (
            json!({"type": "array", "contains": {"type": "string"}, "maxContains": 0, "minContains": 0}),
            json!({"type": "array", "items": {"not": {"type": "string"}}}),
        ),
        (json!({"prefixItems": [true, true], "unevaluatedItems": false}), json!({"maxItems": 2})),
    ]);
}

#[test]
fn objects() {
    strictly_smaller(&[
        (
            json!({"type": "object", "required": ["a", "b"]}),
            json!({"type": "object", "minProperties": 2}),
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
            json!({"type": "object", "maxProperties": 1, "propertyNames": {"const": "a"}}),
        ),
        (
            json!({"type": "object", "patternProperties": {"^x": {"type": "integer"}}}),
            json!({"type": "object", "patternProperties": {"^xy": {"type": "number"}}}),
        ),
        (
            json!({"type": "object", "dependentRequired": {"a": ["b", "c"]}}),
            json!({"dependentRequired": {"a": ["b"]}}),
        ),
        (
            json!({"allOf": [{"properties": {"a": true}}], "unevaluatedProperties": false}),
            json!({"properties": {"a": true}, "additionalProperties": {"type": "null"}}),
        ),
    ]);
    equal(&[
        (
            json!({"anyOf": [{"required": ["a"], "properties": {"a": true}}, {"properties": {"b": true}}], "unevaluatedProperties": false, "type": "object"}),
            json!({"type": "object", "anyOf": [
                {"required": ["a"], "propertyNames": {"enum": ["a", "b"]}},
                {"propertyNames": {"const": "b"}}
            ]}),
        ),
        (json!({"type": "object", "required": ["a"], "properties": {"a": false}}), json!(false)),
        (
            json!({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 3}),
            json!(false),
        ),
    ]);
}

#[test]
fn logic_and_unions() {
    let variant = |kind: &str, value: Value| json!({"type": "object", "required": ["kind"], "properties": {"kind": {"const": kind}, "value": value}});
    let text = json!({"type": "string"});
    strictly_smaller(&[
        (
            json!({"oneOf": [variant("a", text.clone()), variant("b", text.clone())]}),
            json!({"oneOf": [variant("a", text.clone()), variant("b", json!({})), variant("c", text)]}),
        ),
        (
            json!({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"type": "null"}}),
            json!({"anyOf": [{"type": "string"}, {"const": null}]}),
        ),
        (json!({"not": {"type": ["string", "null"]}}), json!({"not": {"type": "null"}})),
    ]);
    equal(&[
        (json!({"not": {"not": {"type": "string"}}}), json!({"type": "string"})),
        (
            json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
            json!({"type": "number", "not": {"type": "integer"}}),
        ),
        (json!({"allOf": [{"type": "string"}, {"type": "null"}]}), json!(false)),
    ]);
}

#[test]
fn recursion() {
    let list = |item: &str| json!({"type": "object", "properties": {"head": {"type": item}, "tail": {"$ref": "#"}}, "additionalProperties": false});
    strictly_smaller(&[(list("integer"), list("number"))]);
    // A value that must contain itself is no value.
    let endless = json!({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}});
    equal(&[(endless, json!(false))]);
    let tree = json!({"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}});
    let forest = json!({"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "array", "maxItems": 0}]}});
    equal(&[(tree, forest)]);
}

#[test]
fn draft_7_is_read_as_draft_7() {
    let draft7 = |schema: &Value| Document::from_value(schema, Some(Dialect::Draft7)).unwrap();
    let draft2020 =
        |schema: &Value| Document::from_value(schema, Some(Dialect::Draft2020)).unwrap();
    let pairs = [
        (
            json!({"items": [{"type": "string"}], "additionalItems": {"type": "null"}}),
            json!({"prefixItems": [{"type": "string"}], "items": {"type": "null"}}),
        ),
        (
            json!({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}}),
            json!({"dependentRequired": {"a": ["b"], "c": ["d"]}}),
        ),
        (
            json!({"$ref": "#/definitions/x", "type": "null", "definitions": {"x": {"type": "string"}}}),
            json!({"$ref": "#/$defs/x", "$defs": {"x": {"type": "string"}}}),
        ),
        (json!({"prefixItems": [false], "unevaluatedProperties": false}), json!({})),
    ];
    for (old, new) in pairs {
        let (old, new) = (draft7(&old), draft2020(&new));
        let options = CompareOptions::strict();
        assert!(compare(&old, &new, &options).unwrap().is_compatible(), "{}", old.text());
        assert!(compare(&new, &old, &options).unwrap().is_compatible(), "{}", old.text());
    }
    let draft4 = json!({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": true});
    assert_eq!(
        contained(&draft4, &json!({"exclusiveMinimum": 1}), &CompareOptions::strict()),
        Some(true)
    );
}

#[test]
fn open_objects_are_lenient_unless_strict() {
    let old = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let new = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}});
    let closed = json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false});
    let changed = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let lenient = CompareOptions::default();
    assert_eq!(lenient.open_objects, OpenObjects::Lenient);
    assert_eq!(contained(&old, &new, &lenient), Some(true));
    assert_eq!(contained(&old, &new, &CompareOptions::strict()), Some(false));
    assert_eq!(
        contained(&old, &closed, &lenient),
        Some(false),
        "what nobody declares may be there"
    );
    assert_eq!(contained(&old, &changed, &lenient), Some(false));
    assert_eq!(contained(&new, &old, &lenient), Some(true));
    // The property may be declared in another branch for the same value.
    let split = json!({"allOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "null"}}}]});
    assert_eq!(contained(&split, &new, &lenient), Some(false));
    let Verdict::Compatible { notes } = compare(&read(&new), &read(&old), &lenient).unwrap() else {
        panic!("compatible")
    };
    assert_eq!(notes.len(), 1, "the difference to strict is told");
    assert_eq!(notes[0].rule.id(), "PROM-S121");
}

/// `{"x": 1}` fits both branches, so that neither schema allows it; the lenient reading of the second
/// branch alone does not see that.
#[test]
fn lenience_does_not_reach_behind_a_negation() {
    let choice = |second: Value| {
        let first = json!({"properties": {"x": {}}, "required": ["x"]});
        json!({"oneOf": [first, {"properties": second}]})
    };
    let (old, new) = (choice(json!({"y": {}})), choice(json!({"y": {}, "z": {"type": "string"}})));
    let options = CompareOptions::default();
    assert_eq!(contained(&old, &old, &options), Some(true));
    assert_eq!(contained(&old, &new, &options), Some(true));
    assert_eq!(contained(&old, &new, &CompareOptions::strict()), Some(false));
    let closed = json!({"not": {"properties": {"y": {"type": "string"}}}});
    assert_eq!(contained(&closed, &closed, &options), Some(true));
    assert_eq!(contained(&closed, &json!({"type": "array"}), &options), Some(false));
}

#[test]
fn policies_of_others_are_options() {
    let old = json!({"type": "object"});
    let new = json!({"type": "object", "properties": {"a": {"default": 1}}, "required": ["a"]});
    let mut options = CompareOptions::strict();
    assert_eq!(contained(&old, &new, &options), Some(false));
    options.required_defaults = RequiredDefaults::Fill;
    assert_eq!(contained(&old, &new, &options), Some(true));

    let (plain, dated) = (json!({"type": "string"}), json!({"type": "string", "format": "date"}));
    let mut options = CompareOptions::strict();
    assert_eq!(contained(&plain, &dated, &options), Some(true));
    options.formats = Formats::Assert;
    assert_eq!(contained(&plain, &dated, &options), Some(false));
    assert_eq!(contained(&dated, &plain, &options), Some(true));
    assert_eq!(contained(&dated, &json!({"minLength": 10}), &options), Some(true));
}

#[test]
fn modes_choose_the_pairs() {
    let versions = [json!({"type": "integer"}), json!({"type": "number"})].map(|v| read(&v));
    let new = read(&json!({"type": ["number", "null"]}));
    let ask = |mode: &str| {
        let mode: Mode = mode.parse().unwrap();
        let report = check_history(&new, &versions, mode, &CompareOptions::strict()).unwrap();
        (report.pairs.len(), report.verdict().is_compatible())
    };
    assert_eq!(ask("none"), (0, true));
    assert_eq!(ask("backward"), (1, true));
    assert_eq!(ask("backward-transitive"), (2, true));
    assert_eq!(ask("FORWARD"), (1, false));
    assert_eq!(ask("full_transitive"), (4, false));
    assert!("sideways".parse::<Mode>().is_err());
}
