use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use promethean::store::Put;
use promethean::{Bus, PublishOptions};
use promethean_event::{EventId, Key, Payload, Topic};
use tokio::sync::watch;

use crate::access::{AuthFailure, Principal};
use crate::attendance::{Attendance, Presence};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::quota::{Buckets, Refusal};
use crate::rejection::{Code, Rejection};
use crate::settings::{Access, Settings};

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
    /// How many WebSockets each subject has open.
    pub(crate) attendance: Arc<Attendance>,
    topics: Option<Buckets<Topic>>,
    principals: Option<Buckets<Arc<str>>>,
    strangers: Option<Buckets<IpAddr>>,
}

impl Edge {
    pub(crate) async fn new(bus: Bus, settings: Settings) -> Self {
        let epoch = epoch(&bus).await;
        Self {
            topics: settings.rates.topic.map(Buckets::new),
            principals: settings.rates.principal.map(Buckets::new),
            strangers: settings.rates.auth_failures.map(Buckets::new),
            clock: Clock::start(),
            metrics: Metrics::default(),
            draining: watch::Sender::new(false),
            rights: watch::Sender::new(0),
            attendance: Arc::default(),
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
    pub(crate) fn authenticate(
        &self,
        credential: &str,
        peer: IpAddr,
    ) -> Result<Principal, Rejection> {
        let Access::Required(authenticator) = &self.settings.access else {
            return Ok(Principal::anonymous());
        };
        let failure = match authenticator.authenticate(credential, self.clock.now_ms()) {
            Ok(principal) => return Ok(principal),
            Err(failure) => failure,
        };
        self.count_refusal(Code::Unauthorized);
        let reason = match failure {
            AuthFailure::Refused(reason) => reason,
            AuthFailure::NeedsKeys | AuthFailure::Unavailable => {
                tracing::warn!(%peer, "the keys of the issuer are not there");
                return Err(Rejection::plain(Code::NotReady).after_ms(1_000));
            }
        };
        tracing::info!(%peer, reason, "a credential was refused");
        if let Some(Err(Refusal::Wait(wait))) =
            self.strangers.as_ref().map(|known| known.take(&peer, self.clock.elapsed(), 1))
        {
            return Err(Rejection::plain(Code::RateLimited).after_ms(millis(wait)));
        }
        Err(Rejection::plain(Code::Unauthorized))
    }

    /// What somebody who was accepted may do now; `None` if that was taken back.
    pub(crate) fn standing(&self, principal: &Principal) -> Option<Principal> {
        match &self.settings.access {
            Access::Anonymous => Some(principal.clone()),
            Access::Required(authenticator) => authenticator.standing(principal),
        }
    }

    /// A WebSocket more of a subject. Who needs no credential, and who is on this machine, has
    /// as many as there can be.
    pub(crate) fn attend(
        &self,
        principal: &Principal,
        peer: IpAddr,
    ) -> Result<Option<Presence>, Rejection> {
        if peer.is_loopback() || matches!(self.settings.access, Access::Anonymous) {
            return Ok(None);
        }
        let max = self.settings.bounds.connections_per_subject;
        self.attendance.enter(principal.subject(), max).map(Some)
    }

    /// Takes events out of the buckets of a principal and of the topics they are for.
    pub(crate) fn admit<'a>(
        &self,
        principal: &Principal,
        topics: impl Iterator<Item = &'a Topic>,
        events: u32,
    ) -> Result<(), Rejection> {
        let now = self.clock.elapsed();
        if let Some(buckets) = &self.principals {
            let taken = buckets.take(&principal.subject().into(), now, events);
            taken.map_err(|refusal| limited("this token", refusal))?;
        }
        if let Some(buckets) = &self.topics {
            for topic in topics {
                let taken = buckets.take(topic, now, 1);
                taken.map_err(|refusal| limited("this topic", refusal))?;
            }
        }
        Ok(())
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

    pub(crate) fn count_refusal(&self, code: Code) {
        self.metrics.refused.add(code.as_str(), "", 1);
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

/// Waits until the server is told to stop. The sender lives as long as the edge.
pub(crate) async fn stopped(draining: &mut watch::Receiver<bool>) {
    let _ = draining.wait_for(|stop| *stop).await;
}

/// What a bucket said, to a client.
pub(crate) fn limited(whose: &str, refusal: Refusal) -> Rejection {
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
