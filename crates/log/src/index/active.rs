use std::sync::{Mutex, MutexGuard, PoisonError};

use promethean_event::EventId;

use super::{FrameSample, IdRange};
use crate::hash::FastMap;
use crate::topic::Lane;

/// The index of the segment that is being written, in memory.
#[derive(Debug, Default)]
pub(crate) struct ActiveIndex {
    lanes: FastMap<Lane, ActiveLane>,
    frames: Vec<FrameSample>,
    ids: HashChain,
    keys: HashChain,
    id_range: Option<IdRange>,
}

/// Positions of a lane's events. Offsets in a segment that nobody cleaned have no holes, except
/// where damage took some; so an offset is the first one plus the place in the list.
#[derive(Debug, Default)]
struct ActiveLane {
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Run {
    first: u64,
    positions: Vec<u32>,
}

/// Events that follow each other in a frame and in a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneRun {
    pub(crate) lane: Lane,
    /// The offset of the first one.
    pub(crate) first: u64,
    pub(crate) count: u32,
}

impl LaneRun {
    /// Adds the next event of a frame to its runs.
    pub(crate) fn add(runs: &mut Vec<Self>, lane: Lane, offset: u64) {
        match runs.last_mut() {
            Some(run) if run.lane == lane && run.first + u64::from(run.count) == offset => {
                run.count += 1;
            }
            _ => runs.push(Self { lane, first: offset, count: 1 }),
        }
    }
}

/// An event, as the index needs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Indexed {
    pub(crate) position: u32,
    pub(crate) id: EventId,
    pub(crate) id_hash: u64,
    pub(crate) key_hash: Option<u64>,
}

impl ActiveIndex {
    pub(crate) fn add_frame(&mut self, sample: FrameSample) {
        sample.add_to(&mut self.frames);
    }

    /// Adds the events of a frame, in the order in which they stand, which is also that of the runs.
    pub(crate) fn add(&mut self, runs: &[LaneRun], events: impl Iterator<Item = Indexed>) {
        let range = self.id_range.get_or_insert(IdRange::EMPTY);
        let mut ids = self.ids.lock();
        let mut keys = self.keys.lock();
        let count = runs.iter().map(|run| run.count as usize).sum();
        ids.links.reserve(count);
        keys.links.reserve(count);
        let mut events = events;
        for run in runs {
            let positions = self.lanes.entry(run.lane).or_default().positions_from(run.first);
            positions.reserve(run.count as usize);
            for event in events.by_ref().take(run.count as usize) {
                range.add(event.id);
                positions.push(event.position);
                ids.push(event.id_hash, event.position);
                if let Some(hash) = event.key_hash {
                    keys.push(hash, event.position);
                }
            }
        }
    }

    /// First and last offset of a lane.
    pub(crate) fn lane_range(&self, lane: Lane) -> Option<(u64, u64)> {
        let runs = &self.lanes.get(&lane)?.runs;
        let first = runs.first()?.first;
        let last = runs.last()?;
        Some((first, last.first + last.positions.len() as u64 - 1))
    }

    /// Up to `max` events of a lane from offset `from` on, as (offset, position).
    pub(crate) fn positions(&self, lane: Lane, from: u64, max: usize) -> Vec<(u64, u32)> {
        let Some(lane) = self.lanes.get(&lane) else {
            return Vec::new();
        };
        let mut out = Vec::with_capacity(max.min(1024));
        for run in &lane.runs {
            let skip = from.saturating_sub(run.first) as usize;
            let rest = run.positions.get(skip..).unwrap_or_default();
            let numbered = (run.first + skip as u64..).zip(rest.iter().copied());
            out.extend(numbered.take(max - out.len()));
        }
        out
    }

    /// Up to `max` events of a lane before offset `before`, newest first.
    pub(crate) fn positions_before(&self, lane: Lane, before: u64, max: usize) -> Vec<(u64, u32)> {
        let Some(lane) = self.lanes.get(&lane) else {
            return Vec::new();
        };
        let mut out = Vec::new();
        for run in lane.runs.iter().rev() {
            let count = (before.saturating_sub(run.first) as usize).min(run.positions.len());
            let wanted = run.positions.get(..count).unwrap_or_default();
            let numbered = wanted.iter().enumerate().rev();
            out.extend(
                numbered
                    .map(|(place, &position)| (run.first + place as u64, position))
                    .take(max - out.len()),
            );
        }
        out
    }

    /// The first offset of a lane that stands at or behind a position.
    pub(crate) fn offset_from_position(&self, lane: Lane, position: u32) -> Option<u64> {
        self.lanes.get(&lane)?.runs.iter().find_map(|run| {
            let place = run.positions.partition_point(|&known| known < position);
            (place < run.positions.len()).then_some(run.first + place as u64)
        })
    }

    /// Positions at which an id with this hash may stand.
    pub(crate) fn find_id(&self, id: &EventId, hash: u64) -> Vec<u32> {
        if self.id_range.is_none_or(|range| !range.may_have(id)) {
            return Vec::new();
        }
        self.ids.find(hash)
    }

    /// Positions at which a key with this hash may stand, newest first.
    pub(crate) fn find_key(&self, hash: u64) -> Vec<u32> {
        self.keys.find(hash)
    }

    /// The position of the newest event of each key hash.
    pub(crate) fn newest_of_keys(&self) -> Vec<u32> {
        self.keys.newest()
    }

    pub(crate) fn id_range(&self) -> IdRange {
        self.id_range.unwrap_or(IdRange::EMPTY)
    }

    pub(crate) fn frames(&self) -> &[FrameSample] {
        &self.frames
    }
}

impl ActiveLane {
    /// The list in which an offset comes next.
    fn positions_from(&mut self, offset: u64) -> &mut Vec<u32> {
        let follows = |run: &Run| run.first + run.positions.len() as u64 == offset;
        if !self.runs.last().is_some_and(follows) {
            self.runs.push(Run { first: offset, positions: Vec::new() });
        }
        let Some(run) = self.runs.last_mut() else { unreachable!("there is one now") };
        &mut run.positions
    }
}

/// Positions by hash. Publishing only appends to a list; the hash table is brought up to date by
/// the first look-up that needs it, so that a log that is only written never pays for it.
#[derive(Debug, Default)]
struct HashChain(Mutex<Chain>);

#[derive(Debug, Default)]
struct Chain {
    links: Vec<Link>,
    newest: FastMap<u64, u32>,
    linked: usize,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    hash: u64,
    position: u32,
    /// One more than the place of the link before with the same hash; 0 for none.
    before: u32,
}

impl HashChain {
    fn lock(&self) -> MutexGuard<'_, Chain> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, hash: u64) -> Vec<u32> {
        let mut chain = self.lock();
        chain.catch_up();
        let mut found = Vec::new();
        let mut next = chain.newest.get(&hash).copied().unwrap_or(0);
        while let Some(link) = next.checked_sub(1).and_then(|place| chain.links.get(place as usize))
        {
            found.push(link.position);
            next = link.before;
        }
        found
    }

    fn newest(&self) -> Vec<u32> {
        let mut chain = self.lock();
        chain.catch_up();
        let places = chain.newest.values();
        let links = places.filter_map(|place| chain.links.get(place.checked_sub(1)? as usize));
        links.map(|link| link.position).collect()
    }
}

impl Chain {
    fn push(&mut self, hash: u64, position: u32) {
        self.links.push(Link { hash, position, before: 0 });
    }

    fn catch_up(&mut self) {
        let fresh = self.links.get_mut(self.linked..).unwrap_or_default();
        for (place, link) in (self.linked as u32..).zip(fresh) {
            link.before = self.newest.insert(link.hash, place + 1).unwrap_or(0);
        }
        self.linked = self.links.len();
    }
}
