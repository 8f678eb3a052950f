use bytes::Bytes;
use promethean_event::limits::KEY_BYTES_MAX;
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
        let mut out = [0; RECORD_HEADER_BYTES];
        self.put(&mut out);
        let crc = crc32c::crc32c_append(salt, &out[..40]);
        out[40..44].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// All but the checksum.
    fn put(&self, out: &mut [u8; RECORD_HEADER_BYTES]) {
        let stamp = self.append_ms.min(APPEND_MS_MAX) | u64::from(self.flags) << 48;
        out[0..4].copy_from_slice(&self.body_bytes.to_le_bytes());
        out[4..8].copy_from_slice(&self.body_crc.to_le_bytes());
        out[8..12].copy_from_slice(&self.lane.topic.0.to_le_bytes());
        out[12..16].copy_from_slice(&self.lane.partition.get().to_le_bytes());
        out[16..24].copy_from_slice(&self.offset.to_le_bytes());
        out[24..32].copy_from_slice(&self.seq.to_le_bytes());
        out[32..40].copy_from_slice(&stamp.to_le_bytes());
    }

    /// Writes what a publisher knows into the room for a header.
    pub(crate) fn begin(head: &mut [u8; RECORD_HEADER_BYTES], lane: Lane, flags: u16, body: &[u8]) {
        let header = Self {
            body_bytes: body.len() as u32,
            body_crc: crc32c::crc32c(body),
            lane,
            offset: 0,
            seq: 0,
            append_ms: 0,
            flags,
        };
        header.put(head);
    }

    /// Adds to a header that was begun what only the writer knows.
    pub(crate) fn complete(head: &mut [u8; RECORD_HEADER_BYTES], salt: u32, place: &RecordPlace) {
        head[16..24].copy_from_slice(&place.offset.to_le_bytes());
        head[24..32].copy_from_slice(&place.seq.to_le_bytes());
        // The flags stand in the two bytes behind it.
        let append_ms = place.append_ms.min(APPEND_MS_MAX).to_le_bytes();
        head[32..38].copy_from_slice(&append_ms[..6]);
        let crc = crc32c::crc32c_append(salt, &head[..40]);
        head[40..44].copy_from_slice(&crc.to_le_bytes());
    }

    /// The header, if its checksum is that of a record of the segment with this salt.
    pub(crate) fn decode(salt: u32, bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<RECORD_HEADER_BYTES>()?;
        let stored = u32::from_le_bytes(*head.last_chunk()?);
        if crc32c::crc32c_append(salt, &head[..40]) != stored {
            return None;
        }
        Some(Self::fields(head))
    }

    /// The fields, whatever the checksum says.
    fn fields(head: &[u8; RECORD_HEADER_BYTES]) -> Self {
        let stamp = u64_at::<32>(head);
        let topic = TopicId(u32_at::<8>(head));
        let partition = Partition::new(u32_at::<12>(head));
        Self {
            body_bytes: u32_at::<0>(head),
            body_crc: u32_at::<4>(head),
            lane: Lane { topic, partition },
            offset: u64_at::<16>(head),
            seq: u64_at::<24>(head),
            append_ms: stamp & APPEND_MS_MAX,
            flags: (stamp >> 48) as u16,
        }
    }

    /// Header and body together.
    pub(crate) const fn record_bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.body_bytes as usize
    }

    pub(crate) const fn is_tombstone(&self) -> bool {
        self.flags & TOMBSTONE != 0
    }
}

/// What only the writer knows of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordPlace {
    pub(crate) offset: u64,
    pub(crate) seq: u64,
    pub(crate) append_ms: u64,
}

/// Bytes of the body of `event`.
pub(crate) fn body_bytes(event: &NewEvent) -> usize {
    let text16 = |text: &str| 2 + text.len();
    let listed = |count: usize, bytes: usize| if count == 0 { 0 } else { 1 + bytes };
    let headers = event.headers.iter().map(|(name, value)| text16(name) + text16(value)).sum();
    let tags = event.tags.iter().map(|tag| text16(tag.as_str())).sum();
    FIXED_BODY_BYTES
        + event.key.as_ref().map_or(0, |key| text16(key.as_str()))
        + event.sid.as_ref().map_or(0, |sid| sid.as_bytes().len())
        + listed(event.headers.len(), headers)
        + listed(event.caused_by.len(), event.caused_by.len() * 16)
        + listed(event.tags.len(), tags)
        + event.payload.as_bytes().len()
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

/// An event as it lies in the log, read field by field. Shares the memory that it was read into.
#[derive(Debug, Clone)]
pub struct Record {
    /// Header and body; never shorter than both.
    bytes: Bytes,
}

/// The same, borrowed from the memory that it was read into: costs nothing to make.
#[derive(Debug, Clone, Copy)]
pub struct RecordRef<'a> {
    head: &'a [u8; RECORD_HEADER_BYTES],
    body: &'a [u8],
    memory: &'a Bytes,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident -> $result:ty),* $(,)?) => {
        impl Record {
            $($(#[$doc])* pub fn $name(&self) -> $result { self.as_ref().$name() })*
        }
    };
}

fields! {
    /// Topic and partition.
    lane -> Lane,
    /// Place in the partition.
    offset -> Offset,
    /// Place in the log.
    seq -> Seq,
    /// When the log took it.
    appended_at -> Timestamp,
    /// Whether it says that its key is gone.
    is_tombstone -> bool,
    /// Its identity.
    id -> EventId,
    /// Event time.
    ts -> Timestamp,
    /// The key.
    key -> Option<&str>,
    /// The payload, as the bytes that were published.
    payload -> Payload,
    /// Bytes in the log.
    bytes -> usize,
}

impl Record {
    /// The record at the start of `bytes`, checked whole.
    pub(crate) fn decode(salt: u32, bytes: &Bytes) -> Option<Self> {
        let header = RecordHeader::decode(salt, bytes)?;
        let record = RecordRef::unchecked(bytes, 0)?.to_record();
        #[cfg(feature = "planted-bugs")]
        if crate::planted::skips_bad_crc() {
            return Some(record);
        }
        (crc32c::crc32c(record.body()) == header.body_crc).then_some(record)
    }

    /// The record at a place in the bytes of a frame whose sum was good, or that never left memory.
    pub(crate) fn unchecked(frame: &Bytes, start: usize) -> Option<Self> {
        RecordRef::unchecked(frame, start).map(|record| record.to_record())
    }

    /// The record, borrowed.
    pub fn as_ref(&self) -> RecordRef<'_> {
        let whole = RecordRef::unchecked(&self.bytes, 0);
        whole.unwrap_or(RecordRef {
            head: &[0; RECORD_HEADER_BYTES],
            body: &[],
            memory: &self.bytes,
        })
    }

    pub(crate) fn header(&self) -> RecordHeader {
        self.as_ref().header()
    }

    pub(crate) fn body(&self) -> &[u8] {
        self.as_ref().body
    }

    /// The whole event, given the name of its topic. `None` only if the log was written by a
    /// faulty program: the checksums were good.
    pub fn to_event(&self, topic: &Topic) -> Option<Event> {
        self.as_ref().to_event(topic)
    }
}

impl<'a> RecordRef<'a> {
    /// Whether a whole record with good sums starts there.
    pub(crate) fn is_good(salt: u32, memory: &Bytes, start: usize) -> bool {
        let bytes = memory.get(start..).unwrap_or_default();
        let header = RecordHeader::decode(salt, bytes);
        let Some((header, record)) = header.zip(RecordRef::unchecked(memory, start)) else {
            return false;
        };
        #[cfg(feature = "planted-bugs")]
        if crate::planted::skips_bad_crc() {
            return true;
        }
        crc32c::crc32c(record.body) == header.body_crc
    }

    pub(crate) fn unchecked(memory: &'a Bytes, start: usize) -> Option<Self> {
        let (head, rest) = memory.get(start..)?.split_first_chunk::<RECORD_HEADER_BYTES>()?;
        let length = u32_at::<0>(head) as usize;
        if length < FIXED_BODY_BYTES {
            return None;
        }
        Some(Self { head, body: rest.get(..length)?, memory })
    }

    /// The record, with a share in its memory.
    pub fn to_record(&self) -> Record {
        let start = self.start() - RECORD_HEADER_BYTES;
        Record { bytes: self.memory.slice(start..start + self.bytes()) }
    }

    /// The memory that the record lies in, and where.
    pub(crate) fn place(&self) -> (&'a Bytes, usize) {
        (self.memory, self.start() - RECORD_HEADER_BYTES)
    }

    /// Whether it has nothing but a good key and a payload, so that it is an event for sure.
    pub fn is_plain(&self) -> bool {
        match self.flags() & !TOMBSTONE {
            0 => true,
            HAS_KEY => self.key_bytes().is_some_and(|key| {
                // Nearly always, and found out at once.
                let is_text = key.is_ascii() || std::str::from_utf8(key).is_ok();
                is_text && (1..=KEY_BYTES_MAX).contains(&key.len())
            }),
            _ => false,
        }
    }

    /// The bytes of the key, as they stand there.
    pub fn key_bytes(&self) -> Option<&'a [u8]> {
        if self.flags() & HAS_KEY == 0 {
            return None;
        }
        bytes16(&mut Fields(self.body.get(FIXED_BODY_BYTES..)?))
    }

    /// Whether it has headers.
    pub fn has_headers(&self) -> bool {
        self.flags() & HAS_HEADERS != 0
    }

    pub(crate) fn header(&self) -> RecordHeader {
        RecordHeader::fields(self.head)
    }

    /// Where the body starts in its memory.
    fn start(&self) -> usize {
        self.body.as_ptr().addr() - self.memory.as_ptr().addr()
    }

    /// Topic and partition.
    pub fn lane(&self) -> Lane {
        let partition = Partition::new(u32_at::<12>(self.head));
        Lane { topic: TopicId(u32_at::<8>(self.head)), partition }
    }

    /// Place in the partition.
    pub fn offset(&self) -> Offset {
        Offset::new(u64_at::<16>(self.head))
    }

    /// Place in the log.
    pub fn seq(&self) -> Seq {
        Seq::new(u64_at::<24>(self.head))
    }

    /// When the log took it.
    pub fn appended_at(&self) -> Timestamp {
        Timestamp::from_millis(u64_at::<32>(self.head) & APPEND_MS_MAX)
    }

    /// Whether it says that its key is gone.
    pub fn is_tombstone(&self) -> bool {
        self.flags() & TOMBSTONE != 0
    }

    fn flags(&self) -> u16 {
        (u64_at::<32>(self.head) >> 48) as u16
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
    pub fn key(&self) -> Option<&'a str> {
        if self.flags() & HAS_KEY == 0 {
            return None;
        }
        text16(&mut Fields(self.body.get(FIXED_BODY_BYTES..)?))
    }

    /// The payload, as the bytes that were published.
    pub fn payload(&self) -> Payload {
        self.last_bytes(self.payload_bytes().unwrap_or(0))
    }

    fn last_bytes(&self, count: usize) -> Payload {
        let end = self.start() + self.body.len();
        Payload::from_stored(self.memory.slice(end - count..end))
    }

    /// Bytes in the log.
    pub const fn bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.body.len()
    }

    /// See [`Record::to_event`].
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
            partition: self.lane().partition,
            offset: self.offset(),
            headers: headers.unwrap_or_default(),
            payload: self.last_bytes(fields.0.len()),
            caused_by: caused_by.unwrap_or_default(),
            tags: tags.unwrap_or_default(),
        })
    }

    /// The outer `None` is a field that is there but cannot be read.
    fn has<T>(
        &self,
        flag: u16,
        fields: &mut Fields<'a>,
        read: impl FnOnce(&mut Fields<'a>) -> Option<T>,
    ) -> Option<Option<T>> {
        if self.flags() & flag == 0 { Some(None) } else { read(fields).map(Some) }
    }

    fn payload_bytes(&self) -> Option<usize> {
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
        Some(fields.0.len())
    }
}

fn u32_at<const AT: usize>(head: &[u8; RECORD_HEADER_BYTES]) -> u32 {
    u32::from_le_bytes(field::<AT, 4>(head))
}

fn u64_at<const AT: usize>(head: &[u8; RECORD_HEADER_BYTES]) -> u64 {
    u64::from_le_bytes(field::<AT, 8>(head))
}

/// The compiler knows all places and lengths, and leaves nothing but the load.
fn field<const AT: usize, const N: usize>(head: &[u8; RECORD_HEADER_BYTES]) -> [u8; N] {
    head.get(AT..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn skip_text(fields: &mut Fields<'_>) -> Option<()> {
    let length = fields.u16()?;
    fields.bytes(length as usize).map(drop)
}

fn text16<'a>(fields: &mut Fields<'a>) -> Option<&'a str> {
    std::str::from_utf8(bytes16(fields)?).ok()
}

fn bytes16<'a>(fields: &mut Fields<'a>) -> Option<&'a [u8]> {
    let length = fields.u16()?;
    fields.bytes(length as usize)
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
            assert_eq!(body_bytes(&event), record_of(&event, 1).len() - RECORD_HEADER_BYTES);
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
