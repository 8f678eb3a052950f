//! What one transaction will write, decided from what is known: no database here. What was known
//! wrongly is found by the conditions that the plan's writes carry, and planned again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mongodb::bson::raw::RawDocumentBuf;
use promethean::store::{
    Append, AppendError, Appended, Durability, GroupSave, Lane, LaneState, Receipt, SaveError,
    Stored, TopicId, TopicTable,
};
use promethean_event::limits::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};
use promethean_event::{EventId, GroupName, NewEvent, Offset, Payload, Timestamp, Topic};

use crate::document::{Content, Placing, is_same};
use crate::limits::NEWS_WITHIN_EVENTS_MAX;

/// Where a lane ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Head {
    pub(crate) next: u64,
    /// Bytes of all its events, ever.
    pub(crate) bytes: u64,
    /// When the last one was appended.
    pub(crate) appended_at: Timestamp,
    /// Whether it has a document.
    pub(crate) exists: bool,
}

/// What is known of a group.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownGroup {
    /// Which group of this name.
    pub(crate) incarnation: String,
    pub(crate) lanes: BTreeMap<Lane, KnownCursor>,
}

/// What is known of the cursor of a lane.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownCursor {
    /// `None` if the lane was claimed, and nothing was saved yet.
    pub(crate) state: Option<LaneState>,
    /// The epoch of the claim that a hub has to it.
    pub(crate) claim: Option<u64>,
}

/// Something to write.
#[derive(Debug)]
pub(crate) enum Wish {
    Append(Append),
    Save(GroupSave),
}

impl Wish {
    pub(crate) fn events(&self) -> &[NewEvent] {
        match self {
            Self::Append(append) => &append.events,
            Self::Save(save) => &save.dead_letters,
        }
    }
}

/// What planning goes by.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) table: &'a TopicTable,
    pub(crate) heads: &'a HashMap<Lane, Head>,
    /// `None`: there is no such group.
    pub(crate) groups: &'a HashMap<GroupName, Option<KnownGroup>>,
    /// Events that turned out to be there already.
    pub(crate) found: &'a HashMap<(TopicId, EventId), Stored>,
    /// What is written of the events of each wish, wherever they stand.
    pub(crate) contents: &'a [Vec<Arc<Content>>],
    pub(crate) now: Timestamp,
}

impl View<'_> {
    fn contents_of(&self, wish: usize) -> &[Arc<Content>] {
        self.contents.get(wish).map(Vec::as_slice).unwrap_or_default()
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Appended(Result<Appended, AppendError>),
    Saved(Result<(), SaveError>),
}

impl Answer {
    /// Whether it refuses because of something that may have been known wrongly.
    fn may_be_mistaken(&self) -> bool {
        let by_append = |error: &AppendError| {
            matches!(
                error,
                AppendError::UnknownTopic(_)
                    | AppendError::UnknownLane(_)
                    | AppendError::OffsetMismatch { .. }
            )
        };
        match self {
            Self::Appended(Err(error)) => by_append(error),
            Self::Saved(Err(SaveError::Append(error))) => by_append(error),
            Self::Saved(Err(
                SaveError::UnknownGroup(_) | SaveError::OutOfOrder(_) | SaveError::Fenced(_),
            )) => true,
            _ => false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct LaneChange {
    pub(crate) topic: String,
    pub(crate) before: Head,
    pub(crate) after: Head,
}

#[derive(Debug)]
pub(crate) struct CursorChange {
    /// The version it has; `None` if it has no document.
    pub(crate) before: Option<u64>,
    /// The epoch of the claim by which it is changed.
    pub(crate) claim: Option<u64>,
    pub(crate) after: LaneState,
}

#[derive(Debug)]
pub(crate) struct GroupChange {
    pub(crate) is_new: bool,
    pub(crate) incarnation: String,
    pub(crate) settings: Option<Payload>,
}

/// An event at its place.
#[derive(Debug, Clone)]
pub(crate) struct PlannedEvent {
    pub(crate) topic: Topic,
    pub(crate) content: Arc<Content>,
    pub(crate) placing: Placing,
}

impl PlannedEvent {
    pub(crate) fn document(&self) -> RawDocumentBuf {
        self.content.at(&self.topic, &self.placing)
    }
}

/// What one transaction writes, and what everybody is answered then.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Where events go. Their documents are made once their lanes are ours: of several hubs that want
    /// the same lane, all but one would make them in vain.
    pub(crate) events: Vec<PlannedEvent>,
    pub(crate) ids: Vec<(TopicId, EventId)>,
    pub(crate) lanes: BTreeMap<Lane, LaneChange>,
    pub(crate) cursors: BTreeMap<(GroupName, Lane), CursorChange>,
    pub(crate) groups: BTreeMap<GroupName, GroupChange>,
    pub(crate) answers: Vec<Answer>,
    /// Where the events of this plan stand: wish, number in it, place.
    placed: HashMap<(TopicId, EventId), (usize, usize, Receipt)>,
}

impl Plan {
    pub(crate) fn make(wishes: &[Wish], view: &View<'_>) -> Self {
        let mut plan = Self::default();
        for (number, wish) in wishes.iter().enumerate() {
            let answer = match wish {
                Wish::Append(append) => Answer::Appended(plan.append(wishes, number, append, view)),
                Wish::Save(save) => Answer::Saved(plan.save(wishes, number, save, view)),
            };
            plan.answers.push(answer);
        }
        plan
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
            && self.lanes.is_empty()
            && self.cursors.is_empty()
            && self.groups.is_empty()
    }

    /// Where lanes end for this plan to hold.
    pub(crate) fn begins(&self) -> Vec<(Lane, u64)> {
        self.lanes.iter().map(|(lane, change)| (*lane, change.before.next)).collect()
    }

    /// Whether some of its lanes have no document yet.
    pub(crate) fn makes_lanes(&self) -> bool {
        self.lanes.values().any(|change| !change.before.exists)
    }

    /// The lanes that it makes longer, and where they end then.
    pub(crate) fn grown(&self) -> impl Iterator<Item = (Lane, Head)> {
        let grown = self.lanes.iter().filter(|(_, change)| change.after.next > change.before.next);
        grown.map(|(lane, change)| (*lane, Head { exists: true, ..change.after }))
    }

    /// Whether what is to be told of it goes with it, and not behind it.
    pub(crate) fn tells_within(&self) -> bool {
        self.events.len() <= NEWS_WITHIN_EVENTS_MAX
    }

    /// Whether somebody is refused because of something that may have been known wrongly.
    pub(crate) fn may_be_mistaken(&self) -> bool {
        self.answers.iter().any(Answer::may_be_mistaken)
    }

    fn append(
        &mut self,
        wishes: &[Wish],
        number: usize,
        append: &Append,
        view: &View<'_>,
    ) -> Result<Appended, AppendError> {
        let bytes: usize = view.contents_of(number).iter().map(|content| content.bytes).sum();
        if append.events.is_empty() {
            return Err(AppendError::Empty);
        }
        if append.events.len() > BATCH_EVENTS_MAX || bytes > BATCH_BYTES_MAX {
            return Err(AppendError::TooLarge { events: append.events.len(), bytes });
        }
        // Before anything else is looked at, as in every store: a retry with a condition is refused.
        for event in &append.events {
            entry(view.table, &event.topic)?;
        }
        for expectation in &append.expect {
            let (lane, expected) = (expectation.lane, expectation.next);
            let actual = self.head(lane, view).ok_or(AppendError::UnknownLane(lane))?.next;
            let actual = Offset::new(actual);
            if actual != expected {
                return Err(AppendError::OffsetMismatch { lane, expected, actual });
            }
        }
        let (receipts, appended_at) = self.place(wishes, number, &append.events, view)?;
        for expectation in &append.expect {
            // Also a lane that nothing goes to must still end there when all of this is committed.
            self.change(expectation.lane, view);
        }
        let receipts = receipts.into();
        Ok(Appended { receipts, appended_at, durability: Durability::Synced })
    }

    fn save(
        &mut self,
        wishes: &[Wish],
        number: usize,
        save: &GroupSave,
        view: &View<'_>,
    ) -> Result<(), SaveError> {
        let known = view.groups.get(&save.group).and_then(Option::as_ref);
        let begun = self.groups.contains_key(&save.group);
        if known.is_none() && !begun && save.settings.is_none() {
            return Err(SaveError::UnknownGroup(save.group.clone()));
        }
        let is_lost = |(lane, epoch): &&(Lane, u64)| {
            let claim = known.and_then(|known| known.lanes.get(lane)).and_then(|c| c.claim);
            view.table.by_id(lane.topic).is_some() && claim != Some(*epoch)
        };
        let lost: Vec<Lane> = save.claims.iter().filter(is_lost).map(|(lane, _)| *lane).collect();
        if !lost.is_empty() {
            return Err(SaveError::Fenced(lost));
        }
        let mut changed: BTreeMap<Lane, LaneState> = BTreeMap::new();
        let live = |(lane, _): &&(Lane, _)| view.table.by_id(lane.topic).is_some();
        for (lane, delta) in save.lanes.iter().filter(live) {
            let planned = self.cursors.get(&(save.group.clone(), *lane));
            let state = changed.entry(*lane).or_insert_with(|| {
                let kept = || known.and_then(|known| known.lanes.get(lane)?.state.clone());
                planned.map(|planned| planned.after.clone()).or_else(kept).unwrap_or_default()
            });
            state.apply(delta)?;
        }
        // The last thing that can be refused: from here on all of it happens.
        self.place(wishes, number, &save.dead_letters, view)?;
        for (lane, after) in changed {
            let before = known.and_then(|known| known.lanes.get(&lane));
            let cursor = self.cursors.entry((save.group.clone(), lane));
            let state = before.map(|cursor| cursor.state.as_ref());
            let version = state.map(|state| state.map_or(0, |state| state.version));
            let (claim, after_nothing) = (None, LaneState::default());
            let change = CursorChange { before: version, claim, after: after_nothing };
            let change = cursor.or_insert(change);
            change.after = after;
            let by = save.claims.iter().find(|(claimed, _)| *claimed == lane);
            change.claim = change.claim.or(by.map(|(_, epoch)| *epoch));
        }
        // Also where only a lane is new: a group that was removed meanwhile must not get one.
        let incarnation = || known.map_or_else(new_incarnation, |known| known.incarnation.clone());
        let group = self.groups.entry(save.group.clone()).or_insert_with(|| GroupChange {
            is_new: known.is_none(),
            incarnation: incarnation(),
            settings: None,
        });
        if let Some(settings) = &save.settings {
            group.settings = Some(settings.clone());
        }
        Ok(())
    }

    /// Gives events their places; all of them or none.
    fn place(
        &mut self,
        wishes: &[Wish],
        number: usize,
        events: &[NewEvent],
        view: &View<'_>,
    ) -> Result<(Vec<Receipt>, Timestamp), AppendError> {
        let mut receipts = Vec::with_capacity(events.len());
        let mut ends: HashMap<Lane, u64> = HashMap::new();
        let mut here: HashMap<(TopicId, EventId), (usize, Receipt)> = HashMap::new();
        for (index, event) in events.iter().enumerate() {
            let (topic, lane) = lane_of(view.table, event)?;
            if let Some((first, receipt)) = here.get(&(topic, event.id)) {
                let same = events.get(*first).is_some_and(|first| is_equal(first, event));
                receipts.push(duplicate(*receipt, same, event)?);
                continue;
            }
            if let Some(receipt) = self.first_place(wishes, topic, event, view)? {
                receipts.push(receipt);
                continue;
            }
            let unknown = || AppendError::UnknownTopic(event.topic.clone());
            let head = self.head(lane, view).ok_or_else(unknown)?;
            let end = ends.entry(lane).or_insert(head.next);
            let receipt = Receipt { lane, offset: Offset::new(*end), duplicate: false };
            *end += 1;
            here.insert((topic, event.id), (index, receipt));
            receipts.push(receipt);
        }
        // Nothing can be refused any more.
        let mut appended_at = view.now;
        let placed = events.iter().zip(&receipts).zip(view.contents_of(number));
        for (index, ((event, receipt), content)) in placed.enumerate() {
            if !receipt.duplicate {
                let at = self.write((&event.topic, content), receipt, view);
                appended_at = appended_at.max(at);
                let id = (receipt.lane.topic, event.id);
                self.placed.insert(id, (number, index, *receipt));
                self.ids.push(id);
            }
        }
        Ok((receipts, appended_at))
    }

    /// Where an event stands that was there before: in the store, or earlier in this plan.
    fn first_place(
        &self,
        wishes: &[Wish],
        topic: TopicId,
        event: &NewEvent,
        view: &View<'_>,
    ) -> Result<Option<Receipt>, AppendError> {
        if let Some(first) = view.found.get(&(topic, event.id)) {
            let lane = Lane { topic, partition: first.event.partition };
            let receipt = Receipt { lane, offset: first.event.offset, duplicate: true };
            return duplicate(receipt, is_same(&first.event, event), event).map(Some);
        }
        let Some((wish, index, receipt)) = self.placed.get(&(topic, event.id)) else {
            return Ok(None);
        };
        let first = wishes.get(*wish).and_then(|wish| wish.events().get(*index));
        let same = first.is_some_and(|first| is_equal(first, event));
        duplicate(*receipt, same, event).map(Some)
    }

    fn write(
        &mut self,
        (topic, content): (&Topic, &Arc<Content>),
        receipt: &Receipt,
        view: &View<'_>,
    ) -> Timestamp {
        let bytes = content.bytes;
        let now = view.now;
        let head = &mut self.change(receipt.lane, view).after;
        head.next = receipt.offset.get() + 1;
        head.bytes += bytes as u64;
        // Append times never go back, whatever the clocks of hubs do.
        head.appended_at = head.appended_at.max(now);
        let placing = Placing {
            topic: receipt.lane.topic,
            partition: receipt.lane.partition,
            offset: receipt.offset,
            appended_at: head.appended_at,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            bytes_to_here: head.bytes,
        };
        let (topic, content) = (topic.clone(), Arc::clone(content));
        self.events.push(PlannedEvent { topic, content, placing });
        placing.appended_at
    }

    /// Where a lane ends after what is planned; `None` if there is no such lane.
    fn head(&self, lane: Lane, view: &View<'_>) -> Option<Head> {
        if let Some(change) = self.lanes.get(&lane) {
            return Some(change.after);
        }
        let entry = view.table.by_id(lane.topic)?;
        if lane.partition.get() >= entry.definition.partitions.get() {
            return None;
        }
        Some(view.heads.get(&lane).copied().unwrap_or_default())
    }

    fn change(&mut self, lane: Lane, view: &View<'_>) -> &mut LaneChange {
        let before = self.head(lane, view).unwrap_or_default();
        self.lanes.entry(lane).or_insert_with(|| {
            let entry = view.table.by_id(lane.topic);
            let topic = entry.map(|entry| entry.definition.topic.as_str().to_owned());
            LaneChange { topic: topic.unwrap_or_default(), before, after: before }
        })
    }
}

fn new_incarnation() -> String {
    EventId::generate().to_string()
}

fn entry<'a>(
    table: &'a TopicTable,
    topic: &Topic,
) -> Result<&'a promethean::store::TopicEntry, AppendError> {
    table.get(topic).ok_or_else(|| AppendError::UnknownTopic(topic.clone()))
}

/// The lane that an event goes to.
pub(crate) fn lane_of(
    table: &TopicTable,
    event: &NewEvent,
) -> Result<(TopicId, Lane), AppendError> {
    let entry = entry(table, &event.topic)?;
    let partition = entry.definition.partitions.partition_of(event.key.as_ref(), &event.id);
    Ok((entry.id, Lane { topic: entry.id, partition }))
}

fn duplicate(receipt: Receipt, same: bool, event: &NewEvent) -> Result<Receipt, AppendError> {
    if !same {
        return Err(AppendError::IdConflict { topic: event.topic.clone(), id: event.id });
    }
    Ok(Receipt { duplicate: true, ..receipt })
}

fn is_equal(first: &NewEvent, again: &NewEvent) -> bool {
    (&first.sid, &first.key, &first.headers) == (&again.sid, &again.key, &again.headers)
        && first.payload == again.payload
        && (&first.caused_by, &first.tags) == (&again.caused_by, &again.tags)
}
