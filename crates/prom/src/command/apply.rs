//! `prom plan`, `prom apply` and `prom check config`: the manifest against a bus, and by itself.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use promethean_event::GroupName;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Status, topic};
use crate::consent::{Consent, Harm};
use crate::failure::Failure;
use crate::manifest::{
    self, Existing, Finding, Manifest, ManifestError, Plan as Steps, Severity, Step,
};
use crate::output::{self, Output, Paint};
use crate::reach::{Ask, At, Missing, Reach, segment};

/// Say what `prom apply` would do.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    named: Named,
    /// Exit with 100 if there is something to do.
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    at: At,
}

/// Make topics and groups as the manifest says. Doing it again changes nothing.
#[derive(Debug, Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
struct Named {
    /// The manifest [default: prom.toml of this directory].
    #[arg(long, short = 'f', value_name = "FILE")]
    config: Option<PathBuf>,
    /// Also remove topics and groups that it does not name.
    #[arg(long)]
    prune: bool,
}

/// Check things without changing any.
#[derive(Debug, Subcommand)]
pub(crate) enum CheckCommand {
    /// Check a manifest. Exits with 0 if it is good, 1 with warnings, 2 with errors, 3 if there is
    /// none.
    Config(CheckConfig),
}

#[derive(Debug, Args)]
pub(crate) struct CheckConfig {
    /// The manifest [default: prom.toml of this directory].
    file: Option<PathBuf>,
    /// The same, as `prom plan` and `prom apply` take it.
    #[arg(long, short = 'f', value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
}

impl Named {
    fn read(&self) -> anyhow::Result<Manifest> {
        let found = Manifest::find(self.config.as_deref()).map_err(Failure::from)?;
        let manifest = found.ok_or_else(|| {
            none()
                .hint("name one with --config FILE; docs/reference/config.md shows what it can say")
        })?;
        let errors: Vec<Finding> = manifest
            .check()
            .into_iter()
            .filter(|found| found.severity == Severity::Error)
            .collect();
        if let Some(first) = errors.first() {
            let what = format!("{}: {}: {}", manifest.path.display(), first.at, first.problem);
            let hint = "see everything with: prom check config";
            return Err(Failure::new(Status::Misconfigured, what).hint(hint).into());
        }
        Ok(manifest)
    }
}

fn none() -> Failure {
    Failure::new(Status::NotFound, "there is no prom.toml here")
}

/// Checks exit as plugins of monitors do, to which 3 is what cannot be said.
fn unknown(failure: Failure) -> Failure {
    Failure { status: Status::Unreachable, ..failure }
}

pub(crate) fn check(command: &CheckCommand, output: &Output) -> anyhow::Result<Status> {
    let CheckCommand::Config(check) = command;
    let named = check.file.as_deref().or(check.config.as_deref());
    let findings = match Manifest::find(named) {
        Ok(Some(manifest)) => {
            output.progress(&manifest.summary());
            manifest.check()
        }
        Ok(None) => return Err(unknown(none().hint("name one: prom check config FILE")).into()),
        Err(error @ ManifestError::Read { .. }) => return Err(unknown(error.into()).into()),
        Err(first @ ManifestError::Wrong { .. }) => {
            let all = manifest::problems(named, first);
            all.into_iter().filter_map(ManifestError::finding).collect()
        }
    };
    output.list("findings", &findings, |findings| {
        let paint = output.paint();
        let line = |found: &Finding| {
            let severity = match found.severity {
                Severity::Error => paint.bad("error"),
                Severity::Warning => paint.strong("warning"),
            };
            format!("{severity}: {}: {}", found.at, found.problem)
        };
        let lines: Vec<String> = findings.iter().map(line).collect();
        if lines.is_empty() { paint.good("good") } else { lines.join("\n") }
    })?;
    Ok(match findings.iter().map(|found| found.severity).max() {
        None => Status::Done,
        Some(Severity::Warning) => Status::Failed,
        Some(Severity::Error) => Status::Usage,
    })
}

pub(crate) fn plan(wish: Plan, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let manifest = wish.named.read()?;
        let reach = wish.at.open(Missing::Make).await?;
        let steps = steps(&manifest, &reach, wish.named.prune).await;
        let place = reach.place();
        reach.close().await;
        let steps = steps?;
        output.record(&steps, |steps| described(steps, &place, output.paint()))?;
        let differs = wish.exit_code && !steps.steps.is_empty();
        Ok(if differs { Status::FoundProblems } else { Status::Done })
    })
}

pub(crate) fn apply(wish: Apply, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let manifest = wish.named.read()?;
        let reach = wish.at.open(Missing::Make).await?;
        let done = apply_plan(&wish, &manifest, &reach, output).await;
        reach.close().await;
        done
    })
}

async fn apply_plan(
    wish: &Apply,
    manifest: &Manifest,
    reach: &Reach,
    output: &Output,
) -> anyhow::Result<Status> {
    let plan = steps(manifest, reach, wish.named.prune).await?;
    output.progress(&described(&plan, &reach.place(), output.aside()));
    if plan.steps.is_empty() {
        return Ok(Status::Done);
    }
    if let Some(obstacle) = plan.steps.iter().find_map(Step::obstacle) {
        return Err(Failure::new(Status::Conflict, obstacle).hint("nothing was changed").into());
    }
    // What deletes is confirmed by the name of what it is deleted from.
    let name = manifest.path.display().to_string();
    let harm =
        if plan.destroys() || reach.is_protected() { Harm::Severe(&name) } else { Harm::Moderate };
    let only_adds =
        plan.steps.iter().all(|step| matches!(step, Step::AddTopic { .. } | Step::AddGroup { .. }));
    let agreed = only_adds && !wish.consent.is_dry_run() && !reach.is_protected();
    if !agreed && !wish.consent.given(harm, output)? {
        return Ok(Status::Done);
    }
    for step in &plan.steps {
        perform(reach, step).await?;
    }
    output.record(&json!({ "applied": plan.steps.len() }), |_| {
        format!("applied {}", output::count(plan.steps.len(), "step", "steps"))
    })?;
    Ok(Status::Done)
}

#[derive(Debug, Deserialize)]
struct Lags {
    groups: Vec<NamedGroup>,
}

#[derive(Debug, Deserialize)]
struct NamedGroup {
    group: GroupName,
}

#[derive(Debug, Deserialize)]
struct ShownGroup {
    settings: Map<String, Value>,
    members: u64,
}

/// What has to happen so that the bus is as the manifest says.
pub(super) async fn steps(
    manifest: &Manifest,
    reach: &Reach,
    prune: bool,
) -> anyhow::Result<Steps> {
    let topics = topic::topics(reach, None).await?;
    let topics = topics.into_iter().map(|one| (one.topic, (one.rules, one.events))).collect();
    let mut groups = BTreeMap::new();
    for NamedGroup { group } in reach.json::<Lags>(Ask::get("/lag")).await?.groups {
        let ask = Ask::get(format!("/groups/{}", segment(group.as_str())));
        let ShownGroup { settings, members } = reach.json(ask).await?;
        groups.insert(group, (settings, members));
    }
    Ok(Steps::of(&manifest.document, &Existing { topics, groups }, prune))
}

pub(super) async fn perform(reach: &Reach, step: &Step) -> anyhow::Result<()> {
    match step {
        Step::AddTopic { topic, rules } | Step::SetTopic { topic, rules, .. } => {
            topic::define(reach, topic, rules).await?;
        }
        Step::RemoveTopic { topic, .. } => topic::remove(reach, topic).await?,
        Step::AddGroup { group, settings, from } => {
            let body = json!({ "settings": settings, "from": from });
            let path = format!("/groups/{}", segment(group.as_str()));
            reach.json::<Value>(Ask::post(path).json(&body)).await?;
        }
        Step::SetGroup { group, settings, .. } => {
            let path = format!("/groups/{}", segment(group.as_str()));
            reach.json::<Value>(Ask::post(path).json(&json!({ "settings": settings }))).await?;
        }
        Step::RemoveGroup { group } => {
            let path = format!("/groups/{}", segment(group.as_str()));
            reach.json::<Value>(Ask::delete(path)).await?;
        }
        Step::CannotSetTopic { .. } => {}
    }
    Ok(())
}

pub(super) fn described(plan: &Steps, place: &str, paint: Paint) -> String {
    if plan.steps.is_empty() {
        return format!("{place} is as the manifest says");
    }
    let mut lines =
        vec![format!("Plan: {} at {place}", output::count(plan.steps.len(), "step", "steps"))];
    for step in &plan.steps {
        lines.push(match step {
            Step::AddTopic { topic, rules } => {
                let partitions =
                    output::count(rules.partitions as usize, "partition", "partitions");
                format!("  + topic {topic}   {partitions}, keeps {}", rules.keeps())
            }
            Step::SetTopic { topic, differences, .. } => {
                let lines = topic::plan_lines(differences, paint);
                format!("  ~ topic {topic}\n  {}", lines.replace('\n', "\n  "))
            }
            Step::CannotSetTopic { topic, from, to } => {
                let from = output::count(*from as usize, "partition", "partitions");
                format!("  ! topic {topic}   {from} cannot become {to}")
            }
            Step::RemoveTopic { topic, events } => {
                let events = output::count(*events as usize, "event", "events");
                paint.bad(&format!("  - topic {topic}   with {events}"))
            }
            Step::AddGroup { group, .. } => format!("  + group {group}"),
            Step::SetGroup { group, differences, .. } => {
                format!("  ~ group {group}\n    {}", differences.join("\n    "))
            }
            Step::RemoveGroup { group } => paint.bad(&format!("  - group {group}")),
        });
    }
    lines.join("\n")
}
