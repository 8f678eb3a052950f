//! `prom schema check --against BASE`: the schemas of a project against those that are in use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use promethean::{Hop, TrialError, try_casters};
use promethean_event::{Topic, TopicError};
use promethean_schema::{CompareOptions, Document, Mode, OpenObjects, compare};
use serde_json::Value;

use super::bad_input::{bad, parse_schema};
use super::check::Check;
use super::folder::{Files, Folder, Version, directories};
use super::registry::{self, schema_text};
use super::verdict::{Checked, Doubt, Pair, Shown, direction};
use crate::command::project::{Declared, Project};
use crate::command::{Status, block_on};
use crate::failure::status_of;
use crate::reach::{Ask, At, Missing};

/// What to compare with.
enum InUse {
    Commit(String),
    Directory(PathBuf),
    /// The address of a server.
    Server(String),
}

impl InUse {
    fn of(text: &str) -> anyhow::Result<Self> {
        match text.strip_prefix("git:") {
            Some(name) if !name.is_empty() => Ok(Self::Commit(name.to_owned())),
            None if text.starts_with("http://") || text.starts_with("https://") => {
                Ok(Self::Server(text.to_owned()))
            }
            None if Path::new(text).is_dir() => Ok(Self::Directory(PathBuf::from(text))),
            _ => {
                Err(bad(anyhow::anyhow!("{text:?} is neither git:REF, nor a directory, nor a URL")))
            }
        }
    }

    /// The schemas of a topic as they are in use.
    fn folder(&self, current: &Folder) -> anyhow::Result<Folder> {
        match self {
            Self::Commit(name) => {
                let files = Files::of_commit(&current.path, name)?;
                Folder::read(&files, &current.topic, &current.path)
            }
            Self::Server(url) => block_on(registered(url, &current.topic)),
            Self::Directory(directory) => {
                let own = directory.join(&current.topic);
                let path = if own.is_dir() { &own } else { directory };
                Folder::read(&Files::Here, &current.topic, path)
            }
        }
    }
}

/// The schemas of a topic as a server has them.
async fn registered(url: &str, topic: &str) -> anyhow::Result<Folder> {
    let name: Topic = topic.parse().map_err(|error: TopicError| bad(error))?;
    let reach = At::of_url(url).open(Missing::Refuse).await?;
    let mut folder = Folder { topic: topic.to_owned(), ..Folder::default() };
    let known: Value = match reach.json(Ask::get(registry::of(&name))).await {
        Ok(known) => known,
        // A topic that is new has nothing to be compared with.
        Err(error) if status_of(&error) == Some(Status::NotFound) => return Ok(folder),
        Err(error) => return Err(error),
    };
    let heads = known.get("versions").and_then(Value::as_array).cloned().unwrap_or_default();
    for version in heads.iter().filter_map(|head| head["version"].as_u64()) {
        let path = format!("{}/versions/{version}", registry::of(&name));
        let found: Value = reach.json(Ask::get(path)).await?;
        let shown = format!("{url}: {topic}@{version}");
        let document = parse_schema(&schema_text(&found), &shown)?;
        let number = u32::try_from(version).unwrap_or(u32::MAX);
        folder.versions.insert(number, Version { name: shown, document });
    }
    reach.close().await;
    Ok(folder)
}

/// What holds for a topic.
struct Rules {
    mode: Mode,
    options: CompareOptions,
}

impl Rules {
    fn of(check: &Check, declared: Option<&Declared>) -> Self {
        let mode = check.compat.or_else(|| declared?.compat).unwrap_or_default();
        let mut options = check.reading.options(OpenObjects::Lenient);
        if declared.and_then(|declared| declared.strict) == Some(true) {
            options.open_objects = OpenObjects::Strict;
        }
        Self { mode, options }
    }
}

/// Checks every version that is new or has changed.
pub(super) fn check(check: &Check, base: &str) -> anyhow::Result<Checked> {
    let project = Project::read(Path::new("."), check.manifest.as_deref()).map_err(bad)?;
    let base = InUse::of(base)?;
    let mut checked = Checked::default();
    let (mut schemas, mut unchanged) = (0, 0);
    for (topic, path) in directories(&project, &check.files)? {
        let current = Folder::read(&Files::Here, &topic, &path)?;
        let used = base.folder(&current)?;
        let rules = Rules::of(check, project.topics.get(&topic));
        for (&number, version) in &current.versions {
            schemas += 1;
            let same = used
                .versions
                .get(&number)
                .is_some_and(|used| used.document.canonical() == version.document.canonical());
            if same {
                unchanged += 1;
            } else {
                Candidate { current: &current, used: &used, number, version }
                    .check(&rules, &mut checked)?;
            }
        }
        for (number, version) in &used.versions {
            if !current.versions.contains_key(number) {
                checked.findings.push(removed(&current, version));
            }
        }
    }
    (checked.schemas, checked.unchanged) = (Some(schemas), Some(unchanged));
    Ok(checked.summed())
}

/// A version that is new or has changed.
struct Candidate<'a> {
    current: &'a Folder,
    used: &'a Folder,
    number: u32,
    version: &'a Version,
}

impl Candidate<'_> {
    /// The versions before it, as they are in use, and those that are as new as it is.
    fn history(&self) -> BTreeMap<u32, &Version> {
        let mut history: BTreeMap<u32, &Version> =
            self.current.versions.range(..self.number).map(|(n, version)| (*n, version)).collect();
        history.extend(self.used.versions.range(..=self.number).map(|(n, version)| (*n, version)));
        history
    }

    fn check(&self, rules: &Rules, checked: &mut Checked) -> anyhow::Result<()> {
        let depth = if rules.mode.is_transitive() { usize::MAX } else { 1 };
        for (earlier, old) in self.history().into_iter().rev().take(depth) {
            for backward in [true, false] {
                let wanted = match backward {
                    true => rules.mode.is_backward(),
                    false => rules.mode.is_forward(),
                };
                if wanted {
                    self.check_pair((earlier, old), backward, rules, checked)?;
                }
            }
        }
        Ok(())
    }

    fn check_pair(
        &self,
        (earlier, old): (u32, &Version),
        backward: bool,
        rules: &Rules,
        checked: &mut Checked,
    ) -> anyhow::Result<()> {
        let topic = &self.current.topic;
        let pair = Pair::new(topic, &old.name, &self.version.name, backward);
        let (new, old) = (&self.version.document, &old.document);
        let (reader, writer) = if backward { (new, old) } else { (old, new) };
        let (from, to) = if backward { (earlier, self.number) } else { (self.number, earlier) };
        let hops = self.current.casters(from, to);
        if hops.is_empty() {
            let before = checked.findings.len();
            checked.add(&compare(reader, writer, &rules.options)?, backward, &pair);
            if from < to {
                for finding in checked.findings.iter_mut().skip(before) {
                    let command = format!("prom schema upcaster {topic} {from} {to}");
                    finding.fix = format!("{}; or write an upcaster: {command}", finding.fix);
                }
            }
            return Ok(());
        }
        let strict = rules.options.open_objects == OpenObjects::Strict;
        match tried((writer, reader), &hops, strict, (backward, &pair)) {
            Tried::Good => {}
            Tried::Fails(finding) => checked.findings.push(*finding),
            Tried::Unknown(doubt) => checked.undecided.push(doubt),
        }
        Ok(())
    }
}

enum Tried {
    Good,
    Fails(Box<Shown>),
    Unknown(Doubt),
}

fn tried(
    (writer, reader): (&Document, &Document),
    hops: &[Hop],
    strict: bool,
    (backward, pair): (bool, &Pair),
) -> Tried {
    let finding = |message: String, value: Option<Value>| Shown {
        rule: "PROM-S201",
        pointer: String::new(),
        message,
        counter_example: value,
        example_pointer: String::new(),
        fix: "correct the caster, or the schema".to_owned(),
        direction: direction(backward),
        pair: pair.clone(),
        reader_line: 1,
        writer_pointer: String::new(),
        writer_line: 1,
    };
    match try_casters(writer, reader, hops, strict) {
        Ok(_) => Tried::Good,
        Err(TrialError::Fails { value, reason }) => {
            Tried::Fails(Box::new(finding(format!("casters fail: {reason}"), Some(value))))
        }
        Err(TrialError::BadHop(reason)) => {
            Tried::Fails(Box::new(finding(format!("caster is not good: {reason}"), None)))
        }
        Err(error) => Tried::Unknown(Doubt {
            construct: error.to_string(),
            pointer: String::new(),
            direction: direction(backward),
            pair: pair.clone(),
        }),
    }
}

/// A version that is in use and not there any more.
fn removed(current: &Folder, version: &Version) -> Shown {
    Shown {
        rule: "PROM-S202",
        pointer: String::new(),
        message: "version removed: events of it may be stored, and its number is taken".to_owned(),
        counter_example: None,
        example_pointer: String::new(),
        fix: "put the file back; prom schema retire ends a version, and keeps it readable"
            .to_owned(),
        direction: direction(true),
        pair: Pair::new(&current.topic, &version.name, &current.path.display().to_string(), true),
        reader_line: 1,
        writer_pointer: String::new(),
        writer_line: 1,
    }
}
