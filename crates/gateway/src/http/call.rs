use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http_body_util::BodyExt;
use promethean_event::{EventId, GroupName, Topic};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::Peer;
use super::endpoint::Entrance;
use crate::access::{Action, Principal, Resource, authorize};
use crate::edge::{Edge, limited};
use crate::limits::{BODY_ROOM_BYTES, PAGE_EVENTS, PAGE_EVENTS_MAX};
use crate::quota::Refusal;
use crate::rejection::{Code, Rejection};

/// A request that may go ahead, with who makes it.
pub(super) struct Call {
    pub(super) edge: Arc<Edge>,
    pub(super) entrance: Entrance,
    pub(super) principal: Principal,
    pub(super) peer: Peer,
    pub(super) params: Vec<(String, String)>,
    pub(super) query: Query,
    pub(super) head: Parts,
    /// In a lock because a body is not to be looked at from two threads; nobody does.
    pub(super) body: Mutex<Body>,
    /// Room for the body, kept for as long as it is worked on.
    pub(super) room: Option<OwnedSemaphorePermit>,
}

pub(super) fn request_id() -> String {
    EventId::generate().to_string()
}

impl Call {
    /// A part of the address.
    pub(super) fn param<T: FromStr>(&self, name: &str) -> Result<T, Rejection>
    where
        T::Err: std::fmt::Display,
    {
        let found = self.params.iter().find(|(known, _)| known == name);
        let text = found.map(|(_, value)| value.as_str()).unwrap_or_default();
        text.parse().map_err(|error: T::Err| Rejection::new(Code::BadRequest, error.to_string()))
    }

    /// Asks for the right to do something to a topic.
    pub(super) fn authorize(
        &self,
        action: Action,
        topic: &Topic,
        group: Option<&GroupName>,
    ) -> Result<(), Rejection> {
        authorize(&self.principal, action, Resource::Topic(topic, group))
    }

    /// Whether events may be read: not by who has had more than rates allow, nor of a topic of which more
    /// was. `topic` is what is read first, if anything is.
    pub(super) fn may_read(&self, topic: Option<&Topic>) -> Result<(), Rejection> {
        let mut buckets = self.peer.buckets();
        let owed = self.edge.owed(&self.principal, &mut buckets.delivered, topic);
        owed.map_or(Ok(()), |wait| Err(limited("this reader", Refusal::Wait(wait))))
    }

    /// Notes what was read: the next one waits for it.
    pub(super) fn has_read<'a>(&self, topics: impl Iterator<Item = &'a Topic>) {
        self.edge.pace(&self.principal, &mut self.peer.buckets().delivered, topics);
    }

    /// The whole body, within its size and time.
    pub(super) async fn body(&mut self, max: usize) -> Result<Bytes, Rejection> {
        let bounds = self.edge.settings.bounds;
        let too_large =
            || Rejection::new(Code::TooLarge, format!("a body has {max} bytes at most"));
        let kept = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        let body = std::mem::replace(kept, Body::empty());
        if http_body::Body::size_hint(&body).lower() > max as u64 {
            return Err(too_large());
        }
        let bodies = Arc::clone(&self.edge.bodies);
        let read = async move {
            let mut body = body;
            let mut bytes = BytesMut::new();
            let mut room: Option<OwnedSemaphorePermit> = None;
            loop {
                let frame = timeout(bounds.body_idle, body.frame()).await;
                let frame = frame.map_err(|_| Rejection::plain(Code::SlowRequest))?;
                let Some(frame) = frame else {
                    return Ok((bytes.freeze(), room));
                };
                let frame =
                    frame.map_err(|_| Rejection::new(Code::BadRequest, "the body broke off"))?;
                let Ok(piece) = frame.into_data() else {
                    continue;
                };
                if bytes.len() + piece.len() > max {
                    return Err(too_large());
                }
                bytes.extend_from_slice(&piece);
                // Only what has come counts: who says much and sends little takes little.
                let have = room.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
                let more = bytes.len().div_ceil(BODY_ROOM_BYTES).saturating_sub(have);
                let more = u32::try_from(more).unwrap_or(u32::MAX);
                let more = Arc::clone(&bodies).try_acquire_many_owned(more);
                let more = more.map_err(|_| Rejection::plain(Code::NotReady).after_ms(1_000))?;
                match &mut room {
                    Some(room) => room.merge(more),
                    None => room = Some(more),
                }
            }
        };
        let read = timeout(bounds.body, read).await;
        let (bytes, room) = read.map_err(|_| Rejection::plain(Code::SlowRequest))??;
        self.room = room;
        Ok(bytes)
    }
}

/// The part of an address after `?`: each name once, each name known.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn read(text: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(text.unwrap_or_default().as_bytes());
        Self(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// Adds what the address says elsewhere.
    pub(super) fn insert(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Refuses names that a resource does not have: a misspelt filter would otherwise show all.
    pub(super) fn only(&self, names: &[&str]) -> Result<(), Rejection> {
        let is_any = names.contains(&"*");
        for (index, (name, _)) in self.0.iter().enumerate() {
            if !is_any && !names.contains(&name.as_str()) {
                let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                let name: String = name.chars().take(64).collect();
                return Err(bad(format!("there is no parameter {name:?}; there are: {known}")));
            }
            let again = self.0.iter().skip(index + 1).any(|(other, _)| other == name);
            if again && name != "key" {
                return Err(bad(format!("parameter {name} is given twice")));
            }
        }
        Ok(())
    }

    /// All of them.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn parsed<T: FromStr>(&self, name: &str) -> Result<Option<T>, Rejection>
    where
        T::Err: std::fmt::Display,
    {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|error: T::Err| bad(format!("{name}: {error}")))
    }

    pub(super) fn needed<T: FromStr>(&self, name: &str) -> Result<T, Rejection>
    where
        T::Err: std::fmt::Display,
    {
        self.parsed(name)?.ok_or_else(|| bad(format!("parameter {name} is missing")))
    }

    /// How many events are wanted.
    pub(super) fn limit(&self) -> Result<usize, Rejection> {
        match self.parsed::<usize>("limit")? {
            None => Ok(PAGE_EVENTS),
            Some(limit @ 1..=PAGE_EVENTS_MAX) => Ok(limit),
            Some(_) => Err(bad(format!("limit is 1 to {PAGE_EVENTS_MAX}"))),
        }
    }
}

fn bad(detail: String) -> Rejection {
    Rejection::new(Code::BadRequest, detail)
}

/// A body that has to be an object. Without this, an array would be taken for the members of a
/// structure in their order, which nobody means.
pub(super) fn object<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, serde_json::Error> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if first.is_some_and(|&first| first != b'{') {
        return Err(serde::de::Error::custom("a JSON object is needed here"));
    }
    serde_json::from_slice(body)
}
