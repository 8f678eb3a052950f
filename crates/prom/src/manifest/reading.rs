use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::check::{Finding, Severity};
use super::document::Document;
use crate::spelling;

/// Why a manifest was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{place}: {problem}")]
    Wrong {
        /// File, line and column.
        place: String,
        problem: String,
        /// What was probably meant.
        suggestion: Option<String>,
    },
}

impl ManifestError {
    /// All of it in one text, for commands that show no hint beside it.
    pub(crate) fn with_suggestion(&self) -> String {
        match self {
            Self::Wrong { suggestion: Some(meant), .. } => {
                format!("{self}; did you mean `{meant}`?")
            }
            _ => self.to_string(),
        }
    }
}

impl ManifestError {
    /// As one of the things that are wrong with a manifest; none if it could not be looked at.
    pub(crate) fn finding(self) -> Option<Finding> {
        let Self::Wrong { place, problem, suggestion } = self else {
            return None;
        };
        let meant = suggestion.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        let problem = format!("{problem}{meant}");
        Some(Finding { severity: Severity::Error, at: place, problem })
    }
}

impl From<ManifestError> for crate::failure::Failure {
    fn from(error: ManifestError) -> Self {
        use crate::command::Status;
        let text = error.to_string();
        match error {
            ManifestError::Read { .. } => Self::new(Status::NotFound, text),
            ManifestError::Wrong { suggestion, .. } => {
                let failure = Self::new(Status::Misconfigured, text);
                match suggestion {
                    Some(meant) => failure.hint(format!("did you mean `{meant}`?")),
                    None => failure.hint("check it with: prom check config"),
                }
            }
        }
    }
}

/// Settings of the environment begin so; `__` stands between tables and keys.
const PREFIX: &str = "PROM__";

/// Reads a manifest. What the environment says wins over the file.
pub(super) fn read(
    path: &Path,
    text: &str,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<Document, ManifestError> {
    // As it stands, for errors with their place.
    parse::<Document>(path, text)?;
    let mut table: Table = parse(path, text)?;
    let mut changed: Vec<String> = Vec::new();
    for (name, value) in environment {
        if let Some(keys) = name.strip_prefix(PREFIX) {
            set(&mut table, keys, &value);
            changed.push(name);
        }
    }
    let document = Document::deserialize_from(table);
    document.map_err(|error| {
        let (problem, suggestion) = explained(error.message());
        ManifestError::Wrong { place: changed.join(", "), problem, suggestion }
    })
}

/// What a file says, or where it is wrong.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ManifestError> {
    toml::from_str(text).map_err(|error| wrong(path, text, &error))
}

impl Document {
    fn deserialize_from(table: Table) -> Result<Self, toml::de::Error> {
        Value::Table(table).try_into()
    }
}

/// `SERVER__LISTEN` is `listen` of `[server]`. What does not read as a value is a text.
fn set(table: &mut Table, keys: &str, value: &str) {
    let value = toml::from_str::<Table>(&format!("value = {value}"))
        .ok()
        .and_then(|mut read| read.remove("value"))
        .unwrap_or_else(|| Value::String(value.to_owned()));
    let keys: Vec<String> = keys.split("__").map(str::to_lowercase).collect();
    let Some((last, tables)) = keys.split_last() else {
        return;
    };
    let mut inner = table;
    for key in tables {
        let entry = inner.entry(key.clone()).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(next) = entry else {
            return;
        };
        inner = next;
    }
    inner.insert(last.clone(), value);
}

/// Problems that are told of one file.
const PROBLEMS_MAX: usize = 20;

/// Everything that the text of a manifest says that is not known. A parser stops at the first, so
/// that what it stopped at is left out, and the rest is read again.
pub(super) fn problems(path: &Path, text: &str) -> Vec<ManifestError> {
    let mut text = text.to_owned();
    let mut problems = Vec::new();
    while problems.len() < PROBLEMS_MAX {
        let Err(error) = toml::from_str::<Document>(&text) else {
            break;
        };
        problems.push(wrong(path, &text, &error));
        let is_unknown = error.message().starts_with("unknown ");
        let left = error.span().filter(|_| is_unknown).map(|span| without(&text, span.start));
        // What is no TOML any more would be our fault, not the user's.
        match left.filter(|left| left.parse::<Table>().is_ok()) {
            Some(left) => text = left,
            None => break,
        }
    }
    problems
}

/// The text with the line at a place empty; with its whole table if it is the head of one.
fn without(text: &str, at: usize) -> String {
    let (mut start, mut is_gone) = (0, false);
    let mut left = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let is_head = line.trim_start().starts_with('[');
        let is_here = (start..start + line.len()).contains(&at);
        is_gone = if is_here { is_head } else { is_gone && !is_head };
        left.push_str(if is_here || is_gone { "\n" } else { line });
        start += line.len();
    }
    left
}

fn wrong(path: &Path, text: &str, error: &toml::de::Error) -> ManifestError {
    let at = error.span().map_or(0, |span| span.start);
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    let (problem, suggestion) = explained(error.message());
    ManifestError::Wrong {
        place: format!("{}:{line}:{column}", path.display()),
        problem,
        suggestion,
    }
}

/// The parser names the key, or the word for a value, that it does not know and all that it would;
/// of those, the one that is spelt most like it is worth a guess.
fn explained(message: &str) -> (String, Option<String>) {
    let key = message.strip_prefix("unknown field `").map(|rest| (rest, "there is no key"));
    let value = message.strip_prefix("unknown variant `").map(|rest| (rest, "there is no value"));
    let Some((rest, problem)) = key.or(value) else {
        return (message.trim().to_owned(), None);
    };
    let mut names = rest.split('`');
    let unknown = names.next().unwrap_or_default();
    let known: Vec<&str> = names.skip(1).step_by(2).collect();
    let close = spelling::nearest(unknown, known.iter().copied());
    let problem = match close {
        Some(_) => format!("{problem} `{unknown}`"),
        None => format!("{problem} `{unknown}`; there are: {}", known.join(", ")),
    };
    (problem, close.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str, environment: &[(&str, &str)]) -> Result<Document, ManifestError> {
        let owned = environment.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        read(Path::new("prom.toml"), text, owned)
    }

    #[test]
    fn what_is_misspelt_gets_a_suggestion_and_its_place() {
        let text = "version = 1\n\n[topic.\"a.b\"]\nretention = \"7d\"\npartitons = 3\n";
        match read_text(text, &[]).unwrap_err() {
            ManifestError::Wrong { place, problem, suggestion } => {
                assert_eq!(place, "prom.toml:5:1");
                assert_eq!(problem, "there is no key `partitons`");
                assert_eq!(suggestion.as_deref(), Some("partitions"));
            }
            other => panic!("{other}"),
        }
        let far = read_text("[sevrer]\n", &[]).unwrap_err();
        assert!(
            matches!(far, ManifestError::Wrong { suggestion: Some(name), .. } if name == "server")
        );
        let value = read_text("[auth]\nmode = \"statik\"\n", &[]).unwrap_err();
        assert!(
            matches!(value, ManifestError::Wrong { suggestion: Some(name), .. } if name == "static")
        );
        let nothing = read_text("xylophone = 1\n", &[]).unwrap_err().to_string();
        assert!(nothing.contains("there are: version, server"), "{nothing}");
    }

    /// Whoever has misspelt three keys need not ask three times.
    #[test]
    fn all_that_is_misspelt_is_told_at_once() {
        let text = "version = 1\nlimt = 2\n[serverr]\nlisten = 1\nx = [\n  1,\n]\n\
                    [topic.\"a.b\"]\npartitons = 3\nretention = \"7d\"\nretenton = 1\n\
                    [auth]\nmode = \"statik\"\n";
        let problems = problems(Path::new("prom.toml"), text);
        let told: Vec<Finding> = problems.into_iter().filter_map(ManifestError::finding).collect();
        let mut told: Vec<&str> = told.iter().map(|found| found.at.as_str()).collect();
        told.sort_unstable();
        let lines = [("2", "1"), ("3", "2"), ("9", "1"), ("11", "1"), ("13", "8")];
        let mut lines = lines.map(|(line, column)| format!("prom.toml:{line}:{column}"));
        lines.sort_unstable();
        assert_eq!(told, lines);
        assert!(super::problems(Path::new("prom.toml"), "version = 1\n").is_empty());
        let broken = super::problems(Path::new("prom.toml"), "[server\nlisten = 1\n");
        assert_eq!(broken.len(), 1, "of what is no TOML the first place is all there is to say");
    }

    #[test]
    fn values_that_make_no_sense_say_how_to_write_them() {
        for (text, said) in [
            ("[topic.a]\nretention = \"soon\"", "7d"),
            ("[topic.a]\nretention_bytes = \"much\"", "2GiB"),
            ("[group.g]\ntopics = []\nack_timeout = \"5\"", "30s"),
            ("[group.g]\n", "topics"),
            ("[topic.a]\ncompaction = \"newest\"", "latest"),
        ] {
            let refused = read_text(text, &[]).unwrap_err().to_string();
            assert!(refused.contains(said), "{text}: {refused}");
        }
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let text = "[server]\nlisten = \"127.0.0.1:1\"\n[store]\npath = \"here\"\n";
        let document = read_text(
            text,
            &[
                ("PROM__SERVER__LISTEN", "127.0.0.1:2"),
                ("PROM__SERVER__RATE_LIMITS", "false"),
                ("PROM__DEFAULTS__TOPIC__PARTITIONS", "8"),
                ("PROM_URL", "http://elsewhere"),
            ],
        )
        .unwrap();
        assert_eq!(document.server.listen.unwrap().all(), ["127.0.0.1:2"]);
        assert_eq!(document.server.rate_limits, Some(false));
        assert_eq!(document.defaults.topic.partitions, Some(8));
        assert_eq!(document.store.path.unwrap(), Path::new("here"));
        let wrong = read_text(text, &[("PROM__SERVER__LISTENN", "1")]).unwrap_err();
        assert!(
            matches!(wrong, ManifestError::Wrong { ref suggestion, .. }
            if suggestion.as_deref() == Some("listen")),
            "{wrong}"
        );
        assert!(wrong.to_string().contains("PROM__SERVER__LISTENN"));
    }
}
