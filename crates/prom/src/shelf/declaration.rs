use promethean::FormulaError;
use promethean::projection::{Changelog, Expressions, Field, Unkeyed, View};
use serde::{Deserialize, Serialize};

use crate::manifest::{FieldRule, UnkeyedRule, ViewTable};

/// A view as it was declared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Declaration {
    /// By a manifest.
    Changelog(Box<ViewTable>),
    /// By the demo of this program.
    Demo,
}

impl ViewTable {
    /// The view, unchecked: names are checked when it is started.
    pub(crate) fn view(&self, name: &str) -> View {
        let mut view = View::new(name);
        for (field, rule) in &self.fields {
            let (kind, path) = match rule {
                FieldRule::Kind(kind) => (*kind, None),
                FieldRule::Placed { kind, path } => (*kind, path.as_deref()),
            };
            let mut field = Field::new(field, kind);
            if let Some(path) = path {
                let parts = path.strip_prefix('/').unwrap_or(path).split('/');
                field.path = parts.map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
            }
            view = view.field(field);
        }
        view.indexes.clone_from(&self.indexes);
        view
    }

    fn expressions(&self) -> Expressions {
        Expressions {
            key: self.key.clone(),
            map: self.map.clone(),
            tombstone: self.tombstone.clone(),
            version: self.version.clone(),
        }
    }

    /// What is wrong with it, if anything is.
    pub(crate) fn problem(&self, name: &str) -> Option<String> {
        if let Err(error) = self.view(name).check() {
            return Some(error.to_string());
        }
        if let Err(error) = self.expressions().compile() {
            return Some(error.to_string());
        }
        if let Err(error) = promethean_event::Topic::new(&self.topic) {
            return Some(error.to_string());
        }
        let said = self.cache_control.as_ref();
        if said.is_some_and(|text| text.parse::<http::HeaderValue>().is_err()) {
            return Some("cache_control cannot stand in a header".to_owned());
        }
        None
    }

    /// The projection that keeps it.
    pub(crate) fn changelog(&self, name: &str) -> Result<Changelog, FormulaError> {
        let mut changelog = Changelog::new(self.view(name), self.topic.as_str())
            .mapping(self.expressions().compile()?);
        if let Some(version) = self.reads {
            changelog = changelog.reads(version);
        }
        if self.unkeyed == Some(UnkeyedRule::Count) {
            changelog = changelog.unkeyed(Unkeyed::Count);
        }
        Ok(changelog)
    }
}
