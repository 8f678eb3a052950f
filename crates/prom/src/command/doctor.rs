//! `prom doctor`: what to put right before others rely on it.

use std::path::PathBuf;

use clap::Args;
use promethean_mongo::{Finding, MongoOptions, Verdict};
use serde::Serialize;

use super::{Status, place};
use crate::failure::Failure;
use crate::manifest::Severity;
use crate::output::{self, Output};

/// Look for what should be otherwise before others rely on this.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom doctor --production --store 'mongodb://db1,db2,db3/prom?replicaSet=prom'
  prom doctor --production --config prom.toml --json

Nothing is changed. Exits with 100 if something should be otherwise.")]
pub(crate) struct Doctor {
    /// By the measure of a deployment that must not lose anything.
    #[arg(long, required = true)]
    production: bool,
    #[command(flatten)]
    store: place::StoreFlags,
    /// The manifest; flags win over it [default: prom.toml of this directory, if it is there].
    #[arg(long, short = 'f', value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Report {
    /// How many things should be otherwise.
    problems: usize,
    findings: Vec<Shown>,
}

#[derive(Debug, Serialize)]
struct Shown {
    check: String,
    verdict: &'static str,
    text: String,
}

impl From<Finding> for Shown {
    fn from(finding: Finding) -> Self {
        let verdict = match finding.verdict {
            Verdict::Good => "good",
            Verdict::Unknown => "unknown",
            Verdict::Warning => "warning",
            Verdict::Error => "error",
        };
        Self { check: finding.check.to_owned(), verdict, text: finding.text }
    }
}

pub(crate) fn run(doctor: &Doctor, output: &Output) -> anyhow::Result<Status> {
    let manifest = super::server::manifest(doctor.config.as_deref())?;
    let url = place::mongodb(&doctor.store, manifest.as_ref())?.ok_or_else(|| {
        let what = "there is no MongoDB store to look at";
        let hint = "name it with --store, --store-file, or [store] kind = \"mongodb\" in prom.toml";
        Failure::usage(what).hint(hint)
    })?;
    let mut findings: Vec<Shown> = manifest
        .iter()
        .flat_map(|found| found.check())
        .map(|found| {
            let verdict = if found.severity == Severity::Error { "error" } else { "warning" };
            Shown { check: found.at, verdict, text: found.problem }
        })
        .collect();
    let examined = super::block_on(async {
        let examined = promethean_mongo::examine(&url, MongoOptions::default()).await;
        examined.map_err(|error| anyhow::Error::from(place::refused(&error)))
    })?;
    findings.extend(examined.into_iter().map(Shown::from));
    let is_problem = |shown: &&Shown| matches!(shown.verdict, "warning" | "error");
    let problems = findings.iter().filter(is_problem).count();
    let report = Report { problems, findings };
    output.result(&report, text)?;
    Ok(if problems > 0 { Status::FoundProblems } else { Status::Done })
}

fn text(report: &Report) -> String {
    let row = |shown: &Shown| {
        vec![shown.verdict.to_owned(), shown.check.clone(), output::plain(&shown.text)]
    };
    let rows: Vec<Vec<String>> = report.findings.iter().map(row).collect();
    let table = output::table(&["", "check", "found"], &rows);
    match report.problems {
        0 => format!("{table}\nnothing to put right"),
        many => format!("{table}\n{} to put right", output::count(many, "thing", "things")),
    }
}
