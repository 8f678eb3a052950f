//! The drafts of JSON Schema, and how they differ for us.

use serde_json::{Map, Value};

/// A draft of JSON Schema.
///
/// 2020-12 is the native one; draft-07 is what most published schemas use. The others differ from
/// these two in ways that cost little to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// `exclusiveMinimum` is a flag, `id` is the identifier.
    Draft4,
    /// `const`, `contains`, `propertyNames`.
    Draft6,
    /// `if` / `then` / `else`.
    Draft7,
    /// `$defs`, `unevaluated…`, keywords beside `$ref`.
    Draft2019,
    /// `prefixItems`, `$dynamicRef`.
    Draft2020,
}

impl Dialect {
    /// The dialect a `$schema` names; `None` for one that is not known here.
    pub fn from_uri(uri: &str) -> Option<Self> {
        let uri = uri.split_once('#').map_or(uri, |(uri, _)| uri);
        let rest = uri.strip_prefix("http://").or_else(|| uri.strip_prefix("https://"))?;
        let rest = rest.strip_prefix("json-schema.org/")?;
        // A hyper-schema says more of links, and the same of values.
        Some(match rest.strip_suffix("hyper-schema").or_else(|| rest.strip_suffix("schema"))? {
            // Draft-05 was draft-04 in other words, and had no meta-schema of its own.
            "draft-04/" | "draft-05/" => Self::Draft4,
            "draft-06/" => Self::Draft6,
            // The unversioned name was in use while draft-07 was the latest.
            "draft-07/" | "" => Self::Draft7,
            "draft/2019-09/" => Self::Draft2019,
            "draft/2020-12/" => Self::Draft2020,
            _ => return None,
        })
    }

    /// The URI of the meta-schema.
    pub fn uri(self) -> &'static str {
        match self {
            Self::Draft4 => "http://json-schema.org/draft-04/schema#",
            Self::Draft6 => "http://json-schema.org/draft-06/schema#",
            Self::Draft7 => "http://json-schema.org/draft-07/schema#",
            Self::Draft2019 => "https://json-schema.org/draft/2019-09/schema",
            Self::Draft2020 => "https://json-schema.org/draft/2020-12/schema",
        }
    }

    /// The dialect of a document that does not name one: 2020-12, unless it uses a form that only
    /// an older one has. Those are flags for `exclusiveMinimum` (draft-04), and `items` as a list,
    /// `additionalItems`, or `definitions` where `$defs` would stand (draft-07).
    pub(crate) fn guess(schema: &Value) -> Self {
        let flag = |map: &Map<String, Value>| {
            ["exclusiveMinimum", "exclusiveMaximum"]
                .iter()
                .any(|key| map.get(*key).is_some_and(Value::is_boolean))
        };
        let listed = |map: &Map<String, Value>| {
            let list = map.get("items").is_some_and(Value::is_array);
            (list || map.contains_key("additionalItems")) && !map.contains_key("prefixItems")
        };
        let definitions = schema.get("definitions").is_some() && schema.get("$defs").is_none();
        if uses(schema, 0, &flag) {
            Self::Draft4
        } else if definitions || uses(schema, 0, &listed) {
            Self::Draft7
        } else {
            Self::Draft2020
        }
    }

    pub(crate) fn engine(self) -> jsonschema::Draft {
        match self {
            Self::Draft4 => jsonschema::Draft::Draft4,
            Self::Draft6 => jsonschema::Draft::Draft6,
            Self::Draft7 => jsonschema::Draft::Draft7,
            Self::Draft2019 => jsonschema::Draft::Draft201909,
            Self::Draft2020 => jsonschema::Draft::Draft202012,
        }
    }

    /// Whether keywords beside a `$ref` count.
    pub(crate) fn reads_beside_ref(self) -> bool {
        self >= Self::Draft2019
    }

    /// Whether `keyword` has a meaning in this dialect. `dependencies` has one in all: the later
    /// drafts keep it for old schemas, and so does the validator.
    pub(crate) fn knows(self, keyword: &str) -> bool {
        match keyword {
            "const" | "contains" | "propertyNames" => self >= Self::Draft6,
            "if" | "then" | "else" => self >= Self::Draft7,
            "minContains"
            | "maxContains"
            | "dependentRequired"
            | "dependentSchemas"
            | "unevaluatedItems"
            | "unevaluatedProperties"
            | "$anchor" => self >= Self::Draft2019,
            "prefixItems" | "$dynamicRef" | "$dynamicAnchor" => self >= Self::Draft2020,
            "additionalItems" => self < Self::Draft2020,
            "$recursiveRef" | "$recursiveAnchor" => self == Self::Draft2019,
            "id" => self == Self::Draft4,
            "$id" => self >= Self::Draft6,
            _ => true,
        }
    }
}

/// Whether any object in the document, outside of values, is of some form.
fn uses(schema: &Value, depth: usize, form: &dyn Fn(&Map<String, Value>) -> bool) -> bool {
    if depth > crate::limits::SCHEMA_DEPTH_MAX {
        return false;
    }
    match schema {
        Value::Object(map) => {
            form(map)
                || map.iter().any(|(key, value)| {
                    !matches!(key.as_str(), "const" | "enum" | "default" | "examples")
                        && uses(value, depth + 1, form)
                })
        }
        Value::Array(list) => list.iter().any(|value| uses(value, depth + 1, form)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialect_has_several_names() {
        let names = [
            ("http://json-schema.org/draft-04/schema#", Some(Dialect::Draft4)),
            ("http://json-schema.org/draft-05/schema#", Some(Dialect::Draft4)),
            ("http://json-schema.org/draft-04/hyper-schema#", Some(Dialect::Draft4)),
            ("https://json-schema.org/draft-07/schema", Some(Dialect::Draft7)),
            ("http://json-schema.org/schema#", Some(Dialect::Draft7)),
            ("https://json-schema.org/draft/2020-12/schema#", Some(Dialect::Draft2020)),
            ("http://json-schema.org/draft-03/schema#", None),
            ("https://example.com/schema", None),
        ];
        for (name, dialect) in names {
            assert_eq!(Dialect::from_uri(name), dialect, "{name}");
            if dialect.is_some() {
                let schema = serde_json::json!({"$schema": name, "type": "string"});
                assert!(crate::Document::from_value(&schema, None).is_ok(), "{name}");
            }
        }
    }
}
