//! `prom audit`: who administrated what, who was refused, and whether that is what was written.

use std::path::Path;

use anyhow::Context;
use clap::{Args, Subcommand};
use promethean_event::EventId;
use promethean_gateway::audit::{ChainHead, Verdict, Verifier};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Status;
use crate::output::{self, Output};
use crate::reach::{Ask, At, Missing, Reach};
use crate::times::moment;

/// Show the audit log: who changed what, and who was refused.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: Option<AuditCommand>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Read the whole log, and say whether a record was changed or taken out; the first one that
    /// was is named, and the exit code is 100.
    Verify(Verify),
}

#[derive(Debug, Args)]
struct List {
    /// So many of the newest.
    #[arg(long, short = 'n', default_value_t = 100, value_name = "NUMBER",
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    last: u16,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
struct Verify {
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Deserialize)]
struct Page {
    records: Vec<Row>,
    missing: Vec<Gap>,
    next: Option<u64>,
    chains: Vec<ChainHead>,
}

/// A record as it is stored: verified, and shown to programs, byte by byte.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    offset: u64,
    record: Box<RawValue>,
}

#[derive(Debug, Deserialize)]
struct Gap {
    from: u64,
    to: u64,
    reason: String,
}

pub(crate) fn run(wish: Audit, output: &Output) -> anyhow::Result<Status> {
    let at = match &wish.command {
        Some(AuditCommand::Verify(verify)) => verify.at.clone(),
        None => wish.list.at.clone(),
    };
    super::block_on(async move {
        let reach = at.open(Missing::Refuse).await?;
        let done = match wish.command {
            Some(AuditCommand::Verify(_)) => verify(&reach, output).await,
            None => list(&reach, wish.list.last, output).await,
        };
        reach.close().await;
        done
    })
}

async fn list(reach: &Reach, last: u16, output: &Output) -> anyhow::Result<Status> {
    let mut page: Page = reach.json(Ask::get("/audit").query("limit", Some(last))).await?;
    page.records.reverse();
    output.list("records", &page.records, table)?;
    Ok(Status::Done)
}

fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "nothing was administrated yet, and nobody refused".to_owned();
    }
    let shown: Vec<Vec<String>> = rows.iter().flat_map(lines).collect();
    output::table(&["TIME", "WHO", "ACTION", "WHAT", "OUTCOME"], &shown)
}

/// One line of a record, or one of each kind of refusal that it sums up.
fn lines(row: &Row) -> Vec<Vec<String>> {
    let record: Value = serde_json::from_str(row.record.get()).unwrap_or_default();
    if let Some(refused) = member(&record, "/about/refused").as_array() {
        return summed_up(&record, refused);
    }
    let code = member(&record, "/code").as_str().map(|code| format!(": {code}"));
    let what = match member(&record, "/resource") {
        Value::String(_) => text(&record, "/resource"),
        _ => output::plain(&member(&record, "/about").to_string()),
    };
    let outcome = format!("{}{}", text(&record, "/outcome"), code.unwrap_or_default());
    let (subject, action) = (text(&record, "/subject"), text(&record, "/action"));
    vec![vec![time(&record, "/at"), subject, action, what, outcome]]
}

fn summed_up(record: &Value, refused: &[Value]) -> Vec<Vec<String>> {
    let line = |line: &Value| {
        let who = if member(line, "/subject").is_string() { "/subject" } else { "/peer" };
        let often = format!("{} times: {}", member(line, "/count"), text(line, "/code"));
        vec![time(line, "/last"), text(line, who), text(line, "/action"), "-".into(), often]
    };
    let mut lines: Vec<Vec<String>> = refused.iter().map(line).collect();
    let others = member(record, "/about/others");
    if others.as_u64().is_some_and(|others| others > 0) {
        let often = format!("{others} times");
        lines.push(vec![time(record, "/at"), "others".into(), "-".into(), "-".into(), often]);
    }
    lines
}

/// What is there under a JSON pointer; null if nothing is.
fn member<'a>(of: &'a Value, pointer: &str) -> &'a Value {
    of.pointer(pointer).unwrap_or(&Value::Null)
}

fn text(of: &Value, pointer: &str) -> String {
    output::plain(member(of, pointer).as_str().unwrap_or("-"))
}

fn time(of: &Value, pointer: &str) -> String {
    moment(member(of, pointer).as_u64().unwrap_or_default())
}

async fn verify(reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let mut verifier = Verifier::default();
    let mut heads: Option<Vec<ChainHead>> = None;
    let mut from = Some(0);
    while let Some(place) = from {
        let ask = Ask::get("/audit").query("from", Some(place)).query("limit", Some(1_000));
        let page: Page = reach.json(ask).await?;
        // Of the first page: what was noted before the walk began has to be met on it.
        heads.get_or_insert(page.chains);
        let mut gaps = page.missing.into_iter().peekable();
        for row in page.records {
            while let Some(gap) = gaps.next_if(|gap| gap.from < row.offset) {
                see_gap(&mut verifier, &gap);
            }
            verifier.see(row.offset, row.record.get());
        }
        gaps.for_each(|gap| see_gap(&mut verifier, &gap));
        from = page.next;
    }
    let verdict = verifier.end(&heads.unwrap_or_default());
    output.record(&verdict, told)?;
    Ok(if verdict.faults.is_empty() { Status::Done } else { Status::FoundProblems })
}

fn see_gap(verifier: &mut Verifier, gap: &Gap) {
    if gap.reason == "retention" && gap.from == 0 {
        verifier.begins_later();
    } else {
        verifier.damaged(gap.from, gap.to);
    }
}

fn told(verdict: &Verdict) -> String {
    let count = |number: u64| {
        output::count(usize::try_from(number).unwrap_or(usize::MAX), "record", "records")
    };
    let mut lines = Vec::new();
    for chain in &verdict.chains {
        let begins = match chain.first {
            1 => String::new(),
            first => format!("; what was before {first} is not kept any more, and unknown"),
        };
        lines.push(format!("chain {}: {} to {}{begins}", chain.chain, chain.first, chain.last));
    }
    match verdict.faults.as_slice() {
        [] => lines.push(format!("{} as they were written", count(verdict.records))),
        [first, others @ ..] => {
            lines.push(format!("not as it was written: {first}"));
            if !others.is_empty() {
                let more = output::count(others.len(), "other fault", "other faults");
                lines.push(format!("and {more}; all of them with --json"));
            }
        }
    }
    lines.join("\n")
}

/// The chain of a hub: made once, then kept in its directory.
pub(super) fn chain(data: &Path) -> anyhow::Result<String> {
    let file = data.join("audit-chain");
    if !file.exists() {
        let name = EventId::generate().to_string();
        super::write_private(&file, format!("hub-{name}\n").as_bytes())?;
    }
    let name = std::fs::read_to_string(&file);
    let name = name.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(name.trim().to_owned())
}
