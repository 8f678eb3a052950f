//! `prom lint`: topics and headers in source code, without a server.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use promethean_lint::format::{self, Colour};
use promethean_lint::{Baseline, LintError, Report, Request, Severity};

use super::Status;
use super::project::Project;
use crate::failure::Failure;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// Files and directories to read, from the root [default: those of the manifest, or all].
    #[arg(value_name = "PATHS")]
    paths: Vec<PathBuf>,
    /// The root of the project.
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// The manifest [default: prom.toml in the root, if there is one].
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// How findings are shown [default: human; json with --json].
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// From which severity on a finding makes the exit code 100.
    #[arg(long, value_enum, default_value_t = FailOn::Warning)]
    fail_on: FailOn,
    /// File of findings known before, which are not reported again [default: that of the
    /// manifest].
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write all findings of this run into the baseline file instead of reporting them.
    #[arg(long)]
    write_baseline: bool,
    /// Say what a rule is about, why, and how to mend what it finds.
    #[arg(long, value_name = "RULE", conflicts_with_all = ["paths", "format", "write_baseline"])]
    explain: Option<String>,
    /// List the rules.
    #[arg(long, conflicts_with_all = ["paths", "format", "write_baseline", "explain"])]
    rules: bool,
}

/// How findings are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people: source excerpts, what is wrong, what to do.
    Human,
    /// For programs: one JSON document.
    Json,
    /// For code scanning: SARIF 2.1.0.
    Sarif,
    /// For GitHub Actions: annotations.
    Github,
}

/// From which severity on a run fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FailOn {
    /// Errors only.
    Error,
    /// Warnings and errors.
    #[value(alias = "warn")]
    Warning,
    /// Everything.
    Note,
}

impl From<FailOn> for Severity {
    fn from(fail_on: FailOn) -> Self {
        match fail_on {
            FailOn::Error => Self::Error,
            FailOn::Warning => Self::Warning,
            FailOn::Note => Self::Note,
        }
    }
}

pub(crate) fn run(lint: &Lint, output: &Output) -> anyhow::Result<Status> {
    if let Some(rule) = &lint.explain {
        return explain(rule, output);
    }
    if lint.rules {
        return list(output);
    }
    match report(lint) {
        Ok((report, baseline)) => finish(lint, report, baseline, output),
        Err(error) if is_ours(&error) => Err(error),
        Err(error) => Err(bad(&error)),
    }
}

/// What was given is not usable.
fn bad(error: &anyhow::Error) -> anyhow::Error {
    Failure::usage(format!("{error:#}")).into()
}

/// Whether it is not what was given that is wrong.
fn is_ours(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<LintError>(), Some(LintError::Thread(_)))
}

/// What was found, and the file of what was known before.
fn report(lint: &Lint) -> anyhow::Result<(Report, KnownFile)> {
    let project = Project::read(&lint.root, lint.manifest.as_deref())?;
    for path in &lint.paths {
        let full = project.root.join(path);
        anyhow::ensure!(full.exists(), "{} is not there", full.display());
    }
    let settings = project.lint_settings();
    let catalogue = project.catalogue();
    let paths = (!lint.paths.is_empty()).then_some(lint.paths.as_slice());
    let request =
        Request { root: &project.root, settings: &settings, catalogue: &catalogue, paths };
    let report = promethean_lint::lint(&request)?;
    let named = settings.baseline.as_ref().map(|file| project.root.join(file));
    let named = lint.baseline.clone().or(named);
    Ok((report, KnownFile { named, default: project.root.join("prom-lint-baseline.json") }))
}

/// Where known findings are kept.
struct KnownFile {
    /// What the command line or the manifest says.
    named: Option<PathBuf>,
    /// Where they are written to if nobody says.
    default: PathBuf,
}

fn finish(
    lint: &Lint,
    mut report: Report,
    file: KnownFile,
    output: &Output,
) -> anyhow::Result<Status> {
    if lint.write_baseline {
        let file = file.named.unwrap_or(file.default);
        std::fs::write(&file, Baseline::of(&report).to_text())
            .with_context(|| format!("cannot write {}", file.display()))?;
        let (count, file) = (report.findings.len(), file.display());
        output.progress(&format!("{count} findings are known from now on: {file}"));
        return Ok(Status::Done);
    }
    if let Some(file) = file.named {
        let baseline = known(&file).map_err(|error| bad(&error))?;
        tell_unmet(baseline.apply(&mut report), &file, output);
    }
    let format =
        lint.format.unwrap_or(if output.is_document() { Format::Json } else { Format::Human });
    let text = match format {
        Format::Human => format::human(&report, colour(output)),
        Format::Json => format::json(&report)?,
        Format::Sarif => format::sarif(&report)?,
        Format::Github => format::github(&report),
    };
    output.print(&text)?;
    let failed = report.fails(lint.fail_on.into());
    Ok(if failed { Status::FoundProblems } else { Status::Done })
}

fn known(file: &Path) -> anyhow::Result<Baseline> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the baseline {}", file.display()))?;
    Baseline::parse(&text).with_context(|| format!("cannot use {}", file.display()))
}

fn tell_unmet(unmet: usize, file: &Path, output: &Output) {
    if unmet > 0 {
        let file = file.display();
        output
            .progress(&format!("{unmet} findings of {file} are gone; --write-baseline drops them"));
    }
}

fn explain(rule: &str, output: &Output) -> anyhow::Result<Status> {
    match promethean_lint::explain(rule) {
        Ok(description) => {
            output.result(&description, |description| description.doc.to_owned())?;
            Ok(Status::Done)
        }
        Err(nearest) => {
            let what = format!("there is no rule {rule:?}; did you mean {nearest}?");
            Err(Failure::usage(what).into())
        }
    }
}

fn list(output: &Output) -> anyhow::Result<Status> {
    let rules: Vec<_> = promethean_lint::rules().collect();
    output.result(&rules, |rules| {
        let line = |rule: &promethean_lint::RuleDescription| {
            let level = rule.default.severity().map_or("off", Severity::as_str);
            format!("{}  {:<20} {:<8} {}\n", rule.id, rule.name, level, rule.summary)
        };
        rules.iter().map(line).collect()
    })?;
    Ok(Status::Done)
}

fn colour(output: &Output) -> Colour {
    if output.paint().is_on() { Colour::Always } else { Colour::Never }
}
