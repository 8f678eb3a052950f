//! Events of another store, at their places and times; and where lanes start and end.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use mongodb::ClientSession;
use mongodb::bson::doc;
use promethean::store::{Lane, LaneBounds, Stored, TopicTable, unplaced};

use crate::carry_out::CarryOut;
use crate::cleaning;
use crate::cluster::Cluster;
use crate::document::{Content, Placing, signed};
use crate::fault::Fault;
use crate::limits::{COMMIT_BYTES_MAX, COMMIT_EVENTS_MAX};
use crate::news::{self, About};
use crate::plan::{Head, LaneChange, Plan, PlannedEvent};
use crate::transaction::{Attempt, Step, transact};
use crate::writer::{Writer, heads};

impl Writer {
    /// Takes up events, in as many transactions as it needs: each ends where the next one begins, so
    /// that one that was cut off is gone on with.
    pub(crate) async fn restore(&mut self, events: Vec<(Lane, Stored)>) -> Result<(), Fault> {
        let mut events = events.into_iter().peekable();
        while events.peek().is_some() {
            let (mut piece, mut bytes) = (Vec::new(), 0);
            while piece.len() < COMMIT_EVENTS_MAX
                && bytes < COMMIT_BYTES_MAX
                && let Some((lane, stored)) = events.next()
            {
                bytes += stored.bytes as usize;
                piece.push((lane, stored));
            }
            self.restore_piece(piece).await?;
        }
        Ok(())
    }

    async fn restore_piece(&mut self, events: Vec<(Lane, Stored)>) -> Result<(), Fault> {
        let lanes: BTreeSet<Lane> = events.iter().map(|(lane, _)| *lane).collect();
        let known = heads(&self.cluster, &lanes).await?;
        let table = self.table.get();
        let head = |lane: Lane| known.get(&lane).copied().unwrap_or_default();
        let mut plan = Plan::default();
        for (lane, stored) in events {
            let change = match plan.lanes.entry(lane) {
                std::collections::btree_map::Entry::Occupied(change) => change.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    let (topic, before) = (name(&table, lane)?, head(lane));
                    place.insert(LaneChange { topic, before, after: before })
                }
            };
            if stored.event.offset.get() >= change.after.next {
                plan.events.push(placed(lane, stored, &mut change.after));
            }
        }
        if plan.events.is_empty() {
            return Ok(());
        }
        let plan = Arc::new(plan);
        let (cluster, growing) = (self.cluster.clone(), Arc::clone(&self.growing));
        let attempt = CarryOut { cluster, plan: Arc::clone(&plan), growing };
        transact(&self.cluster, self.cluster.deadline(), attempt).await?;
        self.remember(plan);
        Ok(())
    }

    /// Says where lanes start and end.
    pub(crate) async fn place(&mut self, lanes: &[(Lane, LaneBounds)]) -> Result<(), Fault> {
        let table = self.table.get();
        let named = lanes.iter().map(|(lane, to)| Ok((*lane, name(&table, *lane)?, *to)));
        let lanes: Vec<_> = named.collect::<Result<_, Fault>>()?;
        for (lane, ..) in &lanes {
            self.known.heads.remove(lane);
        }
        let ends: Vec<_> = lanes.iter().map(|(lane, _, to)| (*lane, to.next.get())).collect();
        let starts: Vec<_> = lanes.iter().map(|(lane, _, to)| (*lane, to.start.get())).collect();
        let attempt = Place { cluster: self.cluster.clone(), lanes };
        transact(&self.cluster, self.cluster.deadline(), attempt).await?;
        for (lane, start) in starts {
            if let Some(entry) = table.by_id(lane.topic) {
                cleaning::delete_before(&self.cluster, entry, lane, start).await?;
            }
        }
        self.growing.lose_tails();
        self.growing.note_ends(ends);
        Ok(())
    }
}

fn name(table: &TopicTable, lane: Lane) -> Result<String, Fault> {
    let entry = table.by_id(lane.topic);
    let entry = entry.filter(|entry| lane.partition.get() < entry.definition.partitions.get());
    entry
        .map(|entry| entry.definition.topic.as_str().to_owned())
        .ok_or_else(|| Fault::Refused(format!("there is no lane {lane:?}")))
}

/// An event at its own place, and where its lane ends behind it.
fn placed(lane: Lane, stored: Stored, end: &mut Head) -> PlannedEvent {
    let (offset, appended_at) = (stored.event.offset, stored.appended_at);
    let event = unplaced(stored.event);
    let content = Content::of(&event);
    let bytes = content.bytes;
    end.next = offset.get() + 1;
    end.bytes += bytes as u64;
    end.appended_at = end.appended_at.max(appended_at);
    let placing = Placing {
        topic: lane.topic,
        partition: lane.partition,
        offset,
        appended_at,
        bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        bytes_to_here: end.bytes,
    };
    PlannedEvent { topic: event.topic, content: Arc::new(content), placing }
}

struct Place {
    cluster: Cluster,
    lanes: Vec<(Lane, String, LaneBounds)>,
}

impl Attempt for Place {
    type Outcome = ();

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<()>, Fault>> {
        Box::pin(async move {
            for (lane, topic, to) in &self.lanes {
                let id = signed(lane.id().get());
                let (start, next) = (signed(to.start.get()), signed(to.next.get()));
                let is_behind = doc! { "_id": id, "$or": [
                    { "next": { "$gt": next } }, { "start": { "$gt": start } },
                ] };
                let found = self.cluster.lanes.find_one(is_behind).session(&mut *session).await?;
                if found.is_some() || next < start {
                    let text = format!("lane {lane:?} is beyond {start} to {next} already");
                    return Err(Fault::Refused(text));
                }
                let change = doc! {
                    "$set": { "start": start, "next": next },
                    "$inc": { "writes": 1_i64 },
                    "$setOnInsert": {
                        "topic": topic, "topic_id": i64::from(lane.topic.get()),
                        "partition": i64::from(lane.partition.get()),
                        "bytes": 0_i64, "appendedAt": crate::document::date(Default::default()),
                    },
                };
                let lanes = &self.cluster.lanes;
                let placing = lanes.update_one(doc! { "_id": id }, change).upsert(true);
                placing.session(&mut *session).await?;
            }
            news::tell_within(&self.cluster, session, About::Ends).await?;
            Ok(Step::Commit(()))
        })
    }
}
