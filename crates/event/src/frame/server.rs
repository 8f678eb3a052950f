use std::borrow::Cow;

use serde::Serialize;

use super::{Corr, DeliveryToken};
use crate::{Cursor, Event, EventId, GroupName, Offset, Partition, Topic};

/// What a server says.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "op")]
pub enum ServerFrame<'a> {
    /// First frame of a connection that negotiated `prom.v1`.
    #[serde(rename = "HELLO")]
    Hello {
        /// The protocol, `prom.v1`.
        protocol: &'a str,
        /// Name and version of the server.
        server: &'a str,
        /// Changes when the store is another one: positions of another epoch mean nothing.
        epoch: &'a str,
        /// The name of this connection in logs.
        session: &'a str,
        /// What the server accepts.
        limits: HelloLimits,
    },
    /// It is done; for a publish, durable, or as durable as it says.
    #[serde(rename = "OK")]
    Ok {
        /// The request.
        #[serde(skip_serializing_if = "Option::is_none")]
        corr: Option<&'a Corr>,
        /// The event, of a publish.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<EventId>,
        /// Where the events stand, of a publish.
        #[serde(skip_serializing_if = "<[Place]>::is_empty")]
        places: &'a [Place],
        /// How far the events had travelled, of a publish whose topics ask for less than a disk.
        #[serde(skip_serializing_if = "Option::is_none")]
        durability: Option<&'a str>,
        /// The number of the subscription, of a subscribe.
        #[serde(skip_serializing_if = "Option::is_none")]
        sub: Option<u32>,
        /// How many events were acked, of an ACKS.
        #[serde(skip_serializing_if = "Option::is_none")]
        accepted: Option<u64>,
        /// Those that were not, of an ACKS.
        #[serde(skip_serializing_if = "<[RefusedToken]>::is_empty")]
        refused: &'a [RefusedToken],
        /// When the credential ends, of an AUTH: epoch milliseconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        expires_at: Option<u64>,
    },
    /// It is not done, and why.
    #[serde(rename = "ERR")]
    Err {
        /// The request.
        #[serde(skip_serializing_if = "Option::is_none")]
        corr: Option<&'a Corr>,
        /// Stable, for programs.
        code: &'a str,
        /// For people.
        msg: Cow<'a, str>,
        /// When it may be tried again.
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_ms: Option<u64>,
        /// The subscription that it ends.
        #[serde(skip_serializing_if = "Option::is_none")]
        sub: Option<u32>,
        /// Which deliveries, of an ACKS that changed nothing.
        #[serde(skip_serializing_if = "<[RefusedToken]>::is_empty")]
        refused: &'a [RefusedToken],
    },
    /// An event.
    #[serde(rename = "EVENT")]
    Event {
        /// Its topic.
        topic: &'a Topic,
        /// The group it is for; none on a tail.
        #[serde(skip_serializing_if = "Option::is_none")]
        group: Option<&'a GroupName>,
        /// The event.
        event: &'a Event,
        /// The delivery.
        ctx: Context,
    },
    /// Events.
    #[serde(rename = "EVENTS")]
    Events {
        /// The subscription.
        sub: u32,
        /// The group; none on a tail.
        #[serde(skip_serializing_if = "Option::is_none")]
        group: Option<&'a GroupName>,
        /// The events, in order.
        events: &'a [Item<'a>],
    },
    /// What a subscription will never get, because it is not there any more.
    #[serde(rename = "GAP")]
    Gap {
        /// The subscription.
        sub: u32,
        /// What is missing.
        #[serde(flatten)]
        gap: Gap,
    },
    /// The server is going away; finish, then connect again.
    #[serde(rename = "DRAIN")]
    Drain {
        /// Why.
        reason: &'a str,
        /// When the connection will be closed.
        deadline_ms: u64,
    },
    /// A subscription of a lost connection goes on.
    #[serde(rename = "RESUMED")]
    Resumed {
        /// The request.
        #[serde(skip_serializing_if = "Option::is_none")]
        corr: Option<&'a Corr>,
        /// The number of the subscription.
        sub: u32,
        /// Whether nothing is missing.
        recovered: bool,
        /// What is missing.
        #[serde(skip_serializing_if = "<[Gap]>::is_empty")]
        gaps: &'a [Gap],
        /// Where it goes on.
        #[serde(skip_serializing_if = "<[Cursor]>::is_empty")]
        after: &'a [Cursor],
    },
}

/// The bounds of a server, for clients to stay within.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HelloLimits {
    /// Largest frame.
    pub frame_bytes: usize,
    /// Largest payload.
    pub payload_bytes: usize,
    /// Most events of one PUBLISH.
    pub publish_events: usize,
    /// Most events out at once, per subscription.
    pub in_flight: u32,
    /// Most subscriptions of one connection.
    pub subscriptions: usize,
    /// A silent connection is closed after this.
    pub idle_ms: u64,
}

/// Where an event of a publish stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The event.
    pub id: EventId,
    /// The partition.
    pub partition: Partition,
    /// The place there.
    pub offset: Offset,
    /// It had been there before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

/// A delivery of an ACKS that could not be acked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedToken {
    /// The delivery.
    pub token: DeliveryToken,
    /// Why, as the code of an ERR.
    pub code: Cow<'static, str>,
}

/// An event in an `EVENTS` frame.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Item<'a> {
    /// The event.
    pub event: &'a Event,
    /// The delivery.
    pub ctx: Context,
}

/// What a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Context {
    /// Which delivery of the event it is, counted from 1.
    pub attempt: u16,
    /// How many there will be at most.
    pub max_attempts: u16,
    /// How long the lease lasts from now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack_deadline_ms: Option<u64>,
    /// What to ack it with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<DeliveryToken>,
}

/// Events that are not there any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The topic.
    pub topic: Topic,
    /// The partition.
    pub partition: Partition,
    /// The first offset missing.
    pub from: Offset,
    /// The first offset that is there again.
    pub to: Offset,
    /// Why: `retention`, `compaction`, `corruption`; `beyond_end` and `removed` if the topic is not
    /// what it was.
    pub reason: Cow<'static, str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_answers_are_those_of_the_notes() {
        let corr = Corr::from_json("\"c1\"").unwrap();
        let ok = ServerFrame::Ok {
            corr: Some(&corr),
            id: Some(EventId::from_bytes([0; 16])),
            places: &[],
            durability: None,
            sub: None,
            accepted: None,
            refused: &[],
            expires_at: None,
        };
        assert_eq!(
            serde_json::to_string(&ok).unwrap(),
            r#"{"op":"OK","corr":"c1","id":"00000000-0000-0000-0000-000000000000"}"#
        );
        let err = ServerFrame::Err {
            corr: None,
            code: "forbidden",
            msg: "no".into(),
            retry_ms: None,
            sub: None,
            refused: &[],
        };
        assert_eq!(
            serde_json::to_string(&err).unwrap(),
            r#"{"op":"ERR","code":"forbidden","msg":"no"}"#
        );
    }

    #[test]
    fn a_gap_names_what_is_missing() {
        let gap = Gap {
            topic: "a.b".parse().unwrap(),
            partition: Partition::new(1),
            from: Offset::new(3),
            to: Offset::new(9),
            reason: "retention".into(),
        };
        assert_eq!(
            serde_json::to_string(&ServerFrame::Gap { sub: 4, gap }).unwrap(),
            r#"{"op":"GAP","sub":4,"topic":"a.b","partition":1,"from":3,"to":9,"reason":"retention"}"#
        );
    }
}
