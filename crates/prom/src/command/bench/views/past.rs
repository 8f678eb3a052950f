//! A key as it was, in logs of two lengths, and a whole view as it was.

use std::path::Path;

use promethean::projection::{Changelog, Past, Projection, Views};
use promethean::{Bus, Moment};
use promethean_event::{Offset, Timestamp};
use serde::Serialize;
use tokio::runtime::Runtime;

use super::load::{BATCH, TOPIC, event, publish, view};
use crate::command::bench::measure::{median, rate, timed};

/// Keys with a history of their own, each of so many events.
const SUBJECTS: usize = 50;
const EVENTS_OF_SUBJECT: usize = 100;
const QUESTIONS: usize = 2_000;

#[derive(Serialize)]
pub(super) struct PastFigures {
    pub(super) short_events: u64,
    pub(super) long_events: u64,
    /// What was known at a time: by append.
    pub(super) by_append: Medians,
    /// What had happened by a time: by event, which folds all events of the key.
    pub(super) by_event: Medians,
    pub(super) keys: u64,
    /// As of now: most keys have not changed since.
    pub(super) whole_keys_per_s: f64,
    /// As of the middle of the log: most have.
    pub(super) whole_middle_keys_per_s: f64,
}

/// One question, in both logs.
#[derive(Serialize)]
pub(super) struct Medians {
    pub(super) short_us: f64,
    pub(super) long_us: f64,
    /// The long log against the short one.
    pub(super) ratio: f64,
}

impl Medians {
    fn of(short_us: f64, long_us: f64) -> Self {
        Self { short_us, long_us, ratio: long_us / short_us }
    }
}

pub(super) fn measure(path: &Path, events: usize) -> anyhow::Result<PastFigures> {
    let keys = events;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bus = runtime.block_on(Bus::open(path.join("past")))?;
    let pieces = EVENTS_OF_SUBJECT;
    let appended = std::cell::RefCell::new(Vec::with_capacity(pieces));
    let fill = |from: usize, to: usize| {
        runtime.block_on(async {
            for piece in 0..pieces {
                let (begin, end) = (
                    from + (to - from) * piece / pieces,
                    from + (to - from) * (piece + 1) / pieces,
                );
                publish(&bus, begin..end, keys).await?;
                if from == 0 {
                    let subjects = (0..SUBJECTS).map(|n| event(&format!("subject:{n}"), piece));
                    let published = bus.publish_batch(subjects.collect::<Result<_, _>>()?).await?;
                    let time = published.first().map(|published| published.appended_at);
                    appended.borrow_mut().extend(time);
                }
            }
            Ok::<_, anyhow::Error>(())
        })
    };
    fill(0, events)?;
    let views = runtime.block_on(Views::open(&bus, path.join("past.db")))?;
    let changelog = Changelog::new(view("processes"), TOPIC).batch(BATCH);
    let projection = runtime.block_on(views.changelog(changelog))?;
    let appended = appended.take();
    // Anywhere in the history of a key.
    let known = |n: usize| {
        let time = appended.get(n * 7919 % pieces).copied();
        Moment::Appended(time.unwrap_or(Timestamp::from_millis(0)))
    };
    let happened = |n: usize| Moment::Happened(Timestamp::from_millis((n * 7919 % pieces) as u64));
    let ask = |moment: &dyn Fn(usize) -> Moment| questions(&runtime, &projection, moment);
    let (short_known, short_happened) = (ask(&known)?, ask(&happened)?);
    fill(events, events * 10)?;
    let (long_known, long_happened) = (ask(&known)?, ask(&happened)?);
    let now = Moment::Appended(Timestamp::from_millis(u64::MAX / 2));
    let (count, whole) = whole(&runtime, &projection, now)?;
    let middle = Moment::Offset(Offset::new(events as u64 * 5));
    let (_, whole_middle) = self::whole(&runtime, &projection, middle)?;
    runtime.block_on(views.stop());
    runtime.block_on(bus.close());
    Ok(PastFigures {
        short_events: events as u64,
        long_events: events as u64 * 10,
        by_append: Medians::of(short_known, long_known),
        by_event: Medians::of(short_happened, long_happened),
        keys: count,
        whole_keys_per_s: whole,
        whole_middle_keys_per_s: whole_middle,
    })
}

/// The median time of a question about a key of a hundred events, in microseconds; warm.
fn questions(
    runtime: &Runtime,
    projection: &Projection,
    moment: &dyn Fn(usize) -> Moment,
) -> anyhow::Result<f64> {
    let mut figures = Vec::with_capacity(QUESTIONS);
    for n in 0..QUESTIONS + SUBJECTS {
        let key = format!("subject:{}", n % SUBJECTS);
        let time = moment(n);
        let (found, elapsed) = timed(|| runtime.block_on(projection.at("processes", &key, time)));
        let found = found?;
        anyhow::ensure!(matches!(found, Past::Document { .. }), "{key} as of {time:?}: {found:?}");
        if n >= SUBJECTS {
            figures.push(elapsed.as_secs_f64() * 1e6);
        }
    }
    Ok(median(figures))
}

/// Keys a second of a whole view.
fn whole(runtime: &Runtime, projection: &Projection, moment: Moment) -> anyhow::Result<(u64, f64)> {
    let (counted, elapsed) = timed(|| {
        runtime.block_on(async {
            let mut scan = projection.scan_at("processes", moment).await?;
            let mut count = 0_u64;
            while let Some(documents) = scan.next().await? {
                count += documents.len() as u64;
                // What is served is made into text, too.
                for document in &documents {
                    std::hint::black_box(document.to_json());
                }
            }
            Ok::<_, anyhow::Error>(count)
        })
    });
    let count = counted?;
    Ok((count, rate(usize::try_from(count).unwrap_or(usize::MAX), elapsed)))
}
