//! `prom job`: long work of a server.

use std::time::Duration;

use clap::{Args, Subcommand};
use promethean_event::EventId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Status;
use crate::clock;
use crate::output::{self, Output};
use crate::reach::{Ask, At, Reach};

/// Look at long-running jobs, and turn them.
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// List jobs, newest first.
    Ls(List),
    /// Show one job.
    Show(One),
    /// Let a job wait.
    Pause(One),
    /// Let a job that waits or has failed go on.
    Resume(One),
    /// Give a job up; what it has published stays.
    Cancel(One),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// Its id.
    id: EventId,
    #[command(flatten)]
    at: At,
}

/// A job as a server tells of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) id: String,
    state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    replay: Map<String, Value>,
    cursors: Vec<Cursor>,
    read: u64,
    published: u64,
    duplicates: u64,
    refused: u64,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Cursor {
    next: u64,
    end: u64,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
struct Jobs {
    jobs: Vec<Job>,
}

impl Job {
    fn left(&self) -> u64 {
        self.cursors.iter().map(|cursor| cursor.end.saturating_sub(cursor.next)).sum()
    }

    /// How long ago it began.
    fn started(&self) -> String {
        let at = self.more.get("started_at").and_then(Value::as_u64);
        let ago =
            |at| format!("{} ago", output::span(clock::timestamp().millis().saturating_sub(at)));
        at.map_or_else(|| "-".to_owned(), ago)
    }

    fn path(&self) -> String {
        let text = |name: &str| self.replay.get(name).and_then(Value::as_str);
        let to = match (text("to"), text("group")) {
            (Some(topic), _) => topic.to_owned(),
            (None, group) => format!("group {}", group.unwrap_or_default()),
        };
        format!("{} -> {to}", text("from").unwrap_or_default())
    }
}

pub(crate) fn run(command: JobCommand, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let (at, id, verb) = match &command {
            JobCommand::Ls(List { at }) => (at, None, ""),
            JobCommand::Show(One { id, at }) => (at, Some(id), ""),
            JobCommand::Pause(One { id, at }) => (at, Some(id), "/pause"),
            JobCommand::Resume(One { id, at }) => (at, Some(id), "/resume"),
            JobCommand::Cancel(One { id, at }) => (at, Some(id), "/cancel"),
        };
        let reach = at.open_workshop().await?;
        let done = match id {
            None => ls(&reach, output).await,
            Some(id) => turn(&reach, *id, verb, output).await,
        };
        reach.close().await;
        done
    })
}

async fn ls(reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let found: Jobs = reach.json(Ask::get("/jobs")).await?;
    output.list("jobs", &found.jobs, |jobs| {
        if jobs.is_empty() {
            return "no jobs; begin one with: prom replay".to_owned();
        }
        let rows: Vec<Vec<String>> = jobs
            .iter()
            .map(|job| {
                vec![
                    job.id.clone(),
                    job.path(),
                    job.state.clone(),
                    job.started(),
                    output::grouped(job.published),
                    output::grouped(job.left()),
                    job.error.as_deref().map(output::plain).unwrap_or_default(),
                ]
            })
            .collect();
        output::table(&["JOB", "REPLAY", "STATE", "STARTED", "PUBLISHED", "LEFT", "ERROR"], &rows)
    })?;
    Ok(Status::Done)
}

async fn turn(reach: &Reach, id: EventId, verb: &str, output: &Output) -> anyhow::Result<Status> {
    let path = format!("/jobs/{id}{verb}");
    let ask = if verb.is_empty() { Ask::get(path) } else { Ask::post(path) };
    let job: Job = reach.json(ask).await?;
    // A directory has nobody else to do the work.
    if verb == "/resume" && matches!(reach, Reach::Here(_)) {
        return progress(reach, job, output).await;
    }
    output.record(&job, shown)?;
    Ok(Status::Done)
}

pub(super) fn shown(job: &Job) -> String {
    let mut lines = vec![
        format!("job        {}", job.id),
        format!("replay     {}", job.path()),
        format!("state      {}", job.state),
    ];
    lines.extend(job.error.as_deref().map(|error| format!("error      {}", output::plain(error))));
    for (name, count) in [
        ("read", job.read),
        ("published", job.published),
        ("there", job.duplicates),
        ("refused", job.refused),
        ("left", job.left()),
    ] {
        lines.push(format!("{name:<10} {}", output::grouped(count)));
    }
    lines.join("\n")
}

/// Waits for the end of a job; Ctrl-C leaves it to the server.
pub(super) async fn progress(reach: &Reach, job: Job, output: &Output) -> anyhow::Result<Status> {
    let total = job.left() + job.read;
    let bar = output.bar(Some(total), &job.path());
    let mut job = job;
    while job.state == "running" {
        tokio::time::sleep(Duration::from_millis(100)).await;
        job = reach.json(Ask::get(format!("/jobs/{}", job.id))).await?;
        bar.set_position(total.saturating_sub(job.left()));
    }
    bar.finish_and_clear();
    output.record(&job, shown)?;
    Ok(match job.state.as_str() {
        "failed" => Status::Failed,
        _ if job.refused > 0 => Status::Partial,
        _ => Status::Done,
    })
}
