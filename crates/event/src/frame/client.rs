use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Corr, DeliveryToken, PublishOpts, SubscribeOpts};
use crate::limits::{FRAME_ACKS_MAX, FRAME_EVENTS_MAX, FRAME_TOPICS_MAX, REASON_BYTES_MAX};
use crate::{EventId, GroupName, JsonError, Offset, Partition, Pattern, Payload, Topic};

/// What a client says, in the order in which a connection meets it.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientFrame {
    /// Who the client is; again before the token expires.
    Auth {
        /// The credential, never to be logged.
        token: String,
    },
    /// Events to store, all or none.
    Publish {
        /// The events, at least one.
        events: Vec<Publish>,
        /// Whether the client sent a list, and wants one back.
        batch: bool,
    },
    /// Wants events.
    Subscribe(Subscribe),
    /// Wants events again, after a lost connection: answered by `RESUMED`.
    Reconnect(Subscribe),
    /// Wants no more events of a subscription.
    Unsubscribe(Target),
    /// One event is done.
    Ack(Ack),
    /// Many events are done.
    Acks(Acks),
    /// One event could not be handled.
    Nack(Nack),
    /// One event needs more time.
    Modack {
        /// The event.
        target: Ack,
        /// How long from now.
        extend_ms: u32,
    },
    /// No new events for a while.
    Pause(Target),
    /// Events again.
    Resume(Target),
    /// That many more events may come.
    Credit {
        /// The subscription.
        target: Target,
        /// How many.
        events: u32,
    },
}

/// An event to store.
#[derive(Debug, Clone, PartialEq)]
pub struct Publish {
    /// The topic.
    pub topic: Topic,
    /// The payload.
    pub payload: Payload,
    /// What else the client says about it.
    pub opts: PublishOpts,
}

/// A wish for events.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscribe {
    /// The topics, at least one pattern.
    pub topics: Vec<Pattern>,
    /// The group. None: a tail, without acks.
    pub group: Option<GroupName>,
    /// How.
    pub opts: SubscribeOpts,
}

/// A subscription of this connection, by its number or, as in the notes, by topic and group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The number that the server gave it.
    Sub(u32),
    /// What it was asked for with.
    Name {
        /// The topic, or the pattern.
        topic: Pattern,
        /// The group.
        group: GroupName,
    },
}

/// A delivery, by its token or, as in the notes, by the id of the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ack {
    /// This delivery and no other.
    Token(DeliveryToken),
    /// The newest delivery of this event.
    Id {
        /// The topic of the event.
        topic: Topic,
        /// The group.
        group: GroupName,
        /// The event.
        id: EventId,
    },
}

/// Many deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acks {
    /// One by one.
    pub tokens: Vec<DeliveryToken>,
    /// All that are out to this subscription between two places.
    pub ranges: Vec<AckRange>,
}

/// All deliveries of a subscription from one offset to another, both included.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AckRange {
    /// The subscription.
    pub sub: u32,
    /// The topic.
    pub topic: Topic,
    /// The partition.
    pub partition: Partition,
    /// The first offset.
    pub from: Offset,
    /// The last offset.
    pub to: Offset,
    /// The epoch of the deliveries, from their tokens; a seek begins another one.
    pub epoch: u32,
}

/// A refusal by the consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nack {
    /// The delivery.
    pub target: Ack,
    /// What went wrong, for the dead letter.
    pub reason: Option<String>,
    /// How long to wait before the next attempt. None: as the group's backoff says.
    pub delay_ms: Option<u32>,
    /// Trying again is useless: to the dead letters at once.
    pub park: bool,
}

/// Why a frame was refused. Knows the frame's `corr`, so that the client can tell which.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Not a JSON object, or a member of the wrong kind.
    #[error("frame is not understood: {0}")]
    Syntax(String),
    /// No kind, or one that there is not.
    #[error("op {0:?} is not one of this protocol")]
    Op(String),
    /// A member is missing.
    #[error("{op} needs {member:?}")]
    Missing {
        /// The kind of frame.
        op: &'static str,
        /// The member.
        member: &'static str,
    },
    /// A list is too long, or empty.
    #[error("{member:?} has {count} entries; 1 to {max} at a time")]
    Count {
        /// The member.
        member: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// A payload is refused.
    #[error(transparent)]
    Payload(#[from] JsonError),
}

/// Every member any frame can have. One pass, borrowed from the frame.
#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow, default)]
    op: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    corr: Option<&'a RawValue>,
    #[serde(borrow, default)]
    token: Option<Cow<'a, str>>,
    #[serde(default)]
    topic: Option<Pattern>,
    #[serde(default)]
    topics: Option<Vec<Pattern>>,
    #[serde(default)]
    group: Option<GroupName>,
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default)]
    events: Option<&'a RawValue>,
    #[serde(borrow, default)]
    opts: Option<&'a RawValue>,
    #[serde(default)]
    sub: Option<u32>,
    #[serde(default)]
    id: Option<EventId>,
    #[serde(default)]
    tokens: Vec<DeliveryToken>,
    #[serde(default)]
    ranges: Vec<AckRange>,
    #[serde(borrow, default)]
    reason: Option<Cow<'a, str>>,
    #[serde(default)]
    delay_ms: Option<u32>,
    #[serde(default)]
    park: bool,
    #[serde(default, alias = "extendMs")]
    extend_ms: Option<u32>,
    #[serde(default)]
    credit: Option<u32>,
    #[serde(default)]
    after: Option<serde::de::IgnoredAny>,
}

/// A payload of `null` is there: it is a tombstone.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// One entry of a `PUBLISH` with `events`.
#[derive(Deserialize)]
struct Entry<'a> {
    topic: Topic,
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(default)]
    opts: PublishOpts,
}

/// What is wanted of a frame that is not understood as a whole.
#[derive(Deserialize)]
struct CorrOnly<'a> {
    #[serde(borrow, default)]
    corr: Option<&'a RawValue>,
}

impl ClientFrame {
    /// Reads one frame. The `corr` is there also when the frame is refused.
    pub fn parse(frame: &Bytes) -> (Option<Corr>, Result<Self, FrameError>) {
        match super::quick::publish(frame) {
            Some((corr, publish)) => (corr, Ok(publish)),
            None => Self::parse_any(frame),
        }
    }

    /// The same, whatever it is.
    fn parse_any(frame: &Bytes) -> (Option<Corr>, Result<Self, FrameError>) {
        let members: Members<'_> = match serde_json::from_slice(frame) {
            Ok(members) => members,
            Err(error) => {
                let corr = serde_json::from_slice::<CorrOnly<'_>>(frame).ok();
                let corr = corr.and_then(|found| found.corr).map(RawValue::get);
                return (corr.and_then(Corr::from_json), Err(syntax(&error)));
            }
        };
        let corr = members.corr.map(RawValue::get).and_then(Corr::from_json);
        (corr, members.into_frame(frame))
    }
}

/// The reader's own words about where and what, without echoing the input.
fn syntax(error: &serde_json::Error) -> FrameError {
    FrameError::Syntax(error.to_string())
}

impl Members<'_> {
    fn into_frame(self, frame: &Bytes) -> Result<ClientFrame, FrameError> {
        let op = self.op.as_deref().unwrap_or_default();
        match op {
            "AUTH" => {
                let token = self.token.ok_or(missing("AUTH", "token"))?;
                Ok(ClientFrame::Auth { token: token.into_owned() })
            }
            "PUBLISH" => self.publish(frame),
            "SUBSCRIBE" => self.subscribe("SUBSCRIBE").map(ClientFrame::Subscribe),
            "UNSUBSCRIBE" => self.target("UNSUBSCRIBE").map(ClientFrame::Unsubscribe),
            "ACK" => self.delivery("ACK").map(ClientFrame::Ack),
            "ACKS" => self.acks(),
            "NACK" => {
                let reason = self.reason.as_deref().map(|reason| shortened(reason).to_owned());
                let (delay_ms, park) = (self.delay_ms, self.park);
                let target = self.delivery("NACK")?;
                Ok(ClientFrame::Nack(Nack { target, reason, delay_ms, park }))
            }
            "MODACK" => {
                let extend_ms = self.extend_ms.ok_or(missing("MODACK", "extend_ms"))?;
                Ok(ClientFrame::Modack { target: self.delivery("MODACK")?, extend_ms })
            }
            "PAUSE" => self.target("PAUSE").map(ClientFrame::Pause),
            // A subscription of this connection goes on, or one of a lost connection is made anew.
            "RESUME" if self.opts.is_none() && self.topics.is_none() && self.after.is_none() => {
                self.target("RESUME").map(ClientFrame::Resume)
            }
            "RESUME" => self.subscribe("RESUME").map(ClientFrame::Reconnect),
            "CREDIT" => {
                let events = self.credit.ok_or(missing("CREDIT", "credit"))?;
                Ok(ClientFrame::Credit { target: self.target("CREDIT")?, events })
            }
            other => Err(FrameError::Op(other.chars().take(32).collect())),
        }
    }

    fn publish(self, frame: &Bytes) -> Result<ClientFrame, FrameError> {
        if let Some(list) = self.events {
            let entries: Vec<Entry<'_>> =
                serde_json::from_str(list.get()).map_err(|error| syntax(&error))?;
            bounded("events", entries.len(), FRAME_EVENTS_MAX)?;
            let take = |entry: Entry<'_>| {
                let payload = payload_of(frame, entry.payload)?;
                Ok(Publish { topic: entry.topic, payload, opts: entry.opts })
            };
            let events = entries.into_iter().map(take).collect::<Result<_, FrameError>>()?;
            return Ok(ClientFrame::Publish { events, batch: true });
        }
        let pattern = self.topic.ok_or(missing("PUBLISH", "topic"))?;
        let topic = pattern.as_topic().ok_or(missing("PUBLISH", "topic"))?;
        let payload = payload_of(frame, self.payload.ok_or(missing("PUBLISH", "payload"))?)?;
        let opts = read_opts(self.opts)?;
        Ok(ClientFrame::Publish { events: vec![Publish { topic, payload, opts }], batch: false })
    }

    fn subscribe(self, op: &'static str) -> Result<Subscribe, FrameError> {
        let topics = match (self.topics, self.topic) {
            (Some(topics), _) => topics,
            (None, Some(topic)) => vec![topic],
            (None, None) => return Err(missing(op, "topic")),
        };
        bounded("topics", topics.len(), FRAME_TOPICS_MAX)?;
        let opts: SubscribeOpts = read_opts(self.opts)?;
        Ok(Subscribe { topics, group: self.group, opts })
    }

    fn target(self, op: &'static str) -> Result<Target, FrameError> {
        if let Some(sub) = self.sub {
            return Ok(Target::Sub(sub));
        }
        let topic = self.topic.ok_or(missing(op, "topic"))?;
        let group = self.group.ok_or(missing(op, "group"))?;
        Ok(Target::Name { topic, group })
    }

    fn delivery(self, op: &'static str) -> Result<Ack, FrameError> {
        if let Some(token) = self.token {
            let token = token.parse().map_err(|error| FrameError::Syntax(format!("{error}")))?;
            return Ok(Ack::Token(token));
        }
        let topic = self.topic.and_then(|topic| topic.as_topic()).ok_or(missing(op, "topic"))?;
        let group = self.group.ok_or(missing(op, "group"))?;
        let id = self.id.ok_or(missing(op, "id"))?;
        Ok(Ack::Id { topic, group, id })
    }

    fn acks(self) -> Result<ClientFrame, FrameError> {
        bounded("tokens", self.tokens.len() + self.ranges.len(), FRAME_ACKS_MAX)?;
        Ok(ClientFrame::Acks(Acks { tokens: self.tokens, ranges: self.ranges }))
    }
}

const fn missing(op: &'static str, member: &'static str) -> FrameError {
    FrameError::Missing { op, member }
}

fn bounded(member: &'static str, count: usize, max: usize) -> Result<(), FrameError> {
    if (1..=max).contains(&count) {
        return Ok(());
    }
    Err(FrameError::Count { member, count, max })
}

/// The payload as a slice of the frame: no copy.
fn payload_of(frame: &Bytes, raw: &RawValue) -> Result<Payload, FrameError> {
    Ok(Payload::parse(frame.slice_ref(raw.get().as_bytes()))?)
}

fn read_opts<'a, T: Deserialize<'a> + Default>(raw: Option<&'a RawValue>) -> Result<T, FrameError> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else {
        return Ok(T::default());
    };
    serde_json::from_str(raw.get()).map_err(|error| syntax(&error))
}

fn shortened(reason: &str) -> &str {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.get(..end).unwrap_or_default()
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
