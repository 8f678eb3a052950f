use std::convert::Infallible;
use std::error::Error;
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use promethean::store::{Appended, Durability, Put};
use promethean::{Bus, PublishOptions};
use promethean_event::{EventId, Key, Payload, Topic};
use tokio::sync::{Mutex, Semaphore, watch};

use crate::access::{AuthFailure, Authenticator, Principal};
use crate::attendance::{Attendance, Presence};
use crate::audit::Audit;
use crate::clock::Clock;
use crate::limits::{BODY_ROOM_BYTES, JWKS_RETRY_MS};
use crate::metrics::Metrics;
use crate::quota::{Bucket, Buckets, Refusal};
use crate::rejection::{Code, Rejection};
use crate::settings::{Access, Settings};
use crate::tickets::Tickets;
use crate::undecided::Undecided;

/// What all connections of a server stand on.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) bus: Bus,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    /// Names the store, so that positions of another one are not taken for its own.
    pub(crate) epoch: String,
    /// Whether the server is stopping.
    pub(crate) draining: watch::Sender<bool>,
    /// Counts how often it was changed who may do what.
    pub(crate) rights: watch::Sender<u64>,
    /// How many WebSockets and streams each subject has open.
    pub(crate) attendance: Arc<Attendance>,
    pub(crate) audit: Audit,
    /// Tickets that were not used yet.
    pub(crate) tickets: Tickets,
    /// Room for bodies of requests, in [`BODY_ROOM_BYTES`].
    pub(crate) bodies: Arc<Semaphore>,
    /// Held by whoever fetches the keys of the issuer.
    fetching: Mutex<()>,
    topics: Option<Buckets<Topic>>,
    principals: Option<Buckets<Arc<str>>>,
    strangers: Option<Buckets<IpAddr>>,
    taken_topics: Option<Buckets<Topic>>,
    taken_principals: Option<Buckets<Arc<str>>>,
}

impl Edge {
    pub(crate) async fn new(bus: Bus, settings: Settings) -> Self {
        let epoch = epoch(&bus).await;
        Self {
            topics: settings.rates.topic.map(Buckets::new),
            principals: settings.rates.principal.map(Buckets::new),
            strangers: settings.rates.auth_failures.map(Buckets::new),
            taken_topics: settings.rates.delivery.topic.map(Buckets::new),
            taken_principals: settings.rates.delivery.principal.map(Buckets::new),
            clock: Clock::start(),
            metrics: Metrics { undecided: Undecided::of_all(), ..Metrics::default() },
            draining: watch::Sender::new(false),
            rights: watch::Sender::new(0),
            attendance: Arc::default(),
            audit: Audit::new(bus.store(), &settings.audit),
            tickets: Tickets::default(),
            fetching: Mutex::default(),
            bodies: Arc::new(Semaphore::new(settings.bounds.bodies_bytes / BODY_ROOM_BYTES)),
            epoch,
            settings,
            bus,
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Whoever needs no credential here, or nobody.
    pub(crate) fn anonymous(&self) -> Option<Principal> {
        matches!(self.settings.access, Access::Anonymous).then(Principal::anonymous)
    }

    /// Whose credential it is. All failures look the same from outside; only too many of them
    /// from one address are told apart.
    pub(crate) async fn authenticate(
        &self,
        credential: &str,
        peer: IpAddr,
    ) -> Result<Principal, Rejection> {
        let Access::Required(authenticator) = &self.settings.access else {
            return Ok(Principal::anonymous());
        };
        let failure = match self.known_or_fetched(authenticator, credential).await {
            Ok(principal) => return Ok(principal),
            Err(failure) => failure,
        };
        let reason = match failure {
            AuthFailure::Refused(reason) => reason,
            AuthFailure::NeedsKeys | AuthFailure::Unavailable => {
                tracing::warn!(%peer, "the keys of the issuer are not there");
                return Err(Rejection::plain(Code::NotReady).after_ms(1_000));
            }
        };
        Err(self.refused_credential(peer, reason))
    }

    /// Whose ticket it is. It is used up by this, and what it is worth is what the credential that
    /// it was made by is worth now.
    pub(crate) fn redeem(&self, ticket: &str, peer: IpAddr) -> Result<Principal, Rejection> {
        if matches!(self.settings.access, Access::Anonymous) {
            return Ok(Principal::anonymous());
        }
        let taken = self.tickets.take(ticket, self.clock.elapsed());
        let standing = taken.and_then(|principal| self.standing(&principal));
        let now = self.clock.latest_ms();
        standing
            .filter(|principal| !principal.is_expired(now))
            .ok_or_else(|| self.refused_credential(peer, "no such ticket"))
    }

    /// A credential that is no good, as a refusal; the reason is for our logs.
    fn refused_credential(&self, peer: IpAddr, reason: &'static str) -> Rejection {
        tracing::info!(%peer, reason, "a credential was refused");
        self.audit.refusals.unauthorized(peer, reason, self.clock.now_ms());
        if let Some(Err(Refusal::Wait(wait))) =
            self.strangers.as_ref().map(|known| known.take(&peer, self.clock.elapsed(), 1))
        {
            return Rejection::plain(Code::RateLimited).after_ms(millis(wait));
        }
        Rejection::plain(Code::Unauthorized)
    }

    /// The same, after the keys of the issuer were fetched if they are needed. One fetches at a
    /// time; those who come meanwhile wait for it, and do not fetch again.
    async fn known_or_fetched(
        &self,
        authenticator: &Authenticator,
        credential: &str,
    ) -> Result<Principal, AuthFailure> {
        let look = || authenticator.authenticate(credential, self.clock.latest_ms());
        let needs_keys = matches!(look(), Err(AuthFailure::NeedsKeys));
        if !needs_keys || self.settings.key_source.is_none() {
            return look();
        }
        let _one_at_a_time = self.fetching.lock().await;
        if matches!(look(), Err(AuthFailure::NeedsKeys)) {
            self.fetch_keys(authenticator).await;
        }
        look()
    }

    /// Keeps the keys of the issuer fresh, for as long as it is polled.
    pub(crate) async fn keep_keys(&self) -> Infallible {
        let (Access::Required(authenticator), Some(_)) =
            (&self.settings.access, &self.settings.key_source)
        else {
            return pending().await;
        };
        let mut ticks = tokio::time::interval(Duration::from_millis(JWKS_RETRY_MS));
        loop {
            ticks.tick().await;
            let _one_at_a_time = self.fetching.lock().await;
            if authenticator.jwt().is_some_and(|jwt| jwt.keys_are_old(self.clock.latest_ms())) {
                self.fetch_keys(authenticator).await;
            }
        }
    }

    /// Sums up refusals in the audit log, for as long as it is polled.
    pub(crate) async fn keep_audit(&self) -> Infallible {
        if let Err(error) = self.audit.settle().await {
            tracing::warn!(%error, "the audit log could not be looked at; it is when it is written");
        }
        loop {
            tokio::time::sleep(self.settings.bounds.refusals).await;
            self.sum_up().await;
        }
    }

    /// Refusals, and tokens that came and went, since the last time.
    pub(crate) async fn sum_up(&self) {
        if let Err(error) = self.audit.sum_up(self.clock.now_ms()).await {
            tracing::warn!(%error, "refusals could not be written to the audit log; they are kept");
        }
    }

    async fn fetch_keys(&self, authenticator: &Authenticator) {
        let (Some(source), Some(jwt)) = (&self.settings.key_source, authenticator.jwt()) else {
            return;
        };
        match source.fetch(self.settings.bounds.keys).await {
            Ok(document) => {
                if let Err(error) = jwt.keys_fetched(&document, self.clock.latest_ms()) {
                    tracing::warn!(%error, "the issuer has no keys for us; the old ones stay");
                }
            }
            Err(error) => {
                jwt.keys_failed(self.clock.latest_ms());
                tracing::warn!(error = &error as &dyn Error, "no keys of the issuer this time");
            }
        }
    }

    /// What somebody who was accepted may do now; `None` if that was taken back.
    pub(crate) fn standing(&self, principal: &Principal) -> Option<Principal> {
        match &self.settings.access {
            Access::Anonymous => Some(principal.clone()),
            Access::Required(authenticator) => authenticator.standing(principal),
        }
    }

    /// A WebSocket or stream more of a subject. Who needs no credential has as many as there can be;
    /// who is on this machine too, unless it was said otherwise: one token serves all tools there, and
    /// none of them keeps others out whom it could not harm anyway. Behind a proxy on this machine,
    /// it has to be said.
    pub(crate) fn attend(
        &self,
        principal: &Principal,
        peer: IpAddr,
    ) -> Result<Option<Presence>, Rejection> {
        let bounds = &self.settings.bounds;
        let max = match peer.is_loopback() {
            true => bounds.connections_per_local_subject,
            false => Some(bounds.connections_per_subject),
        };
        match (max, &self.settings.access) {
            (Some(max), Access::Required(_)) => {
                self.attendance.enter(principal.subject(), max).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Takes events out of the buckets of their connection, of a principal and of the topics they are
    /// for: out of all of them, or out of none. What was refused must not use up what others may send.
    pub(crate) fn admit<'a>(
        &self,
        principal: &Principal,
        connection: &mut Bucket,
        topics: impl ExactSizeIterator<Item = &'a Topic>,
    ) -> Result<(), Rejection> {
        let events = u32::try_from(topics.len()).unwrap_or(u32::MAX);
        let rate = self.settings.rates.connection;
        if let Some(rate) = rate {
            let taken = connection.take(rate, self.clock.elapsed(), events);
            taken.map_err(|refusal| limited("this connection", refusal))?;
        }
        let admitted = self.admit_beyond(principal, topics, events);
        if let (Err(_), Some(rate)) = (&admitted, rate) {
            connection.put_back(rate, events);
        }
        admitted
    }

    /// The same for what is not of the connection alone.
    fn admit_beyond<'a>(
        &self,
        principal: &Principal,
        topics: impl Iterator<Item = &'a Topic>,
        events: u32,
    ) -> Result<(), Rejection> {
        if self.principals.is_none() && self.topics.is_none() {
            return Ok(());
        }
        let now = self.clock.elapsed();
        let subject: Arc<str> = principal.subject().into();
        if let Some(buckets) = &self.principals {
            let taken = buckets.take(&subject, now, events);
            taken.map_err(|refusal| limited("this token", refusal))?;
        }
        let Some(buckets) = &self.topics else {
            return Ok(());
        };
        // All of a topic at once: one by one, more than it can ever take would be told to wait.
        let wanted = counted(topics);
        for (index, (topic, count)) in wanted.iter().enumerate() {
            if let Err(refusal) = buckets.take(topic, now, *count) {
                let taken = wanted.iter().take(index);
                taken.for_each(|(topic, count)| buckets.put_back(topic, *count));
                if let Some(buckets) = &self.principals {
                    buckets.put_back(&subject, events);
                }
                return Err(limited("this topic", refusal));
            }
        }
        Ok(())
    }

    /// How long nothing more should be delivered after these events were; nothing if it goes on at
    /// once. `connection` is the bucket of the connection they went over.
    pub(crate) fn pace<'a>(
        &self,
        principal: &Principal,
        connection: &mut Bucket,
        topics: impl Iterator<Item = &'a Topic>,
    ) -> Option<Duration> {
        let rates = self.settings.rates.delivery;
        if !rates.is_any() {
            return None;
        }
        let now = self.clock.elapsed();
        let delivered = counted(topics);
        let events = delivered.iter().map(|(_, count)| *count).sum();
        let mut wait =
            rates.connection.map_or(Duration::ZERO, |rate| connection.charge(rate, now, events));
        if let Some(buckets) = &self.taken_principals {
            wait = wait.max(buckets.charge(&principal.subject().into(), now, events));
        }
        if let Some(buckets) = &self.taken_topics {
            let waits = delivered.iter().map(|(topic, count)| buckets.charge(topic, now, *count));
            wait = waits.fold(wait, Duration::max);
        }
        (wait > Duration::ZERO).then_some(wait)
    }

    /// How long nothing should be delivered, since more was than rates allow; nothing if there is no
    /// reason to wait.
    pub(crate) fn owed(
        &self,
        principal: &Principal,
        connection: &mut Bucket,
        topic: Option<&Topic>,
    ) -> Option<Duration> {
        let wait = self.pace(principal, connection, std::iter::empty());
        wait.max(topic.and_then(|topic| self.owed_of(topic)))
    }

    /// The same of a topic alone.
    pub(crate) fn owed_of(&self, topic: &Topic) -> Option<Duration> {
        let wait = self.taken_topics.as_ref()?.charge(topic, self.clock.elapsed(), 0);
        (wait > Duration::ZERO).then_some(wait)
    }

    /// How events are published: as durably as the most demanding of their topics.
    pub(crate) fn publish_options<'a>(
        &self,
        topics: impl Iterator<Item = &'a Topic>,
    ) -> PublishOptions {
        let known = &self.settings.durabilities;
        let wanted = topics.map(|topic| known.get(topic).copied().unwrap_or_default());
        let durability = if known.is_empty() { None } else { wanted.max() };
        PublishOptions { durability: durability.unwrap_or_default(), ..PublishOptions::default() }
    }

    /// Called where a client is told, once for each time: by a problem document, an `ERR`, or a Close
    /// that comes without one.
    pub(crate) fn count_refusal(&self, code: Code) {
        self.metrics.refused.add(code.as_str(), "", 1);
    }

    /// Counts events that were stored, by where they stand.
    pub(crate) fn count_stored<'a>(&self, appended: impl Iterator<Item = &'a Appended>) {
        let known = self.bus.topics();
        let receipts = appended.flat_map(|appended| &appended.receipts);
        // Of a topic that was removed meanwhile nothing is shown any more.
        let entries = receipts.filter_map(|receipt| known.by_id(receipt.lane.topic));
        self.count_published(entries.map(|entry| &entry.definition.topic));
    }

    /// Counts events that were stored. Most batches are of one topic, which is looked up once.
    pub(crate) fn count_published<'a>(&self, mut topics: impl Iterator<Item = &'a Topic>) {
        let Some(mut topic) = topics.next() else {
            return;
        };
        let mut count = 1;
        for next in topics {
            if next != topic {
                self.metrics.published.add(topic.as_str(), "", count);
                (topic, count) = (next, 0);
            }
            count += 1;
        }
        self.metrics.published.add(topic.as_str(), "", count);
    }
}

/// Each topic with how often it is there. Most batches are of one.
fn counted<'a>(topics: impl Iterator<Item = &'a Topic>) -> Vec<(Topic, u32)> {
    let mut all: Vec<&Topic> = topics.collect();
    all.sort_unstable();
    let mut counted: Vec<(Topic, u32)> = Vec::new();
    for topic in all {
        match counted.last_mut() {
            Some((known, count)) if known == topic => *count += 1,
            _ => counted.push((topic.clone(), 1)),
        }
    }
    counted
}

/// Waits until the server is told to stop. The sender lives as long as the edge.
pub(crate) async fn stopped(draining: &mut watch::Receiver<bool>) {
    let _ = draining.wait_for(|stop| *stop).await;
}

/// What a bucket said, to a client.
pub(crate) fn limited(whose: &'static str, refusal: Refusal) -> Rejection {
    match refusal {
        Refusal::Wait(wait) => {
            Rejection::new(Code::RateLimited, format!("the rate of {whose} is used up"))
                .after_ms(millis(wait))
        }
        Refusal::Never => {
            Rejection::new(Code::TooLarge, format!("more events at once than {whose} may send"))
        }
    }
}

/// How a durability is named in an answer, if it is less than a disk: what is usual is not said.
pub(crate) const fn weaker(durability: Durability) -> Option<&'static str> {
    match durability {
        Durability::None => Some("none"),
        Durability::Written => Some("written"),
        Durability::Synced => None,
    }
}

fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// The name of the store: made once, then kept in it. A store that cannot keep it gets another
/// name each time, so that nobody resumes on a wrong guess.
async fn epoch(bus: &Bus) -> String {
    const SPACE: &str = "edge";
    let fresh = EventId::generate().to_string();
    let (Ok(key), Ok(value)) = (Key::new("epoch"), Payload::of(&fresh)) else {
        return fresh;
    };
    let known = |entries: Vec<promethean::store::Entry>| {
        let entry = entries.into_iter().find(|entry| entry.key == key)?;
        entry.value.decode::<String>().ok()
    };
    if let Some(epoch) = bus.store().entries(SPACE).await.ok().and_then(known) {
        return epoch;
    }
    let put = Put { space: SPACE, key, value: Some(value), expect: Some(0) };
    // If another one was faster, clients resume from scratch once: no harm.
    let _ = bus.store().put(vec![put]).await;
    fresh
}
