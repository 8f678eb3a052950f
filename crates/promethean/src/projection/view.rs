//! What a view is: a table with a document for each key, and the fields of the documents that can
//! be searched.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::limits::{FIELDS_MAX, INDEXES_MAX, NAME_BYTES_MAX};

/// A view, as it is declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct View {
    /// Its name, which is the name of its table: `[a-z][a-z0-9_]*`.
    pub name: String,
    /// The fields that may be filtered and sorted by; each is a column of the table.
    #[serde(default)]
    pub fields: Vec<Field>,
    /// Indexes, each over one or more fields.
    #[serde(default)]
    pub indexes: Vec<Vec<String>>,
}

/// A member of the documents that is declared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Field {
    /// Its name in queries, which is the name of its column.
    pub name: String,
    /// Where it is in a document: names of members, outermost first.
    pub path: Vec<String>,
    /// What it holds. Values of another kind are not found.
    pub kind: FieldKind,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldKind {
    /// Text.
    Text,
    /// A whole number of 64 bits.
    Integer,
    /// Any number.
    Number,
    /// True or false.
    Bool,
}

/// What is wrong with a declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewDefinitionError {
    /// A name that cannot be a table.
    #[error(
        "{0:?} cannot be the name of a view; use a letter, then letters, digits and single '_', \
         all lower case, not beginning with 'sqlite_' or 'promethean_'"
    )]
    Name(String),
    /// A name that cannot be a column.
    #[error(
        "{0:?} cannot be the name of a field; use a letter, then letters, digits and '_'; \
         'doc' is taken"
    )]
    FieldName(String),
    /// A path that leads nowhere.
    #[error("field {0:?} has a path that cannot be; name members without '\"' or '\\'")]
    Path(String),
    /// Twice the same field.
    #[error("field {0:?} is declared twice (upper and lower case are the same)")]
    Twice(String),
    /// An index over a field that is not declared.
    #[error("an index names {0:?}, which is not a declared field")]
    Undeclared(String),
    /// More than there may be.
    #[error("view {view:?} has too many {what}; {max} at most")]
    TooMany {
        /// The view.
        view: String,
        /// Of what.
        what: &'static str,
        /// How many there may be.
        max: usize,
    },
}

impl View {
    /// A view without declared fields.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), fields: Vec::new(), indexes: Vec::new() }
    }

    /// With a field that may be filtered and sorted by.
    #[must_use]
    pub fn field(mut self, field: Field) -> Self {
        self.fields.push(field);
        self
    }

    /// With an index over declared fields.
    #[must_use]
    pub fn index<const N: usize>(mut self, fields: [&str; N]) -> Self {
        self.indexes.push(fields.map(str::to_owned).to_vec());
        self
    }

    /// The declared field of a name.
    pub fn declared(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Checks names, fields and indexes. After this, names are safe between double quotes in SQL.
    pub fn check(&self) -> Result<(), ViewDefinitionError> {
        if !is_view_name(&self.name) {
            return Err(ViewDefinitionError::Name(shortened(&self.name)));
        }
        self.check_count("fields", self.fields.len(), FIELDS_MAX)?;
        self.check_count("indexes", self.indexes.len(), INDEXES_MAX)?;
        let mut names = HashSet::new();
        for field in &self.fields {
            field.check()?;
            if !names.insert(field.name.to_ascii_lowercase()) {
                return Err(ViewDefinitionError::Twice(field.name.clone()));
            }
        }
        for name in self.indexes.iter().flatten() {
            if self.declared(name).is_none() {
                return Err(ViewDefinitionError::Undeclared(shortened(name)));
            }
        }
        self.check_count("empty indexes", self.indexes.iter().filter(|i| i.is_empty()).count(), 0)
    }

    fn check_count(
        &self,
        what: &'static str,
        count: usize,
        max: usize,
    ) -> Result<(), ViewDefinitionError> {
        if count > max {
            return Err(ViewDefinitionError::TooMany { view: self.name.clone(), what, max });
        }
        Ok(())
    }
}

impl Field {
    /// A field at the top of the documents.
    pub fn new(name: impl Into<String>, kind: FieldKind) -> Self {
        let name = name.into();
        Self { path: vec![name.clone()], name, kind }
    }

    /// Text.
    pub fn text(name: impl Into<String>) -> Self {
        Self::new(name, FieldKind::Text)
    }

    /// A whole number.
    pub fn integer(name: impl Into<String>) -> Self {
        Self::new(name, FieldKind::Integer)
    }

    /// Any number.
    pub fn number(name: impl Into<String>) -> Self {
        Self::new(name, FieldKind::Number)
    }

    /// True or false.
    pub fn bool(name: impl Into<String>) -> Self {
        Self::new(name, FieldKind::Bool)
    }

    /// At another place than the top: names of members, outermost first.
    #[must_use]
    pub fn at<const N: usize>(mut self, path: [&str; N]) -> Self {
        self.path = path.map(str::to_owned).to_vec();
        self
    }

    fn check(&self) -> Result<(), ViewDefinitionError> {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = &self.name;
        if !name.starts_with(|c: char| c.is_ascii_alphabetic())
            || !name.chars().all(good)
            || name.len() > NAME_BYTES_MAX
            || name.eq_ignore_ascii_case("doc")
        {
            return Err(ViewDefinitionError::FieldName(shortened(name)));
        }
        let bad = |part: &String| {
            part.is_empty() || part.contains(['"', '\\']) || part.chars().any(char::is_control)
        };
        if self.path.is_empty() || self.path.len() > NAME_BYTES_MAX || self.path.iter().any(bad) {
            return Err(ViewDefinitionError::Path(name.clone()));
        }
        Ok(())
    }

    /// The value of the field, as an SQL expression over `doc`. The field has been checked.
    pub(crate) fn expression(&self) -> String {
        let path: String = self.path.iter().map(|part| format!(".\"{part}\"")).collect();
        let path = format!("'${}'", path.replace('\'', "''"));
        match self.kind {
            // SQLite has no booleans: without this, 1 would be found as true.
            FieldKind::Bool => {
                format!("CASE json_type(doc, {path}) WHEN 'true' THEN 1 WHEN 'false' THEN 0 END")
            }
            FieldKind::Text | FieldKind::Integer | FieldKind::Number => {
                format!("json_extract(doc, {path})")
            }
        }
    }
}

fn is_view_name(name: &str) -> bool {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(good)
        && name.len() <= NAME_BYTES_MAX
        // Two of them separate a view's name from what the system appends to it.
        && !name.contains("__")
        && !name.ends_with('_')
        && !name.starts_with("sqlite_")
        && !name.starts_with("promethean_")
}

pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_safe_in_sql_pass() {
        assert!(View::new("host_stats").check().is_ok());
        let long = "a".repeat(64);
        let bad = ["", "A", "1a", "_a", "a b", "a\"", "a;b", "a__b", "a_", "sqlite_x", &long];
        for name in bad {
            assert!(View::new(name).check().is_err(), "{name}");
        }
        for name in ["doc", "DOC", "_key", "a-b", "a\"b", "", "1"] {
            let view = View::new("v").field(Field::text(name));
            assert!(view.check().is_err(), "{name}");
        }
    }

    #[test]
    fn fields_and_indexes_must_fit_together() {
        let host = || View::new("v").field(Field::text("host"));
        assert!(host().index(["host"]).check().is_ok());
        assert!(host().index(["pid"]).check().is_err());
        assert!(host().index([]).check().is_err());
        assert!(host().field(Field::text("HOST")).check().is_err());
        let path = Field::text("a").at(["it's", "b\"c"]);
        assert!(View::new("v").field(path).check().is_err());
        let quoted = Field::text("a").at(["it's"]);
        assert_eq!(quoted.expression(), "json_extract(doc, '$.\"it''s\"')");
    }
}
