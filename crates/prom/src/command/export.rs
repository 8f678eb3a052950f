//! `prom export` and `prom import`: events as lines of JSON, in files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use flate2::Compression;
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use promethean_event::limits::FRAME_EVENTS_MAX;
use promethean_event::{Headers, Pattern, Topic};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Status;
use super::gaps::Gaps;
use super::sending::{BATCH_BYTES, Receipt, Sender};
use super::tail::named;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::reach::{Ask, At, Missing, Reach, TextLines};
use crate::times;

/// Write stored events as lines of JSON, for `prom import`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom export '**' -o backup.ndjson.gz                 compressed, by the name
  prom export 'orders.**' --since 'yesterday' --where 'payload.total > 100.0' | jq .key")]
pub(crate) struct Export {
    /// Topics.
    #[arg(default_value = "**")]
    pattern: Pattern,
    /// Only what was taken from this time on.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what was taken before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only events for which this CEL expression is true.
    #[arg(long, value_name = "CEL")]
    r#where: Option<String>,
    /// The form in which they are written: `written`, `latest`, or the number of a version of their
    /// schema.
    #[arg(long, value_name = "FORM")]
    reads: Option<String>,
    /// File to write, compressed if it ends with .gz; it is there only when it is complete
    /// [default: standard output].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    at: At,
}

/// Publish what was exported. Events keep their ids: doing it again adds nothing.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// File to read, also a compressed one; `-` for standard input; or the connection string of a
    /// MongoDB, with `--collection`.
    file: PathBuf,
    /// Collection of events, as `database.collection`; offsets are not needed.
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// Publish everything to this topic instead of where it was.
    #[arg(long, value_name = "TOPIC")]
    into: Option<Topic>,
    #[command(flatten)]
    at: At,
}

pub(crate) fn export(wish: Export, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let reach = wish.at.open(Missing::Refuse).await?;
        let done = match &wish.output {
            None => {
                let written = write_events(&wish, &reach, output, &mut std::io::stdout()).await;
                written.map(|written| written.status())
            }
            Some(path) => to_file(&wish, &reach, output, path).await,
        };
        reach.close().await;
        done
    })
}

impl Export {
    /// How many events there are to export, if that is known before.
    async fn total(&self, reach: &Reach) -> Option<u64> {
        let is_all = self.since.is_none() && self.until.is_none() && self.r#where.is_none();
        // Whoever may read events need not be allowed to list topics.
        let topics = super::topic::topics(reach, Some(&self.pattern)).await.ok()?;
        is_all.then(|| topics.iter().map(|topic| topic.events).sum())
    }
}

/// What was written.
#[derive(Debug, Clone, Copy, Default)]
struct Written {
    events: u64,
    /// Events that have no such form: they are not in it.
    unreadable: u64,
}

impl Written {
    const fn status(self) -> Status {
        if self.unreadable == 0 { Status::Done } else { Status::Partial }
    }
}

#[derive(Debug, Serialize)]
struct Exported<'a> {
    file: &'a Path,
    events: u64,
}

async fn to_file(
    wish: &Export,
    reach: &Reach,
    output: &Output,
    path: &Path,
) -> anyhow::Result<Status> {
    let of = || format!("cannot write {}", path.display());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut beside =
        tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new("."))).with_context(of)?;
    let mut writer = BufWriter::new(beside.as_file_mut());
    let written = if path.extension().is_some_and(|end| end == "gz") {
        let mut packed = GzEncoder::new(&mut writer, Compression::default());
        let written = write_events(wish, reach, output, &mut packed).await?;
        packed.finish().with_context(of)?;
        written
    } else {
        write_events(wish, reach, output, &mut writer).await?
    };
    writer.flush().with_context(of)?;
    drop(writer);
    beside.as_file().sync_all().with_context(of)?;
    beside.persist(path).with_context(of)?;
    output.record(&Exported { file: path, events: written.events }, |done| {
        format!("{} events in {}", output::grouped(done.events), done.file.display())
    })?;
    Ok(written.status())
}

/// The last line of an export.
#[derive(Debug, Deserialize)]
struct End {
    complete: bool,
    #[serde(default)]
    code: Option<String>,
}

async fn write_events(
    wish: &Export,
    reach: &Reach,
    output: &Output,
    into: &mut dyn Write,
) -> anyhow::Result<Written> {
    let ask = Ask::get("/export")
        .query("topic", Some(&wish.pattern))
        .query("from", times::told("since", wish.since.as_deref(), output)?)
        .query("until", times::told("until", wish.until.as_deref(), output)?)
        .query("filter", wish.r#where.as_ref())
        .query("reads", wish.reads.as_ref());
    let total = if output.shows_bars() { wish.total(reach).await } else { None };
    let bar = output.bar(total, "exported");
    let stream = match reach.stream(ask).await {
        Ok(stream) => stream,
        Err(error) => return Err(named(error, &wish.pattern, reach).await),
    };
    let mut gaps = Gaps::default();
    let written = write_lines(TextLines::of(stream), &bar, (output, &mut gaps), into).await;
    bar.finish_and_clear();
    gaps.tell(output);
    written
}

async fn write_lines(
    mut lines: TextLines,
    bar: &indicatif::ProgressBar,
    (output, gaps): (&Output, &mut Gaps),
    into: &mut dyn Write,
) -> anyhow::Result<Written> {
    let mut written = Written::default();
    while let Some(line) = lines.next().await? {
        if line.starts_with("{\"end\":") {
            let end: BTreeMap<String, End> = serde_json::from_str(&line)?;
            return match end.get("end") {
                Some(End { complete: true, .. }) => Ok(written),
                Some(End { code, .. }) => Err(cut_off(written.events, code.as_deref())),
                None => Err(cut_off(written.events, None)),
            };
        }
        if line.starts_with("{\"unreadable\":") {
            let found: serde_json::Value = serde_json::from_str(&line)?;
            let told = |member: &str| {
                let value = found.get("unreadable").and_then(|told| told.get(member));
                value.and_then(serde_json::Value::as_str).unwrap_or_default()
            };
            output.progress(&format!("not in that form: {} {}", told("id"), told("reason")));
            written.unreadable += 1;
            continue;
        }
        if line.starts_with("{\"gap\":") {
            let gap: serde_json::Value = serde_json::from_str(&line)?;
            let gap = gap.get("gap").unwrap_or(&gap);
            gaps.meet(gap, output);
            continue;
        }
        writeln!(into, "{line}")?;
        written.events += 1;
        bar.set_position(written.events);
    }
    Err(cut_off(written.events, None))
}

fn cut_off(events: u64, code: Option<&str>) -> anyhow::Error {
    let why = code.unwrap_or("the connection ended");
    let what =
        format!("the export is not complete: {why} after {} events", output::grouped(events));
    Failure::new(Status::Unreachable, what).hint("run it again").into()
}

#[derive(Debug, Default, Serialize)]
struct Imported {
    events: u64,
    added: u64,
    /// Were there already.
    duplicates: u64,
    /// States of snapshots, and copies for one group: the system makes them itself.
    left_out: u64,
    topics: BTreeMap<String, u64>,
}

pub(crate) fn import(wish: Import, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let reach = wish.at.open(Missing::Make).await?;
        let done = publish_file(&wish, &reach, output).await;
        reach.close().await;
        let imported = done?;
        if imported.left_out > 0 {
            let count = output::grouped(imported.left_out);
            output.progress(&format!(
                "{count} left out: states of snapshots and copies for one group are the system's to make"
            ));
        }
        output.record(&imported, |done| {
            let (added, known) = (output::grouped(done.added), output::grouped(done.duplicates));
            let topics = output::count(done.topics.len(), "topic", "topics");
            format!("{added} events added to {topics}, {known} were there already")
        })?;
        Ok(Status::Done)
    })
}

/// What is compressed is told by how it begins, whatever it is called.
fn unpacked(mut reader: Box<dyn BufRead>) -> anyhow::Result<Box<dyn BufRead>> {
    if reader.fill_buf()?.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(BufReader::new(MultiGzDecoder::new(reader))));
    }
    Ok(reader)
}

#[derive(Debug, Default)]
struct Waiting {
    events: Vec<String>,
    numbers: Vec<u64>,
    bytes: usize,
}

async fn publish_file(wish: &Import, reach: &Reach, output: &Output) -> anyhow::Result<Imported> {
    let file: Box<dyn Read> = if wish.file == Path::new("-") {
        Box::new(std::io::stdin())
    } else if let Some(collection) = &wish.collection {
        Box::new(from_mongo(&wish.file, collection).await?)
    } else {
        let file = File::open(&wish.file);
        let unread = |error| Failure::unread(&wish.file, &error);
        Box::new(file.map_err(unread)?)
    };
    // Of a stream nobody knows how much is to come.
    let size = std::fs::metadata(&wish.file).ok().filter(std::fs::Metadata::is_file);
    let bar = output.byte_bar(size.map(|found| found.len()), "imported");
    let reader = unpacked(Box::new(BufReader::new(bar.wrap_read(file))))?;
    let mut waiting: BTreeMap<Topic, Waiting> = BTreeMap::new();
    let mut imported = Imported::default();
    let mut sender = Sender::new(reach);
    for (index, line) in reader.lines().enumerate() {
        let (number, line) = (index as u64 + 1, line?);
        if line.trim().is_empty() {
            continue;
        }
        let read = read_line(wish, &line);
        let read = read.map_err(|why| Failure::usage(format!("line {number}: {why}")))?;
        let Some((topic, text)) = read else {
            imported.left_out += 1;
            continue;
        };
        let of_topic = waiting.entry(topic.clone()).or_default();
        of_topic.bytes += text.len() + 1;
        of_topic.events.push(text);
        of_topic.numbers.push(number);
        if of_topic.events.len() == FRAME_EVENTS_MAX || of_topic.bytes > BATCH_BYTES {
            let batch = std::mem::take(of_topic);
            send(&mut sender, &topic, batch, &mut imported).await?;
        }
    }
    for (topic, batch) in waiting {
        send(&mut sender, &topic, batch, &mut imported).await?;
    }
    bar.finish_and_clear();
    Ok(imported)
}

/// The events of a collection, as lines of a file that is nobody else's.
async fn from_mongo(url: &Path, collection: &str) -> anyhow::Result<File> {
    use std::io::Seek;
    let url = url.to_str().context("the connection string is not text")?;
    let file = tempfile::tempfile().context("cannot make a file for the events")?;
    let mut lines = std::io::BufWriter::new(file);
    promethean_mongo::import::write_events(url, collection, &mut lines).await?;
    let mut file = lines.into_inner().context("cannot write the events")?;
    file.rewind()?;
    Ok(file)
}

/// Headers of events that mean something only in the store that has made them.
const MARKS: [&str; 2] = ["x-replay-for", "x-source-offset"];

/// The event of a line without what another store said about it; none if it is that store's own.
fn read_line(wish: &Import, line: &str) -> Result<Option<(Topic, String)>, String> {
    let mut fields: BTreeMap<&str, &RawValue> =
        serde_json::from_str(line).map_err(|error| format!("not an event: {error}"))?;
    let named = fields.remove("topic").map(|raw| serde_json::from_str::<Topic>(raw.get()));
    let topic = match (&wish.into, named) {
        (Some(topic), _) => topic.clone(),
        (None, Some(topic)) => topic.map_err(|error| error.to_string())?,
        (None, None) => return Err("there is no topic in it; say --into TOPIC".to_owned()),
    };
    fields.remove("partition");
    fields.remove("offset");
    let headers: Headers = match fields.get("headers") {
        Some(raw) => serde_json::from_str(raw.get()).map_err(|error| error.to_string())?,
        None => Headers::new(),
    };
    if wish.into.is_none() && MARKS.iter().any(|mark| headers.get(mark).is_some()) {
        return Ok(None);
    }
    if !fields.contains_key("id") {
        return Err("there is no id in it; `prom pub TOPIC -` publishes events without one".into());
    }
    let text = serde_json::to_string(&fields).map_err(|error| error.to_string())?;
    Ok(Some((topic, text)))
}

async fn send(
    sender: &mut Sender<'_>,
    topic: &Topic,
    batch: Waiting,
    imported: &mut Imported,
) -> anyhow::Result<()> {
    if batch.events.is_empty() {
        return Ok(());
    }
    let mut count = |receipts: &[Receipt]| {
        let known = receipts.iter().filter(|receipt| receipt.duplicate).count() as u64;
        let all = receipts.len() as u64;
        imported.events += all;
        imported.duplicates += known;
        imported.added += all - known;
        *imported.topics.entry(topic.to_string()).or_default() += all;
        Ok(())
    };
    let sent = sender.send(topic, &batch.events, &mut count).await;
    sent.map_err(|stopped| stopped.renumbered(&batch.numbers))
}
