//! `prom tail`: events as they come, or as they were.

use std::time::Duration;

use clap::Args;
use promethean_event::{Event, Pattern};
use serde::Deserialize;

use super::gaps::Gaps;
use super::{Status, interrupt_signal, stop_signal};
use crate::failure::Failure;
use crate::output::Output;
use crate::reach::{Ask, At, EventStream, Missing, Reach, Streamed};
use crate::template::Template;
use crate::times::{self, When};
use crate::{clock, output};

/// Follow topics: a line for each event on a terminal, JSON lines in a pipe.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom tail 'process.**'                              what comes, until Ctrl-C
  prom tail orders.placed --since 15m -c 10           the first ten of the last 15 minutes
  prom tail '**' --since 'yesterday 14:00' --no-follow
  prom tail heartbeat.received --where 'payload.cpu_pct > 90.0'
  prom tail orders.placed --format '{time} {key} {payload.total}'
  prom tail orders.placed -c 1 | jq .payload

A pattern has * for one part of a name and ** for any number of them.")]
pub(crate) struct Tail {
    /// Topics and patterns.
    #[arg(required = true, value_name = "PATTERN")]
    patterns: Vec<Pattern>,
    /// Begin at this time, or with `earliest` [default: now].
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// End at this time, of when the store took them.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Begin after this event.
    #[arg(long, value_name = "ID", conflicts_with = "since")]
    from: Option<promethean_event::EventId>,
    /// End after so many events.
    #[arg(long, short, value_name = "N")]
    count: Option<u64>,
    /// End with what is there; without --since all of it.
    #[arg(long)]
    no_follow: bool,
    /// Only events for which this CEL expression is true.
    #[arg(long, value_name = "CEL")]
    r#where: Option<String>,
    /// Only events with this key.
    #[arg(long, short)]
    key: Option<String>,
    /// Only events with this label.
    #[arg(long)]
    tag: Option<String>,
    /// Print this text for each event, with members in braces, such as
    /// `{time} {key} {payload.cpu_pct}`.
    #[arg(long, value_name = "TEXT")]
    format: Option<String>,
    /// A habit from elsewhere; here -n is for dry runs.
    #[arg(short = 'n', value_name = "N", hide = true)]
    lines: Option<u64>,
    /// The form in which they come: `written`, `latest`, or the number of a version of their schema.
    #[arg(long, value_name = "FORM")]
    reads: Option<String>,
    #[command(flatten)]
    at: At,
}

pub(crate) fn run(tail: Tail, output: &Output) -> anyhow::Result<Status> {
    if let Some(lines) = tail.lines {
        let what = "-n is for dry runs; how many events is -c";
        return Err(Failure::usage(what).hint(format!("say -c {lines}")).into());
    }
    super::block_on(async move {
        let reach = tail.at.open(Missing::Refuse).await?;
        let mut stop = stop_signal()?;
        let mut interrupt = interrupt_signal()?;
        let shown = tokio::select! {
            done = show(&tail, &reach, output) => done,
            _ = stop.recv() => Ok(Status::Done),
            _ = interrupt.recv() => Ok(Status::Interrupted),
        };
        reach.close().await;
        shown
    })
}

async fn show(tail: &Tail, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let format = tail.format.as_deref().map(Template::parse).transpose()?;
    let (left, several) = (tail.count, tail.is_several());
    let mut shown = Shown { output, left, widths: None, several, format };
    if tail.no_follow || tail.until.is_some() {
        let since = tail.since.clone().or(tail.from.map(|id| id.to_string()));
        let since = times::told("since", since.as_deref(), output)?;
        let until = times::told("until", tail.until.as_deref(), output)?;
        if !shown.is_done() {
            stored(tail, reach, (since, until), &mut shown).await?;
        }
        return Ok(Status::Done);
    }
    let now = clock::now();
    let since = tail.since.as_ref().map(|text| times::parse(text, &now)).transpose()?;
    match since {
        Some(since @ When::After(_)) => output.progress(&since.echo(&now)),
        Some(since) => output.progress(&format!("since {}", since.echo(&now))),
        None => {}
    }
    if !shown.is_done() {
        tail.warn_of_nothing(reach, output).await;
        follow(tail, reach, since, &mut shown).await?;
    }
    Ok(Status::Done)
}

impl Tail {
    /// A name that is spelt wrong would be waited for without a word.
    async fn warn_of_nothing(&self, reach: &Reach, output: &Output) {
        if !output.is_text() {
            return;
        }
        let names = self.patterns.iter().filter_map(Pattern::as_topic);
        for topic in names.filter(|topic| !topic.is_system()) {
            // Whoever may read events need not be allowed to list topics.
            if !matches!(super::topic::find(reach, &topic).await, Ok(None)) {
                continue;
            }
            let meant = super::topic::meant(reach, &topic).await;
            let meant = meant.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            output.hint(&format!("there is no topic {topic} yet{meant}"));
        }
    }

    /// Whether lines have to say which topic they are of.
    fn is_several(&self) -> bool {
        self.patterns.len() > 1 || self.patterns.iter().any(|one| one.as_topic().is_none())
    }

    /// Everything that was asked for, as one expression.
    fn filter(&self) -> Option<String> {
        let quoted = |text: &String| serde_json::Value::from(text.as_str()).to_string();
        let key = self.key.as_ref().map(|key| format!("key == {}", quoted(key)));
        let tag = self.tag.as_ref().map(|tag| format!("{} in tags", quoted(tag)));
        let all: Vec<String> =
            self.r#where.iter().map(|cel| format!("({cel})")).chain(key).chain(tag).collect();
        (!all.is_empty()).then(|| all.join(" && "))
    }
}

#[derive(Deserialize)]
struct Page {
    events: Vec<Event>,
    gaps: Vec<serde_json::Value>,
    #[serde(default)]
    unreadable: Vec<serde_json::Value>,
    next: Option<String>,
}

/// What is there, page by page.
async fn stored(
    tail: &Tail,
    reach: &Reach,
    (from, until): (Option<u64>, Option<u64>),
    shown: &mut Shown<'_>,
) -> anyhow::Result<()> {
    let mut gaps = Gaps::default();
    let read = pages(tail, reach, (from, until), shown, &mut gaps).await;
    gaps.tell(shown.output);
    read
}

async fn pages(
    tail: &Tail,
    reach: &Reach,
    (from, until): (Option<u64>, Option<u64>),
    shown: &mut Shown<'_>,
    gaps: &mut Gaps,
) -> anyhow::Result<()> {
    for (number, pattern) in tail.patterns.iter().enumerate() {
        let earlier = tail.patterns.get(..number).unwrap_or_default();
        let mut after: Option<String> = None;
        loop {
            let ask = Ask::get("/replay").query("topic", Some(pattern)).query("from", from);
            let ask = ask.query("until", until).query("filter", tail.filter());
            let ask = ask.query("reads", tail.reads.as_ref());
            let ask = ask.query("after", after.take()).query("limit", Some(1000));
            let page: Page = match reach.json(ask).await {
                Ok(page) => page,
                Err(error) => return Err(named(error, pattern, reach).await),
            };
            for gap in page.gaps.iter().chain(&page.unreadable) {
                gaps.meet(gap, shown.output);
            }
            for event in &page.events {
                // An id is a time here, which its event begins; what begins after it has not got it.
                let is_begun = tail.from == Some(event.id);
                if is_begun || earlier.iter().any(|pattern| pattern.matches(&event.topic)) {
                    continue;
                }
                shown.event(event)?;
                if shown.is_done() {
                    return Ok(());
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
    }
    Ok(())
}

/// An error with the topic that is not there, where that is what it says.
pub(super) async fn named(error: anyhow::Error, pattern: &Pattern, reach: &Reach) -> anyhow::Error {
    let is_absent = error
        .downcast_ref::<Failure>()
        .is_some_and(|failure| failure.status == Status::NotFound && failure.code == "not_found");
    match pattern.as_topic().filter(|_| is_absent) {
        Some(topic) => super::topic::absent(reach, &topic).await.into(),
        None => error,
    }
}

/// How long to wait before a lost connection is tried again: doubled up to the second.
const AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

/// What comes. A connection that is lost is made again, from where it was.
async fn follow(
    tail: &Tail,
    reach: &Reach,
    since: Option<When>,
    shown: &mut Shown<'_>,
) -> anyhow::Result<()> {
    let topics: Vec<&str> = tail.patterns.iter().map(Pattern::as_str).collect();
    let from = match (since, tail.from) {
        (None | Some(When::Latest), None) => "latest".to_owned(),
        (Some(When::Earliest), _) => "earliest".to_owned(),
        (Some(When::At(at)), _) => at.as_millisecond().max(0).to_string(),
        (Some(When::After(id)), _) | (None | Some(When::Latest), Some(id)) => id.to_string(),
    };
    let ask = Ask::get("/events").query("topic", Some(topics.join(","))).query("from", Some(from));
    let ask = ask.query("reads", tail.reads.as_ref());
    let ask = ask.query("filter", tail.filter()).header(http::header::ACCEPT, "text/event-stream");
    let mut last_id: Option<String> = None;
    let mut wait = AGAIN.0;
    loop {
        let resumed = match &last_id {
            Some(id) => ask.clone().header(http::HeaderName::from_static("last-event-id"), id),
            None => ask.clone(),
        };
        let lost = match reach.stream(resumed).await {
            Ok(answer) => {
                let mut stream = EventStream::of(answer);
                let ended = drain(&mut stream, shown).await;
                if stream.last_id.is_some() {
                    (last_id, wait) = (stream.last_id, AGAIN.0);
                }
                match ended? {
                    Drained::Enough => return Ok(()),
                    Drained::Broken(why) => why,
                }
            }
            Err(error) if last_id.is_some() && is_temporary(&error) => error.to_string(),
            Err(error) => return Err(error),
        };
        if matches!(reach, Reach::Here(_)) {
            return Err(anyhow::anyhow!("the store was closed: {lost}"));
        }
        shown.output.progress(&format!("{lost}; trying again in {wait:?}"));
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(AGAIN.1);
    }
}

fn is_temporary(error: &anyhow::Error) -> bool {
    let failure = error.downcast_ref::<Failure>();
    failure.is_some_and(|failure| matches!(failure.status, Status::Unreachable | Status::Limited))
}

enum Drained {
    Enough,
    Broken(String),
}

async fn drain(stream: &mut EventStream, shown: &mut Shown<'_>) -> anyhow::Result<Drained> {
    loop {
        match stream.next().await {
            Ok(Some(Streamed::Event(event))) => shown.event(&event)?,
            Ok(Some(Streamed::Gap(gap))) => shown.gap(&gap),
            Ok(Some(Streamed::Nothing)) => {}
            Ok(None) => return Ok(Drained::Broken("the connection has ended".to_owned())),
            Err(error) => return Ok(Drained::Broken(format!("the connection was lost: {error}"))),
        }
        if shown.is_done() {
            return Ok(Drained::Enough);
        }
    }
}

struct Shown<'a> {
    output: &'a Output,
    left: Option<u64>,
    /// Of the columns for topic and key, once there is a heading; they grow with what they hold.
    widths: Option<Widths>,
    several: bool,
    format: Option<Template>,
}

impl Shown<'_> {
    fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    fn event(&mut self, event: &Event) -> anyhow::Result<()> {
        if let Some(format) = &self.format {
            self.output.print(&format.fill(event))?;
        } else if self.output.is_text() {
            let paint = self.output.paint();
            let is_first = self.widths.is_none();
            let widths = self.widths.get_or_insert_default();
            widths.fit(event);
            if is_first {
                self.output.print(&paint.dim(&widths.heading(self.several)))?;
            }
            self.output.print(&widths.line(event, self.several, paint))?;
        } else {
            self.output.print(&serde_json::to_string(event)?)?;
        }
        self.left = self.left.map(|left| left.saturating_sub(1));
        Ok(())
    }

    /// What is missing is said, on the other channel.
    fn gap(&self, gap: &serde_json::Value) {
        let mut gaps = Gaps::default();
        gaps.meet(gap, self.output);
        gaps.tell(self.output);
    }
}

/// How wide the columns are.
#[derive(Debug, Clone, Copy)]
struct Widths {
    topic: usize,
    key: usize,
}

impl Default for Widths {
    fn default() -> Self {
        Self { topic: 16, key: 16 }
    }
}

impl Widths {
    /// One long name pushes the columns of its own line only.
    const MAX: usize = 40;

    fn fit(&mut self, event: &Event) {
        let key = event.key.as_ref().map_or(0, |key| key.as_str().chars().count());
        for (width, needed) in [(&mut self.topic, event.topic.as_str().len()), (&mut self.key, key)]
        {
            *width = needed.min(Self::MAX).max(*width);
        }
    }

    fn heading(self, several: bool) -> String {
        let width = self.topic;
        let topic = if several { format!("{:<width$}  ", "TOPIC") } else { String::new() };
        let width = self.key;
        format!("{:<12}  {topic}{:<width$}  {:<7}  PAYLOAD", "TIME", "KEY", "ID")
    }

    fn line(self, event: &Event, several: bool, paint: output::Paint) -> String {
        line(event, if several { Some(self.topic) } else { None }, self.key, paint)
    }
}

fn line(event: &Event, topic: Option<usize>, width: usize, paint: output::Paint) -> String {
    let at = i64::try_from(event.ts.millis())
        .ok()
        .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let zone = clock::now().time_zone().clone();
    let time = at.map(|at| at.to_zoned(zone).strftime("%H:%M:%S%.3f").to_string());
    let time = time.unwrap_or_else(|| event.ts.millis().to_string());
    let topic =
        topic.map(|width| format!("{:<width$}  ", event.topic.as_str())).unwrap_or_default();
    let key = event.key.as_ref().map_or("-".to_owned(), |key| output::plain(key.as_str()));
    let id = event.id.to_string();
    let end: String = id.chars().skip(id.len().saturating_sub(6)).collect();
    let payload = match event.payload.as_str() {
        "null" => paint.bad("null (gone)"),
        text => output::plain(text),
    };
    let tags: String =
        event.tags.iter().map(|tag| format!("  {}", output::plain(tag.as_str()))).collect();
    format!("{}  {topic}{key:<width$}  …{end}  {payload}{tags}", paint.dim(&format!("{time:<12}")))
}
