//! Reading stored events in a fixed order: by topic, partition, offset. A place in that order is a
//! text, so that reading can go on from it at any time, from any connection.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use promethean::store::{Lane, PageLimit, Read, Stored};
use promethean::{Reader, Reads};
use promethean_event::{Event, EventId, Offset, Partition, Pattern, Timestamp, Topic};
use serde::Serialize;

use super::call::Call;
use super::time;
use crate::access::{Action, Resource, authorize};
use crate::edge::Edge;
use crate::filter::{Expression, Verdict};
use crate::limits::{
    MISSING_IN_HEAD_MAX, PAGE_BYTES_MAX, PAGE_MISSING_MAX, SCAN_EVENTS_AT_ONCE, SCAN_MS_MAX,
};
use crate::rejection::{Code, Rejection};
use crate::undecided::REASON;

pub(super) const QUERY: &[&str] =
    &["topic", "from", "until", "after", "filter", "limit", "partition", "reads"];

/// A place between two events: the next one to read. As text `topic/partition/offset`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    topic: Topic,
    partition: Partition,
    next: Offset,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic, self.partition, self.next)
    }
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "write it as topic/partition/offset, as it was given";
        let (rest, next) = text.rsplit_once('/').ok_or(wrong)?;
        let (topic, partition) = rest.rsplit_once('/').ok_or(wrong)?;
        Ok(Self {
            topic: topic.parse().map_err(|_| wrong)?,
            partition: Partition::new(partition.parse().map_err(|_| wrong)?),
            next: Offset::new(next.parse().map_err(|_| wrong)?),
        })
    }
}

impl Serialize for Place {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A reading under way.
pub(super) struct Scan {
    lanes: VecDeque<LaneScan>,
    until: Option<Timestamp>,
    filter: Option<Expression>,
    /// Brings events to a version, if one was asked for.
    reader: Option<Reader>,
    deadline: Duration,
    /// Events that the filter has looked at since others got on.
    looked_at: usize,
}

/// How far events were looked at.
#[derive(Debug, PartialEq, Eq)]
enum Sifted {
    All,
    /// To this one, when the time was over.
    Until(Offset),
    /// To one that is later than was asked for. Append times only rise: what follows is, too.
    TooLate,
}

struct LaneScan {
    lane: Lane,
    place: Place,
    end: Offset,
}

/// What one step of a scan found.
pub(super) struct Found {
    pub(super) events: Vec<Stored>,
    /// What is not there any more.
    pub(super) gaps: Vec<MissingEvents>,
    /// What could not be brought to the version that was asked for, or is more than the filter takes.
    pub(super) unreadable: Vec<UnreadableEvent>,
    /// Where to go on; none at the end.
    pub(super) next: Option<Place>,
}

impl Found {
    /// The topic of each event.
    pub(super) fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.events.iter().map(|stored| &stored.event.topic)
    }

    /// Bytes of the events, without what little stands around payloads.
    fn bytes(&self) -> usize {
        self.events.iter().map(|stored| stored.event.payload.as_str().len()).sum()
    }

    /// How many gaps and events it names that it has not.
    fn missing_count(&self) -> usize {
        self.gaps.len() + self.unreadable.len()
    }

    /// Whether it is as large as an answer may be.
    fn is_full(&self, max: usize) -> bool {
        self.events.len() >= max
            || self.missing_count() >= PAGE_MISSING_MAX
            || self.bytes() >= PAGE_BYTES_MAX
    }

    /// What is left out, where there is room for a line only: `partition/from-to reason`, by commas.
    pub(super) fn missing(&self) -> Option<String> {
        let gap = |gap: &MissingEvents| {
            format!("{}/{}-{} {}", gap.partition, gap.from, gap.to, gap.reason)
        };
        let unreadable = |event: &UnreadableEvent| {
            let UnreadableEvent { partition, offset, .. } = event;
            format!("{partition}/{offset}-{} unreadable", offset.next())
        };
        let gaps = self.gaps.iter().map(gap).chain(self.unreadable.iter().map(unreadable));
        let mut told: Vec<String> = gaps.take(MISSING_IN_HEAD_MAX).collect();
        let more = self.missing_count().saturating_sub(told.len());
        if more > 0 {
            told.push(format!("and {more} more"));
        }
        (!told.is_empty()).then(|| told.join(", "))
    }
}

#[derive(Debug, Serialize)]
pub(super) struct MissingEvents {
    topic: Topic,
    partition: Partition,
    from: Offset,
    to: Offset,
    reason: String,
}

#[derive(Debug, Serialize)]
pub(super) struct UnreadableEvent {
    id: EventId,
    topic: Topic,
    partition: Partition,
    offset: Offset,
    reason: String,
}

/// The form in which a request wants events: as they were written, in the latest version, or in
/// one of a number.
pub(super) async fn reader(call: &Call) -> Result<Option<Reader>, Rejection> {
    let reads = match call.query.text("reads") {
        None | Some("written") => return Ok(None),
        Some("latest") => Reads::Latest,
        Some(number) => {
            let wrong = "reads is \"written\", \"latest\" or the number of a version, from 1 on";
            let wrong = |_| Rejection::new(Code::BadRequest, wrong);
            Reads::Version(number.parse::<NonZeroU32>().map_err(wrong)?.get())
        }
    };
    Ok(Some(call.edge.bus.reader(reads).await?))
}

impl Scan {
    /// What a request asks for: `topic` is a topic or a pattern, of which only readable topics
    /// are read.
    pub(super) async fn of(call: &Call) -> Result<Self, Rejection> {
        let pattern: Pattern = call.query.needed("topic")?;
        let policy = call.principal.policy();
        if !policy.allows_some(Action::Read, &pattern) {
            return Err(Rejection::plain(Code::Forbidden));
        }
        let readable = |topic: &Topic| {
            authorize(&call.principal, Action::Read, Resource::Topic(topic, None)).is_ok()
        };
        if let Some(topic) = pattern.as_topic() {
            authorize(&call.principal, Action::Read, Resource::Topic(&topic, None))?;
        }
        let from = time::parameter(call, "from")?;
        let after: Option<Place> = call.query.parsed("after")?;
        let only: Option<u32> = call.query.parsed("partition")?;
        let topics = call.edge.bus.topics();
        let mut lanes = VecDeque::new();
        for entry in topics.matching(&pattern).filter(|entry| readable(&entry.definition.topic)) {
            for lane in entry.lanes() {
                let here = (&entry.definition.topic, lane.partition);
                let passed = after.as_ref().is_some_and(|p| here < (&p.topic, p.partition));
                if passed || only.is_some_and(|only| lane.partition.get() != only) {
                    continue;
                }
                let resumed = after.as_ref().filter(|p| here == (&p.topic, p.partition));
                let scan = lane_scan(&call.edge, lane, here.0, from, resumed).await?;
                lanes.push_back(scan);
            }
        }
        if lanes.is_empty() && pattern.as_topic().is_some() && after.is_none() {
            return Err(Rejection::plain(Code::NotFound));
        }
        let filter = call.query.text("filter").map(Expression::compile).transpose()?;
        let until = time::parameter(call, "until")?;
        let deadline = call.edge.clock.elapsed() + Duration::from_millis(SCAN_MS_MAX);
        let reader = reader(call).await?;
        Ok(Self { lanes, until, filter, reader, deadline, looked_at: 0 })
    }

    /// The topic that is read next.
    pub(super) fn topic(&self) -> Option<&Topic> {
        let next = self.lanes.iter().find(|scan| scan.place.next < scan.end);
        next.map(|scan| &scan.place.topic)
    }

    /// Reads on, for no longer than a request may look, and not into a topic of which more was delivered
    /// than its rate allows.
    pub(super) async fn page(&mut self, edge: &Edge, max: usize) -> Result<Found, Rejection> {
        let mut found =
            Found { events: Vec::new(), gaps: Vec::new(), unreadable: Vec::new(), next: None };
        while let Some(scan) = self.lanes.front_mut() {
            let (from, end) = (scan.place.next, scan.end);
            if from >= end {
                self.lanes.pop_front();
                continue;
            }
            if found.is_full(max) || edge.clock.elapsed() >= self.deadline {
                break;
            }
            // The first one was asked for by whoever wants this page.
            let is_next = found.events.last().is_some_and(|it| it.event.topic != scan.place.topic);
            if is_next && edge.owed_of(&scan.place.topic).is_some() {
                break;
            }
            let limit = PageLimit { events: max - found.events.len(), ..PageLimit::default() };
            let read = Read::From { lane: scan.lane, from, limit };
            let page = edge.bus.store().read(read).await?;
            let read_to = if page.next > from { page.next } else { end };
            let next = match self.sift(edge, page.events, &mut found).await {
                Sifted::All => read_to,
                Sifted::Until(offset) => offset,
                Sifted::TooLate => end,
            };
            if let Some(scan) = self.lanes.front_mut() {
                // What lies beyond the place to go on from is told from there.
                let gaps = page.gaps.into_iter().filter(|gap| gap.from < next);
                found.gaps.extend(gaps.map(|gap| MissingEvents {
                    topic: scan.place.topic.clone(),
                    partition: gap.partition,
                    from: gap.from,
                    to: gap.to.min(next),
                    reason: format!("{:?}", gap.reason).to_lowercase(),
                }));
                scan.place.next = next;
            }
        }
        found.next = self.lanes.front().map(|scan| scan.place.clone());
        Ok(found)
    }

    /// Takes what is wanted out of what was read.
    async fn sift(&mut self, edge: &Edge, events: Vec<Stored>, found: &mut Found) -> Sifted {
        for stored in events {
            if self.until.is_some_and(|until| stored.appended_at >= until) {
                return Sifted::TooLate;
            }
            // A filter may take its time for each event: others get on in between, and the request
            // ends when it should.
            if self.filter.is_some() && self.looked_at == SCAN_EVENTS_AT_ONCE {
                self.looked_at = 0;
                tokio::task::yield_now().await;
                if edge.clock.elapsed() >= self.deadline {
                    return Sifted::Until(stored.event.offset);
                }
            }
            self.looked_at += 1;
            let Some(stored) = decoded(self.reader.as_ref(), stored, found) else {
                continue;
            };
            let filter = self.filter.as_ref();
            match filter.map_or(Verdict::Pass, |filter| filter.verdict(&stored.event)) {
                Verdict::Pass => found.events.push(stored),
                Verdict::Skip | Verdict::Fault => {}
                Verdict::Undecided => {
                    edge.metrics.undecided.note(&stored.event, None);
                    found.unreadable.push(unreadable(stored.event, REASON.to_owned()));
                }
            }
        }
        Sifted::All
    }

    /// Gives a reading that goes on for long its time again.
    pub(super) fn extend(&mut self, edge: &Edge) {
        self.deadline = edge.clock.elapsed() + Duration::from_millis(SCAN_MS_MAX);
    }
}

/// An event in the form that was asked for; one that cannot be brought to it is told apart.
fn decoded(reader: Option<&Reader>, stored: Stored, found: &mut Found) -> Option<Stored> {
    let Some(reader) = reader else {
        return Some(stored);
    };
    match reader.decode(&stored.event) {
        Ok(event) => Some(Stored { event, ..stored }),
        Err(error) => {
            found.unreadable.push(unreadable(stored.event, error.reason.to_string()));
            None
        }
    }
}

fn unreadable(event: Event, reason: String) -> UnreadableEvent {
    let Event { id, topic, partition, offset, .. } = event;
    UnreadableEvent { id, topic, partition, offset, reason }
}

async fn lane_scan(
    edge: &Edge,
    lane: Lane,
    topic: &Topic,
    from: Option<Timestamp>,
    resumed: Option<&Place>,
) -> Result<LaneScan, Rejection> {
    let bounds = edge.bus.store().bounds(lane).await?;
    let next = match (resumed, from) {
        (Some(place), _) => place.next,
        (None, Some(time)) => edge.bus.store().offset_at(lane, time).await?,
        (None, None) => bounds.start,
    };
    let place = Place { topic: topic.clone(), partition: lane.partition, next };
    Ok(LaneScan { lane, place, end: bounds.next })
}

#[cfg(test)]
mod tests {
    use promethean::Bus;
    use promethean_event::{NewEvent, Payload};

    use super::*;
    use crate::settings::{Access, Settings};

    /// The time was only looked at between reads of the store: a costly filter held a thread for as long
    /// as a thousand events took it.
    #[tokio::test]
    async fn a_filter_is_stopped_in_between() {
        let edge = Edge::new(Bus::memory(), Settings::local(Access::Anonymous)).await;
        let stored = |n: usize| {
            let payload = Payload::parse(n.to_string()).unwrap();
            let now = Timestamp::from_millis(1);
            let event = NewEvent::new(EventId::generate(), now, "a".parse().unwrap(), payload);
            let event = event.placed(Partition::new(0), Offset::new(n as u64));
            Stored { event, appended_at: now, bytes: 0 }
        };
        let scan = |filter: Option<&str>| Scan {
            lanes: VecDeque::new(),
            until: None,
            filter: filter.map(|filter| Expression::compile(filter).unwrap()),
            reader: None,
            deadline: Duration::ZERO,
            looked_at: 0,
        };
        let none = || Found { events: vec![], gaps: vec![], unreadable: vec![], next: None };
        let (mut filtered, mut found) = (scan(Some("offset >= 0")), none());
        let stopped = filtered.sift(&edge, (0..100).map(stored).collect(), &mut found).await;
        assert_eq!(stopped, Sifted::Until(Offset::new(SCAN_EVENTS_AT_ONCE as u64)));
        assert_eq!(found.events.len(), SCAN_EVENTS_AT_ONCE, "none is left out, none comes twice");
        // Also where each read has few of them.
        let (mut filtered, mut found) = (scan(Some("false")), none());
        for n in 0..SCAN_EVENTS_AT_ONCE {
            assert_eq!(filtered.sift(&edge, vec![stored(n)], &mut found).await, Sifted::All);
        }
        let stopped = filtered.sift(&edge, vec![stored(77)], &mut found).await;
        assert_eq!(stopped, Sifted::Until(Offset::new(77)));
        let all = scan(None).sift(&edge, (0..100).map(stored).collect(), &mut none()).await;
        assert_eq!(all, Sifted::All, "without a filter nothing takes long");
    }
}
