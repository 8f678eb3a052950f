use bytes::Bytes;
use promethean_event::{
    Event, EventId, Headers, Key, NewEvent, Offset, Partition, Payload, Seq, SessionId, Tag,
    Timestamp, Topic,
};

use crate::codec::Fields;
use crate::topic::{Lane, TopicId};

/// Bytes before a record's body.
pub(crate) const RECORD_HEADER_BYTES: usize = 44;

/// Bytes of a body before its optional fields: id and event time.
const FIXED_BODY_BYTES: usize = 24;

const HAS_KEY: u16 = 1;
const TOMBSTONE: u16 = 2;
const HAS_HEADERS: u16 = 4;
const HAS_SESSION: u16 = 8;
const HAS_CAUSES: u16 = 16;
const HAS_TAGS: u16 = 32;

const APPEND_MS_MAX: u64 = (1 << 48) - 1;

/// The first bytes of a record: where the event stands. Written by the writer, while the body is
/// encoded and summed up by the publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) body_bytes: u32,
    pub(crate) body_crc: u32,
    pub(crate) lane: Lane,
    pub(crate) offset: u64,
    pub(crate) seq: u64,
    pub(crate) append_ms: u64,
    pub(crate) flags: u16,
}

impl RecordHeader {
    pub(crate) fn encode(&self, salt: u32) -> [u8; RECORD_HEADER_BYTES] {
        let stamp = self.append_ms.min(APPEND_MS_MAX) | u64::from(self.flags) << 48;
        let mut out = [0; RECORD_HEADER_BYTES];
        out[0..4].copy_from_slice(&self.body_bytes.to_le_bytes());
        out[4..8].copy_from_slice(&self.body_crc.to_le_bytes());
        out[8..12].copy_from_slice(&self.lane.topic.0.to_le_bytes());
        out[12..16].copy_from_slice(&self.lane.partition.get().to_le_bytes());
        out[16..24].copy_from_slice(&self.offset.to_le_bytes());
        out[24..32].copy_from_slice(&self.seq.to_le_bytes());
        out[32..40].copy_from_slice(&stamp.to_le_bytes());
        let crc = crc32c::crc32c_append(salt, &out[..40]);
        out[40..44].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header, if its checksum is that of a record of the segment with this salt.
    pub(crate) fn decode(salt: u32, bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<RECORD_HEADER_BYTES>()?;
        let stored = u32::from_le_bytes(*head.last_chunk()?);
        if crc32c::crc32c_append(salt, &head[..40]) != stored {
            return None;
        }
        let mut fields = Fields(head);
        let body_bytes = fields.u32()?;
        let body_crc = fields.u32()?;
        let topic = TopicId(fields.u32()?);
        let partition = Partition::new(fields.u32()?);
        let offset = fields.u64()?;
        let seq = fields.u64()?;
        let stamp = fields.u64()?;
        Some(Self {
            body_bytes,
            body_crc,
            lane: Lane { topic, partition },
            offset,
            seq,
            append_ms: stamp & APPEND_MS_MAX,
            flags: (stamp >> 48) as u16,
        })
    }

    /// The stored header checksums of the records of a body, by their stated lengths.
    pub(crate) fn checksums(body: &[u8]) -> impl Iterator<Item = [u8; 4]> {
        let mut rest = body;
        std::iter::from_fn(move || {
            let (head, after) = rest.split_first_chunk::<RECORD_HEADER_BYTES>()?;
            let length = u32::from_le_bytes(*head.first_chunk()?);
            // Past the end only if damaged; then the sum is wrong anyhow.
            rest = after.get(length as usize..).unwrap_or_default();
            head.last_chunk().copied()
        })
    }

    /// Whether `body` is `count` whole records, each with the checksums it says.
    pub(crate) fn all_good(salt: u32, body: &[u8], count: u32) -> bool {
        let mut rest = body;
        for _ in 0..count {
            let Some(header) = Self::decode(salt, rest) else {
                return false;
            };
            let Some(record) = rest.get(RECORD_HEADER_BYTES..header.record_bytes()) else {
                return false;
            };
            if crc32c::crc32c(record) != header.body_crc {
                return false;
            }
            rest = rest.get(header.record_bytes()..).unwrap_or_default();
        }
        rest.is_empty()
    }

    /// Header and body together.
    pub(crate) const fn record_bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.body_bytes as usize
    }

    pub(crate) const fn is_tombstone(&self) -> bool {
        self.flags & TOMBSTONE != 0
    }
}

/// Appends the body of `event` to `out` and gives the flags that tell its fields.
pub(crate) fn encode_body(event: &NewEvent, out: &mut Vec<u8>) -> u16 {
    let mut flags = 0;
    out.extend_from_slice(event.id.as_bytes());
    out.extend_from_slice(&event.ts.millis().to_le_bytes());
    if let Some(key) = &event.key {
        flags |= HAS_KEY;
        put_text16(out, key.as_str());
    }
    if let Some(sid) = &event.sid {
        flags |= HAS_SESSION;
        out.extend_from_slice(sid.as_bytes());
    }
    if !event.headers.is_empty() {
        flags |= HAS_HEADERS;
        out.push(event.headers.len() as u8);
        for (name, value) in event.headers.iter() {
            put_text16(out, name);
            put_text16(out, value);
        }
    }
    if !event.caused_by.is_empty() {
        flags |= HAS_CAUSES;
        out.push(event.caused_by.len() as u8);
        for id in &event.caused_by {
            out.extend_from_slice(id.as_bytes());
        }
    }
    if !event.tags.is_empty() {
        flags |= HAS_TAGS;
        out.push(event.tags.len() as u8);
        for tag in &event.tags {
            put_text16(out, tag.as_str());
        }
    }
    if event.payload.is_tombstone() {
        flags |= TOMBSTONE;
    }
    out.extend_from_slice(event.payload.as_bytes());
    flags
}

fn put_text16(out: &mut Vec<u8>, text: &str) {
    // Keys, header fields and tags are all bounded below 64 KiB by `promethean_event::limits`.
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Whether two bodies are the same event: all but the event time, which a publisher that retries
/// may have taken anew.
pub(crate) fn same_content(one: &[u8], other: &[u8]) -> bool {
    one.get(..16) == other.get(..16) && one.get(FIXED_BODY_BYTES..) == other.get(FIXED_BODY_BYTES..)
}

/// An event as it lies in the log: a view of bytes that are shared, read field by field.
#[derive(Debug, Clone)]
pub struct Record {
    header: RecordHeader,
    body: Bytes,
}

impl Record {
    /// The record at the start of `bytes`, checked whole.
    pub(crate) fn decode(salt: u32, bytes: &Bytes) -> Option<Self> {
        let header = RecordHeader::decode(salt, bytes)?;
        if bytes.len() < header.record_bytes() || header.body_bytes < FIXED_BODY_BYTES as u32 {
            return None;
        }
        let body = bytes.slice(RECORD_HEADER_BYTES..header.record_bytes());
        #[cfg(feature = "planted-bugs")]
        if crate::planted::skips_bad_crc() {
            return Some(Self { header, body });
        }
        (crc32c::crc32c(&body) == header.body_crc).then_some(Self { header, body })
    }

    pub(crate) const fn header(&self) -> &RecordHeader {
        &self.header
    }

    pub(crate) const fn body(&self) -> &Bytes {
        &self.body
    }

    /// Topic and partition.
    pub const fn lane(&self) -> Lane {
        self.header.lane
    }

    /// Place in the partition.
    pub const fn offset(&self) -> Offset {
        Offset::new(self.header.offset)
    }

    /// Place in the log.
    pub const fn seq(&self) -> Seq {
        Seq::new(self.header.seq)
    }

    /// When the log took it.
    pub const fn appended_at(&self) -> Timestamp {
        Timestamp::from_millis(self.header.append_ms)
    }

    /// Whether it says that its key is gone.
    pub const fn is_tombstone(&self) -> bool {
        self.header.is_tombstone()
    }

    /// Its identity.
    pub fn id(&self) -> EventId {
        EventId::from_bytes(self.body.first_chunk().copied().unwrap_or_default())
    }

    /// Event time.
    pub fn ts(&self) -> Timestamp {
        let field = self.body.get(16..24).and_then(|bytes| Fields(bytes).u64());
        Timestamp::from_millis(field.unwrap_or_default())
    }

    /// The key.
    pub fn key(&self) -> Option<&str> {
        if self.header.flags & HAS_KEY == 0 {
            return None;
        }
        text16(&mut Fields(self.body.get(FIXED_BODY_BYTES..)?))
    }

    /// The payload, as the bytes that were published.
    pub fn payload(&self) -> Payload {
        let start = self.payload_start().unwrap_or(self.body.len());
        Payload::from_stored(self.body.slice(start..))
    }

    /// Bytes in the log.
    pub const fn bytes(&self) -> usize {
        self.header.record_bytes()
    }

    /// The whole event, given the name of its topic. `None` only if the log was written by a
    /// faulty program: the checksums were good.
    pub fn to_event(&self, topic: &Topic) -> Option<Event> {
        let mut fields = Fields(self.body.get(FIXED_BODY_BYTES..)?);
        let key = self.has(HAS_KEY, &mut fields, |fields| Key::new(text16(fields)?).ok())?;
        let sid = self
            .has(HAS_SESSION, &mut fields, |fields| Some(SessionId::from_bytes(fields.array()?)))?;
        let headers = self.has(HAS_HEADERS, &mut fields, |fields| {
            let mut headers = Headers::new();
            for _ in 0..fields.u8()? {
                let name = text16(fields)?;
                headers.insert(name, text16(fields)?).ok()?;
            }
            Some(headers)
        })?;
        let caused_by = self.has(HAS_CAUSES, &mut fields, |fields| {
            (0..fields.u8()?).map(|_| fields.array().map(EventId::from_bytes)).collect()
        })?;
        let tags = self.has(HAS_TAGS, &mut fields, |fields| {
            (0..fields.u8()?).map(|_| Tag::new(text16(fields)?).ok()).collect()
        })?;
        Some(Event {
            id: self.id(),
            sid,
            ts: self.ts(),
            topic: topic.clone(),
            key,
            partition: self.header.lane.partition,
            offset: self.offset(),
            headers: headers.unwrap_or_default(),
            payload: Payload::from_stored(self.body.slice(self.body.len() - fields.0.len()..)),
            caused_by: caused_by.unwrap_or_default(),
            tags: tags.unwrap_or_default(),
        })
    }

    /// The outer `None` is a field that is there but cannot be read.
    fn has<'a, T>(
        &self,
        flag: u16,
        fields: &mut Fields<'a>,
        read: impl FnOnce(&mut Fields<'a>) -> Option<T>,
    ) -> Option<Option<T>> {
        if self.header.flags & flag == 0 { Some(None) } else { read(fields).map(Some) }
    }

    fn payload_start(&self) -> Option<usize> {
        let mut fields = Fields(self.body.get(FIXED_BODY_BYTES..)?);
        self.has(HAS_KEY, &mut fields, skip_text)?;
        self.has(HAS_SESSION, &mut fields, |fields| fields.bytes(16))?;
        self.has(HAS_HEADERS, &mut fields, |fields| {
            (0..fields.u8()?).try_for_each(|_| skip_text(fields).and_then(|()| skip_text(fields)))
        })?;
        self.has(HAS_CAUSES, &mut fields, |fields| {
            (0..fields.u8()?).try_for_each(|_| fields.bytes(16).map(drop))
        })?;
        self.has(HAS_TAGS, &mut fields, |fields| {
            (0..fields.u8()?).try_for_each(|_| skip_text(fields))
        })?;
        Some(self.body.len() - fields.0.len())
    }
}

fn skip_text(fields: &mut Fields<'_>) -> Option<()> {
    let length = fields.u16()?;
    fields.bytes(length as usize).map(drop)
}

fn text16<'a>(fields: &mut Fields<'a>) -> Option<&'a str> {
    let length = fields.u16()?;
    std::str::from_utf8(fields.bytes(length as usize)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> NewEvent {
        let mut event = NewEvent::new(
            EventId::generate(),
            Timestamp::from_millis(7),
            Topic::new("a.b").unwrap(),
            Payload::parse(r#"{"x":1.50}"#).unwrap(),
        )
        .with_key(Key::new("k").unwrap());
        event.sid = Some(SessionId::generate());
        event.headers.insert("x-a", "1").unwrap();
        event.headers.insert("x-b", "").unwrap();
        event.caused_by = vec![EventId::generate(), EventId::generate()];
        event.tags = vec![Tag::new("#t").unwrap()];
        event
    }

    fn record_of(event: &NewEvent, salt: u32) -> Vec<u8> {
        let mut bytes = vec![0; RECORD_HEADER_BYTES];
        let flags = encode_body(event, &mut bytes);
        let body = &bytes[RECORD_HEADER_BYTES..];
        let header = RecordHeader {
            body_bytes: body.len() as u32,
            body_crc: crc32c::crc32c(body),
            lane: Lane { topic: TopicId(3), partition: Partition::new(4) },
            offset: 5,
            seq: 6,
            append_ms: 7,
            flags,
        };
        bytes[..RECORD_HEADER_BYTES].copy_from_slice(&header.encode(salt));
        bytes
    }

    #[test]
    fn every_field_survives() {
        let mut without_anything = full();
        without_anything = NewEvent::new(
            without_anything.id,
            without_anything.ts,
            without_anything.topic,
            Payload::null(),
        );
        for event in [full(), without_anything] {
            let record = Record::decode(1, &record_of(&event, 1).into()).unwrap();
            assert_eq!(record.payload(), event.payload);
            assert_eq!(record.key(), event.key.as_ref().map(Key::as_str));
            assert_eq!(record.is_tombstone(), event.payload.is_tombstone());
            let stored = record.to_event(&event.topic).unwrap();
            assert_eq!(stored, event.placed(Partition::new(4), Offset::new(5)));
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = record_of(&full(), 1);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(1, &bad.into()).is_none(), "bit {bit}");
        }
        assert!(Record::decode(2, &bytes.into()).is_none(), "another segment");
    }

    #[test]
    fn content_is_the_same_but_for_event_time() {
        let event = full();
        let mut later = event.clone();
        later.ts = Timestamp::from_millis(8);
        let mut other = event.clone();
        other.payload = Payload::null();
        let body = |event| {
            let mut out = Vec::new();
            encode_body(event, &mut out);
            out
        };
        assert!(same_content(&body(&event), &body(&later)));
        assert!(!same_content(&body(&event), &body(&other)));
    }
}
