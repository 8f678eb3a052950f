use crate::projection::document::Document;
use crate::projection::position::Position;

/// What says whether a representation of a document is still the same: the same function for `GET`
/// and for `HEAD`. It does not look at the document's text, which may be spelled differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validator {
    /// Where the event stands that wrote the document last.
    pub position: Position,
    /// What the document follows: [`Progress::definition`](crate::projection::Progress).
    pub definition: String,
    /// The version of the schema that the document is shown in, if it is cast.
    pub schema_version: Option<u32>,
}

impl Validator {
    /// The validator of a document.
    pub fn of(document: &Document, definition: &str, schema_version: Option<u32>) -> Self {
        let position = document.position.clone();
        Self { position, definition: definition.to_owned(), schema_version }
    }

    /// As an entity tag: strong, with its quotes.
    pub fn etag(&self) -> String {
        let version = self.schema_version.map(|version| format!(";v{version}"));
        format!("\"{};{}{}\"", self.position, self.definition, version.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pitfalls 141, 143, 144: position, definition, schema version, and nothing else.
    #[test]
    fn every_part_changes_the_tag_and_nothing_else_does() {
        let validator = |position: &str, definition: &str, schema_version| Validator {
            position: position.parse().unwrap(),
            definition: definition.into(),
            schema_version,
        };
        let tag = validator("a/0/1", "d", None).etag();
        assert_eq!(tag, "\"a/0/1;d\"");
        for other in [
            validator("a/0/2", "d", None),
            validator("a/1/1", "d", None),
            validator("b/0/1", "d", None),
            validator("a/0/1", "e", None),
            validator("a/0/1", "d", Some(1)),
            validator("a/0/1", "d", Some(2)),
        ] {
            assert_ne!(other.etag(), tag);
        }
        // All of it may stand in a header.
        assert!(tag.bytes().all(|byte| byte == 0x21 || (0x22..=0x7e).contains(&byte)));
    }
}
