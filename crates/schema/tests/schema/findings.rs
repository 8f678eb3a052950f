//! What a person is told.

use promethean_schema::{CompareOptions, Document, Verdict, compare};

const OLD: &str = r#"{
  "type": "object",
  "properties": {
    "pid": {"type": "integer"},
    "host": {"type": "string", "maxLength": 64}
  },
  "required": ["pid"],
  "x-owner": "ops"
}"#;

const NEW: &str = r#"{
  "type": "object",
  "properties": {
    "pid": {"type": "string"},
    "host": {
      "type": "string",
      "maxLength": 32
    }
  },
  "required": ["pid", "region"]
}"#;

#[test]
fn every_break_has_a_rule_both_lines_an_example_and_a_fix() {
    let (old, new) = (Document::parse(OLD).unwrap(), Document::parse(NEW).unwrap());
    let verdict = compare(&new, &old, &CompareOptions::default()).unwrap();
    let findings = verdict.findings();
    let find = |id: &str| findings.iter().find(|f| f.rule.id() == id).unwrap();
    let required = find("PROM-S104");
    assert_eq!((required.pointer.as_str(), required.reader_line), ("/required", 10));
    assert!(required.message.contains("region"), "{}", required.message);
    let length = find("PROM-S107");
    assert_eq!((length.pointer.as_str(), length.reader_line), ("/properties/host/maxLength", 7));
    assert_eq!((length.writer_pointer.as_str(), length.writer_line), ("/properties/host", 5));
    assert_eq!(find("PROM-S101").example_pointer, "/pid");
    for finding in findings {
        assert!(old.validator().is_valid(&finding.counter_example));
        assert!(!new.validator().is_valid(&finding.counter_example));
        assert!(!finding.fix.is_empty());
    }
    let document = serde_json::to_value(&verdict).unwrap();
    assert_eq!(document["verdict"], "incompatible");
    for key in ["rule", "pointer", "message", "counter_example"] {
        assert!(document["findings"][0].get(key).is_some(), "{key}");
    }
}

#[test]
fn doubt_names_the_construct_and_its_place() {
    let old = Document::parse(r#"{"type": "string", "pattern": "^(a+)\\1$"}"#).unwrap();
    let new = Document::parse(r#"{"type": "string", "pattern": "^(aa)+$"}"#).unwrap();
    let options = CompareOptions::strict();
    let verdict = compare(&new, &old, &options).unwrap();
    let Verdict::Undecided { construct, pointer } = verdict else { panic!("{verdict}") };
    assert!(construct.contains("backreference"), "{construct}");
    assert_eq!(pointer, "/pattern");
    assert!(compare(&old, &old, &options).unwrap().is_compatible(), "equal text is equal");
}

#[test]
fn annotations_are_kept() {
    let old = Document::parse(OLD).unwrap();
    let annotations = old.annotations();
    assert_eq!(annotations.len(), 1);
    assert_eq!((annotations[0].0.as_str(), annotations[0].1.as_str()), ("", "x-owner"));
}
