//! A new version that is given on the command line: a file, or the newest of a project's.

use std::path::{Path, PathBuf};

use clap::Args;
use promethean::Hop;
use promethean_event::Topic;
use promethean_schema::limits::SCHEMA_BYTES_MAX;
use serde_json::{Value, json};

use super::bad_input::{bad, parse_schema, read_text};
use super::folder::{Files, Folder, read_hop};
use crate::command::project::Project;

/// A new version and how it goes with the others.
#[derive(Debug, Args)]
pub(crate) struct Source {
    /// The topic.
    #[arg(value_name = "TOPIC")]
    pub(crate) topic: Topic,
    /// The schema [default: the newest of the topic's directory].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// What lifts events of the version before to this one: a file of operations [default:
    /// vN.upcast.json beside it].
    #[arg(long, value_name = "FILE")]
    up: Option<PathBuf>,
    /// What brings events of this version to the one before [default: vN.downcast.json beside it].
    #[arg(long, value_name = "FILE")]
    down: Option<PathBuf>,
    /// It must become this version, or be it already.
    #[arg(long, value_name = "N")]
    as_version: Option<u32>,
    /// On how many stored events it is tried, or `all` [default: the newest 1000].
    #[arg(long, value_name = "N", value_parser = sample)]
    sample: Option<Value>,
}

fn sample(text: &str) -> Result<Value, String> {
    match text {
        "all" => Ok(json!("all")),
        number => number
            .parse::<u64>()
            .map(Value::from)
            .map_err(|_| "a number of events, or all".to_owned()),
    }
}

/// A version with its casters, as the registry takes it.
#[derive(Debug, Default)]
pub(crate) struct Wish {
    pub(crate) text: String,
    pub(crate) up: Option<Hop>,
    pub(crate) down: Option<Hop>,
    pub(crate) version: Option<u32>,
}

impl Wish {
    /// The body of a registration. The document goes as a text, so that it is kept as it stands.
    pub(crate) fn body(&self) -> Value {
        let mut body = json!({ "schema": self.text });
        if let Some(body) = body.as_object_mut() {
            let up = self.up.as_ref().map(|hop| ("up", json!(hop)));
            let down = self.down.as_ref().map(|hop| ("down", json!(hop)));
            let version = self.version.map(|version| ("version", json!(version)));
            let given = up.into_iter().chain(down).chain(version);
            body.extend(given.map(|(name, value)| (name.to_owned(), value)));
        }
        body
    }

    /// Version `number` of a topic's directory, with its casters.
    pub(super) fn of(folder: &Folder, number: u32) -> Option<Self> {
        let version = folder.versions.get(&number)?;
        let before = folder.versions.range(..number).next_back().map(|(before, _)| *before);
        Some(Self {
            text: version.document.text().to_owned(),
            up: before.and_then(|before| folder.up.get(&before).cloned()),
            down: folder.down.get(&number).cloned(),
            version: Some(number),
        })
    }
}

impl Source {
    /// Reads what was named.
    pub(crate) fn wish(&self) -> anyhow::Result<Wish> {
        let mut wish = match &self.file {
            None => self.newest()?,
            Some(file) => {
                let text = read_text(file, SCHEMA_BYTES_MAX)?;
                parse_schema(&text, &file.display().to_string())?;
                beside(file, text)?
            }
        };
        let hop = |file: &Path| {
            read_hop(&read_text(file, SCHEMA_BYTES_MAX)?, &file.display().to_string())
        };
        if let Some(file) = &self.up {
            wish.up = Some(hop(file)?);
        }
        if let Some(file) = &self.down {
            wish.down = Some(hop(file)?);
        }
        if self.as_version.is_some() {
            wish.version = self.as_version;
        }
        Ok(wish)
    }

    /// The body of a registration.
    pub(crate) fn body(&self) -> anyhow::Result<Value> {
        let mut body = self.wish()?.body();
        if let (Some(body), Some(sample)) = (body.as_object_mut(), &self.sample) {
            body.insert("sample".to_owned(), sample.clone());
        }
        Ok(body)
    }

    fn newest(&self) -> anyhow::Result<Wish> {
        let path = directory_of(&self.topic)?;
        let folder = Folder::read(&Files::Here, self.topic.as_str(), &path)?;
        let newest = folder.versions.keys().next_back().copied();
        let wish = newest.and_then(|number| Wish::of(&folder, number));
        wish.ok_or_else(|| bad(anyhow::anyhow!("no vN.json in {}; name a file", path.display())))
    }
}

/// A file of a topic's directory has its casters beside it; any other file stands for itself.
fn beside(file: &Path, text: String) -> anyhow::Result<Wish> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let number = name.strip_prefix('v').and_then(|rest| rest.strip_suffix(".json"));
    let number: Option<u32> = number.and_then(|number| number.parse().ok());
    let Some(number) = number else {
        return Ok(Wish { text, ..Wish::default() });
    };
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = Folder::read(&Files::Here, "", directory.unwrap_or(Path::new(".")))?;
    Ok(Wish::of(&folder, number).unwrap_or_else(|| Wish { text, ..Wish::default() }))
}

/// The directory of a topic's schemas: what the manifest says, or `schemas/TOPIC`.
pub(crate) fn directory_of(topic: &Topic) -> anyhow::Result<PathBuf> {
    let project = Project::read(Path::new("."), None).map_err(bad)?;
    let declared = project.topics.get(topic.as_str()).and_then(|topic| topic.schema.clone());
    let path = declared.unwrap_or_else(|| Path::new("schemas").join(topic.as_str()));
    Ok(project.root.join(path))
}
