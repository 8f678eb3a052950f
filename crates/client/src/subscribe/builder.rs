use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use promethean_event::frame::{From, NamedForm, ReadsForm, SubscribeOpts};
use promethean_event::{Event, Failure, FromEvent, GroupName, Pattern, Start, TypedTopic};

use super::consumer::Consumer;
use super::delivered::Delivered;
use super::stream::Subscription;
use crate::bus::Bus;
use crate::error::GroupError;
use crate::inbox::Inbox;
use crate::limits::{IN_FLIGHT_MAX, LEASE_MS, PREFETCH, PROCESSING_MS};
use crate::link::Feed;
use crate::machine::SubscribeWish;

pub use promethean_event::frame::{GroupMode as Mode, GroupOrder as Ordered, GroupPark as Park};

/// The form in which a reader gets events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Reads {
    /// As they were written. The default.
    #[default]
    Written,
    /// In the latest version, when they are read.
    Latest,
    /// In this version.
    Version(u32),
}

impl Reads {
    pub(crate) const fn form(self) -> ReadsForm {
        match self {
            Self::Written => ReadsForm::Named(NamedForm::Written),
            Self::Latest => ReadsForm::Named(NamedForm::Latest),
            Self::Version(version) => ReadsForm::Version(version),
        }
    }
}

/// A subscription that is being described. Ends with [`stream`](Self::stream) or
/// [`handle`](Self::handle).
#[derive(Debug, Clone)]
#[must_use = "nothing is subscribed to unless this ends with `stream` or `handle`"]
pub struct Subscribe<T = Event> {
    bus: Bus,
    group: Result<GroupName, GroupError>,
    topics: Vec<Pattern>,
    opts: SubscribeOpts,
    prefetch: u32,
    processing: Duration,
    concurrency: usize,
    error: Option<GroupError>,
    payload: PhantomData<fn() -> T>,
}

impl Bus {
    /// Subscribes to the topic of a type, as a member of a group.
    pub fn subscribe<T: TypedTopic + FromEvent>(&self, group: &str) -> Subscribe<T> {
        Subscribe::new(self, group, [T::TOPIC])
    }

    /// Subscribes to topics and patterns, as a member of a group.
    pub fn subscribe_to<'a>(
        &self,
        topics: impl IntoIterator<Item = &'a str>,
        group: &str,
    ) -> Subscribe<Event> {
        Subscribe::new(self, group, topics)
    }
}

/// Where to begin, as the protocol says it.
pub(crate) fn begin(opts: &mut SubscribeOpts, start: Start) {
    (opts.ts, opts.after_id) = (None, None);
    opts.from = Some(match start {
        Start::Latest => From::Latest,
        Start::Earliest => From::Earliest,
        Start::At(time) => {
            opts.ts = Some(time);
            From::Ts
        }
        Start::AfterId(id) => {
            opts.after_id = Some(id);
            From::AfterId
        }
    });
}

impl<T: FromEvent> Subscribe<T> {
    fn new<'a>(bus: &Bus, group: &str, topics: impl IntoIterator<Item = &'a str>) -> Self {
        let mut error = None;
        let mut patterns = Vec::new();
        for topic in topics {
            match Pattern::new(topic) {
                Ok(pattern) => patterns.push(pattern),
                Err(refused) => error = error.or(Some(refused.into())),
            }
        }
        let reads = T::version().map(ReadsForm::Version);
        Self {
            bus: bus.clone(),
            group: GroupName::new(group).map_err(GroupError::from),
            topics: patterns,
            opts: SubscribeOpts { reads, ..SubscribeOpts::default() },
            prefetch: PREFETCH,
            processing: Duration::from_millis(PROCESSING_MS),
            concurrency: 1,
            error,
            payload: PhantomData,
        }
    }

    /// Where the group begins, if it is new. Default: with what is published from now on.
    pub fn from(mut self, start: Start) -> Self {
        begin(&mut self.opts, start);
        self
    }

    /// Who may get an event. Default: any member.
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.opts.mode = Some(mode);
        self
    }

    /// What order is kept. Default: by key.
    pub const fn ordered(mut self, ordered: Ordered) -> Self {
        self.opts.ordered = Some(ordered);
        self
    }

    /// What a dead letter does to later events of its key. Default: nothing.
    pub const fn park(mut self, park: Park) -> Self {
        self.opts.park = Some(park);
        self
    }

    /// Deliveries of one event before it is a dead letter. Default: 5.
    pub const fn max_attempts(mut self, attempts: u16) -> Self {
        self.opts.max_attempts = Some(attempts);
        self
    }

    /// How long a lease lasts; while work goes on it is renewed. Default: 30 s.
    pub fn ack_timeout(mut self, timeout: Duration) -> Self {
        self.opts.ack_timeout_ms = self.millis("ack_timeout", timeout);
        self
    }

    /// How long leases are renewed for work that does not end. Default: 5 min. A handler that takes
    /// longer is given up, and its event goes to another.
    pub const fn max_processing(mut self, time: Duration) -> Self {
        self.processing = time;
        self
    }

    /// First and longest delay between deliveries of one event. Default: 200 ms and 60 s.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.opts.backoff_ms = self.millis("backoff", first);
        self.opts.backoff_ms_max = self.millis("backoff", longest);
        self
    }

    /// How long a member may finish what it has of a partition that it loses. Default: 10 s.
    pub fn drain(mut self, time: Duration) -> Self {
        self.opts.drain_ms = self.millis("drain", time);
        self
    }

    /// Retention and compaction keep what the group has not finished. Default: they do not.
    pub const fn hold(mut self) -> Self {
        self.opts.hold = Some(true);
        self
    }

    /// In which form the group gets events. Default: as they were written; those of a type in its
    /// version.
    pub const fn reads(mut self, reads: Reads) -> Self {
        self.opts.reads = Some(reads.form());
        self
    }

    /// Only events of which a CEL expression is true, such as `payload.cpu_pct > 90`. The server
    /// passes over the others.
    pub fn filter_by(mut self, expression: &str) -> Self {
        self.opts.filter = Some(expression.to_owned());
        self
    }

    /// Events out to this member at once. Default: 256, and 1,000 at most. The client grants the
    /// server credit for more as they are answered.
    pub const fn max_in_flight(mut self, events: u32) -> Self {
        self.prefetch = events;
        self
    }

    /// Events handed over at once. Default: 100.
    pub const fn batch_size(mut self, events: u32) -> Self {
        self.opts.batch_size = Some(events);
        self
    }

    /// Events that the handler works on at once. Default: 1.
    pub const fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    fn millis(&mut self, name: &str, given: Duration) -> Option<u32> {
        let ms = u32::try_from(given.as_millis()).ok();
        if ms.is_none() {
            let text = format!("{name} of {given:?} is too long; choose at most 49 days");
            self.error.get_or_insert(GroupError::Settings(text));
        }
        ms
    }

    /// Subscribes. The group is there, and misses nothing, when this returns.
    pub async fn stream(self) -> Result<Subscription<T>, GroupError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let none = |name: &str| {
            GroupError::Settings(format!(
                "{name} is 0, so that nothing would ever be delivered; choose 1 or more"
            ))
        };
        if self.topics.is_empty() {
            let text = "the group reads no topic; name at least one, such as \"orders.*\"";
            return Err(GroupError::Settings(text.to_owned()));
        }
        if self.prefetch == 0 {
            return Err(none("max_in_flight"));
        }
        if self.opts.batch_size == Some(0) {
            return Err(none("batch_size"));
        }
        let group = self.group?;
        let wish = SubscribeWish {
            topics: self.topics,
            group: Some(group.clone()),
            prefetch: self.prefetch.min(IN_FLIGHT_MAX),
            lease_ms: self.opts.ack_timeout_ms.unwrap_or(LEASE_MS),
            processing_ms: self.processing.as_millis() as u64,
            opts: self.opts,
        };
        let link = self.bus.inner.link.clone();
        let inbox = Arc::new(Inbox::new());
        let key = link.subscribe(wish, Feed::Group(Arc::clone(&inbox))).await?;
        Ok(Subscription::new(link, key, group, inbox))
    }

    /// Subscribes with a handler. An event is acked when the handler says `Ok`. The lease is renewed
    /// while the handler runs; if it is lost nevertheless, with the connection for instance, the
    /// handler is ended at its next `await`, and the event comes again.
    pub async fn handle<F, Fut>(self, handler: F) -> Result<Consumer, GroupError>
    where
        F: Fn(Delivered<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let (concurrency, processing) = (self.concurrency.max(1), self.processing);
        let subscription = self.stream().await?;
        Ok(Consumer::start(subscription, concurrency, processing, handler))
    }
}
