use std::fmt::Write;

use promethean_log::Survey;
use serde::Serialize;

use crate::command::Status;
use crate::output::{Output, bytes, count, grouped};

#[derive(Serialize)]
struct Verdict {
    good: bool,
    segments: usize,
    events: u64,
    bytes: u64,
    torn_tail: Option<TornTail>,
    damage: Vec<Damage>,
}

/// An unfinished write at the end: cut off when the log is opened, and no loss.
#[derive(Serialize)]
struct TornTail {
    file: String,
    position: u64,
}

#[derive(Serialize)]
struct Damage {
    file: String,
    from_byte: u64,
    to_byte: u64,
    from_seq: Option<u64>,
    to_seq: Option<u64>,
    reason: &'static str,
}

pub(super) fn run(survey: &Survey, output: &Output) -> anyhow::Result<Status> {
    let damage = survey.damage.iter().map(|damage| Damage {
        file: damage.file.clone(),
        from_byte: damage.bytes.start,
        to_byte: damage.bytes.end,
        from_seq: (!damage.seqs.is_empty()).then_some(damage.seqs.start),
        to_seq: (!damage.seqs.is_empty()).then_some(damage.seqs.end),
        reason: damage.reason,
    });
    let verdict = Verdict {
        good: survey.damage.is_empty(),
        segments: survey.segments.len(),
        events: survey.segments.iter().map(|segment| segment.events).sum(),
        bytes: survey.segments.iter().map(|segment| segment.bytes).sum(),
        torn_tail: survey.torn_tail.clone().map(|(file, position)| TornTail { file, position }),
        damage: damage.collect(),
    };
    output.record(&verdict, text)?;
    Ok(if verdict.good { Status::Done } else { Status::FoundProblems })
}

fn text(verdict: &Verdict) -> String {
    let mut out = format!(
        "{} events in {} ({}) read and checked\n",
        grouped(verdict.events),
        count(verdict.segments, "segment", "segments"),
        bytes(verdict.bytes)
    );
    let mut line = |text: String| {
        let row = writeln!(out, "{text}");
        debug_assert!(row.is_ok(), "writing to a string");
    };
    if let Some(TornTail { file, position }) = &verdict.torn_tail {
        line(format!(
            "note     {file} at byte {position}: an unfinished write, cut off at the next open"
        ));
    }
    for damage in &verdict.damage {
        let Damage { file, from_byte, to_byte, reason, .. } = damage;
        let seqs = match (damage.from_seq, damage.to_seq) {
            (Some(from), Some(to)) => format!(", seqs {from} to {}", to - 1),
            _ => String::new(),
        };
        line(format!("damaged  {file} bytes {from_byte} to {to_byte}{seqs}: {reason}"));
    }
    line(if verdict.good {
        "no damage found".into()
    } else {
        "damage found; nothing was changed".into()
    });
    out
}
