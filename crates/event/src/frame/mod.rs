//! How an event crosses a socket: the frames of `prom.v1`, as `PROTOCOL.md` lays them down.
//!
//! A frame is one JSON object with its kind in `op`. [`ClientFrame::parse`] reads what a client
//! sends, in one pass and without building values: payloads stay slices of the frame. Unknown
//! members are ignored, so that a newer client can talk to an older server. [`ServerFrame`] is
//! what a server sends; [`write_event`] is the same for events without going through serde twice.
//!
//! Limits: a frame is bounded by the transport, lists in it by `limits.rs`. A frame that is wrong
//! is refused as a whole, and the refusal still knows the frame's `corr`.

mod client;

mod quick;

mod opts;

mod corr;

mod encode;

mod server;

mod token;

pub use client::{Ack, AckRange, Acks, ClientFrame, FrameError, Nack, Publish, Subscribe, Target};
pub use corr::Corr;
pub use encode::{write_event, write_event_frame, write_ok};
pub use opts::{
    AckMode, From, GroupMode, GroupOrder, GroupPark, NamedForm, PublishOpts, ReadsForm,
    SubscribeOpts,
};
pub use server::{Context, Gap, HelloLimits, Item, Place, RefusedToken, ServerFrame};
pub use token::{DeliveryToken, TokenError};
