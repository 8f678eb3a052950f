//! The events that are measured with: about 250 bytes each in the log, with keys.

use std::path::Path;

use anyhow::Context;
use promethean_event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
use promethean_log::{Append, Log, Options, TopicDefinition, TopicId};

/// Opens a log in a new directory and defines topics `bench.0`, `bench.1`, ...
pub(crate) fn new_log(path: &Path, topics: usize) -> anyhow::Result<(Log, Vec<TopicId>)> {
    let (log, _) = Log::open_dir(path, Options::default())
        .with_context(|| format!("cannot open a log in {}", path.display()))?;
    let ids = (0..topics)
        .map(|number| Ok(log.define(TopicDefinition::new(topic(number)?)).wait()?))
        .collect::<anyhow::Result<_>>()?;
    Ok((log, ids))
}

pub(crate) fn topic(number: usize) -> anyhow::Result<Topic> {
    Ok(Topic::new(&format!("bench.{number}"))?)
}

/// Makes events: numbered, spread over topics and keys.
#[derive(Debug)]
pub(crate) struct Source {
    topics: Vec<Topic>,
    keys: u64,
    next: u64,
}

impl Source {
    pub(crate) fn new(topics: usize, keys: u64) -> anyhow::Result<Self> {
        let topics = (0..topics).map(topic).collect::<anyhow::Result<_>>()?;
        Ok(Self { topics, keys, next: 0 })
    }

    pub(crate) fn event(&mut self) -> anyhow::Result<NewEvent> {
        let number = self.next;
        self.next += 1;
        let topic = number as usize % self.topics.len();
        let topic = self.topics.get(topic).context("at least one topic")?.clone();
        let payload = Payload::parse(text(number))?;
        let key = key(number, self.keys)?;
        let now = Timestamp::from_millis(1_700_000_000_000 + number);
        Ok(NewEvent::new(EventId::generate(), now, topic, payload).with_key(key))
    }

    pub(crate) fn batch(&mut self, count: usize) -> anyhow::Result<Append> {
        let events = (0..count).map(|_| self.event()).collect::<anyhow::Result<_>>()?;
        Ok(Append { events, ..Append::default() })
    }
}

/// The payload of an event, as text.
pub(crate) fn text(number: u64) -> String {
    format!(
        concat!(
            r#"{{"pid":{},"name":"worker-{}","host":"host-{}","cpu_pct":{}.5,"#,
            r#""mem_mb":{},"status":"alive","note":"{:048x}"}}"#
        ),
        number % 65_536,
        number % 100,
        number % 40,
        number % 100,
        number % 4096,
        number
    )
}

/// The key of an event: scattered, so that neighbours have different ones.
pub(crate) fn key(number: u64, keys: u64) -> anyhow::Result<Key> {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys;
    Ok(Key::new(format!("key-{scattered:07}"))?)
}
