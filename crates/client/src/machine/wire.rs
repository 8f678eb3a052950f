//! Frames, as this side writes and reads them.

use std::borrow::Cow;

use promethean_event::frame::{DeliveryToken, PublishOpts, SubscribeOpts};
use promethean_event::{
    Cursor, Event, EventId, GroupName, NewEvent, Offset, Partition, Pattern, Topic,
};
use serde::{Deserialize, Serialize};

use crate::error::Refusal;
use crate::publish::Durability;

/// What this side says. Publishes are written by hand: their payloads are JSON already.
#[derive(Debug, Serialize)]
#[serde(tag = "op")]
pub(super) enum Said<'a> {
    #[serde(rename = "AUTH")]
    Auth { corr: u64, token: &'a str },
    #[serde(rename = "SUBSCRIBE")]
    Subscribe { corr: u64, topics: &'a [Pattern], group: &'a GroupName, opts: SubscribeOpts },
    #[serde(rename = "RESUME")]
    Follow { corr: u64, topics: &'a [Pattern], opts: SubscribeOpts },
    #[serde(rename = "UNSUBSCRIBE")]
    Unsubscribe { corr: u64, sub: u32 },
    #[serde(rename = "ACK")]
    Ack { corr: u64, token: DeliveryToken },
    #[serde(rename = "ACKS")]
    Acks { tokens: &'a [DeliveryToken] },
    #[serde(rename = "NACK")]
    Nack {
        #[serde(skip_serializing_if = "Option::is_none")]
        corr: Option<u64>,
        token: DeliveryToken,
        reason: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        delay_ms: Option<u32>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        park: bool,
    },
    #[serde(rename = "MODACK")]
    Modack { corr: u64, token: DeliveryToken, extend_ms: u32 },
    #[serde(rename = "PAUSE")]
    Pause { corr: u64, sub: u32 },
    #[serde(rename = "RESUME")]
    Resume { corr: u64, sub: u32 },
    #[serde(rename = "CREDIT")]
    Credit { sub: u32, credit: u32 },
}

impl Said<'_> {
    pub(super) fn text(&self) -> String {
        // Names, numbers and texts always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The list of a publish. Written once: it is sent as it is however often it is sent.
pub(crate) fn events_of(events: &[NewEvent]) -> String {
    let mut out = String::from("[");
    for (index, event) in events.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        let opts = PublishOpts {
            id: Some(event.id),
            ts: Some(event.ts),
            key: event.key.clone(),
            headers: event.headers.clone(),
            tags: event.tags.clone(),
            caused_by: event.caused_by.clone(),
            sid: event.sid,
        };
        // A topic has no character that JSON escapes.
        out.push_str("{\"topic\":\"");
        out.push_str(event.topic.as_str());
        out.push_str("\",\"payload\":");
        out.push_str(event.payload.as_str());
        out.push_str(",\"opts\":");
        out.push_str(&serde_json::to_string(&opts).unwrap_or_default());
        out.push('}');
    }
    out.push(']');
    out
}

pub(super) fn publish(corr: u64, events: &str) -> String {
    format!("{{\"op\":\"PUBLISH\",\"corr\":{corr},\"events\":{events}}}")
}

/// What a server says.
#[derive(Debug)]
pub(super) enum Heard {
    Hello(Hello),
    Answer(Answer),
    Refused {
        corr: Option<u64>,
        /// The subscription that it ends.
        sub: Option<u32>,
        refusal: Refusal,
    },
    Events {
        sub: u32,
        events: Vec<Item>,
    },
    Gap {
        sub: u32,
        gap: Gap,
    },
    Drain {
        deadline_ms: u64,
    },
    /// Of a newer protocol: left alone.
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct Hello {
    pub(super) epoch: String,
    pub(super) limits: Limits,
}

#[derive(Debug, Deserialize)]
pub(super) struct Limits {
    pub(super) frame_bytes: usize,
}

/// `OK` or `RESUMED`.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    #[serde(default)]
    pub(super) corr: Option<u64>,
    #[serde(default)]
    pub(super) places: Vec<Place>,
    /// Of all of them; only said if it is less than a disk.
    #[serde(default)]
    pub(super) durability: Durability,
    #[serde(default)]
    pub(super) sub: Option<u32>,
    #[serde(default)]
    pub(super) refused: Vec<RefusedToken>,
    #[serde(default)]
    pub(super) expires_at: Option<u64>,
    #[serde(default)]
    pub(super) recovered: bool,
    #[serde(default)]
    pub(super) gaps: Vec<Gap>,
    #[serde(default)]
    pub(super) after: Vec<Cursor>,
}

/// A delivery that could not be acked.
#[derive(Debug, Deserialize)]
pub(super) struct RefusedToken {
    pub(super) token: DeliveryToken,
    pub(super) code: String,
}

/// Where an event of a publish stands.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Place {
    pub(crate) id: EventId,
    pub(crate) partition: Partition,
    pub(crate) offset: Offset,
    #[serde(default)]
    pub(crate) duplicate: bool,
    /// Said once for all of an answer.
    #[serde(skip)]
    pub(crate) durability: Durability,
}

/// Events that are not there any more, and why.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Gap {
    /// The topic.
    pub topic: Topic,
    /// The partition.
    pub partition: Partition,
    /// The first offset that is missing.
    pub from: Offset,
    /// The first offset that is there again.
    pub to: Offset,
    /// Why: `retention`, `compaction`, `corruption`; `removed`: the topic is gone; `beyond_end`: it
    /// was made anew; or `epoch`: the server has another store, in which nothing of what was is
    /// known.
    pub reason: String,
}

/// An event as it was delivered.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Item {
    pub(crate) event: Event,
    pub(crate) ctx: Ctx,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Ctx {
    pub(crate) attempt: u16,
    #[serde(default)]
    pub(crate) max_attempts: u16,
    #[serde(default)]
    pub(crate) ack_deadline_ms: Option<u64>,
    #[serde(default)]
    pub(crate) token: Option<DeliveryToken>,
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(borrow)]
    op: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Err {
    #[serde(default)]
    corr: Option<u64>,
    code: String,
    #[serde(default)]
    msg: String,
    #[serde(default)]
    retry_ms: Option<u64>,
    #[serde(default)]
    sub: Option<u32>,
}

#[derive(Deserialize)]
struct Events {
    sub: u32,
    events: Vec<Item>,
}

#[derive(Deserialize)]
struct Missing {
    sub: u32,
    #[serde(flatten)]
    gap: Gap,
}

#[derive(Deserialize)]
struct Drain {
    deadline_ms: u64,
}

impl Heard {
    pub(super) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        // Looked at twice: what a payload is spelled like would be lost on the way through a tree.
        let kind: Kind<'_> = serde_json::from_str(text)?;
        Ok(match &*kind.op {
            "HELLO" => Self::Hello(serde_json::from_str(text)?),
            "OK" | "RESUMED" => Self::Answer(serde_json::from_str(text)?),
            "ERR" => {
                let Err { corr, code, msg, retry_ms, sub } = serde_json::from_str(text)?;
                Self::Refused { corr, sub, refusal: Refusal::new(&code, msg, retry_ms) }
            }
            "EVENTS" => {
                let Events { sub, events } = serde_json::from_str(text)?;
                Self::Events { sub, events }
            }
            "GAP" => {
                let Missing { sub, gap } = serde_json::from_str(text)?;
                Self::Gap { sub, gap }
            }
            "DRAIN" => {
                let Drain { deadline_ms } = serde_json::from_str(text)?;
                Self::Drain { deadline_ms }
            }
            _ => Self::Other,
        })
    }
}
