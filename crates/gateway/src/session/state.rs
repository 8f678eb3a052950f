use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use promethean::member::{AckTarget, Leased, Told, Verdict, fingerprint};
use promethean_event::frame::{
    Context, Corr, DeliveryToken, HelloLimits, RefusedToken, ServerFrame,
};
use promethean_event::limits::{FRAME_EVENTS_MAX, PAYLOAD_BYTES_MAX};
use promethean_event::{Event, EventId, Offset, Partition, Topic};
use serde::Serialize;
use tokio::time::{sleep, sleep_until};

use super::deadlines::Deadlines;
use super::frames::Frames;
use super::outbox::Outbox;
use super::pipeline::Pipeline;
use super::subscription::{Counted, News, OutDelivery, Subscription};
use super::{Dialect, Farewell, Known, PROTOCOL};
use crate::access::Principal;
use crate::attendance::Presence;
use crate::command::Gathered;
use crate::edge::{Edge, stopped};
use crate::http::Peer;
use crate::limits::{FRAME_BYTES_MAX, IN_FLIGHT_MAX};
use crate::quota::Bucket;
use crate::rejection::{Code, Rejection};
use crate::tail::Followed;

/// How much of the time that a server has for stopping a connection has until its Close.
const DRAINED: f32 = 0.6;

/// The outcome of a request that took its time.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) corr: Option<Corr>,
    /// Whether the client wants to hear of success.
    pub(crate) reply: bool,
    pub(crate) result: Result<Success, Rejection>,
    /// Deliveries that could not be acked.
    pub(crate) refused: Vec<RefusedToken>,
}

impl Done {
    /// A request whose client wants to hear of it.
    pub(crate) const fn new(corr: Option<Corr>, result: Result<Success, Rejection>) -> Self {
        Self { corr, reply: true, result, refused: Vec::new() }
    }
}

/// What was achieved.
#[derive(Debug, Default)]
pub(crate) struct Success {
    pub(crate) id: Option<EventId>,
    pub(crate) sub: Option<u32>,
    pub(crate) accepted: Option<u64>,
    pub(crate) expires_at: Option<u64>,
}

/// A frame about events that it names.
#[derive(Serialize)]
struct WithIds<'a> {
    #[serde(flatten)]
    frame: ServerFrame<'a>,
    ids: &'a [EventId],
}

/// What is known about one connection.
pub(crate) struct Session {
    pub(crate) edge: Arc<Edge>,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) peer: Peer,
    pub(crate) dialect: Dialect,
    pub(crate) principal: Option<Arc<Principal>>,
    pub(crate) subscriptions: BTreeMap<u32, Subscription>,
    pub(crate) numbers: u32,
    pub(crate) publishes: Pipeline,
    /// Handed over before anything else is done, all at once.
    pub(crate) gathered: Gathered,
    /// The frame that is being acted on. Payloads are pieces of it, and keep all of it.
    pub(crate) frame_bytes: usize,
    /// The topic that the client was last found to be allowed to publish to.
    pub(crate) publishable: Option<Topic>,
    pub(crate) answers: FuturesUnordered<BoxFuture<'static, Done>>,
    pub(crate) bucket: Bucket,
    /// The same for what is delivered.
    delivery: Bucket,
    /// Since when every publish was refused for its rate.
    pub(crate) abused: Option<Duration>,
    /// Counts as one connection of its subject.
    pub(crate) presence: Option<Presence>,
    pub(crate) drain: bool,
    /// Whether the client has said goodbye, and waits for what it is still to be told.
    pub(super) leaving: bool,
    pub(super) bad_frames: u32,
    /// Whether the client was told by an `ERR` why the connection is closed.
    pub(super) is_told: bool,
    pub(super) deadlines: Deadlines,
    /// Names it, in HELLO and in the logs.
    pub(super) id: EventId,
}

impl Session {
    pub(super) fn new(edge: Arc<Edge>, peer: Peer, dialect: Dialect, known: Option<Known>) -> Self {
        let now = edge.clock.instant();
        let bounds = edge.settings.bounds;
        let deadlines = Deadlines {
            auth: known.is_none().then_some(now + bounds.auth),
            expiry: None,
            expired: None,
            ping: now + bounds.ping,
            idle: now + bounds.idle,
            drained: None,
            farewell: None,
            paced: None,
        };
        let mut session = Self {
            edge,
            outbox: Arc::new(Outbox::new(bounds.outbox_bytes)),
            peer,
            dialect,
            principal: None,
            subscriptions: BTreeMap::new(),
            numbers: 0,
            publishes: Pipeline::default(),
            gathered: Gathered::default(),
            frame_bytes: 0,
            publishable: None,
            answers: FuturesUnordered::new(),
            bucket: Bucket::default(),
            delivery: Bucket::default(),
            abused: None,
            presence: None,
            drain: false,
            leaving: false,
            bad_frames: 0,
            is_told: false,
            deadlines,
            id: EventId::generate(),
        };
        if let Some((principal, presence)) = known {
            session.presence = presence;
            session.know(principal);
        }
        session
    }

    /// Who the client is, from now on.
    pub(crate) fn know(&mut self, principal: Principal) {
        let expiry = principal.expires_at_ms().map(|ms| self.edge.clock.instant_of(ms));
        self.deadlines.auth = None;
        self.deadlines.expired = None;
        self.deadlines.expiry = expiry;
        self.publishable = None;
        self.principal = Some(Arc::new(principal));
    }

    /// Whether its credential has ended, and only acks and a new one are taken.
    pub(crate) const fn is_expired(&self) -> bool {
        self.deadlines.expired.is_some()
    }

    pub(super) fn greet(&self) {
        if self.dialect == Dialect::Plain {
            return;
        }
        let limits = HelloLimits {
            frame_bytes: FRAME_BYTES_MAX,
            payload_bytes: PAYLOAD_BYTES_MAX,
            publish_events: FRAME_EVENTS_MAX,
            in_flight: IN_FLIGHT_MAX,
            subscriptions: self.edge.settings.bounds.subscriptions,
            idle_ms: self.edge.settings.bounds.idle.as_millis() as u64,
        };
        self.say(&ServerFrame::Hello {
            protocol: PROTOCOL,
            server: concat!("promethean/", env!("CARGO_PKG_VERSION")),
            epoch: &self.edge.epoch,
            session: &self.id.to_string(),
            limits,
        });
    }

    pub(crate) fn say(&self, frame: &ServerFrame<'_>) {
        // Frames are made of what has a JSON form.
        self.outbox.push(serde_json::to_vec(frame).unwrap_or_default());
    }

    pub(crate) fn refuse(&self, corr: Option<&Corr>, refusal: &Rejection) {
        self.refuse_with(corr, refusal, &[], &[]);
    }

    /// Refuses a publish of these events. Where nobody knows whether they are stored, they are named:
    /// only with the same ids are they published again, and not twice.
    pub(crate) fn refuse_publish(&self, corr: Option<&Corr>, refusal: &Rejection, ids: &[EventId]) {
        let ids = if refusal.code == Code::Indeterminate { ids } else { &[] };
        self.refuse_with(corr, refusal, &[], ids);
    }

    fn refuse_with(
        &self,
        corr: Option<&Corr>,
        refusal: &Rejection,
        refused: &[RefusedToken],
        ids: &[EventId],
    ) {
        self.edge.count_refusal(refusal.code);
        if let (Code::Forbidden, Some(principal)) = (refusal.code, &self.principal) {
            let now = self.edge.clock.now_ms();
            self.edge.audit.refusals.forbidden(principal.subject(), "frame", now);
        }
        let frame = ServerFrame::Err {
            corr,
            code: refusal.code.as_str(),
            msg: refusal.detail.as_ref().into(),
            retry_ms: refusal.retry_ms,
            sub: None,
            refused,
        };
        if ids.is_empty() {
            return self.say(&frame);
        }
        let frame = WithIds { frame, ids };
        self.outbox.push(serde_json::to_vec(&frame).unwrap_or_default());
    }

    /// Ends a subscription, and says why. What is out goes to others at once.
    pub(crate) fn end(&mut self, number: u32, why: &Rejection) {
        let Some(ended) = self.subscriptions.remove(&number) else {
            return;
        };
        self.edge.count_refusal(why.code);
        let topics: Vec<&str> = ended.topics.iter().map(|topic| topic.as_str()).collect();
        let of = ended.group.as_ref().map(|group| format!(" of group {group}"));
        let (topics, of) = (topics.join(", "), of.unwrap_or_default());
        self.say(&ServerFrame::Err {
            corr: None,
            code: why.code.as_str(),
            msg: format!("the subscription to {topics}{of} has ended").into(),
            retry_ms: why.retry_ms,
            sub: (self.dialect == Dialect::V1).then_some(number),
            refused: &[],
        });
    }

    /// Who the client is, with rights that may be others than before: what they do not cover ends.
    pub(crate) fn adopt(&mut self, principal: Principal) {
        let known = self.principal.as_ref();
        // The same rights as before cover what they covered, also of a pattern of which only some
        // topics may be read.
        let same = known.is_some_and(|known| known.policy() == principal.policy());
        let lost: Vec<u32> = self
            .subscriptions
            .iter()
            .filter(|(_, one)| !same && !one.is_allowed(&principal))
            .map(|(number, _)| *number)
            .collect();
        let forbidden = Rejection::plain(Code::Forbidden);
        lost.into_iter().for_each(|number| self.end(number, &forbidden));
        self.know(principal);
    }

    /// It was changed who may do what: a token that was taken back has ended, another one may
    /// allow less.
    pub(super) fn recheck(&mut self) -> Result<(), Rejection> {
        let Some(known) = self.principal.as_ref().filter(|_| !self.is_expired()) else {
            return Ok(());
        };
        match self.edge.standing(known) {
            None => self.deadlines.expiry = Some(self.edge.clock.instant()),
            Some(now) if now == **known => {}
            Some(now) if now.policy().is_empty() => return Err(Rejection::plain(Code::Forbidden)),
            Some(now) => self.adopt(now),
        }
        Ok(())
    }

    pub(crate) fn answer(&mut self, done: Done) {
        let Done { corr, reply, result, refused } = done;
        match result {
            Err(refusal) => self.refuse_with(corr.as_ref(), &refusal, &refused, &[]),
            Ok(success) if reply || !refused.is_empty() => self.say(&ServerFrame::Ok {
                corr: corr.as_ref(),
                id: success.id,
                places: &[],
                durability: None,
                sub: success.sub,
                accepted: success.accepted,
                refused: &refused,
                expires_at: success.expires_at,
            }),
            Ok(_) => {}
        }
    }

    pub(super) fn heard(&mut self) {
        self.deadlines.idle = self.edge.clock.instant() + self.edge.settings.bounds.idle;
    }

    /// Does what is due; why it ends, if it does.
    pub(super) fn due(&mut self, farewell: &Farewell) -> Option<Rejection> {
        let now = self.edge.clock.instant();
        let passed = |at: Option<tokio::time::Instant>| at.is_some_and(|at| at <= now);
        if passed(self.deadlines.auth) {
            return Some(Rejection::plain(Code::Unauthorized));
        }
        if passed(self.deadlines.expired) {
            self.is_told = true;
            return Some(Rejection::plain(Code::TokenExpired));
        }
        if passed(self.deadlines.drained) {
            return Some(Rejection::plain(Code::GoingAway));
        }
        if passed(self.deadlines.farewell) {
            // It has waited long enough, whatever is answered.
            self.deadlines.farewell = None;
            farewell.let_through();
        }
        if self.deadlines.idle <= now {
            return Some(Rejection::plain(Code::Idle));
        }
        if passed(self.deadlines.expiry) || self.has_slept_through() {
            self.deadlines.expiry = None;
            self.deadlines.expired = Some(now + self.edge.settings.bounds.expired);
            self.hush(true);
            self.refuse(None, &Rejection::plain(Code::TokenExpired));
        }
        if passed(self.deadlines.paced) {
            self.go_on(now);
        }
        if self.deadlines.ping <= now {
            self.deadlines.ping = now + self.edge.settings.bounds.ping;
            self.outbox.ping();
        }
        None
    }

    /// Whether the credential ended while the machine slept, which timers do not notice. Asked with
    /// every ping.
    fn has_slept_through(&self) -> bool {
        let known = self.principal.as_ref().filter(|_| self.deadlines.expiry.is_some());
        known.is_some_and(|known| known.is_expired(self.edge.clock.latest_ms()))
    }

    /// Nothing new is delivered; what is out may be answered.
    fn hush(&mut self, hushed: bool) {
        for subscription in self.subscriptions.values_mut() {
            subscription.hushed = hushed;
            subscription.settle();
        }
    }

    /// Another credential took the place of one that had ended: what the client had not paused by
    /// itself goes on.
    pub(crate) fn revive(&mut self) {
        self.hush(self.drain);
    }

    /// Lets a subscription wait if more came than rates allow. What is leased is delivered all the
    /// same: held back, its time would run out before anybody has seen it.
    fn pace<'a>(&mut self, number: u32, topics: impl Iterator<Item = &'a Topic>) {
        let (Some(principal), Some(subscription)) =
            (&self.principal, self.subscriptions.get_mut(&number))
        else {
            return;
        };
        if let Some(wait) = self.edge.pace(principal, &mut self.delivery, topics) {
            let until = self.edge.clock.instant() + wait;
            subscription.paced = Some(until);
            subscription.settle();
            self.deadlines.paced = Some(self.deadlines.paced.map_or(until, |at| at.min(until)));
        }
    }

    /// Lets subscriptions go on that have waited.
    fn go_on(&mut self, now: tokio::time::Instant) {
        for subscription in self.subscriptions.values_mut() {
            if subscription.paced.is_some_and(|until| until <= now) {
                subscription.paced = None;
                subscription.settle();
            }
        }
        self.deadlines.paced = self.subscriptions.values().filter_map(|one| one.paced).min();
    }

    pub(super) fn drain(&mut self) {
        self.drain = true;
        self.hush(true);
        let bounds = self.edge.settings.bounds;
        // A little before the server itself gives up waiting, so that the close gets through.
        let wait = bounds.drain.mul_f32(DRAINED);
        self.deadlines.drained = Some(self.edge.clock.instant() + wait);
        if self.dialect == Dialect::V1 {
            let deadline_ms = wait.as_millis() as u64;
            self.say(&ServerFrame::Drain { reason: "the server stops", deadline_ms });
        }
    }

    /// Waits until the server has had enough time to stop, if it does.
    pub(super) fn drain_over(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut draining = self.edge.draining.subscribe();
        let wait = self.edge.settings.bounds.drain;
        // As much as is left where it has begun.
        let until = self.deadlines.drained.map(|at| at + wait - wait.mul_f32(DRAINED));
        async move {
            match until {
                Some(until) => sleep_until(until).await,
                None => {
                    stopped(&mut draining).await;
                    sleep(wait).await;
                }
            }
        }
    }

    /// Whether the server stops, and nothing is under way here any more.
    pub(super) fn is_drained(&self) -> bool {
        let idle = self.publishes.is_empty() && self.answers.is_empty();
        // Who speaks the protocol is given its time; others would not know what to do with it.
        self.drain && idle && (self.dialect == Dialect::Plain || self.subscriptions.is_empty())
    }

    /// The client has said goodbye: what was out to it goes to others, and what it has said before
    /// is answered.
    pub(super) fn wind_up(&mut self) {
        self.leaving = true;
        let wait = self.edge.settings.bounds.farewell;
        self.deadlines.farewell = Some(self.edge.clock.instant() + wait);
        self.leave();
    }

    /// Whether the client has said goodbye, and there is an answer to all before it.
    pub(super) fn has_answered_all(&self) -> bool {
        self.leaving && self.publishes.is_empty() && self.answers.is_empty()
    }

    pub(super) fn leave(&mut self) {
        self.subscriptions.clear();
    }

    pub(super) fn deliver(&mut self, number: u32, news: News) {
        match news {
            News::Told(Told::Events(batch)) => {
                let topic = batch.topic().clone();
                let events: Vec<Leased> = batch.into_events().collect();
                self.deliver_leased(number, &events);
                self.pace(number, std::iter::repeat_n(&topic, events.len()));
            }
            News::Told(_) => {}
            News::Followed(found) => {
                self.deliver_followed(number, &found);
                let topics = found.iter().filter_map(|one| match one {
                    Followed::Event(event) => Some(&event.topic),
                    Followed::Gap(_) => None,
                });
                self.pace(number, topics);
            }
            News::Ended(refusal) => self.end(number, &refusal),
        }
    }

    fn deliver_leased(&mut self, number: u32, events: &[Leased]) {
        let now_ms = self.edge.clock.now_ms();
        let Some(subscription) = self.subscriptions.get_mut(&number) else {
            return;
        };
        let mut frames = Frames::new(number, subscription);
        let mut done = Vec::new();
        for leased in events {
            let Some(event) = leased.event() else {
                let verdict = Verdict::Park {
                    error: b"cannot be read",
                    fingerprint: fingerprint("unreadable"),
                };
                drop(leased.seat().nack(AckTarget::Token(leased.token()), verdict));
                continue;
            };
            let token = leased.token();
            let lane = token.lane.get();
            let wire = DeliveryToken {
                sub: number,
                lane: (lane >> 32) as u32,
                partition: Partition::new(lane as u32),
                offset: Offset::new(token.offset),
                epoch: token.epoch,
                attempt: token.attempt,
                round: token.round,
            };
            let ctx = Context {
                attempt: token.attempt,
                max_attempts: subscription.max_attempts,
                // The clock of the bus was started at another moment: never more than the lease.
                ack_deadline_ms: Some(
                    leased
                        .deadline_ms()
                        .saturating_sub(now_ms)
                        .min(subscription.ack_timeout_ms.into()),
                ),
                token: Some(wire),
            };
            frames.add(&event, &ctx);
            subscription.count(&self.edge, &event, token.attempt);
            if subscription.auto_ack {
                done.push(AckTarget::Token(token));
            } else if self.dialect == Dialect::Plain {
                let out = OutDelivery { token, deadline_ms: leased.deadline_ms() };
                subscription.remember(event, out, now_ms);
            }
        }
        frames.finish().into_iter().for_each(|frame| self.outbox.push(frame));
        if let (Some(first), false) = (events.first(), done.is_empty()) {
            drop(first.seat().ack(&done));
        }
    }

    fn deliver_followed(&mut self, number: u32, found: &[Followed]) {
        let Some(subscription) = self.subscriptions.get_mut(&number) else {
            return;
        };
        let mut frames = Frames::new(number, subscription);
        for one in found {
            match one {
                Followed::Event(event) => {
                    let ctx = Context { attempt: 1, max_attempts: 1, ..Context::default() };
                    frames.add(event, &ctx);
                    subscription.count(&self.edge, event, 1);
                    if let Some(credit) = &mut subscription.credit {
                        *credit = credit.saturating_sub(1);
                    }
                }
                Followed::Gap(gap) if self.dialect == Dialect::V1 => frames.gap(gap),
                Followed::Gap(_) => {}
            }
        }
        frames.finish().into_iter().for_each(|frame| self.outbox.push(frame));
    }
}

impl Subscription {
    fn count(&mut self, edge: &Edge, event: &Event, attempt: u16) {
        let group = self.group.as_ref().map_or("", |group| group.as_str());
        let counted = self.counters.entry(event.topic.clone()).or_insert_with(|| Counted {
            delivered: edge.metrics.delivered.of(event.topic.as_str(), group),
            redelivered: edge.metrics.redelivered.of(event.topic.as_str(), group),
        });
        counted.delivered.fetch_add(1, Ordering::Relaxed);
        if attempt > 1 {
            counted.redelivered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Keeps what a plain client will answer by id. What is overdue has gone to others by now.
    fn remember(&mut self, event: Event, out: OutDelivery, now_ms: u64) {
        if self.out.len() >= IN_FLIGHT_MAX as usize {
            self.out.retain(|_, known| known.deadline_ms > now_ms);
        }
        self.out.insert((event.topic, event.id), out);
    }
}
