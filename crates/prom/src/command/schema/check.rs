//! `prom schema check OLD NEW`, and `prom schema check --against git:REF|DIR|URL`.

use std::path::PathBuf;

use clap::Args;
use promethean_schema::{
    CompareOptions, Formats, Mode, OpenObjects, RequiredDefaults, check_history,
};

use super::against;
use super::bad_input::{bad, read_schema};
use super::verdict::Checked;
use crate::command::Status;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Two files: the old version and the new one, oldest first if there are more. With --against:
    /// directories of schemas [default: those of the manifest, or schemas/].
    #[arg(value_name = "OLD NEW")]
    pub(super) files: Vec<PathBuf>,
    /// What the new version must keep: none, backward, forward, full, or one of the last three
    /// with -transitive [default: that of the topic in the manifest, or backward].
    #[arg(long, value_name = "MODE")]
    pub(super) compat: Option<Mode>,
    /// Compare the schemas of the project with those of a commit (git:REF), of a directory, or of
    /// a server (URL).
    #[arg(long, value_name = "git:REF|DIR|URL")]
    pub(super) against: Option<String>,
    /// The manifest, with --against [default: prom.toml, if there is one].
    #[arg(long, value_name = "FILE", requires = "against")]
    pub(super) manifest: Option<PathBuf>,
    #[command(flatten)]
    pub(super) reading: Reading,
}

/// How schemas are read.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Reading {
    /// Open objects may hold anything under names that they do not declare [default for two files].
    #[arg(long, conflicts_with = "lenient")]
    pub(super) strict: bool,
    /// Writers are trusted to put nothing under a name that only the reader declares [default with
    /// --against, and for what is registered].
    #[arg(long)]
    pub(super) lenient: bool,
    /// A required property with a default may be absent: readers fill it in.
    #[arg(long)]
    pub(super) fill_defaults: bool,
    /// `format` is a condition, not a note.
    #[arg(long)]
    pub(super) assert_formats: bool,
}

impl Reading {
    /// With what is so unless it is said otherwise: two documents are what they are, a topic has
    /// writers.
    pub(super) fn options(self, unless_said: OpenObjects) -> CompareOptions {
        CompareOptions {
            open_objects: match (self.strict, self.lenient) {
                (true, _) => OpenObjects::Strict,
                (_, true) => OpenObjects::Lenient,
                _ => unless_said,
            },
            required_defaults: match self.fill_defaults {
                true => RequiredDefaults::Fill,
                false => RequiredDefaults::Ignore,
            },
            formats: self.formats(),
        }
    }

    pub(super) fn formats(self) -> Formats {
        if self.assert_formats { Formats::Assert } else { Formats::Annotate }
    }
}

pub(super) fn run(check: &Check, output: &Output) -> anyhow::Result<Status> {
    let checked = match &check.against {
        Some(base) => against::check(check, base)?,
        None => pair(check)?,
    };
    let status = checked.status();
    output.result(&checked, Checked::text)?;
    Ok(status)
}

fn pair(check: &Check) -> anyhow::Result<Checked> {
    let Some((new, old)) = check.files.split_last().filter(|(_, old)| !old.is_empty()) else {
        return Err(bad(anyhow::anyhow!(
            "give two files, the old version and the new one, or --against git:REF|DIR|URL"
        )));
    };
    let history = old.iter().map(|path| read_schema(path)).collect::<Result<Vec<_>, _>>()?;
    let document = read_schema(new)?;
    let mode = check.compat.unwrap_or_default();
    let options = check.reading.options(OpenObjects::Strict);
    let report = check_history(&document, &history, mode, &options)?;
    let name = |index: usize| old.get(index).map(|path| path.display().to_string());
    let mut checked = Checked::default();
    checked
        .add_history(&report, &new.display().to_string(), |index| name(index).unwrap_or_default());
    Ok(checked.summed())
}
