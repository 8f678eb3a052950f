//! Following topics without a group: what is stored from a place on, as it comes. Nothing is kept
//! about who follows; a reader that comes back says where it was.

use std::borrow::Cow;
use std::mem;
use std::sync::Arc;

use promethean::Reader;
use promethean::store::{Lane, Page, PageLimit, Read, ReadError, Stored};
use promethean_event::frame::Gap;
use promethean_event::{Cursor, Event, EventId, Offset, Pattern, Timestamp, Topic};

use crate::access::{Action, Principal, Resource, authorize};
use crate::edge::Edge;
use crate::filter::{Expression, Verdict};
use crate::limits::SCAN_EVENTS_AT_ONCE;
use crate::rejection::{Code, Rejection};
use crate::undecided::REASON;

/// Where following begins in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begin {
    Latest,
    Earliest,
    At(Timestamp),
    AfterId(EventId),
}

/// What is to be followed, and by whom.
#[derive(Debug)]
pub(crate) struct TailWish {
    pub(crate) topics: Vec<Pattern>,
    pub(crate) begin: Begin,
    /// Partitions that were followed before.
    pub(crate) after: Vec<Cursor>,
    pub(crate) filter: Option<Expression>,
    pub(crate) principal: Principal,
    /// Brings events to a version, if one was asked for.
    pub(crate) reader: Option<Reader>,
}

/// Something that was followed.
#[derive(Debug)]
pub(crate) enum Followed {
    Event(Box<Event>),
    Gap(Gap),
}

impl Followed {
    /// Where it is, or begins.
    fn offset(&self) -> Offset {
        match self {
            Self::Event(event) => event.offset,
            Self::Gap(gap) => gap.from,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Tail {
    edge: Arc<Edge>,
    wish: TailWish,
    lanes: Vec<LaneTail>,
    /// What those who were further than there is have seen, or have not: nobody knows any more.
    astray: Vec<Gap>,
    mark: u64,
    /// Topics have come or gone since they were looked at.
    topics_changed: bool,
}

/// The same, with the event found that it is about.
#[derive(Debug)]
enum First {
    Latest,
    Earliest,
    At(Timestamp),
    /// Behind this event; elsewhere, with what was stored at the same time or later.
    Behind(Box<Stored>),
}

#[derive(Debug)]
struct LaneTail {
    lane: Lane,
    topic: Topic,
    next: Offset,
    /// There may be something to read.
    grown: bool,
}

impl Tail {
    pub(crate) async fn start(edge: Arc<Edge>, wish: TailWish) -> Result<Self, Rejection> {
        let mut tail = Self {
            edge,
            wish,
            lanes: Vec::new(),
            astray: Vec::new(),
            mark: 0,
            topics_changed: false,
        };
        let first = match tail.wish.begin {
            Begin::Latest => First::Latest,
            Begin::Earliest => First::Earliest,
            Begin::At(time) => First::At(time),
            Begin::AfterId(id) => First::Behind(Box::new(tail.event(id).await?)),
        };
        tail.take_up(&first).await?;
        tail.forget_removed();
        Ok(tail)
    }

    /// Tells of places in partitions that are not there any more. If they are made again, they are
    /// others, and followed from their beginning.
    fn forget_removed(&mut self) {
        let after = mem::take(&mut self.wish.after);
        let (removed, after) = after.into_iter().partition(|cursor| {
            let Cursor { topic, partition, .. } = cursor;
            let is_there =
                |known: &LaneTail| known.topic == *topic && known.lane.partition == *partition;
            let wanted = self.wish.topics.iter().any(|pattern| pattern.matches(topic));
            wanted && self.may_read(topic) && !self.lanes.iter().any(is_there)
        });
        self.wish.after = after;
        let removed: Vec<Cursor> = removed;
        self.astray.extend(removed.into_iter().map(|Cursor { topic, partition, next }| {
            // How much there was after it nobody knows.
            Gap { topic, partition, from: next, to: next, reason: Cow::Borrowed("removed") }
        }));
    }

    /// The event with an id, in whatever topic that may be read. One that is not there is no place
    /// to begin at: whoever was there would miss what came after it, and not know.
    async fn event(&self, id: EventId) -> Result<Stored, Rejection> {
        for entry in self.edge.bus.topics().users() {
            if self.may_read(&entry.definition.topic)
                && let Some(found) = self.edge.bus.store().find(entry.id, id).await?
            {
                return Ok(found);
            }
        }
        Err(Rejection::new(Code::NotFound, format!("there is no event {id} to begin after")))
    }

    fn may_read(&self, topic: &Topic) -> bool {
        authorize(&self.wish.principal, Action::Read, Resource::Topic(topic, None)).is_ok()
    }

    /// Takes up the partitions that are not followed yet. Rights are asked for each topic.
    async fn take_up(&mut self, first: &First) -> Result<(), ReadError> {
        let topics = self.edge.bus.topics();
        for entry in topics.users() {
            let topic = &entry.definition.topic;
            let wanted = self.wish.topics.iter().any(|pattern| pattern.matches(topic));
            if !wanted || !self.may_read(topic) {
                continue;
            }
            for lane in entry.lanes() {
                if self.lanes.iter().any(|known| known.lane == lane) {
                    continue;
                }
                let (next, astray) = self.first(lane, topic, first).await?;
                self.astray.extend(astray);
                self.lanes.push(LaneTail { lane, topic: topic.clone(), next, grown: true });
            }
        }
        self.lanes.retain(|known| topics.by_id(known.lane.topic).is_some());
        Ok(())
    }

    /// Where to begin, and what is strange about where the reader says that it was.
    async fn first(
        &self,
        lane: Lane,
        topic: &Topic,
        first: &First,
    ) -> Result<(Offset, Option<Gap>), ReadError> {
        let store = self.edge.bus.store();
        let known =
            self.wish.after.iter().find(|c| c.topic == *topic && c.partition == lane.partition);
        let bounds = store.bounds(lane).await?;
        if let Some(cursor) = known {
            // The topic was removed and made again, or the store is an older copy of what it was.
            let astray = (cursor.next > bounds.next).then(|| Gap {
                topic: topic.clone(),
                partition: lane.partition,
                from: bounds.start,
                to: cursor.next,
                reason: Cow::Borrowed("beyond_end"),
            });
            return Ok((cursor.next.min(bounds.next), astray));
        }
        let next = match first {
            First::Latest => bounds.next,
            First::Earliest => bounds.start,
            First::At(time) => store.offset_at(lane, *time).await?,
            First::Behind(found) => {
                let event = &found.event;
                if event.topic == *topic && event.partition == lane.partition {
                    event.offset.next()
                } else {
                    store.offset_at(lane, found.appended_at).await?
                }
            }
        };
        Ok((next, None))
    }

    /// Where the tail is in each partition.
    pub(crate) fn cursors(&self) -> Vec<Cursor> {
        let cursor = |lane: &LaneTail| Cursor {
            topic: lane.topic.clone(),
            partition: lane.lane.partition,
            next: lane.next,
        };
        self.lanes.iter().map(cursor).collect()
    }

    /// What is missing between where the reader was and what is there: nothing, or gaps.
    pub(crate) async fn gaps(&self) -> Result<Vec<Gap>, ReadError> {
        let mut gaps = self.astray.clone();
        for lane in &self.lanes {
            let bounds = self.edge.bus.store().bounds(lane.lane).await?;
            if lane.next < bounds.start {
                gaps.push(Gap {
                    topic: lane.topic.clone(),
                    partition: lane.lane.partition,
                    from: lane.next,
                    to: bounds.start,
                    reason: Cow::Borrowed("retention"),
                });
            }
        }
        Ok(gaps)
    }

    /// The next events and gaps, at least one; `None` when the store is closed. Nothing is lost if this
    /// is dropped: what is noted of where the tail is has no wait behind it.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Followed>>, ReadError> {
        loop {
            if self.topics_changed {
                // A topic that is new is followed from its beginning: all of it came later.
                self.take_up(&First::Earliest).await?;
                self.topics_changed = false;
            }
            if !self.astray.is_empty() {
                return Ok(Some(self.astray.drain(..).map(Followed::Gap).collect()));
            }
            for number in 0..self.lanes.len() {
                let found = self.read(number).await?;
                if !found.is_empty() {
                    return Ok(Some(found));
                }
            }
            let growth = self.edge.bus.store().grown(self.mark).await;
            self.mark = growth.mark;
            if growth.closed {
                return Ok(None);
            }
            for lane in &mut self.lanes {
                let told = growth.lanes.as_ref();
                lane.grown |=
                    told.is_none_or(|grown| grown.iter().any(|(one, _)| *one == lane.lane));
            }
            self.topics_changed |= growth.topics_changed;
        }
    }

    async fn read(&mut self, number: usize) -> Result<Vec<Followed>, ReadError> {
        let mut found = Vec::new();
        while found.is_empty() {
            let Some(known) = self.lanes.get(number).filter(|known| known.grown) else {
                break;
            };
            let (lane, from) = (known.lane, known.next);
            let limit = PageLimit { events: 100, ..PageLimit::default() };
            let read = self.edge.bus.store().read(Read::From { lane, from, limit }).await;
            let (grown, next) = match read {
                Ok(page) => {
                    let next = page.next;
                    found = self.sift(&known.topic, page).await;
                    (next > from, next)
                }
                // The topic is gone, or the place is of another life of it.
                Err(ReadError::UnknownLane | ReadError::BeyondEnd { .. }) => (false, from),
                Err(error) => return Err(error),
            };
            // Only now, with nothing to wait for until what was found is handed out.
            if let Some(known) = self.lanes.get_mut(number) {
                (known.grown, known.next) = (grown, next);
            }
        }
        Ok(found)
    }

    /// What is wanted of a page, in its order.
    async fn sift(&self, topic: &Topic, page: Page) -> Vec<Followed> {
        let gap = |gap: promethean::store::Gap| {
            Followed::Gap(Gap {
                topic: topic.clone(),
                partition: gap.partition,
                from: gap.from,
                to: gap.to,
                reason: Cow::Owned(format!("{:?}", gap.reason).to_lowercase()),
            })
        };
        let mut found: Vec<Followed> = page.gaps.into_iter().map(gap).collect();
        for (number, stored) in page.events.into_iter().enumerate() {
            // A filter may take its time for each event: others get on in between.
            if self.wish.filter.is_some() && number % SCAN_EVENTS_AT_ONCE == 0 {
                tokio::task::yield_now().await;
            }
            let followed = match &self.wish.reader {
                Some(reader) => decoded(reader, &stored.event),
                None => Followed::Event(Box::new(stored.event)),
            };
            let verdict = match (&followed, &self.wish.filter) {
                (Followed::Event(event), Some(filter)) => filter.verdict(event),
                _ => Verdict::Pass,
            };
            match (verdict, followed) {
                (Verdict::Pass, followed) => found.push(followed),
                (Verdict::Undecided, Followed::Event(event)) => {
                    self.edge.metrics.undecided.note(&event, None);
                    found.push(missing(&event, Cow::Borrowed(REASON)));
                }
                _ => {}
            }
        }
        // A reader that was told of a gap has had what was before it.
        found.sort_by_key(Followed::offset);
        found
    }
}

/// An event in the form that was asked for; one that cannot be brought to it is a gap, with the
/// reason.
fn decoded(reader: &Reader, event: &Event) -> Followed {
    match reader.decode(event) {
        Ok(event) => Followed::Event(Box::new(event)),
        Err(error) => missing(event, Cow::Owned(error.reason.to_string())),
    }
}

/// An event that this reader does not get, as a gap.
fn missing(event: &Event, reason: Cow<'static, str>) -> Followed {
    Followed::Gap(Gap {
        topic: event.topic.clone(),
        partition: event.partition,
        from: event.offset,
        to: event.offset.next(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;
    use std::time::Duration;

    use promethean::{Bus, PublishOptions};
    use promethean_event::{NewEvent, Payload};
    use tokio::time::timeout;

    use super::*;
    use crate::settings::{Access, Settings};

    async fn edge() -> Arc<Edge> {
        Arc::new(Edge::new(Bus::memory(), Settings::local(Access::Anonymous)).await)
    }

    async fn publish(edge: &Edge, topic: &str, count: u64) {
        let event = |n: u64| {
            let payload = Payload::parse(format!("{{\"n\":{n}}}")).unwrap();
            let now = Timestamp::from_millis(1);
            NewEvent::new(EventId::generate(), now, topic.parse().unwrap(), payload)
        };
        let events = (0..count).map(event).collect();
        edge.bus.publish_with(events, PublishOptions::default()).await.unwrap();
    }

    async fn follow(edge: &Arc<Edge>, topics: &str, filter: Option<&str>) -> Tail {
        let wish = TailWish {
            topics: vec![Pattern::new(topics).unwrap()],
            begin: Begin::Earliest,
            after: Vec::new(),
            filter: filter.map(|filter| Expression::compile(filter).unwrap()),
            principal: Principal::anonymous(),
            reader: None,
        };
        Tail::start(Arc::clone(edge), wish).await.unwrap()
    }

    /// What comes next, unless it takes more polls than that.
    async fn within(polls: usize, tail: &mut Tail) -> Vec<Followed> {
        let mut next = pin!(tail.next());
        let mut left = polls;
        let found = poll_fn(|context| match next.as_mut().poll(context) {
            Poll::Ready(found) => Poll::Ready(Some(found)),
            Poll::Pending if left == 1 => Poll::Ready(None),
            Poll::Pending => {
                left -= 1;
                Poll::Pending
            }
        });
        found.await.map_or_else(Vec::new, |found| found.unwrap().unwrap())
    }

    /// An event stream that says that it lives gives up waiting for events. The place of a tail was behind
    /// a page before its filter had looked at it: what was wanted of that page never came.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_lost_if_nobody_waits() {
        const PATIENCE: Duration = Duration::from_secs(1);
        let edge = edge().await;
        publish(&edge, "a", 120).await;
        for polls in 1..20 {
            let mut tail = follow(&edge, "a", Some("payload.n > 90")).await;
            let mut found = within(polls, &mut tail).await;
            while found.len() < 29 {
                let more = timeout(PATIENCE, tail.next()).await;
                let more = more.unwrap_or_else(|_| panic!("{} after {polls} polls", found.len()));
                found.extend(more.unwrap().unwrap());
            }
            let offsets = found.iter().map(|one| one.offset().get());
            assert!(offsets.eq(91..120), "after {polls} polls");
        }
    }

    /// The same while a topic that is new was taken up: it was followed only when there was another one.
    #[tokio::test(start_paused = true)]
    async fn a_topic_is_taken_up_in_the_end() {
        let edge = edge().await;
        let mut tail = follow(&edge, "**", None).await;
        publish(&edge, "new", 1).await;
        // As far as it gets before it has to wait.
        let growth = edge.bus.store().grown(tail.mark).await;
        (tail.mark, tail.topics_changed) = (growth.mark, growth.topics_changed);
        let found = timeout(Duration::from_secs(1), tail.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(found.len(), 1);
    }
}
