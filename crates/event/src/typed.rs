//! Topics with a type: no strings where events are published and consumed. The same types serve an
//! embedded bus and a client.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{
    Event, EventError, EventId, JsonError, Key, KeyError, NewEvent, Payload, Timestamp, Topic,
    TopicError,
};

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

/// Why a value is not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToEventError {
    /// The topic's name is not good.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The key is not good.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The payload is not good.
    #[error(transparent)]
    Payload(#[from] JsonError),
    /// Something else about it is not good.
    #[error(transparent)]
    Event(#[from] EventError),
}

/// What can be published: an event, or a value of a type with a topic ([`TypedTopic`]).
pub trait ToEvent {
    /// The event; `now` is the event time of one that has none.
    fn to_event(self, now: Timestamp) -> Result<NewEvent, ToEventError>;
}

impl ToEvent for NewEvent {
    fn to_event(self, _now: Timestamp) -> Result<NewEvent, ToEventError> {
        Ok(self)
    }
}

impl<T: TypedTopic> ToEvent for &T {
    fn to_event(self, now: Timestamp) -> Result<NewEvent, ToEventError> {
        let topic = Topic::new(T::TOPIC)?;
        let mut event = NewEvent::new(EventId::generate(), now, topic, Payload::of(self)?);
        event.key = self.key().map(Key::new).transpose()?;
        // A number is always good in a header.
        let set = event.headers.set(SCHEMA_VERSION, &T::VERSION.to_string());
        debug_assert!(set.is_ok(), "a number is good in a header");
        Ok(event)
    }
}

/// An event is not of the type that it was taken for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {id} of {topic} is not a {wanted}: {error}")]
pub struct NotOfType {
    /// The event.
    pub id: EventId,
    /// Its topic.
    pub topic: Topic,
    /// The type that was asked for.
    pub wanted: &'static str,
    /// What does not fit.
    pub error: String,
}

/// What a consumer can take an event as: the event itself, or the type of its topic.
pub trait FromEvent: Sized + Send + 'static {
    /// The version of the schema that this is; `None` for an event of any.
    fn version() -> Option<u32> {
        None
    }

    /// Reads the event.
    fn from_event(event: &Event) -> Result<Self, NotOfType>;
}

impl FromEvent for Event {
    fn from_event(event: &Event) -> Result<Self, NotOfType> {
        Ok(event.clone())
    }
}

impl<T: TypedTopic + Send + 'static> FromEvent for T {
    fn version() -> Option<u32> {
        Some(T::VERSION)
    }

    fn from_event(event: &Event) -> Result<Self, NotOfType> {
        event.payload.decode().map_err(|error| NotOfType {
            id: event.id,
            topic: event.topic.clone(),
            wanted: std::any::type_name::<T>(),
            error: error.to_string(),
        })
    }
}

/// Gives a type its topic, and a version and a key if it has them.
///
/// ```
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Heartbeat { host: String, pid: u32 }
///
/// promethean_event::topic! {
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
