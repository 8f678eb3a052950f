//! `prom view`: what topics have become.

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::Status;
use crate::consent::{Consent, Harm};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::reach::{Ask, At, Reach, segment};

/// Look at views, build them anew, check them.
#[derive(Debug, Subcommand)]
pub(crate) enum ViewCommand {
    /// List views and how they stand. Exit code 100 if one has failed.
    Ls(List),
    /// Show the document of a key; without a key, the view itself.
    Get(Get),
    /// List documents by declared fields.
    List(Documents),
    /// Build a view anew beside the live one, and switch.
    Rebuild(Rebuild),
    /// Compare a view with what the log says it should be. Exit code 100 if it differs.
    Verify(Named),
    /// Bring a view to the end of the log, from the newest event of each key if it is far behind.
    Warm(Named),
    /// Let a view that has failed try again, once its reason is gone.
    Resume(Named),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The view.
    view: String,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The view.
    view: String,
    /// The key.
    key: Option<String>,
    /// In the form of this version of the topic's schema.
    #[arg(long, value_name = "VERSION")]
    reads: Option<u32>,
    /// Wait until this position (topic/partition/offset) is in the view, to read one's own writes.
    #[arg(long, value_name = "POSITION")]
    min_position: Option<String>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom view list processes status=alive cpu_pct.ge=50 --sort -cpu_pct
  prom view list processes host=dev --limit 10")]
pub(crate) struct Documents {
    /// The view.
    view: String,
    /// Conditions on declared fields: FIELD=VALUE, or FIELD.OP=VALUE with eq, ne, lt, le, gt, ge.
    #[arg(value_name = "FIELD[.OP]=VALUE")]
    conditions: Vec<String>,
    /// Sort by a field, `_key` or `_ts`; `-` before it for the greatest first.
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
    sort: Option<String>,
    /// So many documents at most.
    #[arg(long, short = 'c', value_name = "COUNT", default_value_t = 1_000)]
    limit: usize,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Rebuild {
    /// The view.
    view: String,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    at: At,
}

pub(crate) fn run(command: ViewCommand, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let at = match &command {
            ViewCommand::Ls(List { at })
            | ViewCommand::Get(Get { at, .. })
            | ViewCommand::List(Documents { at, .. })
            | ViewCommand::Rebuild(Rebuild { at, .. })
            | ViewCommand::Verify(Named { at, .. })
            | ViewCommand::Warm(Named { at, .. })
            | ViewCommand::Resume(Named { at, .. }) => at,
        };
        let reach = at.open_workshop().await?;
        let done = match &command {
            ViewCommand::Ls(_) => ls(&reach, output).await,
            ViewCommand::Get(wish) => get(wish, &reach, output).await,
            ViewCommand::List(wish) => list(wish, &reach, output).await,
            ViewCommand::Rebuild(wish) => rebuild(wish, &reach, output).await,
            ViewCommand::Verify(wish) => verify(wish, &reach, output).await,
            ViewCommand::Warm(wish) => act(wish, "warm", &reach, output).await,
            ViewCommand::Resume(wish) => act(wish, "resume", &reach, output).await,
        };
        reach.close().await;
        done
    })
}

#[derive(Debug, Deserialize)]
struct Standings {
    views: Vec<Standing>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Standing {
    view: String,
    state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    lag: u64,
    events: u64,
    topics: Vec<String>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

async fn ls(reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let found: Standings = reach.json(Ask::get("/views")).await?;
    let views = found.views;
    output.list("views", &views, |views| {
        if views.is_empty() {
            return "no views; declare them in prom.toml as [views.NAME]".to_owned();
        }
        let rows: Vec<Vec<String>> = views
            .iter()
            .map(|view| {
                vec![
                    view.view.clone(),
                    view.topics.join(", "),
                    view.state.clone(),
                    output::grouped(view.events),
                    output::grouped(view.lag),
                    view.error.as_deref().map(output::plain).unwrap_or_default(),
                ]
            })
            .collect();
        output::table(&["VIEW", "TOPIC", "STATE", "EVENTS", "LAG", "ERROR"], &rows)
    })?;
    let failed = views.iter().find(|view| view.state == "failed");
    if let Some(view) = failed {
        let flag = reach.flag();
        output.hint(&format!("mend the reason, then: prom view resume {}{flag}", view.view));
        return Ok(Status::FoundProblems);
    }
    Ok(Status::Done)
}

async fn get(wish: &Get, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let Some(key) = &wish.key else {
        return describe(&wish.view, reach, output).await;
    };
    let ask = Ask::get(format!("/views/{}/snap/{}", segment(&wish.view), segment(key)))
        .query("version", wish.reads)
        .query("min_position", wish.min_position.as_ref());
    let document: Box<RawValue> = reach.json(ask).await?;
    match output.is_text() {
        true => output.print(&output::indented(document.get()))?,
        false => {
            output.record(&serde_json::from_str::<Value>(document.get())?, Value::to_string)?
        }
    }
    Ok(Status::Done)
}

async fn describe(name: &str, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let found: Standings = reach.json(Ask::get("/views")).await?;
    let Some(view) = found.views.into_iter().find(|view| view.view == name) else {
        let failure = Failure::new(Status::NotFound, format!("there is no view {name}"));
        return Err(failure.hint("list them with: prom view ls").into());
    };
    output.record(&view, |view| {
        let of = |value: &Value, name: &str| {
            value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let listed = |name: &str, said: &dyn Fn(&Value) -> String| {
            let values = view.more.get(name).and_then(Value::as_array);
            let said: Vec<String> = values.into_iter().flatten().map(said).collect();
            if said.is_empty() { "-".to_owned() } else { said.join(", ") }
        };
        let columns = |index: &Value| {
            let columns = index.as_array().into_iter().flatten().filter_map(Value::as_str);
            format!("({})", columns.collect::<Vec<_>>().join(", "))
        };
        let mut lines = vec![
            view.view.clone(),
            format!("  topics      {}", view.topics.join(", ")),
            format!(
                "  fields      {}",
                listed("fields", &|field| {
                    format!("{} {}", of(field, "name"), of(field, "kind"))
                })
            ),
            format!("  indexes     {}", listed("indexes", &columns)),
            format!("  state       {}", view.state),
            format!("  events      {}", output::grouped(view.events)),
            format!("  lag         {}", output::grouped(view.lag)),
        ];
        lines
            .extend(view.error.as_ref().map(|why| format!("  error       {}", output::plain(why))));
        lines.join("\n")
    })?;
    output.hint(&format!("see what is in it: prom view list {name}{}", reach.flag()));
    Ok(Status::Done)
}

#[derive(Debug, Deserialize)]
struct Page {
    documents: Vec<Map<String, Value>>,
    next: Option<String>,
}

async fn list(wish: &Documents, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let mut documents = Vec::new();
    let mut page: Option<String> = None;
    while documents.len() < wish.limit {
        let mut ask = Ask::get(format!("/views/{}/list", segment(&wish.view)))
            .query("sort", wish.sort.as_ref())
            .query("limit", Some((wish.limit - documents.len()).clamp(1, 1_000)))
            .query("page", page.as_ref());
        for condition in &wish.conditions {
            let Some((name, value)) = condition.split_once('=') else {
                let what = format!("{condition:?} is no condition");
                let hint = "write it like status=alive or pid.ge=100";
                return Err(Failure::usage(what).hint(hint).into());
            };
            ask = ask.query(name, Some(value));
        }
        let found: Page = reach.json(ask).await?;
        documents.extend(found.documents);
        page = found.next;
        if page.is_none() {
            break;
        }
    }
    documents.truncate(wish.limit);
    output.list("documents", &documents, |documents| {
        if documents.is_empty() { "no documents".to_owned() } else { tabled(documents) }
    })?;
    Ok(Status::Done)
}

/// The members of the first documents as columns.
fn tabled(documents: &[Map<String, Value>]) -> String {
    let mut columns: Vec<&str> = vec!["_key"];
    for name in documents.iter().take(20).flat_map(Map::keys) {
        if !columns.contains(&name.as_str()) && !["_ts", "_pos"].contains(&name.as_str()) {
            columns.push(name);
        }
    }
    columns.truncate(10);
    let cell = |value: Option<&Value>| match value {
        None => String::new(),
        Some(Value::String(text)) => output::plain(text),
        Some(other) => {
            let text: String = other.to_string().chars().take(40).collect();
            output::plain(&text)
        }
    };
    let rows: Vec<Vec<String>> = documents
        .iter()
        .map(|document| columns.iter().map(|name| cell(document.get(*name))).collect())
        .collect();
    output::table(&columns, &rows)
}

async fn rebuild(wish: &Rebuild, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let view = &wish.view;
    let path = format!("/views/{}", segment(view));
    let standing: Standing = reach.json(Ask::get(path.clone())).await?;
    let events = output::grouped(standing.events + standing.lag);
    output.progress(&format!(
        "{view} is built anew from {} ({events} events), beside the live one, which is read meanwhile",
        standing.topics.join(", ")
    ));
    if !wish.consent.given(Harm::Moderate, output)? {
        return Ok(Status::Done);
    }
    let bar = output.bar(Some(standing.events + standing.lag), view);
    let building = reach.json::<Value>(Ask::post(format!("{path}/rebuild")));
    let looking = async {
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            // A bar that stands still is no reason to fail.
            if let Ok(now) = reach.json::<Standing>(Ask::get(path.clone())).await
                && let Some(done) = now.more.get("rebuilding").and_then(|r| r.get("done")?.as_u64())
            {
                bar.set_position(done);
            }
        }
    };
    let rebuilt: Value = tokio::select! {
        rebuilt = building => rebuilt?,
        () = looking => return Ok(Status::Failed),
    };
    bar.finish_and_clear();
    output.record(&rebuilt, |_| format!("{view} was built anew"))?;
    Ok(Status::Done)
}

async fn verify(wish: &Named, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let ask = Ask::post(format!("/views/{}/verify", segment(&wish.view)));
    let found: Value = reach.json(ask).await?;
    let different = found.get("different").and_then(Value::as_u64).unwrap_or(0);
    output.record(&found, |found| {
        let documents = found.get("documents").and_then(Value::as_u64).unwrap_or(0);
        if different == 0 {
            return format!("{} documents are what the log says", output::grouped(documents));
        }
        let mut lines = vec![format!(
            "{} of {} documents are not what the log says:",
            output::grouped(different),
            output::grouped(documents)
        )];
        for one in found.get("differences").and_then(Value::as_array).into_iter().flatten().take(20)
        {
            lines.push(output::plain(&one.to_string()));
        }
        lines.join("\n")
    })?;
    if different == 0 {
        return Ok(Status::Done);
    }
    let missed = found.get("missed").and_then(Value::as_u64).unwrap_or(0);
    output.hint(&advice(missed, &format!("{}{}", wish.view, reach.flag())));
    Ok(Status::FoundProblems)
}

/// What to do about documents that are not what the log says. A log that has lost events is not
/// right against a view that has counted them.
fn advice(missed: u64, view: &str) -> String {
    let rebuild = format!("prom view rebuild {view}");
    match missed {
        0 => format!("build it anew: {rebuild}"),
        _ => format!(
            "{} events are gone from the log, by retention or compaction, and the differences may \
             be theirs; {rebuild} would count what is left",
            output::grouped(missed)
        ),
    }
}

async fn act(wish: &Named, verb: &str, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let done: Value =
        reach.json(Ask::post(format!("/views/{}/{verb}", segment(&wish.view)))).await?;
    output.record(&done, |done| match verb {
        "warm" => {
            let read = done.get("read").and_then(Value::as_u64).unwrap_or(0);
            format!("{} is up to date; it was {} events behind", wish.view, output::grouped(read))
        }
        _ => format!("{} tries again; see: prom view ls", wish.view),
    })?;
    Ok(Status::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To build anew what has counted events that are gone would lose them a second time.
    #[test]
    fn what_is_gone_from_the_log_is_no_fault_of_the_view() {
        assert_eq!(advice(0, "stats"), "build it anew: prom view rebuild stats");
        let said = advice(1_200, "stats --data d");
        assert!(said.starts_with("1\u{202f}200 events are gone from the log"), "{said}");
        assert!(said.ends_with("prom view rebuild stats --data d would count what is left"));
    }
}
