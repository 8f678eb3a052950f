//! Filters: declared fields, typed values, nothing else.

use rusqlite::types::{ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};

use crate::projection::view::{Field, FieldKind, View, shortened};

/// Bytes of a value.
pub(super) const VALUE_BYTES_MAX: usize = 1_024;

/// Why a query was refused; says what is allowed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// Not a declared field.
    #[error("{name:?} is not a field of this view; there are: {allowed}")]
    UnknownField {
        /// What was asked for.
        name: String,
        /// What there is.
        allowed: String,
    },
    /// Not a way to compare.
    #[error("{0:?} is no comparison; use eq, ne, lt, le, gt, ge, as in pid.ge=100")]
    UnknownComparison(String),
    /// A value that is not of the field's kind.
    #[error("{value:?} is not {wanted}, which {field} is")]
    Value {
        /// The field.
        field: String,
        /// What was given.
        value: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// Too much.
    #[error("{0}")]
    Limit(String),
    /// A page that does not belong here.
    #[error(transparent)]
    Page(#[from] super::page_token::PageTokenError),
}

/// How a field is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Comparison {
    /// The same.
    Eq,
    /// Another one; a document without the field has none.
    Ne,
    /// Less.
    Lt,
    /// Less or the same.
    Le,
    /// Greater.
    Gt,
    /// Greater or the same.
    Ge,
}

impl Comparison {
    fn parse(text: &str) -> Result<Self, QueryError> {
        Ok(match text {
            "eq" => Self::Eq,
            "ne" => Self::Ne,
            "lt" => Self::Lt,
            "le" => Self::Le,
            "gt" => Self::Gt,
            "ge" => Self::Ge,
            other => return Err(QueryError::UnknownComparison(shortened(other))),
        })
    }

    pub(super) const fn sql(self) -> &'static str {
        match self {
            Self::Eq => "=",
            Self::Ne => "<>",
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
        }
    }
}

/// A value of a field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// The field is not there.
    Null,
    /// A whole number; also 0 and 1 for false and true.
    Integer(i64),
    /// A number.
    #[serde(with = "bits")]
    Number(f64),
    /// Text.
    Text(String),
}

/// Numbers in tokens are kept bit by bit: one that was rounded would skip or repeat documents.
mod bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Bits {
        f: u64,
    }

    pub(super) fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        Bits { f: number.to_bits() }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(f64::from_bits(Bits::deserialize(deserializer)?.f))
    }
}

impl Value {
    fn parse(field: &Field, text: &str) -> Result<Self, QueryError> {
        let wanted = match field.kind {
            FieldKind::Text => "a text of at most 1024 bytes",
            FieldKind::Integer => "a whole number",
            FieldKind::Number => "a number",
            FieldKind::Bool => "true or false",
        };
        let finite = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        let integer = || text.parse().ok().map(Self::Integer);
        let value = match field.kind {
            _ if text.len() > VALUE_BYTES_MAX => None,
            FieldKind::Text => Some(Self::Text(text.to_owned())),
            FieldKind::Integer => integer(),
            FieldKind::Number => integer().or_else(|| finite(text).map(Self::Number)),
            FieldKind::Bool => match text {
                "true" => Some(Self::Integer(1)),
                "false" => Some(Self::Integer(0)),
                _ => None,
            },
        };
        value.ok_or_else(|| QueryError::Value {
            field: field.name.clone(),
            value: shortened(text),
            wanted,
        })
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Self::Integer(number) => ToSqlOutput::Borrowed(ValueRef::Integer(*number)),
            Self::Number(number) => ToSqlOutput::Borrowed(ValueRef::Real(*number)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        })
    }
}

/// One condition on a declared field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    /// The field: one that is declared, whose name is safe in SQL.
    pub(super) field: String,
    pub(super) comparison: Comparison,
    pub(super) value: Value,
}

impl Filter {
    /// The name of the declared field.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// How it is compared.
    pub const fn comparison(&self) -> Comparison {
        self.comparison
    }

    /// With what.
    pub const fn value(&self) -> &Value {
        &self.value
    }

    /// A condition such as `status = alive` or `pid.ge = 100`.
    pub fn parse(view: &View, name: &str, value: &str) -> Result<Self, QueryError> {
        let (name, comparison) = match name.split_once('.') {
            Some((name, comparison)) => (name, Comparison::parse(comparison)?),
            None => (name, Comparison::Eq),
        };
        let field = view.declared(name).ok_or_else(|| unknown(view, name))?;
        let value = Value::parse(field, value)?;
        // The name of the declaration, not what was asked for: it has been checked.
        Ok(Self { field: field.name.clone(), comparison, value })
    }
}

pub(super) fn unknown(view: &View, name: &str) -> QueryError {
    let names: Vec<&str> = view.fields.iter().map(|field| field.name.as_str()).collect();
    let allowed = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    QueryError::UnknownField { name: shortened(name), allowed }
}
