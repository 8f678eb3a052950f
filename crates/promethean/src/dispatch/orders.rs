//! What operators do to a lane of a group, from any hub. Whoever has the lane does it. A hub that
//! has not, and finds the lane free, takes it for the moment; if another has it, the hub leaves a
//! request in the store, which the holder hears of, carries out and answers there.
//!
//! A request is answered only by one whose save was taken, so that a hub that was cut off cannot
//! say that it has moved a group that another delivers. One that nobody answers is withdrawn, on
//! condition that it was not answered meanwhile.

use std::sync::Arc;
use std::time::Duration;

use promethean_delivery::{DeadLetterRef, Input, Refusal, RequestId};
use promethean_event::{EventId, GroupName, Key, Offset, Payload};
use serde::{Deserialize, Serialize};

use super::active::{ActiveGroup, Inner};
use super::registry::Groups;
use crate::clock::Stopwatch;
use crate::error::GroupError;
use crate::groups::answered;
use crate::limits::{
    REQUEST_AGE_MS_MAX, REQUEST_LOOK_MS, REQUEST_WAIT_MS, REQUEST_WAIT_MS_MAX,
    REQUESTS_REMEMBERED_MAX,
};
use crate::store::{AppendError, Entry, Lane, Put, ReadError, SaveError};

/// The space in which hubs ask each other.
const REQUESTS: &str = "requests";

/// What is to be done to a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Goes on from another offset.
    Seek { to: u64 },
    /// Gives a dead letter back to the group.
    Release(Letter),
    /// Gives a dead letter up.
    Discard(Letter),
}

/// Which dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Letter {
    offset: u64,
    key: Option<u64>,
    round: u16,
}

impl From<DeadLetterRef> for Letter {
    fn from(letter: DeadLetterRef) -> Self {
        let DeadLetterRef { offset, key, round } = letter;
        Self { offset, key, round }
    }
}

impl Letter {
    const fn reference(self) -> DeadLetterRef {
        DeadLetterRef { offset: self.offset, key: self.key, round: self.round }
    }
}

/// An order for whoever has the lane, as it is kept in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Request {
    group: GroupName,
    lane: u64,
    order: Order,
    /// When it was made, by the clock of the hub that made it.
    at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    answer: Option<Answer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Done,
    AlreadyDone,
    BeyondTail,
    ReleasedTooOften,
    Unknown,
}

impl Answer {
    const fn result(self) -> Result<(), GroupError> {
        Err(GroupError::Refused(match self {
            Self::Done => return Ok(()),
            Self::AlreadyDone => Refusal::AlreadyDone,
            Self::BeyondTail => Refusal::BeyondTail,
            Self::ReleasedTooOften => Refusal::ReleasedTooOften,
            Self::Unknown => Refusal::Unknown,
        }))
    }

    /// The answer to an order that was carried out or refused; `None` if nobody knows, or if the
    /// lane has gone to another.
    const fn of(result: &Result<(), GroupError>) -> Option<Self> {
        Some(match result {
            Ok(()) => Self::Done,
            Err(GroupError::Refused(Refusal::AlreadyDone)) => Self::AlreadyDone,
            Err(GroupError::Refused(Refusal::BeyondTail)) => Self::BeyondTail,
            Err(GroupError::Refused(Refusal::ReleasedTooOften)) => Self::ReleasedTooOften,
            Err(GroupError::Refused(Refusal::Unknown)) => Self::Unknown,
            Err(_) => return None,
        })
    }
}

impl ActiveGroup {
    /// Does something to a lane, wherever it is; answered once it is durable.
    pub(crate) async fn order(
        self: &Arc<Self>,
        lane: Lane,
        order: Order,
    ) -> Result<(), GroupError> {
        if self.hubs().is_none() {
            return self.obey(lane, order).await;
        }
        let begun = Stopwatch::start();
        loop {
            if let Some(result) = self.obey_if_here(lane, order).await? {
                return result;
            }
            if let Some(answer) = self.ask_holder(lane, order).await? {
                return answer.result();
            }
            if begun.nanos() / 1_000_000 > REQUEST_WAIT_MS_MAX {
                let text = "the hub that delivers the partition does not answer";
                return Err(SaveError::from(AppendError::Unavailable(text.to_owned())).into());
            }
        }
    }

    /// Does it if the lane is here, or free to be taken. `None`: another has it.
    async fn obey_if_here(
        self: &Arc<Self>,
        lane: Lane,
        order: Order,
    ) -> Result<Option<Result<(), GroupError>>, GroupError> {
        // Nobody gives it back meanwhile.
        let _one_at_a_time = self.sharing.lock().await;
        if !self.has(lane) {
            self.take(vec![lane]).await?;
        }
        if !self.has(lane) {
            return Ok(None);
        }
        // If it is not this hub's share, it goes back when lanes are next shared out.
        self.lock().shared = None;
        let result = self.obey(lane, order).await;
        if let Some((hub, _)) = self.hubs() {
            hub.ring();
        }
        // Lost in the middle of it: whoever has it now is asked.
        Ok(Some(result).filter(|result| {
            !matches!(result, Err(GroupError::Refused(Refusal::LeaseLost | Refusal::Fenced)))
        }))
    }

    /// Does it here.
    async fn obey(self: &Arc<Self>, lane: Lane, order: Order) -> Result<(), GroupError> {
        let id = lane.id();
        let asked = match order {
            Order::Seek { to } => {
                // The group may not have heard of the newest events yet.
                let bounds = self.site.store.bounds(lane).await?;
                self.appended(lane, bounds.next);
                self.seek(lane, Offset::new(to))
            }
            Order::Release(letter) => {
                let event = letter.reference();
                self.ask(|request: RequestId| Input::Release { request, lane: id, event })
            }
            Order::Discard(letter) => {
                let event = letter.reference();
                self.ask(|request: RequestId| Input::Discard { request, lane: id, event })
            }
        };
        answered(self, asked).await.map(drop)
    }

    /// Leaves a request, and waits for the answer; `None` if there is none within a while.
    async fn ask_holder(
        self: &Arc<Self>,
        lane: Lane,
        order: Order,
    ) -> Result<Option<Answer>, GroupError> {
        let store = &self.site.store;
        let at_ms = self.site.clock.now_ms();
        let (group, number) = (self.name.clone(), lane.id().get());
        let request = Request { group, lane: number, order, at_ms, answer: None };
        let key = request_key()?;
        let value = Payload::of(&request);
        let value = value.map_err(|error| ReadError::Failed(format!("a request: {error}")))?;
        let put = Put { space: REQUESTS, key: key.clone(), value: Some(value), expect: Some(0) };
        store.put(vec![put]).await?;
        let begun = Stopwatch::start();
        loop {
            tokio::time::sleep(Duration::from_millis(REQUEST_LOOK_MS)).await;
            let found = store.entries(REQUESTS).await?.into_iter().find(|e| e.key == key);
            let Some(found) = found else { return Ok(None) };
            let answer = request_of(&found).and_then(|request| request.answer);
            if answer.is_none() && begun.nanos() / 1_000_000 < REQUEST_WAIT_MS {
                continue;
            }
            let version = Some(found.version);
            let withdrawal =
                Put { space: REQUESTS, key: key.clone(), value: None, expect: version };
            match store.put(vec![withdrawal]).await {
                // Answered at this moment.
                Err(SaveError::Changed { .. }) if answer.is_none() => {}
                Err(SaveError::Changed { .. }) | Ok(()) => return Ok(answer),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn request_key() -> Result<Key, GroupError> {
    let unreadable = |_| ReadError::Failed("a request could not be named".to_owned());
    Ok(Key::new(EventId::generate().to_string()).map_err(unreadable)?)
}

fn request_of(entry: &Entry) -> Option<Request> {
    entry.value.decode().ok()
}

impl Groups {
    /// Carries out what other hubs want of lanes that are here.
    pub(super) async fn hear_requests(self: &Arc<Self>) -> Result<(), ReadError> {
        let entries = self.site().store.entries(REQUESTS).await?;
        if entries.is_empty() {
            return Ok(());
        }
        let (groups, now_ms) = (self.live(), self.site().clock.now_ms());
        for entry in entries {
            let Some(request) = request_of(&entry) else { continue };
            // Left behind by a hub that was killed while it waited.
            if now_ms.saturating_sub(request.at_ms) > REQUEST_AGE_MS_MAX {
                self.forget(entry).await;
                continue;
            }
            let lane = Lane::of(promethean_delivery::LaneId::new(request.lane));
            let group = groups.iter().find(|group| group.name == request.group);
            if let Some(group) = group.filter(|group| request.answer.is_none() && group.has(lane)) {
                let group = Arc::clone(group);
                self.site().runtime.spawn(async move { group.serve(entry, request, lane).await });
            }
        }
        Ok(())
    }

    async fn forget(&self, entry: Entry) {
        let expect = Some(entry.version);
        let put = Put { space: REQUESTS, key: entry.key, value: None, expect };
        if let Err(error) = self.site().store.put(vec![put]).await {
            tracing::debug!(%error, "an old request is still there");
        }
    }
}

impl ActiveGroup {
    /// Carries a request of another hub out, and answers it.
    async fn serve(self: Arc<Self>, entry: Entry, mut request: Request, lane: Lane) {
        let result = {
            let _one_at_a_time = self.sharing.lock().await;
            if !self.has(lane) || !self.lock().begin_serving(&entry.key) {
                return;
            }
            self.obey(lane, request.order).await
        };
        request.answer = Answer::of(&result);
        if request.answer.is_none() {
            return;
        }
        let value = match Payload::of(&request) {
            Ok(value) => Some(value),
            Err(error) => {
                tracing::warn!(group = %self.name, %error, "an answer cannot be written");
                return;
            }
        };
        let put = Put { space: REQUESTS, key: entry.key, value, expect: Some(entry.version) };
        match self.site.store.put(vec![put]).await {
            // Withdrawn, or heard twice and answered once.
            Ok(()) | Err(SaveError::Changed { .. }) => {}
            Err(error) => tracing::warn!(group = %self.name, %error, "a request has no answer"),
        }
    }
}

impl Inner {
    /// Whether a request was not carried out yet: it may be heard twice.
    fn begin_serving(&mut self, request: &Key) -> bool {
        if self.served.contains(request) {
            return false;
        }
        if self.served.len() >= REQUESTS_REMEMBERED_MAX {
            self.served.pop_front();
        }
        self.served.push_back(request.clone());
        true
    }
}
