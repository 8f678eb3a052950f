use std::sync::Arc;

use promethean_event::{
    Event, EventId, Headers, Key, NewEvent, Partition, PartitionCount, Payload, SessionId, Tag,
    Timestamp, Topic,
};

use super::random::{Random, mixed};

/// An event that the simulation has made, with what it needs to know it again.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The event.
    pub event: Arc<NewEvent>,
    /// Its topic's number in the simulation.
    pub topic: usize,
    /// Its partition.
    pub partition: Partition,
    /// [`Digest`] of everything the log must give back unchanged.
    pub digest: u64,
    /// At least as many bytes as its record can take.
    pub bytes_max: u64,
}

/// A topic that events are made for.
#[derive(Debug, Clone)]
pub struct Destination {
    /// Its number in the simulation.
    pub number: usize,
    /// Its name.
    pub topic: Topic,
    /// How many partitions it has.
    pub partitions: PartitionCount,
}

/// Makes events, each different from all others.
#[derive(Debug, Clone)]
pub struct DraftSource {
    random: Random,
    made: u64,
    /// Different keys per topic.
    pub keys: u64,
    /// Largest payload text in bytes.
    pub payload_bytes_max: u64,
    /// Per mille of events with a key.
    pub keyed: u64,
    /// Per mille of events with headers, tags, causes and a session.
    pub decorated: u64,
}

impl DraftSource {
    /// A source of small events.
    pub fn new(seed: u64) -> Self {
        let random = Random::new(seed);
        Self { random, made: 0, keys: 8, payload_bytes_max: 120, keyed: 700, decorated: 100 }
    }

    /// The next event for `destination`, stamped `ts`.
    pub fn next(&mut self, destination: &Destination, ts: u64) -> Draft {
        self.made += 1;
        let number = self.made;
        let mut tail = [0; 10];
        tail[..8].copy_from_slice(&self.random.next().to_be_bytes());
        let id = EventId::v7(ts, tail);
        let payload = self.payload(number);
        let mut event =
            NewEvent::new(id, Timestamp::from_millis(ts), destination.topic.clone(), payload);
        if self.random.chance(self.keyed) {
            event.key = Some(self.key());
        }
        if self.random.chance(self.decorated) {
            self.decorate(&mut event);
        }
        Draft::new(event, destination)
    }

    /// The same id with other bytes.
    pub fn altered(&mut self, draft: &Draft, destination: &Destination) -> Draft {
        self.made += 1;
        let mut event = NewEvent::clone(&draft.event);
        event.payload = self.payload(self.made);
        Draft::new(event, destination)
    }

    /// A key that events of this source may have.
    pub fn key(&mut self) -> Key {
        let number = self.random.below(self.keys);
        let name = ["dev", "dev:stt", "user"][(number % 3) as usize];
        Key::new(format!("{name}:{number}")).expect("the key is short and not empty")
    }

    fn payload(&mut self, number: u64) -> Payload {
        let text = match self.random.below(20) {
            0 => "null".to_owned(),
            1 => format!(r#"{{"_deleted":true,"n":{number}}}"#),
            _ => {
                // Mostly short; sometimes as long as allowed, to fill segments at odd places.
                let bound = if self.random.chance(100) { self.payload_bytes_max } else { 40 };
                let len = self.random.below(bound.min(self.payload_bytes_max) + 1) as usize;
                let fill = char::from(b'a' + (number % 26) as u8);
                format!(r#"{{"n":{number},"z":1.50,"t":"{}"}}"#, fill.to_string().repeat(len))
            }
        };
        Payload::parse(text.into_bytes()).expect("the payload is JSON")
    }

    fn decorate(&mut self, event: &mut NewEvent) {
        let mut headers = Headers::new();
        headers.insert("x-source", "simulation").expect("the header is allowed");
        headers.insert("x-number", &self.made.to_string()).expect("the header is allowed");
        event.headers = headers;
        event.sid = Some(SessionId::from_bytes([self.made as u8; 16]));
        event.tags = vec![Tag::new(format!("tag{}", self.made % 5)).expect("the tag is allowed")];
        event.caused_by = vec![EventId::v7(self.made, [1; 10])];
    }
}

impl Draft {
    fn new(event: NewEvent, destination: &Destination) -> Self {
        let partition = destination.partitions.partition_of(event.key.as_ref(), &event.id);
        let digest = Digest::of(&event);
        let sized = event.payload.as_bytes().len()
            + event.key.as_ref().map_or(0, |key| key.as_str().len())
            + event.headers.iter().map(|(name, value)| name.len() + value.len() + 8).sum::<usize>()
            + event.tags.iter().map(|tag| tag.as_str().len() + 4).sum::<usize>()
            + event.caused_by.len() * 16;
        let bytes_max = sized as u64 + 128;
        Self { event: Arc::new(event), topic: destination.number, partition, digest, bytes_max }
    }

    /// Whether it is a tombstone.
    pub fn is_tombstone(&self) -> bool {
        self.event.payload.is_tombstone()
    }
}

/// A checksum over an event's parts: what was given in and what comes out must agree.
#[derive(Debug, Clone, Copy)]
pub struct Digest(u64);

impl Digest {
    /// Of nothing yet.
    pub const fn new() -> Self {
        Self(0x5bd1_e995)
    }

    /// With one more part.
    #[must_use]
    pub fn part(mut self, bytes: &[u8]) -> Self {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.0 = mixed(self.0 ^ u64::from_le_bytes(word)).wrapping_add(0x9e37);
        }
        let rest = chunks.remainder();
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        self.0 = mixed(self.0 ^ u64::from_le_bytes(word)).wrapping_add(bytes.len() as u64);
        self
    }

    /// With one more number.
    #[must_use]
    pub fn number(mut self, number: u64) -> Self {
        self.0 = mixed(self.0 ^ number).wrapping_add(0x79b9);
        self
    }

    /// The checksum.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Of an event as the log gives it back.
    pub fn of_stored(event: Event) -> u64 {
        let Event { id, sid, ts, topic, key, headers, payload, caused_by, tags, .. } = event;
        Self::of(&NewEvent { id, sid, ts, topic, key, headers, payload, caused_by, tags })
    }

    /// Of a whole event.
    pub fn of(event: &NewEvent) -> u64 {
        let mut digest = Self::new()
            .part(event.id.as_bytes())
            .number(event.ts.millis())
            .part(event.topic.as_str().as_bytes())
            .part(event.payload.as_bytes());
        if let Some(key) = &event.key {
            digest = digest.number(1).part(key.as_str().as_bytes());
        }
        if let Some(sid) = &event.sid {
            digest = digest.number(2).part(sid.as_bytes());
        }
        for (name, value) in event.headers.iter() {
            digest = digest.number(3).part(name.as_bytes()).part(value.as_bytes());
        }
        for id in &event.caused_by {
            digest = digest.number(4).part(id.as_bytes());
        }
        for tag in &event.tags {
            digest = digest.number(5).part(tag.as_str().as_bytes());
        }
        digest.get()
    }
}

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_differ_and_digests_see_every_part() {
        let topic: Topic = "orders.eu".parse().unwrap();
        let partitions = PartitionCount::new(3).unwrap();
        let destination = Destination { number: 0, topic, partitions };
        let mut source = DraftSource::new(1);
        source.decorated = 1000;
        source.keyed = 1000;
        let draft = source.next(&destination, 5);
        assert_ne!(draft.digest, source.next(&destination, 5).digest);
        assert_ne!(draft.digest, source.altered(&draft, &destination).digest);
        let changed = |change: fn(&mut NewEvent)| {
            let mut event = NewEvent::clone(&draft.event);
            change(&mut event);
            Digest::of(&event)
        };
        assert_eq!(changed(|_| ()), draft.digest);
        for other in [
            changed(|event| event.key = None),
            changed(|event| event.sid = None),
            changed(|event| event.tags.clear()),
            changed(|event| event.caused_by.clear()),
            changed(|event| event.headers = Headers::new()),
            changed(|event| event.ts = Timestamp::from_millis(6)),
            changed(|event| event.payload = Payload::null()),
        ] {
            assert_ne!(other, draft.digest);
        }
    }
}
