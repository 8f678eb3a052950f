//! A schema document: read, bounded, self-contained, and ready to check and compare.

use std::sync::Arc;

use serde_json::Value;

use crate::compat::lower;
use crate::dialect::Dialect;
use crate::limits;
use crate::meta;
use crate::pointer;
use crate::reference::References;
use crate::validate::{CompileError, Formats, Validator};

/// A schema that was read and found sound.
#[derive(Debug, Clone)]
pub struct Document {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    text: String,
    value: Value,
    /// The schema with the meta-schemas that it refers to, if it refers to any.
    whole: Option<Value>,
    dialect: Dialect,
    references: References,
    validator: Validator,
}

/// Why a schema was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Larger than [`limits::SCHEMA_BYTES_MAX`].
    #[error("the schema has {bytes} bytes, at most {max} are read: split it or drop examples")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Not JSON.
    #[error("the schema is not JSON: fix the syntax at line {line}, column {column}")]
    NotJson {
        /// Where reading stopped.
        line: usize,
        /// Where on that line.
        column: usize,
        /// What the reader said.
        #[source]
        source: serde_json::Error,
    },
    /// JSON, but neither an object nor a boolean.
    #[error("a schema is an object, true or false, not {kind}: wrap it in an object")]
    NotASchema {
        /// What was found.
        kind: &'static str,
    },
    /// `$schema` names a dialect that is not read.
    #[error(
        "unknown $schema {uri:?}: use https://json-schema.org/draft/2020-12/schema or draft-07"
    )]
    UnknownDialect {
        /// The URI found.
        uri: String,
    },
    /// Some part is larger than a limit.
    #[error("{what} at {pointer:?} (line {line}): at most {max} are read")]
    Explodes {
        /// What there is too much of.
        what: &'static str,
        /// Where.
        pointer: String,
        /// On which line.
        line: usize,
        /// The limit.
        max: usize,
    },
    /// A reference to another document.
    #[error(
        "$ref {reference:?} at {pointer:?} (line {line}) leads outside the document: \
         copy the schema under $defs and refer to it there"
    )]
    Remote {
        /// The reference.
        reference: String,
        /// Where.
        pointer: String,
        /// On which line.
        line: usize,
    },
    /// A reference to nothing.
    #[error("$ref {reference:?} at {pointer:?} (line {line}) leads to nothing: correct its path")]
    Dangling {
        /// The reference.
        reference: String,
        /// Where.
        pointer: String,
        /// On which line.
        line: usize,
    },
    /// A schema that needs itself to be decided, for the same value.
    #[error(
        "the schema at {pointer:?} (line {line}) refers back to itself without going into the \
         value: put a property or item between"
    )]
    Endless {
        /// Where.
        pointer: String,
        /// On which line.
        line: usize,
    },
    /// The engine refused it: mostly a keyword with a value of the wrong type.
    #[error("not a valid schema at line {line}: {source}")]
    Invalid {
        /// On which line.
        line: usize,
        /// What is wrong.
        #[source]
        source: CompileError,
    },
}

impl Document {
    /// Reads a schema; the dialect is the one it names, or is told from its form.
    ///
    /// # Errors
    /// See [`ReadError`]; every variant says what to do.
    pub fn parse(text: &str) -> Result<Self, ReadError> {
        Self::parse_as(text, None)
    }

    /// Reads a schema that does not name its dialect but is known to be of `dialect`.
    /// A `$schema` in the document still wins.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn parse_as(text: &str, dialect: Option<Dialect>) -> Result<Self, ReadError> {
        if text.len() > limits::SCHEMA_BYTES_MAX {
            let max = limits::SCHEMA_BYTES_MAX;
            return Err(ReadError::TooLarge { bytes: text.len(), max });
        }
        let value = serde_json::from_str(text).map_err(not_json)?;
        Self::build(text.to_owned(), value, dialect)
    }

    /// Takes a schema that is a JSON value already. Lines refer to its pretty-printed form.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn from_value(value: &Value, dialect: Option<Dialect>) -> Result<Self, ReadError> {
        let text = format!("{value:#}");
        Self::parse_as(&text, dialect)
    }

    fn build(text: String, value: Value, dialect: Option<Dialect>) -> Result<Self, ReadError> {
        if !matches!(value, Value::Object(_) | Value::Bool(_)) {
            return Err(ReadError::NotASchema { kind: kind_name(&value) });
        }
        let dialect = match value.get("$schema").and_then(Value::as_str) {
            Some(uri) => Dialect::from_uri(uri)
                .ok_or_else(|| ReadError::UnknownDialect { uri: uri.to_owned() })?,
            None => dialect.unwrap_or_else(|| Dialect::guess(&value)),
        };
        let whole = meta::embed(&value);
        let references = References::collect(whole.as_ref().unwrap_or(&value), dialect);
        if let Some(explosion) = &references.explosion {
            return Err(ReadError::Explodes {
                what: explosion.what,
                line: pointer::line_of(&text, &explosion.pointer),
                pointer: explosion.pointer.clone(),
                max: explosion.max,
            });
        }
        lower::check(whole.as_ref().unwrap_or(&value), dialect, &references)
            .map_err(|problem| problem.at(&text))?;
        let validator =
            Validator::compile(&value, dialect, Formats::Annotate).map_err(|source| {
                let line = pointer::line_of(&text, &source.pointer);
                ReadError::Invalid { line, source }
            })?;
        let inner = Inner { text, value, whole, dialect, references, validator };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The schema as JSON.
    pub fn value(&self) -> &Value {
        &self.inner.value
    }

    /// The schema as JSON, with the meta-schemas that it refers to: what references lead into.
    pub(crate) fn whole(&self) -> &Value {
        self.inner.whole.as_ref().unwrap_or(&self.inner.value)
    }

    /// The schema as it was written.
    pub fn text(&self) -> &str {
        &self.inner.text
    }

    /// Its dialect.
    pub fn dialect(&self) -> Dialect {
        self.inner.dialect
    }

    /// The compiled checker, with `format` as a note.
    pub fn validator(&self) -> &Validator {
        &self.inner.validator
    }

    /// The line (from 1) that a JSON pointer leads to, or its last ancestor that exists.
    pub fn line_of(&self, pointer: &str) -> usize {
        pointer::line_of(&self.inner.text, pointer)
    }

    /// The one text of all documents that say the same: members sorted, no white space, numbers
    /// and characters spelt in one way. Two documents of one dialect are the same schema if their
    /// canonical texts are.
    pub fn canonical(&self) -> String {
        let mut text = String::with_capacity(self.inner.text.len());
        canonical(&self.inner.value, &mut text);
        text
    }

    pub(crate) fn references(&self) -> &References {
        &self.inner.references
    }
}

/// The reader's own bound on nesting is no fault of the syntax.
fn not_json(source: serde_json::Error) -> ReadError {
    let (line, column) = (source.line(), source.column());
    if source.to_string().starts_with("recursion limit exceeded") {
        let (what, max) = ("too deep nesting", limits::SCHEMA_DEPTH_MAX);
        return ReadError::Explodes { what, pointer: String::new(), line, max };
    }
    ReadError::NotJson { line, column, source }
}

fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (index, (name, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                canonical(&Value::String(name.clone()), text);
                text.push(':');
                canonical(member, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                canonical(item, text);
            }
            text.push(']');
        }
        // A schema means the same by 1.0 as by 1.
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15 => {
                text.push_str(&(float as i64).to_string());
            }
            _ => text.push_str(&number.to_string()),
        },
        plain => text.push_str(&plain.to_string()),
    }
}

/// The JSON kind of a value, with its article.
pub(crate) fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical_of(text: &str) -> String {
        Document::parse(text).unwrap().canonical()
    }

    #[test]
    fn spelling_does_not_make_another_schema() {
        let one = canonical_of(r#"{"type":"object","properties":{"a":{"minimum":1},"b":true}}"#);
        let same = "{ \"properties\": {\"b\": true,\n \"\\u0061\": {\"minimum\": 1.0}}, \"type\": \"object\" }";
        assert_eq!(canonical_of(same), one);
        assert_ne!(canonical_of(r#"{"type":"object","properties":{"a":{"minimum":1}}}"#), one);
        assert_ne!(canonical_of(r#"{"enum":[1,2]}"#), canonical_of(r#"{"enum":[2,1]}"#));
    }
}
