//! `prom get`: one event.

use clap::Args;
use promethean_event::{Event, Pattern};
use serde::Deserialize;

use super::Status;
use super::short_id::ShortId;
use crate::output::{self, Output};
use crate::reach::{Ask, At, Missing, Reach};

/// Show the event with an id; as JSON, ready for `prom pub TOPIC -`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom get 01a1e27c-651e-7436-8169-22c4b9e53898
  prom get b9e53898                                   by its end, if it is of the last day
  prom get b9e53898 --json | jq .payload")]
pub(crate) struct Get {
    /// The id, or its end, as `prom tail` shows it.
    id: ShortId,
    /// Look only in these topics.
    #[arg(long, value_name = "PATTERN")]
    topic: Option<Pattern>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Deserialize)]
struct Found {
    events: Vec<Event>,
}

pub(crate) fn run(get: Get, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let reach = get.at.open(Missing::Refuse).await?;
        let found = find(&get, &reach, output).await;
        reach.close().await;
        let found = found?;
        // The same id may stand in several topics: copies are told apart by theirs.
        for event in &found.events {
            output.record(event, described)?;
        }
        Ok(Status::Done)
    })
}

async fn find(get: &Get, reach: &Reach, output: &Output) -> anyhow::Result<Found> {
    let id = get.id.find(reach, output).await?;
    let ask = Ask::get(format!("/event/{id}")).query("topic", get.topic.as_ref());
    reach.json(ask).await.map_err(|error: anyhow::Error| error.context(format!("event {id}")))
}

fn described(event: &Event) -> String {
    let mut lines = vec![
        format!("event      {}", event.id),
        format!("position   {}/{}/{}", event.topic, event.partition, event.offset),
    ];
    let at = i64::try_from(event.ts.millis()).ok();
    let at = at.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    lines.push(format!("time       {}", at.map_or_else(String::new, |at| at.to_string())));
    lines.extend(
        event.key.as_ref().map(|key| format!("key        {}", output::plain(key.as_str()))),
    );
    lines.extend(
        event
            .headers
            .iter()
            .map(|(name, value)| format!("header     {name}: {}", output::plain(value))),
    );
    lines
        .extend(event.tags.iter().map(|tag| format!("tag        {}", output::plain(tag.as_str()))));
    lines.extend(event.caused_by.iter().map(|id| format!("caused by  {id}")));
    let payload = output::indented(event.payload.as_str());
    lines.push(format!("payload    {}", payload.replace('\n', "\n           ")));
    lines.join("\n")
}
