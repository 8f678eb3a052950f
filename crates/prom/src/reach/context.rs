//! Contexts: servers by name, kept for this user.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::command::Status;
use crate::failure::Failure;

/// A server that has a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    pub(crate) url: String,
    /// Where administration is, if it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) admin_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    /// Whether changes are to be confirmed by name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) protected: bool,
}

/// All of them, and which one is used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Contexts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous: Option<String>,
    pub(crate) context: BTreeMap<String, Context>,
}

/// Where they are kept.
pub(crate) fn path() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let base = base.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    Some(base.join("promethean").join("contexts.toml"))
}

impl Contexts {
    pub(crate) fn read() -> anyhow::Result<Self> {
        let Some(path) = path().filter(|path| path.exists()) else {
            return Ok(Self::default());
        };
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not right", path.display()))
    }

    pub(crate) fn write(&self) -> anyhow::Result<()> {
        let path = path().context("there is no HOME to keep contexts in")?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // Written beside and moved, so that nobody reads half of it.
        let beside = path.with_extension("new");
        fs::write(&beside, toml::to_string(self)?)?;
        fs::rename(&beside, &path).with_context(|| format!("cannot write {}", path.display()))
    }

    pub(crate) fn get(&self, name: &str) -> Result<&Context, Failure> {
        self.context.get(name).ok_or_else(|| {
            let what = format!("there is no context {name:?}");
            Failure::new(Status::NotFound, what).hint("list them with: prom ctx ls")
        })
    }

    /// The one that is asked for, or the current one.
    pub(super) fn chosen(&self, name: Option<&str>) -> Result<Option<&Context>, Failure> {
        match name.or(self.current.as_deref()) {
            Some(name) => self.get(name).map(Some),
            None => Ok(None),
        }
    }
}
