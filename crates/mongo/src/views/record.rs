//! The document of a projection: who keeps it, and its builds with their cursors.
//!
//! ```text
//! { _id: name, hub, claim, away_since, live: <build>, building: <build>,
//!   pending: "switch" | "forget" }
//! <build> = { build, definition, phase, after_key, counts: { … },
//!             cursors: { <lane>: { topic, next, begun, missed } }, plan: [{ lane, next }] }
//! ```

use mongodb::bson::{Bson, Document, doc};
use promethean::projection::view_store::{
    Build, BuildCursor, BuildState, Counts, DatabaseError, Phase, Plan, Requested,
};
use promethean::store::{Lane, TopicId};
use promethean_event::{Offset, Partition, Topic};

use super::MongoViews;
use crate::document::{signed, unsigned};
use crate::fault::Fault;

/// The field of a build.
pub(super) const fn field(state: BuildState) -> &'static str {
    match state {
        BuildState::Live => "live",
        BuildState::Building => "building",
    }
}

/// A lane as a number, and back.
pub(super) const fn lane_number(lane: Lane) -> i64 {
    lane.id().get().cast_signed()
}

pub(super) const fn lane_of(number: i64) -> Lane {
    let number = number.cast_unsigned();
    let (topic, partition) = ((number >> 32) as u32, number as u32);
    Lane { topic: TopicId::new(topic), partition: Partition::new(partition) }
}

impl MongoViews {
    /// What is kept of a projection.
    pub(super) async fn record(&self, projection: &str) -> Result<Option<Document>, Fault> {
        self.cluster.ask(self.projections.find_one(doc! { "_id": projection })).await
    }
}

/// The build in a state, if there is one.
pub(super) fn build(record: &Document, state: BuildState) -> Result<Option<Build>, DatabaseError> {
    let Ok(kept) = record.get_document(field(state)) else {
        return Ok(None);
    };
    let unreadable = || {
        let id = record.get_str("_id").unwrap_or("?");
        DatabaseError::Refused(format!("what is kept of projection {id} cannot be read"))
    };
    read(kept, state).ok_or_else(unreadable).map(Some)
}

fn read(kept: &Document, state: BuildState) -> Option<Build> {
    let phase = match kept.get_str("phase").ok()? {
        "keys" => Phase::Keys(kept.get_str("after_key").ok().map(str::to_owned)),
        _ => Phase::Events,
    };
    let counts = kept.get_document("counts").ok()?;
    let count = |name: &str| counts.get_i64(name).map(unsigned).unwrap_or(0);
    let mut cursors = Vec::new();
    for (lane, cursor) in kept.get_document("cursors").ok()? {
        let cursor = cursor.as_document()?;
        let offset = |name: &str| cursor.get_i64(name).ok().map(unsigned);
        cursors.push(BuildCursor {
            lane: lane_of(lane.parse().ok()?),
            topic: Topic::stored(cursor.get_str("topic").ok()?).ok()?,
            next: Offset::new(offset("next")?),
            begun: Offset::new(offset("begun")?),
            missed: offset("missed")?,
        });
    }
    cursors.sort_by_key(|cursor| lane_number(cursor.lane));
    Some(Build {
        number: kept.get_i64("build").ok()?,
        state,
        definition: kept.get_str("definition").ok()?.to_owned(),
        phase,
        counts: Counts {
            events: count("events"),
            stale: count("stale"),
            unkeyed: count("unkeyed"),
            dead: count("dead"),
        },
        cursors,
        plan: plan(kept),
    })
}

fn plan(kept: &Document) -> Plan {
    let step = |step: &Bson| {
        let step = step.as_document()?;
        let next = Offset::new(unsigned(step.get_i64("next").ok()?));
        Some((lane_of(step.get_i64("lane").ok()?), next))
    };
    kept.get_array("plan").map(|plan| plan.iter().filter_map(step).collect()).unwrap_or_default()
}

pub(super) fn plan_document(plan: &Plan) -> Vec<Document> {
    let step = |(lane, next): &(Lane, Offset)| {
        doc! { "lane": lane_number(*lane), "next": signed(next.get()) }
    };
    plan.iter().map(step).collect()
}

/// A build that begins.
pub(super) fn begun(number: i64, wanted: &Requested) -> Document {
    doc! {
        "build": number,
        "definition": &wanted.definition,
        "phase": if wanted.from_keys { "keys" } else { "events" },
        "counts": { "events": 0_i64, "stale": 0_i64, "unkeyed": 0_i64, "dead": 0_i64 },
        "cursors": {},
    }
}

pub(super) fn cursor_document(cursor: &BuildCursor) -> Document {
    doc! {
        "topic": cursor.topic.as_str(),
        "partition": i64::from(cursor.lane.partition.get()),
        "next": signed(cursor.next.get()),
        "begun": signed(cursor.begun.get()),
        "missed": signed(cursor.missed),
    }
}
