use std::collections::{HashMap, HashSet, VecDeque};

use promethean_event::{EventId, Topic};

use super::index::{CausalityError, Causes};
use crate::bus::Bus;
use crate::store::{ReadError, Stored, event_at};

/// Effects of one event that are followed.
const EFFECTS_MAX: usize = 1_000;

/// How far a trace goes.
#[derive(Debug, Clone, Copy)]
pub struct TraceWish {
    /// Towards causes.
    pub up: bool,
    /// Towards effects.
    pub down: bool,
    /// Steps in either direction.
    pub depth: u32,
    /// Events altogether.
    pub events: usize,
}

/// An event of a trace.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TraceNode {
    /// The event; `None` if it is not there any more, or not for whoever asks to see.
    pub stored: Option<Box<Stored>>,
    /// Its id.
    pub id: EventId,
    /// How far from where the trace began: causes below 0, effects above.
    pub depth: i64,
    /// Its causes.
    pub causes: Vec<EventId>,
    /// Those of its effects that are in the trace.
    pub effects: Vec<EventId>,
}

/// An event with what led to it and what it led to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Trace {
    /// Where it began.
    pub id: EventId,
    /// All events, causes first.
    pub nodes: Vec<TraceNode>,
    /// Whether there is more than was asked for.
    pub is_cut: bool,
}

/// A trace while it is made.
struct Walk<'a> {
    causes: &'a Causes,
    wish: TraceWish,
    may_read: &'a (dyn Fn(&Topic) -> bool + Send + Sync),
    nodes: HashMap<EventId, TraceNode>,
    order: Vec<EventId>,
    is_cut: bool,
}

impl Causes {
    /// What led to an event, and what it led to. `None` if nobody knows the event. Topics that may
    /// not be read are not there.
    pub async fn trace(
        &self,
        id: EventId,
        wish: TraceWish,
        may_read: &(dyn Fn(&Topic) -> bool + Send + Sync),
    ) -> Result<Option<Trace>, CausalityError> {
        self.catch_up().await?;
        let mut walk = Walk {
            causes: self,
            wish,
            may_read,
            nodes: HashMap::new(),
            order: Vec::new(),
            is_cut: false,
        };
        let root = walk.find(id).await?;
        if root.is_none() && self.effects(id, 1).await?.is_empty() {
            return Ok(None);
        }
        walk.add(id, root, 0);
        if wish.up {
            walk.up(id).await?;
        }
        if wish.down {
            walk.down(id).await?;
        }
        let Walk { mut nodes, order, is_cut, .. } = walk;
        let mut nodes: Vec<TraceNode> = order.iter().filter_map(|id| nodes.remove(id)).collect();
        nodes.sort_by_key(|node| node.depth);
        Ok(Some(Trace { id, nodes, is_cut }))
    }
}

impl Walk<'_> {
    fn bus(&self) -> &Bus {
        &self.causes.bus
    }

    /// The event with an id, in the first topic that has it and may be read.
    async fn find(&self, id: EventId) -> Result<Option<Stored>, ReadError> {
        let topics = self.bus().topics();
        for entry in topics.users().filter(|entry| (self.may_read)(&entry.definition.topic)) {
            if let Some(stored) = self.bus().store().find(entry.id, id).await? {
                return Ok(Some(stored));
            }
        }
        Ok(None)
    }

    /// Whether it was not there yet.
    fn add(&mut self, id: EventId, stored: Option<Stored>, depth: i64) -> bool {
        if self.nodes.contains_key(&id) {
            return false;
        }
        if self.nodes.len() >= self.wish.events {
            self.is_cut = true;
            return false;
        }
        let causes = stored.as_ref().map(|stored| stored.event.caused_by.clone());
        let node = TraceNode {
            stored: stored.map(Box::new),
            id,
            depth,
            causes: causes.unwrap_or_default(),
            effects: Vec::new(),
        };
        self.nodes.insert(id, node);
        self.order.push(id);
        true
    }

    async fn up(&mut self, id: EventId) -> Result<(), CausalityError> {
        let mut waiting = VecDeque::from([(id, 0_i64)]);
        while let Some((id, depth)) = waiting.pop_front() {
            let causes = self.nodes.get(&id).map(|node| node.causes.clone()).unwrap_or_default();
            if !causes.is_empty() && depth.unsigned_abs() >= u64::from(self.wish.depth) {
                self.is_cut = true;
                continue;
            }
            for cause in causes {
                // To find it may mean to look in every topic.
                let is_new = !self.nodes.contains_key(&cause);
                let stored = if is_new { self.find(cause).await? } else { None };
                if self.add(cause, stored, depth - 1) {
                    waiting.push_back((cause, depth - 1));
                }
                if let Some(node) = self.nodes.get_mut(&cause)
                    && !node.effects.contains(&id)
                {
                    node.effects.push(id);
                }
            }
        }
        Ok(())
    }

    async fn down(&mut self, id: EventId) -> Result<(), CausalityError> {
        let mut waiting = VecDeque::from([(id, 0_i64)]);
        let mut seen = HashSet::from([id]);
        while let Some((id, depth)) = waiting.pop_front() {
            let effects = self.causes.effects(id, EFFECTS_MAX + 1).await?;
            self.is_cut |= effects.len() > EFFECTS_MAX;
            if !effects.is_empty() && depth >= i64::from(self.wish.depth) {
                self.is_cut = true;
                continue;
            }
            for effect in effects.into_iter().take(EFFECTS_MAX) {
                let topics = self.bus().topics();
                let entry = topics.by_id(effect.lane.topic);
                if !entry.is_some_and(|entry| (self.may_read)(&entry.definition.topic)) {
                    continue;
                }
                let store = self.bus().store();
                // Nothing there: cleaned away since it was indexed.
                let found = event_at(&**store, effect.lane, effect.offset).await?;
                let Some(stored) = found else { continue };
                let effect = stored.event.id;
                if !seen.insert(effect) {
                    continue;
                }
                if self.add(effect, Some(stored), depth + 1) {
                    waiting.push_back((effect, depth + 1));
                }
                let is_in = self.nodes.contains_key(&effect);
                if let Some(node) = self.nodes.get_mut(&id)
                    && is_in
                    && !node.effects.contains(&effect)
                {
                    node.effects.push(effect);
                }
            }
        }
        Ok(())
    }
}
