//! Carries a plan out, in one transaction, on condition that everything is as it was planned from.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use mongodb::ClientSession;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Document, doc};
use promethean::store::Lane;
use promethean_event::GroupName;

use crate::clock::Deadline;
use crate::cluster::Cluster;
use crate::document::{date, signed};
use crate::fault::Fault;
use crate::growth::Growing;
use crate::limits::{RETRY_MAX, UNHEARD};
use crate::news;
use crate::plan::{CursorChange, GroupChange, Head, LaneChange, Plan, PlannedEvent};
use crate::transaction::{Attempt, Step};

#[derive(Debug)]
pub(crate) struct CarryOut {
    pub(crate) cluster: Cluster,
    pub(crate) plan: Arc<Plan>,
    /// What other hubs do meanwhile.
    pub(crate) growing: Arc<Growing>,
}

impl Attempt for CarryOut {
    type Outcome = ();

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<()>, Fault>> {
        Box::pin(async move {
            // Not sent at all if it is known to be in vain.
            if self.growing.is_beyond(&self.plan.begins()) {
                return Err(Fault::Stale);
            }
            // What others may be at comes first, so that whoever is late has done little in vain.
            self.lanes(session).await?;
            if self.plan.tells_within() {
                self.update("news", news::of_plan(&self.plan), session).await?;
            }
            self.groups(session).await?;
            self.cursors(session).await?;
            if !self.plan.events.is_empty() {
                let documents = self.plan.events.iter().map(PlannedEvent::document);
                self.cluster.events.insert_many(documents).session(&mut *session).await?;
            }
            Ok(Step::Commit(()))
        })
    }

    /// Whoever is in the way at a lane moves its end, and that is heard of. To try meanwhile is in vain, and
    /// work for the server: only where nothing is heard for long, as when it was given up, is it tried anyway.
    /// A lane that is new has its topic touched, where others are in the way who make other lanes, of which
    /// nothing is heard here.
    fn pause(&self, deadline: Deadline, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let begins = self.plan.begins();
            let is_heard_of = !begins.is_empty() && !self.plan.makes_lanes();
            let time = if is_heard_of { (time * UNHEARD).min(RETRY_MAX) } else { time };
            tokio::select! {
                () = self.growing.beyond(&begins) => {}
                () = deadline.pause(time) => {}
            }
        })
    }
}

impl CarryOut {
    async fn lanes(&self, session: &mut ClientSession) -> Result<(), Fault> {
        let (there, new): (Vec<_>, Vec<_>) =
            self.plan.lanes.iter().partition(|(_, change)| change.before.exists);
        let updates: Vec<_> =
            there.iter().map(|(lane, change)| lane_update(**lane, change)).collect();
        self.update("lanes", updates, session).await?;
        if new.is_empty() {
            return Ok(());
        }
        // Touched, so that a topic cannot be removed while it gets a lane.
        let topics: BTreeSet<u32> = new.iter().map(|(lane, _)| lane.topic.get()).collect();
        let touches = topics.into_iter().map(|topic| {
            let live = doc! { "_id": i64::from(topic), "name": { "$type": "string" } };
            doc! { "q": live, "u": { "$inc": { "lanes": 1_i64 } } }
        });
        self.update("topics", touches.collect(), session).await?;
        let documents = new.iter().map(|(lane, change)| lane_document(**lane, change));
        self.cluster.lanes.insert_many(documents).session(&mut *session).await?;
        Ok(())
    }

    async fn groups(&self, session: &mut ClientSession) -> Result<(), Fault> {
        let gets_lane = |name: &GroupName| {
            self.plan
                .cursors
                .iter()
                .any(|((group, _), cursor)| group == name && cursor.before.is_none())
        };
        let changed = self.plan.groups.iter();
        let changed = changed.filter(|(name, change)| {
            !change.is_new && (change.settings.is_some() || gets_lane(name))
        });
        let updates = changed.map(|(name, change)| group_update(name, change)).collect();
        self.update("groups", updates, session).await?;
        let new = self.plan.groups.iter().filter(|(_, change)| change.is_new);
        let new: Vec<_> = new.map(|(name, change)| group_document(name, change)).collect();
        if !new.is_empty() {
            self.cluster.groups.insert_many(new).session(&mut *session).await?;
        }
        Ok(())
    }

    async fn cursors(&self, session: &mut ClientSession) -> Result<(), Fault> {
        let (there, new): (Vec<_>, Vec<_>) =
            self.plan.cursors.iter().partition(|(_, change)| change.before.is_some());
        let updates = there.iter().map(|((group, lane), change)| {
            let id = cursor_id(group, *lane);
            let mut condition = doc! { "_id": id, "version": change.before.map(signed) };
            if let Some(epoch) = change.claim {
                condition.insert("claim", signed(epoch));
            }
            doc! { "q": condition, "u": { "$set": cursor_state(change) } }
        });
        self.update("cursors", updates.collect(), session).await?;
        let new = new.iter().map(|((group, lane), change)| {
            let mut document = doc! {
                "_id": cursor_id(group, *lane),
                "group": group.as_str(),
                "lane": signed(lane.id().get()),
                "topic_id": i64::from(lane.topic.get()),
                "partition": i64::from(lane.partition.get()),
            };
            document.extend(cursor_state(change));
            document
        });
        let new: Vec<_> = new.collect();
        if !new.is_empty() {
            self.cluster.cursors.insert_many(new).session(&mut *session).await?;
        }
        Ok(())
    }

    /// Updates that must all find what they look for.
    async fn update(
        &self,
        collection: &str,
        updates: Vec<Document>,
        session: &mut ClientSession,
    ) -> Result<(), Fault> {
        if updates.is_empty() {
            return Ok(());
        }
        let wanted = signed(updates.len() as u64);
        let command = doc! { "update": collection, "updates": updates };
        let answer = self.cluster.database.run_command(command).session(&mut *session).await?;
        if let Ok(errors) = answer.get_array("writeErrors") {
            return Err(Fault::Transient(format!("{collection} could not be changed: {errors:?}")));
        }
        let found =
            answer.get_i32("n").map(i64::from).or_else(|_| answer.get_i64("n")).unwrap_or(0);
        if found == wanted { Ok(()) } else { Err(Fault::Stale) }
    }
}

fn lane_update(lane: Lane, change: &LaneChange) -> Document {
    let (before, after) = (change.before, change.after);
    doc! {
        "q": { "_id": signed(lane.id().get()), "next": signed(before.next) },
        // So that it is a write, and a condition to others, where nothing else changes.
        "u": { "$set": end_of(after), "$inc": { "writes": 1_i64 } },
    }
}

fn lane_document(lane: Lane, change: &LaneChange) -> Document {
    let mut document = doc! {
        "_id": signed(lane.id().get()),
        "topic": &change.topic,
        "topic_id": i64::from(lane.topic.get()),
        "partition": i64::from(lane.partition.get()),
        "start": 0_i64,
    };
    document.extend(end_of(change.after));
    document.insert("writes", 1_i64);
    document
}

/// Where a lane ends, as its own document says it and as it is told.
pub(crate) fn end_of(head: Head) -> Document {
    doc! {
        "next": signed(head.next),
        "bytes": signed(head.bytes),
        "appendedAt": date(head.appended_at),
    }
}

fn group_update(name: &GroupName, change: &GroupChange) -> Document {
    let mut update = doc! { "$inc": { "writes": 1_i64 } };
    if let Some(settings) = &change.settings {
        update.insert("$set", doc! { "settings": settings.as_str() });
    }
    doc! { "q": { "_id": name.as_str(), "incarnation": &change.incarnation }, "u": update }
}

fn group_document(name: &GroupName, change: &GroupChange) -> Document {
    let settings = change.settings.as_ref().map(|settings| settings.as_str());
    doc! {
        "_id": name.as_str(),
        "incarnation": &change.incarnation,
        "settings": settings,
        "writes": 1_i64,
    }
}

pub(crate) fn cursor_id(group: &GroupName, lane: Lane) -> Document {
    doc! { "group": group.as_str(), "lane": signed(lane.id().get()) }
}

/// The state as bytes, and beside it what people and other queries want to see.
fn cursor_state(change: &CursorChange) -> Document {
    let state = &change.after;
    doc! {
        "version": signed(state.version),
        "floor": signed(state.floor),
        "epoch": i64::from(state.epoch),
        "generation": i64::from(state.generation),
        "state": Binary { subtype: BinarySubtype::Generic, bytes: state.encode() },
    }
}
