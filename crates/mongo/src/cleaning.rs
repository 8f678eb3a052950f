//! Retention and compaction. The low-water mark moves first, then events go: a reader who comes in
//! between finds events that nobody promised him, never a hole that nobody explains. Look-ups do not
//! find them any more. If it is cut off in between, the next cleaning of any hub deletes what is left,
//! whatever the rules of the topic are by then.

use std::collections::BTreeMap;

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use mongodb::options::Hint;
use promethean::store::{Cleaning, Compaction, Lane, LaneBounds, TopicEntry};
use promethean_event::{Offset, Timestamp};

use crate::cluster::{BY_KEY, BY_OFFSET, Cluster, TOMBSTONES};
use crate::document::{date, signed, unsigned};
use crate::fault::Fault;
use crate::limits::DELETE_EVENTS_MAX;
use crate::lookup::{self, of_lane, of_topic};
use crate::reading::bounds;

/// A lane that is being cleaned.
struct Cleaner<'a> {
    cluster: &'a Cluster,
    entry: &'a TopicEntry,
    lane: Lane,
    /// What is from here on stays.
    hold: u64,
    now: Timestamp,
}

/// Removes what the rules of a topic let go, except from the given offsets on.
pub(crate) async fn clean(
    cluster: &Cluster,
    entry: &TopicEntry,
    holds: &[(Lane, Offset)],
    now: Timestamp,
) -> Result<(), Fault> {
    for (lane, start) in starts(cluster, entry).await? {
        delete_before(cluster, entry, lane, start).await?;
    }
    let Cleaning { age_ms_max, bytes_max, compaction } = entry.definition.cleaning;
    if age_ms_max.is_none() && bytes_max.is_none() && compaction.is_none() {
        return Ok(());
    }
    for lane in entry.lanes() {
        let on_lane = holds.iter().filter(|(held, _)| *held == lane);
        let hold = on_lane.map(|(_, offset)| offset.get()).min().unwrap_or(u64::MAX);
        Cleaner { cluster, entry, lane, hold, now }.run(entry.definition.cleaning).await?;
    }
    Ok(())
}

/// Where lanes of a topic start that have let something go.
pub(crate) async fn starts(
    cluster: &Cluster,
    entry: &TopicEntry,
) -> Result<Vec<(Lane, u64)>, Fault> {
    let id = i64::from(entry.id.get());
    let moved = doc! {
        "_id": { "$gte": id << 32, "$lt": (id + 1) << 32 }, "start": { "$gt": 0_i64 },
    };
    let reading = cluster.lanes.find(moved).projection(doc! { "start": 1 });
    let found: Vec<Document> = cluster.ask(async { reading.await?.try_collect().await }).await?;
    let start_of = |lane: Lane| {
        let id = signed(lane.id().get());
        let is_its = |document: &&Document| document.get_i64("_id").is_ok_and(|found| found == id);
        let document = found.iter().find(is_its)?;
        Some((lane, unsigned(document.get_i64("start").ok()?)))
    };
    Ok(if found.is_empty() { Vec::new() } else { entry.lanes().filter_map(start_of).collect() })
}

/// Removes what a lane has below its start, which was moved.
pub(crate) async fn delete_before(
    cluster: &Cluster,
    entry: &TopicEntry,
    lane: Lane,
    start: u64,
) -> Result<(), Fault> {
    let cleaner = Cleaner { cluster, entry, lane, hold: u64::MAX, now: Timestamp::default() };
    match cleaner.event_from(0).await? {
        Some(first) if first.offset < start => cleaner.delete_range(first.offset, start).await,
        _ => Ok(()),
    }
}

impl Cleaner<'_> {
    async fn run(&self, rules: Cleaning) -> Result<(), Fault> {
        let lane = bounds(self.cluster, self.lane).await?;
        if lane.start == lane.next {
            return Ok(());
        }
        let mut start = lane.start.get();
        if let Some(age) = rules.age_ms_max {
            start = start.max(self.first_since(age, lane).await?);
        }
        if let Some(bytes) = rules.bytes_max {
            let is_compacted = rules.compaction.is_some();
            start = start.max(self.start_by_bytes(bytes, lane, is_compacted).await?);
        }
        let start = start.min(self.hold).min(lane.next.get());
        if start > lane.start.get() {
            self.expire(lane.start.get(), start).await?;
        }
        if let Some(rule) = rules.compaction {
            self.compact(rule, LaneBounds { start: Offset::new(start), ..lane }).await?;
        }
        Ok(())
    }

    /// The first offset that is younger than this; the end if there is none.
    async fn first_since(&self, age_ms: u64, lane: LaneBounds) -> Result<u64, Fault> {
        let oldest = Timestamp::from_millis(self.now.millis().saturating_sub(age_ms));
        let first = lookup::offset_at(self.cluster, self.entry, self.lane, oldest).await?;
        Ok(first.map_or(lane.next.get(), Offset::get))
    }

    /// Moves the low-water mark, then deletes what is below.
    async fn expire(&self, from: u64, start: u64) -> Result<(), Fault> {
        let id = doc! { "_id": signed(self.lane.id().get()) };
        let mark = doc! { "$max": { "start": signed(start) } };
        self.cluster.ask(self.cluster.lanes.update_one(id, mark)).await?;
        self.delete_range(from, start).await
    }

    async fn delete_range(&self, from: u64, start: u64) -> Result<(), Fault> {
        // In pieces, so that none takes longer than a deadline and others get their turn.
        let mut begin = from;
        while begin < start {
            let end = start.min(begin + DELETE_EVENTS_MAX);
            let mut filter = of_lane(self.entry, self.lane);
            filter.insert("offset", doc! { "$gte": signed(begin), "$lt": signed(end) });
            self.delete(filter, BY_OFFSET).await?;
            begin = end;
        }
        Ok(())
    }

    async fn delete(&self, filter: Document, index: &str) -> Result<(), Fault> {
        let deleting = self.cluster.events.delete_many(filter);
        let deleting = deleting.hint(Hint::Name(index.to_owned()));
        self.cluster.ask(deleting).await?;
        Ok(())
    }

    /// Where the lane must start to have no more than so many bytes.
    async fn start_by_bytes(
        &self,
        bytes_max: u64,
        lane: LaneBounds,
        is_compacted: bool,
    ) -> Result<u64, Fault> {
        if is_compacted {
            return self.start_by_sizes(bytes_max, lane).await;
        }
        let Some(newest) = self.event_from(lane.next.get() - 1).await? else {
            return Ok(lane.start.get());
        };
        let total = newest.bytes_to_here;
        let fits =
            |event: &Passed| total.saturating_sub(event.bytes_to_here) + event.bytes <= bytes_max;
        // The sums rise with the offsets: halve the range until the first that fits is found.
        let (mut low, mut high) = (lane.start.get(), lane.next.get());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.event_from(middle).await? {
                Some(event) if fits(&event) => high = middle,
                Some(event) => low = event.offset + 1,
                None => high = middle,
            }
        }
        Ok(low)
    }

    /// The same where compaction leaves holes in the sums: event by event, newest first.
    async fn start_by_sizes(&self, bytes_max: u64, lane: LaneBounds) -> Result<u64, Fault> {
        let sort = doc! { "topic": -1, "topic_id": -1, "partition": -1, "offset": -1 };
        let reading = self.cluster.events.find(of_lane(self.entry, self.lane)).sort(sort);
        let reading = reading.hint(Hint::Name(BY_OFFSET.to_owned()));
        let reading = reading.projection(doc! { "offset": 1, "bytes": 1, "bytes_to_here": 1 });
        let mut cursor = self.cluster.ask(reading).await?;
        let mut bytes = 0;
        while self.cluster.ask(cursor.advance()).await? {
            let passed = Passed::read(cursor.current());
            bytes += passed.bytes;
            if bytes > bytes_max {
                return Ok(passed.offset + 1);
            }
        }
        Ok(lane.start.get())
    }

    /// The first event from an offset on.
    async fn event_from(&self, offset: u64) -> Result<Option<Passed>, Fault> {
        let mut filter = of_lane(self.entry, self.lane);
        filter.insert("offset", doc! { "$gte": signed(offset) });
        let sort = doc! { "topic": 1, "topic_id": 1, "partition": 1, "offset": 1 };
        let reading = self.cluster.events.find_one(filter).sort(sort);
        let reading = reading.hint(Hint::Name(BY_OFFSET.to_owned()));
        let reading = reading.projection(doc! { "offset": 1, "bytes": 1, "bytes_to_here": 1 });
        let found = self.cluster.ask(reading).await?;
        Ok(found.map(|document| Passed::read(&document)))
    }

    /// Removes events with a newer one of their key, and tombstones that hide nothing.
    async fn compact(&self, rule: Compaction, lane: LaneBounds) -> Result<(), Fault> {
        let old_enough = Timestamp::from_millis(
            self.now.millis().saturating_sub(rule.age_ms_min).saturating_add(1),
        );
        let young = lookup::offset_at(self.cluster, self.entry, self.lane, old_enough).await?;
        let free = young.map_or(lane.next.get(), Offset::get).min(self.hold).min(lane.next.get());
        let done = self.compacted_to().await?;
        // An event below `done` can only be outdated by one that came after it was looked at; one
        // above by one above. So only keys from there on can have something to remove.
        for (key, newest) in self.newest_since(done, lane.next.get()).await? {
            let mut filter = of_topic(self.entry);
            filter.insert("key", &key);
            filter.insert("offset", doc! { "$lt": signed(newest.min(free)) });
            self.delete(filter, BY_KEY).await?;
        }
        self.drop_tombstones(rule, free).await?;
        let id = doc! { "_id": signed(self.lane.id().get()) };
        let mark = doc! { "$max": { "compacted": signed(free) } };
        self.cluster.ask(self.cluster.lanes.update_one(id, mark)).await?;
        Ok(())
    }

    async fn compacted_to(&self) -> Result<u64, Fault> {
        let id = doc! { "_id": signed(self.lane.id().get()) };
        let found = self.cluster.ask(self.cluster.lanes.find_one(id)).await?;
        Ok(found.and_then(|lane| lane.get_i64("compacted").ok()).map_or(0, unsigned))
    }

    /// Keys that occur from an offset on, each with its newest place.
    async fn newest_since(&self, from: u64, to: u64) -> Result<BTreeMap<String, u64>, Fault> {
        let mut filter = of_lane(self.entry, self.lane);
        filter.insert("offset", doc! { "$gte": signed(from), "$lt": signed(to) });
        let sort = doc! { "topic": 1, "topic_id": 1, "partition": 1, "offset": 1 };
        let reading = self.cluster.events.find(filter).sort(sort);
        let reading = reading.hint(Hint::Name(BY_OFFSET.to_owned()));
        let reading = reading.projection(doc! { "offset": 1, "key": 1 });
        let mut cursor = self.cluster.ask(reading).await?;
        let mut newest = BTreeMap::new();
        while self.cluster.ask(cursor.advance()).await? {
            let document = cursor.current();
            if let (Ok(key), Ok(offset)) = (document.get_str("key"), document.get_i64("offset")) {
                newest.insert(key.to_owned(), unsigned(offset));
            }
        }
        Ok(newest)
    }

    async fn drop_tombstones(&self, rule: Compaction, free: u64) -> Result<(), Fault> {
        let mut filter = of_lane(self.entry, self.lane);
        filter.insert("offset", doc! { "$lt": signed(free) });
        filter.insert("tombstone", true);
        let oldest = Timestamp::from_millis(self.now.millis().saturating_sub(rule.tombstone_ms));
        filter.insert("appendedAt", doc! { "$lte": date(oldest) });
        let reading = self.cluster.events.find(filter).hint(Hint::Name(TOMBSTONES.to_owned()));
        let reading = reading.projection(doc! { "offset": 1, "key": 1 });
        let found: Vec<_> = self.cluster.ask(async { reading.await?.try_collect().await }).await?;
        for document in found {
            let (Ok(key), Ok(offset)) = (document.get_str("key"), document.get_i64("offset"))
            else {
                continue;
            };
            let mut older = of_topic(self.entry);
            older.insert("key", key);
            older.insert("offset", doc! { "$lt": offset });
            let reading = self.cluster.events.find_one(older);
            let reading = reading.hint(Hint::Name(BY_KEY.to_owned()));
            // One that hides something stays for as long as that does.
            if self.cluster.ask(reading).await?.is_none() {
                let mut filter = of_lane(self.entry, self.lane);
                filter.insert("offset", offset);
                self.delete(filter, BY_OFFSET).await?;
            }
        }
        Ok(())
    }
}

/// What cleaning has to know of an event.
struct Passed {
    offset: u64,
    bytes: u64,
    bytes_to_here: u64,
}

impl Passed {
    fn read(document: &mongodb::bson::raw::RawDocument) -> Self {
        let number = |name: &str| document.get_i64(name).map_or(0, unsigned);
        Self {
            offset: number("offset"),
            bytes: number("bytes"),
            bytes_to_here: number("bytes_to_here"),
        }
    }
}
