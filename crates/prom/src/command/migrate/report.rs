//! What is said of a move.

use promethean::migration::{self, MigrationPlan, MigrationReport};
use serde_json::json;

use super::side::{Place, Side};
use crate::command::Status;
use crate::failure::Failure;
use crate::output::{self, Output};

pub(super) fn refused(error: &migration::MigrateError) -> anyhow::Error {
    use migration::MigrateError as E;
    let status = match error {
        E::NotEmpty(_) | E::Another { .. } => Status::Conflict,
        E::Differs(_) => Status::FoundProblems,
        _ => Status::Failed,
    };
    let failure = Failure::new(status, error.to_string());
    match status {
        Status::Failed => failure.hint("run the command again: it goes on where it was").into(),
        Status::FoundProblems => {
            failure.hint("the source is as it was; see that nobody writes to either side").into()
        }
        _ => failure.into(),
    }
}

pub(super) fn described(plan: &MigrationPlan, (from, to): (&Place, &Place)) -> String {
    let offsets: u64 = plan.topics.iter().map(|topic| topic.offsets).sum();
    let there: u64 = plan.topics.iter().map(|topic| topic.there).sum();
    let mut lines = vec![format!("Plan: move {} to {}", from.name(), to.name())];
    let topics = output::count(plan.topics.len(), "topic", "topics");
    lines.push(format!("  {topics} with up to {} events", output::grouped(offsets)));
    if there > 0 {
        lines.push(format!("  of these, {} are there already", output::grouped(there)));
    }
    lines.push(format!(
        "  {} with cursors and attempts",
        output::count(usize::try_from(plan.groups).unwrap_or(usize::MAX), "group", "groups")
    ));
    for (space, count) in &plan.entries {
        lines.push(format!("  {count} of `{space}`"));
    }
    lines.push("  tokens; views are built anew by the server of the target".to_owned());
    lines.push(format!("  afterwards {} is closed, and what it holds stays", from.name()));
    lines.join("\n")
}

pub(super) fn told(
    report: &MigrationReport,
    tokens: usize,
    (from, to): (&Side, &Side),
    output: &Output,
) -> anyhow::Result<()> {
    let hash = format!("{:032x}", report.hash);
    let shown = json!({
        "state": "moved", "from": from.name, "to": to.name, "topics": report.topics,
        "events": report.events, "groups": report.groups, "entries": report.entries,
        "tokens": tokens, "hash": hash, "let_go": report.let_go,
    });
    output.record(&shown, |_| {
        format!(
            "moved and compared: {} events of {} topics, {} groups, {} entries, {tokens} tokens\n\
             content hash {hash}, the same on both sides",
            output::grouped(report.events),
            report.topics,
            report.groups,
            report.entries
        )
    })?;
    let flag = match &to.directory {
        Some(directory) => format!("--data {}", directory.display()),
        None => "--store-file FILE".to_owned(),
    };
    output.progress(&format!("start its server: prom serve {flag}"));
    output.progress(&format!(
        "{} is closed; to use it after all: prom migrate --abandon --from ...",
        from.name
    ));
    Ok(())
}
