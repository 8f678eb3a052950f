//! Topics with a type: no strings where events are published and consumed.

use promethean_event::{Event, EventId, Key, NewEvent, Payload, Timestamp, Topic};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::PublishError;
use crate::publish::ToEvent;

/// The header that says which version of its schema an event was written by.
pub const SCHEMA_VERSION: &str = "x-schema-version";

/// A type that is what happens in one topic. Made with [`topic!`](crate::topic), or by hand.
pub trait TypedTopic: Serialize + DeserializeOwned {
    /// The topic.
    const TOPIC: &'static str;
    /// The version of the schema.
    const VERSION: u32 = 1;

    /// The key of a value; events without one are in no order among each other.
    fn key(&self) -> Option<String> {
        None
    }
}

impl<T: TypedTopic> ToEvent for &T {
    fn to_event(self, now: Timestamp) -> Result<NewEvent, PublishError> {
        let topic = Topic::new(T::TOPIC)?;
        let mut event = NewEvent::new(EventId::generate(), now, topic, Payload::of(self)?);
        event.key = self.key().map(Key::new).transpose()?;
        // A number is always good in a header.
        let set = event.headers.set(SCHEMA_VERSION, &T::VERSION.to_string());
        debug_assert!(set.is_ok(), "a number is good in a header");
        Ok(event)
    }
}

/// Why an event is not what the consumer takes it for.
#[derive(Debug, thiserror::Error)]
#[error("event {id} of {topic} is not a {wanted}")]
pub struct DecodeError {
    /// The event.
    pub id: EventId,
    /// Its topic.
    pub topic: Topic,
    /// The type that was asked for.
    pub wanted: &'static str,
    /// What does not fit.
    pub source: serde_json::Error,
}

/// What a consumer can take an event as: the event itself, or the type of its topic.
pub trait FromEvent: Sized + Send + 'static {
    /// Reads the event.
    fn from_event(event: &Event) -> Result<Self, DecodeError>;
}

impl FromEvent for Event {
    fn from_event(event: &Event) -> Result<Self, DecodeError> {
        Ok(event.clone())
    }
}

impl<T: TypedTopic + Send + 'static> FromEvent for T {
    fn from_event(event: &Event) -> Result<Self, DecodeError> {
        event.payload.decode().map_err(|source| DecodeError {
            id: event.id,
            topic: event.topic.clone(),
            wanted: std::any::type_name::<T>(),
            source,
        })
    }
}

/// Gives a type its topic, and a version and a key if it has them.
///
/// ```
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Heartbeat { host: String, pid: u32 }
///
/// promethean::topic! {
///     Heartbeat => "heartbeat.received", version = 2,
///     key = |beat| format!("{}:{}", beat.host, beat.pid)
/// }
/// ```
#[macro_export]
macro_rules! topic {
    ($type:ty => $topic:literal $(, version = $version:literal)? $(, key = |$value:ident| $key:expr)? $(,)?) => {
        impl $crate::TypedTopic for $type {
            const TOPIC: &'static str = $topic;
            $(const VERSION: u32 = $version;)?
            $(fn key(&self) -> ::core::option::Option<::std::string::String> {
                let $value = self;
                ::core::option::Option::Some($key)
            })?
        }
    };
}
