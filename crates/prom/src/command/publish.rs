//! `prom pub`: one event, or as many as standard input has lines.

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal};
use std::path::Path;

use anyhow::Context;
use clap::Args;
use promethean_event::limits::FRAME_EVENTS_MAX;
use promethean_event::{EventId, Topic};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::sending::{BATCH_BYTES, Receipt, Sender};
use super::{Status, stop_signal};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::reach::{At, Missing, Reach};
use crate::times;

/// Publish events, and say where they are once they are durable.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom pub orders.placed '{\"total\": 12.5}' --key customer-7
  prom pub orders.placed @order.json -H x-source:shop
  prom pub customer.state --null --key customer-7      a tombstone: the key is gone
  printf '%s\\n' '{\"payload\": 1}' '{\"payload\": 2, \"key\": \"k\"}' | prom pub numbers -

Lines of standard input are {\"payload\": …, \"key\"?, \"id\"?, \"ts\"?, \"headers\"?, \"tags\"?,
\"caused_by\"?, \"sid\"?}; flags say what holds for those that do not say it themselves. Every event
has an id before it is sent, so that trying again adds nothing.")]
pub(crate) struct Pub {
    /// Topic to publish to.
    topic: Topic,
    /// The payload as JSON, @FILE for that of a file, - for lines of standard input.
    #[arg(value_name = "PAYLOAD|@FILE|-", required_unless_present = "null")]
    payload: Option<String>,
    /// Key, for order, compaction and partition.
    #[arg(long, short)]
    key: Option<String>,
    /// Header, as NAME:VALUE; may be given several times.
    #[arg(long, short = 'H', value_name = "NAME:VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// Label; may be given several times.
    #[arg(long)]
    tag: Vec<String>,
    /// Event that led to this one; may be given several times.
    #[arg(long, value_name = "ID")]
    caused_by: Vec<EventId>,
    /// Id, so that publishing again adds nothing.
    #[arg(long)]
    id: Option<EventId>,
    /// Event time [default: now].
    #[arg(long, value_name = "TIME")]
    ts: Option<String>,
    /// Publish a tombstone: the key is gone.
    #[arg(long, requires = "key", conflicts_with = "payload")]
    null: bool,
    #[command(flatten)]
    at: At,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as NAME:VALUE")?;
    Ok((name.trim().to_lowercase(), value.trim().to_owned()))
}

pub(crate) fn run(publish: Pub, output: &Output) -> anyhow::Result<Status> {
    let is_many = publish.payload.as_deref() == Some("-");
    if is_many && publish.id.is_some() {
        let what = "--id is the id of one event, and - reads many";
        return Err(Failure::usage(what).hint("give each line its own \"id\"").into());
    }
    super::block_on(async move {
        let said = said(&publish, output)?;
        let reach = publish.at.open(Missing::Make).await?;
        let done = if is_many {
            lines(&publish, &said, &reach, output).await
        } else {
            one(&publish, said, &reach, output).await
        };
        reach.close().await;
        done
    })
}

async fn one(
    publish: &Pub,
    said: Members,
    reach: &Reach,
    output: &Output,
) -> anyhow::Result<Status> {
    let text = match publish.payload.as_deref() {
        None => "null".to_owned(),
        Some(text) => match text.strip_prefix('@') {
            Some(file) => std::fs::read_to_string(file)
                .map_err(|error| Failure::unread(Path::new(file), &error))?,
            None => text.to_owned(),
        },
    };
    let payload: Box<RawValue> = serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!("the payload is not JSON: {error}"))
            .hint(format!("a text needs its quotes: prom pub {} '\"text\"'", publish.topic))
    })?;
    let mut line = said;
    line.insert("payload".into(), payload);
    let id = publish.id.unwrap_or_else(EventId::generate);
    line.insert("id".into(), raw(&id)?);
    let event = serde_json::to_string(&line)?;
    let mut shown = |receipts: &[Receipt]| {
        let receipt = receipts.first().context("the server gave no receipt")?;
        output.record(receipt, |receipt| {
            let again = if receipt.duplicate { ", which was there already" } else { "" };
            let Receipt { id, partition, offset, .. } = receipt;
            format!("{id}  {}/{partition}/{offset}{again}", publish.topic)
        })?;
        output.hint(&format!("see it again: prom get {}{}", receipt.id, reach.flag()));
        Ok(())
    };
    let sent = Sender::new(reach).send(&publish.topic, &[event], &mut shown).await;
    sent.map_err(|stopped| stopped.error)?;
    Ok(Status::Done)
}

/// Members of an event, as a line has them.
type Members = BTreeMap<String, Box<RawValue>>;

fn raw(value: &impl serde::Serialize) -> serde_json::Result<Box<RawValue>> {
    serde_json::value::to_raw_value(value)
}

/// What the command line says about every event.
fn said(publish: &Pub, output: &Output) -> anyhow::Result<Members> {
    let mut said = Members::new();
    if let Some(key) = &publish.key {
        said.insert("key".into(), raw(key)?);
    }
    if let Some(millis) = times::told("ts", publish.ts.as_deref(), output)? {
        said.insert("ts".into(), raw(&millis)?);
    }
    if !publish.header.is_empty() {
        let headers: BTreeMap<_, _> = publish.header.iter().cloned().collect();
        said.insert("headers".into(), raw(&headers)?);
    }
    if !publish.tag.is_empty() {
        said.insert("tags".into(), raw(&publish.tag)?);
    }
    if !publish.caused_by.is_empty() {
        said.insert("caused_by".into(), raw(&publish.caused_by)?);
    }
    Ok(said)
}

/// Lines that wait at most, read ahead of what is being published.
const WAITING_LINES: usize = 2 * FRAME_EVENTS_MAX;

/// A line of the input with its number.
type Numbered = (u64, String);

/// Publishes what there is: whatever has been read while the last batch was on its way is the
/// next one. A slow writer sees every line published at once, a fast one pays for few requests.
async fn lines(
    publish: &Pub,
    said: &Members,
    reach: &Reach,
    output: &Output,
) -> anyhow::Result<Status> {
    if std::io::stdin().is_terminal() {
        output.progress("reading lines of {\"payload\": …}; end with Ctrl-D");
    }
    let (reader, mut waiting) = mpsc::channel::<anyhow::Result<Numbered>>(WAITING_LINES);
    // Not joined: it may wait for input that never comes.
    std::thread::spawn(move || read(&reader));
    let bar = output.bar(None, "published");
    let mut stop = stop_signal()?;
    let mut published = 0;
    let mut sender = Sender::new(reach);
    loop {
        let first = tokio::select! {
            first = waiting.recv() => first,
            _ = stop.recv() => None,
        };
        let Some(first) = first else { break };
        let mut batch = Batch::default();
        batch.add(&publish.topic, said, first?)?;
        while batch.events.len() < FRAME_EVENTS_MAX && batch.bytes < BATCH_BYTES {
            let Ok(next) = waiting.try_recv() else { break };
            if let Err(error) = next.and_then(|line| batch.add(&publish.topic, said, line)) {
                // What is good so far goes first.
                published += deliver(&mut sender, publish, output, &batch).await?;
                return Err(error.context(already(published)));
            }
        }
        published += deliver(&mut sender, publish, output, &batch).await.map_err(|error| {
            if published > 0 { error.context(already(published)) } else { error }
        })?;
        bar.set_position(published);
    }
    bar.finish_and_clear();
    if output.is_text() {
        output.print(&format!("published {} to {}", output::grouped(published), publish.topic))?;
    }
    Ok(Status::Done)
}

fn already(published: u64) -> String {
    match published {
        1 => "after 1 event that was published".to_owned(),
        many => format!("after {} events that were published", output::grouped(many)),
    }
}

fn read(sender: &mpsc::Sender<anyhow::Result<Numbered>>) {
    for (index, line) in std::io::stdin().lock().lines().enumerate() {
        let line = match line {
            Ok(text) if text.trim().is_empty() => continue,
            Ok(text) => Ok((index as u64 + 1, text)),
            Err(error) => Err(anyhow::Error::from(error).context("cannot read standard input")),
        };
        if sender.blocking_send(line).is_err() {
            return;
        }
    }
}

#[derive(Debug, Default)]
struct Batch {
    events: Vec<String>,
    numbers: Vec<u64>,
    bytes: usize,
}

impl Batch {
    /// Takes a line, with an id if it has none and what the command line says of every event.
    fn add(
        &mut self,
        topic: &Topic,
        said: &Members,
        (number, text): Numbered,
    ) -> anyhow::Result<()> {
        let of_line = |why: String| Failure::usage(format!("line {number}: {why}"));
        let line: BTreeMap<&str, &RawValue> = serde_json::from_str(&text).map_err(|error| {
            of_line(format!("not a JSON object: {error}"))
                .hint("write every line like {\"payload\": {\"n\": 1}, \"key\": \"k\"}")
        })?;
        let mut line: Members =
            line.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        if !line.contains_key("payload") {
            return Err(of_line("there is no payload".into())
                .hint("write every line like {\"payload\": {\"n\": 1}, \"key\": \"k\"}")
                .into());
        }
        // What a store added is taken off, so that what was tailed or exported can be published.
        line.remove("offset");
        line.remove("partition");
        if line.get("topic").is_some_and(|named| named.get() != format!("\"{topic}\"")) {
            line.remove("topic");
        }
        if !line.contains_key("id") {
            line.insert("id".into(), raw(&EventId::generate())?);
        }
        for (name, value) in said {
            line.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let text = serde_json::to_string(&line)?;
        self.bytes += text.len() + 1;
        self.events.push(text);
        self.numbers.push(number);
        Ok(())
    }
}

async fn deliver(
    sender: &mut Sender<'_>,
    publish: &Pub,
    output: &Output,
    batch: &Batch,
) -> anyhow::Result<u64> {
    let mut shown = |receipts: &[Receipt]| {
        if output.is_text() {
            return Ok(());
        }
        let lines = receipts.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        output.print(&lines.join("\n"))
    };
    let sent = sender.send(&publish.topic, &batch.events, &mut shown).await;
    sent.map_err(|stopped| stopped.renumbered(&batch.numbers))?;
    Ok(batch.events.len() as u64)
}
