use futures_util::FutureExt;
use promethean::SchemaVersion;
use promethean::schema::{
    CompareOptions, Document, HistoryReport, OpenObjects, Verdict, check_history,
};
use promethean_event::Topic;
use serde::Serialize;

use super::super::endpoint::Endpoint;
use super::refusal::Trouble;
use super::subjects::named;
use super::{Call, Given, answered, asks, topic};

const QUERY: &[&str] = &["verbose", "normalize"];

pub(super) const ENDPOINTS: [Endpoint; 2] = [
    asks(
        "/compatibility/subjects/{subject}/versions",
        QUERY,
        "Whether a schema could be the next version, as Confluent's tools ask.",
        |call| answered(with_all(call)).boxed(),
    ),
    asks(
        "/compatibility/subjects/{subject}/versions/{version}",
        QUERY,
        "Whether a schema is compatible with a version, as Confluent's tools ask.",
        |call| answered(with_one(call)).boxed(),
    ),
];

#[derive(Serialize)]
struct Answer {
    is_compatible: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Vec<String>>,
}

async fn with_all(call: Call) -> Result<Answer, Trouble> {
    let topic = topic(&call).await?;
    // Anything can be the first version.
    let history = call.edge.bus.schemas().versions(&topic).await?;
    judge(call, &topic, &history).await
}

async fn with_one(call: Call) -> Result<Answer, Trouble> {
    let topic = topic(&call).await?;
    let version = named(&call, &topic).await?;
    judge(call, &topic, &[version]).await
}

async fn judge(
    mut call: Call,
    topic: &Topic,
    history: &[SchemaVersion],
) -> Result<Answer, Trouble> {
    let document = Given::read(&mut call).await?.document()?;
    let policy = call.edge.bus.schemas().policy(topic).await?;
    let open_objects = if policy.strict { OpenObjects::Strict } else { OpenObjects::Lenient };
    let options = CompareOptions { open_objects, ..CompareOptions::default() };
    let history: Vec<Document> = history.iter().map(|version| version.document.clone()).collect();
    // Takes its time: not on a thread that others wait for.
    let judging = tokio::task::spawn_blocking(move || {
        check_history(&document, &history, policy.compat, &options)
    });
    let report = match judging.await {
        Ok(report) => report.map_err(|error| Trouble::new(50001, error.to_string()))?,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    };
    let is_compatible = report.verdict().is_compatible();
    let verbose = call.query.text("verbose") == Some("true");
    Ok(Answer { is_compatible, messages: verbose.then(|| messages(&report)) })
}

fn messages(report: &HistoryReport) -> Vec<String> {
    let mut messages = Vec::new();
    for pair in &report.pairs {
        match &pair.verdict {
            Verdict::Compatible { .. } => {}
            Verdict::Incompatible { findings } => {
                messages.extend(findings.iter().map(|finding| {
                    let (rule, example) = (finding.rule.id(), &finding.counter_example);
                    format!(
                        "{rule} {} at '{}', for example {example}",
                        finding.message, finding.pointer
                    )
                }));
            }
            Verdict::Undecided { construct, pointer } => {
                messages.push(format!("undecided: {construct} at '{pointer}'"));
            }
        }
    }
    messages
}
