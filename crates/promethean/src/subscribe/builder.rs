use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use promethean_delivery::MemberOptions;
use promethean_event::{Event, Failure, FromEvent, GroupName, Pattern, Start, TypedTopic};

use super::consumer::{Consumer, ConsumerOptions};
use super::delivered::Delivered;
use super::stream::Subscription;
use crate::bus::Bus;
use crate::decode::Reads;
use crate::dispatch::GroupWish;
use crate::error::GroupError;
use crate::member::Member;
use crate::settings::{Filter, GroupSettings, Mode, Ordered, Park, check_member, millis};

/// A subscription that is being described. Ends with [`stream`](Self::stream) or
/// [`handle`](Self::handle).
#[derive(Debug, Clone)]
#[must_use = "nothing is subscribed to unless this ends with `stream` or `handle`"]
pub struct Subscribe<T = Event> {
    bus: Bus,
    group: Result<GroupName, GroupError>,
    settings: GroupSettings,
    filter: Option<Filter>,
    from: Start,
    member: MemberOptions,
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

    /// Joins a group, as it is described. For those who drive a consumer themselves.
    pub async fn join(
        &self,
        group: &GroupName,
        settings: GroupSettings,
        from: Start,
        options: MemberOptions,
    ) -> Result<Member, GroupError> {
        check_member(&options)?;
        let wish = GroupWish { settings, filter: None, from, version: None };
        let active = self.inner.groups.get_or_make(group, wish).await?;
        Ok(Member::join(active, options)?)
    }
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
        Self {
            bus: bus.clone(),
            group: GroupName::new(group).map_err(GroupError::from),
            settings: GroupSettings { topics: patterns, ..GroupSettings::default() },
            filter: None,
            from: Start::default(),
            member: MemberOptions::default(),
            concurrency: 1,
            error,
            payload: PhantomData,
        }
    }

    /// Where the group begins, if it is new. Default: with what is published from now on.
    pub const fn from(mut self, start: Start) -> Self {
        self.from = start;
        self
    }

    /// Who may get an event. Default: any member.
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.settings.mode = mode;
        self
    }

    /// What order is kept. Default: by key.
    pub const fn ordered(mut self, ordered: Ordered) -> Self {
        self.settings.ordered = ordered;
        self
    }

    /// What a dead letter does to later events of its key. Default: nothing.
    pub const fn park(mut self, park: Park) -> Self {
        self.settings.park = park;
        self
    }

    /// Deliveries of one event before it is a dead letter. Default: 5.
    pub const fn max_attempts(mut self, attempts: u16) -> Self {
        self.settings.max_attempts = attempts;
        self
    }

    /// How long one event may take before it goes to another. Default: 30 s.
    pub fn ack_timeout(mut self, timeout: Duration) -> Self {
        match millis("ack_timeout", timeout) {
            Ok(ms) => {
                self.settings.ack_timeout_ms = ms;
                self.settings.processing_ms_max = self.settings.processing_ms_max.max(ms);
            }
            Err(error) => self.refuse(error.into()),
        }
        self
    }

    /// First and longest delay between deliveries of one event. Default: 200 ms and 60 s.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        match (millis("backoff", first), millis("backoff", longest)) {
            (Ok(first), Ok(longest)) => {
                self.settings.backoff_ms = first;
                self.settings.backoff_ms_max = longest;
            }
            (Err(error), _) | (_, Err(error)) => self.refuse(error.into()),
        }
        self
    }

    /// How long a member may finish what it has of a partition that it loses. Default: 10 s.
    pub fn drain(mut self, time: Duration) -> Self {
        match millis("drain", time) {
            Ok(ms) => self.settings.drain_ms = ms,
            Err(error) => self.refuse(error.into()),
        }
        self
    }

    /// Retention and compaction keep what the group has not finished. Default: they do not.
    pub const fn hold(mut self) -> Self {
        self.settings.hold = true;
        self
    }

    /// In which form the group gets events. Default: as they were written; those of a type in its
    /// version.
    pub fn reads(mut self, reads: Reads) -> Self {
        self.settings.reads_as = reads;
        self
    }

    /// Only some events.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.settings.filter = Some(filter.name().to_owned());
        self.filter = Some(filter);
        self
    }

    /// Events out to this member at once. Default: 1,000.
    pub const fn max_in_flight(mut self, events: u32) -> Self {
        self.member.max_in_flight = events;
        self
    }

    /// Events handed over at once. Default: 100.
    pub const fn batch_size(mut self, events: u32) -> Self {
        self.member.batch_size = events;
        self
    }

    /// Events that this member takes before it asks for more by
    /// [`Seat::credit`](crate::member::Seat::credit). Default: acks alone make room.
    pub const fn credits(mut self, events: u32) -> Self {
        self.member.credits = Some(events);
        self
    }

    /// Events that the handler works on at once. Default: 1.
    pub const fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    fn refuse(&mut self, error: GroupError) {
        self.error.get_or_insert(error);
    }

    async fn join(&self) -> Result<Member, GroupError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        check_member(&self.member)?;
        let group = self.group.clone()?;
        let wish = GroupWish {
            settings: self.settings.clone(),
            filter: self.filter.clone(),
            from: self.from,
            version: T::version(),
        };
        let active = self.bus.inner.groups.get_or_make(&group, wish).await?;
        Ok(Member::join(active, self.member.clone())?)
    }

    /// Subscribes. The group is there, and misses nothing, when this returns.
    pub async fn stream(self) -> Result<Subscription<T>, GroupError> {
        Ok(Subscription::new(self.join().await?, self.member.batch_size))
    }

    /// Subscribes, for those who drive the consumer themselves.
    pub async fn member(self) -> Result<Member, GroupError> {
        self.join().await
    }

    /// Subscribes with a handler. An event is acked when the handler says `Ok`.
    pub async fn handle<F, Fut>(self, handler: F) -> Result<Consumer, GroupError>
    where
        F: Fn(Delivered<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let member = self.join().await?;
        let options = ConsumerOptions {
            concurrency: self.concurrency.max(1),
            ack_timeout_ms: self.settings.ack_timeout_ms,
        };
        Ok(Consumer::start(&self.bus, member, options, handler))
    }
}
