//! The table of `docs/schemas.md`: a property comes or goes. `PROM_UPDATE_DOCS=1` writes it anew.

use std::fmt::Write as _;
use std::path::Path;

use promethean_schema::{CompareOptions, Document, RequiredDefaults, compare};
use serde_json::{Value, json};

const BEGIN: &str = "<!-- table: properties -->\n";
const END: &str = "<!-- end -->";

/// How the property is declared.
const KINDS: [&str; 3] = ["optional", "required", "required, with a default"];

fn object(open: bool, kind: Option<&str>) -> Document {
    let mut schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    if let Some(kind) = kind {
        schema["properties"]["b"] = json!({"type": "integer"});
        if kind.starts_with("required") {
            schema["required"] = json!(["b"]);
        }
        if kind.ends_with("default") {
            schema["properties"]["b"]["default"] = json!(0);
        }
    }
    if !open {
        schema["additionalProperties"] = Value::Bool(false);
    }
    Document::from_value(&schema, None).unwrap()
}

fn cell(reader: &Document, writer: &Document, options: CompareOptions) -> &'static str {
    let says = |options: &CompareOptions| compare(reader, writer, options).unwrap().is_compatible();
    let filled = CompareOptions { required_defaults: RequiredDefaults::Fill, ..options };
    match (says(&options), says(&filled)) {
        (true, _) => "yes",
        (false, true) => "with `--fill-defaults`",
        (false, false) => "no",
    }
}

fn table() -> String {
    let mut text = String::from(
        "| objects | property | | backward, `--lenient` | forward, `--lenient` | backward, `--strict` | forward, `--strict` |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for (open, model) in [(true, "open"), (false, "closed")] {
        for kind in KINDS {
            let (with, without) = (object(open, Some(kind)), object(open, None));
            for (change, old, new) in [("added", &without, &with), ("removed", &with, &without)] {
                write!(text, "| {model} | {kind} | {change} |").unwrap();
                for options in [CompareOptions::default(), CompareOptions::strict()] {
                    let backward = cell(new, old, options);
                    let forward = cell(old, new, options);
                    write!(text, " {backward} | {forward} |").unwrap();
                }
                text.push('\n');
            }
        }
    }
    text
}

#[test]
fn the_table_of_properties_is_as_it_is_told() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (told, after) = rest.split_once(END).unwrap();
    let table = table();
    if told != table && std::env::var_os("PROM_UPDATE_DOCS").is_some() {
        std::fs::write(&page, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(told, table, "PROM_UPDATE_DOCS=1 writes it anew");
}
