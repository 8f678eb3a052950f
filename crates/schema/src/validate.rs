//! Checking values against one schema.
//!
//! The `jsonschema` crate does the work, wrapped so that its version stays our affair: it changes
//! often. Nothing is ever fetched. `contentEncoding` and `contentMediaType` are annotations, in
//! every draft.

use serde::Serialize;
use serde_json::Value;

use crate::dialect::Dialect;
use crate::limits::VALIDATION_ERRORS_MAX;
use crate::multiple;
use crate::respell::{self, Spellings};

/// Whether `format` is checked or only noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Formats {
    /// A note for people and tools, as 2020-12 has it. The default.
    #[default]
    Annotate,
    /// A condition that values must meet.
    Assert,
}

/// A schema made ready for checking many values.
#[derive(Debug)]
pub struct Validator {
    engine: jsonschema::Validator,
    spellings: Spellings,
}

/// One way in which a value does not match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Where in the value: a JSON pointer, empty for the whole.
    pub pointer: String,
    /// Where in the schema: a JSON pointer to the keyword, through `$ref`s resolved.
    pub schema_pointer: String,
    /// The keyword that refused.
    pub keyword: String,
    /// What was expected, in words.
    pub expected: String,
    /// What was there: the JSON text, cut if long.
    pub got: String,
}

/// The schema was refused by the engine.
#[derive(Debug, thiserror::Error)]
#[error("{reason} at {pointer:?} of the schema")]
pub struct CompileError {
    /// Where in the schema document.
    pub pointer: String,
    /// What is wrong there.
    pub reason: String,
}

/// Longest rendering of a value in a mismatch, in characters.
const GOT_CHARS_MAX: usize = 120;

impl Validator {
    /// Compiles a schema.
    ///
    /// # Errors
    /// If the document is not a schema of this dialect or refers outside itself.
    pub fn compile(
        schema: &Value,
        dialect: Dialect,
        formats: Formats,
    ) -> Result<Self, CompileError> {
        let (schema, spellings) = respell::for_engine(schema, dialect);
        let engine = jsonschema::options()
            .with_draft(dialect.engine())
            .should_validate_formats(formats == Formats::Assert)
            .without_content_encoding_support("base64")
            .without_content_media_type_support("application/json")
            .with_keyword(multiple::KEYWORD, multiple::keyword)
            .offline()
            .build(&schema)
            .map_err(|error| CompileError {
                pointer: spellings.pointer(&error.instance_path().to_string()),
                reason: spellings.told(&error.to_string()),
            })?;
        Ok(Self { engine, spellings })
    }

    /// Whether the value matches. Cheaper than [`Validator::mismatches`].
    pub fn is_valid(&self, value: &Value) -> bool {
        self.engine.is_valid(value)
    }

    /// All mismatches, up to [`VALIDATION_ERRORS_MAX`]; empty if the value matches.
    pub fn mismatches(&self, value: &Value) -> Vec<Mismatch> {
        self.engine
            .iter_errors(value)
            .take(VALIDATION_ERRORS_MAX)
            .map(|e| Mismatch::new(&e, &self.spellings))
            .collect()
    }
}

impl Mismatch {
    fn new(error: &jsonschema::ValidationError<'_>, spellings: &Spellings) -> Self {
        let got = error.instance().to_string();
        let cut: String = got.chars().take(GOT_CHARS_MAX).collect();
        let got = if cut.len() < got.len() { format!("{cut}…") } else { got };
        Self {
            pointer: error.instance_path().to_string(),
            schema_pointer: spellings.pointer(&error.schema_path().to_string()),
            keyword: error.kind().keyword().to_owned(),
            expected: spellings.told(&expected(error)),
            got,
        }
    }
}

/// What a value lacks, to be read after the place of it. The engine's sentence begins with the
/// value; we say that apart.
fn expected(error: &jsonschema::ValidationError<'_>) -> String {
    if let jsonschema::error::ValidationErrorKind::Required { property } = error.kind() {
        return format!("lacks {property}, which is required");
    }
    let text = error.masked_with("it").to_string();
    text.strip_prefix("it ").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_mismatch_says_where_what_was_expected_and_what_was_there() {
        let schema = json!({"properties": {"a": {"type": "string"}}, "required": ["b"]});
        let validator = Validator::compile(&schema, Dialect::Draft2020, Formats::Annotate).unwrap();
        let value = json!({"a": 7});
        assert!(!validator.is_valid(&value));
        let found = validator.mismatches(&value);
        let type_ = found.iter().find(|m| m.keyword == "type").unwrap();
        assert_eq!(type_.pointer, "/a");
        assert_eq!(type_.schema_pointer, "/properties/a/type");
        assert_eq!(type_.got, "7");
        assert!(type_.expected.contains("string"), "{}", type_.expected);
        let required = found.iter().find(|m| m.keyword == "required").unwrap();
        assert_eq!(required.expected, r#"lacks "b", which is required"#);
    }

    #[test]
    fn nothing_is_fetched() {
        let schema = json!({"$ref": "https://example.com/s.json"});
        assert!(Validator::compile(&schema, Dialect::Draft2020, Formats::Annotate).is_err());
    }

    #[test]
    fn formats_are_notes_unless_asserted() {
        let schema = json!({"format": "ipv4"});
        for (formats, valid) in [(Formats::Annotate, true), (Formats::Assert, false)] {
            let validator = Validator::compile(&schema, Dialect::Draft2020, formats).unwrap();
            assert_eq!(validator.is_valid(&json!("x")), valid);
        }
    }
}
