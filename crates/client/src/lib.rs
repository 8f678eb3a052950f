//! The event bus of a server, with the verbs and types of the embedded one.
//!
//! ```no_run
//! use promethean_client::{Bus, Failure, Start, topic};
//!
//! #[derive(Debug, serde::Serialize, serde::Deserialize)]
//! struct Heartbeat { host: String, cpu_pct: f64 }
//! topic! { Heartbeat => "heartbeat.received", key = |beat| beat.host.clone() }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let bus = Bus::connect("ws://127.0.0.1:7766").await?;
//! bus.publish(&Heartbeat { host: "dev".into(), cpu_pct: 91.5 }).await?;
//!
//! let consumer = bus
//!     .subscribe::<Heartbeat>("ops")
//!     .from(Start::Earliest)
//!     .handle(|beat| async move {
//!         let Heartbeat { host, cpu_pct } = beat.payload()?;
//!         if cpu_pct < 0.0 {
//!             return Err(Failure::park("a negative load"));
//!         }
//!         println!("{host}: {cpu_pct} %");
//!         Ok(())
//!     })
//!     .await?;
//! # consumer.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Moving from an embedded bus to a server is changing the line that makes the bus: methods have the
//! same names and take the same values, and the types that programs name (topics, [`Start`],
//! [`Failure`], [`event`]) are the same ones.
//!
//! Modules are listed in the order in which a program meets them.

// Here, because their programs use the embedded bus, the harness and the client.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/consume.md")]
struct HowToConsume;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/test.md")]
struct HowToTest;

mod options;

mod bus;

mod address;

mod socket;

mod link;

mod machine;

mod publish;

mod inbox;

mod lease;

mod subscribe;

mod tail;

mod http;

mod groups;

mod reading;

mod following;

mod views;

mod past;

mod trace;

mod dead_letter;

mod clock;

mod code;

mod error;

pub mod limits;

pub use bus::Bus;
pub use code::Code;
pub use dead_letter::{DeadLetterEntry, ReplayDeadLetters, ReplayReport};
pub use error::{
    AckError, ConnectError, DeadLetterError, GroupError, GroupFailure, PublishError, ReadError,
    Refusal,
};
pub use following::{Followed, Following};
pub use machine::{Gap, State};
pub use options::Connect;
pub use past::{Blame, Change, EventRef, History, Moment, Past, PastScan, PastStep};
pub use promethean_event as event;
pub use promethean_event::{
    DeadLetter, DeadLetterQuery, DeadLetterState, Failure, FromEvent, GroupLag, Move, NotOfType,
    PartitionLag, Replay, ReplayTo, SCHEMA_VERSION, Start, ToEvent, ToEventError, TypedTopic,
    topic,
};
pub use publish::{Durability, Publish, Published};
pub use reading::{KeyPage, Page, Replayed, Replaying};
pub use subscribe::{
    Answer, Consumer, Delivered, Mode, Ordered, Park, Reads, Subscribe, Subscription,
};
pub use tail::{Tail, TailWish, Tailed};
pub use trace::{Trace, TraceNode, TraceWish, TracedEvent};
pub use views::{Document, DocumentPage, Views, Wanted};
