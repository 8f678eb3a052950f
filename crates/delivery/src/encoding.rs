//! The bytes of [`LaneState`] and [`LaneDelta`].
//!
//! First a byte for the format, 1, and one for the kind, 1 for a state and 2 for a delta. Then
//! fields in the order of their declaration: numbers as LEB128, byte strings and lists with their
//! length before them, spans as start and length, sorted numbers as they are. A change begins
//! with its tag. Decoding checks everything that applying relies on; nothing may be left over.

use alloc::vec::Vec;

use crate::limits::{ATTEMPT_TIMES_MAX, ERROR_BYTES_MAX};
use crate::state::{AttemptRecord, Change, LaneDelta, LaneState, ParkedKey, ReleasedEvent};
use crate::watermark::{Span, SpanSet};

const FORMAT: u8 = 1;
const STATE: u8 = 1;
const DELTA: u8 = 2;

/// Why bytes are not a state or a delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// They end too early.
    #[error("delivery state ends too early")]
    Truncated,
    /// A later version wrote them, or they are something else.
    #[error("delivery state has format {0}, this program reads format {FORMAT}")]
    Format(u8),
    /// A delta where a state was expected, or the other way round.
    #[error("delivery state is of kind {0}, which is not the expected one")]
    Kind(u8),
    /// A change that this version does not know.
    #[error("delivery state has an unknown change, tag {0}")]
    Change(u8),
    /// A value that no encoder writes.
    #[error("delivery state is not well formed: {0}")]
    Invalid(&'static str),
    /// More bytes than there should be.
    #[error("delivery state has {0} bytes too many")]
    Trailing(usize),
}

impl LaneState {
    /// The state as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = alloc::vec![FORMAT, STATE];
        put_number(&mut out, self.version);
        put_number(&mut out, u64::from(self.epoch));
        put_number(&mut out, u64::from(self.generation));
        put_number(&mut out, self.floor);
        put_number(&mut out, self.horizon);
        put_list(&mut out, self.acked.spans(), |out, span| put_span(out, *span));
        put_list(&mut out, &self.attempts, put_record);
        put_list(&mut out, &self.parked, |out, parked| put_parked(out, *parked));
        put_list(&mut out, &self.released, |out, event| put_released(out, *event));
        out
    }

    /// The state in these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader::open(bytes, STATE)?;
        let state = Self {
            version: input.number()?,
            epoch: input.narrow("epoch")?,
            generation: input.narrow("generation")?,
            floor: input.number()?,
            horizon: input.number()?,
            acked: SpanSet::from_sorted(input.list(Reader::span)?)
                .ok_or(DecodeError::Invalid("acked spans"))?,
            attempts: input.list(Reader::record)?,
            parked: input.list(Reader::parked)?,
            released: input.list(Reader::released)?,
        };
        let sorted = rising(&state.attempts, |record| record.offset)
            && rising(&state.parked, |parked| (parked.key, parked.offset))
            && rising(&state.released, |event| event.offset);
        if !sorted {
            return Err(DecodeError::Invalid("order"));
        }
        input.close(state)
    }
}

impl LaneDelta {
    /// The delta as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = alloc::vec![FORMAT, DELTA];
        put_number(&mut out, self.version);
        put_list(&mut out, &self.changes, put_change);
        out
    }

    /// The delta in these bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader::open(bytes, DELTA)?;
        let delta = Self { version: input.number()?, changes: input.list(Reader::change)? };
        input.close(delta)
    }
}

fn rising<T, N: Ord>(list: &[T], number: impl Fn(&T) -> N) -> bool {
    list.iter().zip(list.iter().skip(1)).all(|(one, next)| number(one) < number(next))
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_list<T>(out: &mut Vec<u8>, list: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    put_number(out, list.len() as u64);
    for entry in list {
        put(out, entry);
    }
}

fn put_span(out: &mut Vec<u8>, span: Span) {
    put_number(out, span.from);
    put_number(out, span.count());
}

fn put_record(out: &mut Vec<u8>, record: &AttemptRecord) {
    put_number(out, record.offset);
    put_number(out, u64::from(record.count));
    put_list(out, &record.times, |out, time| put_number(out, *time));
    put_number(out, record.not_before);
    put_bytes(out, &record.error);
    put_number(out, record.fingerprint);
}

fn put_parked(out: &mut Vec<u8>, parked: ParkedKey) {
    put_number(out, parked.key);
    put_number(out, parked.offset);
}

fn put_released(out: &mut Vec<u8>, event: ReleasedEvent) {
    put_number(out, event.offset);
    put_number(out, u64::from(event.round));
    out.push(u8::from(event.key.is_some()));
    if let Some(key) = event.key {
        put_number(out, key);
    }
}

fn put_change(out: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Floor(floor) => put_tagged(out, 1, *floor),
        Change::Acked(span) => {
            out.push(2);
            put_span(out, *span);
        }
        Change::Horizon(horizon) => put_tagged(out, 3, *horizon),
        Change::Attempted(record) => {
            out.push(4);
            put_record(out, record);
        }
        Change::Parked(parked) => {
            out.push(5);
            put_parked(out, *parked);
        }
        Change::Resolved(parked) => {
            out.push(6);
            put_parked(out, *parked);
        }
        Change::Released(event) => {
            out.push(7);
            put_released(out, *event);
        }
        Change::Finished { offset } => put_tagged(out, 8, *offset),
        Change::Seek { epoch, floor, horizon } => {
            put_tagged(out, 9, u64::from(*epoch));
            put_number(out, *floor);
            put_number(out, *horizon);
        }
        Change::Generation(generation) => put_tagged(out, 10, u64::from(*generation)),
    }
}

fn put_tagged(out: &mut Vec<u8>, tag: u8, number: u64) {
    out.push(tag);
    put_number(out, number);
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn open(bytes: &'a [u8], kind: u8) -> Result<Self, DecodeError> {
        let mut reader = Self { rest: bytes };
        match reader.byte()? {
            FORMAT => {}
            other => return Err(DecodeError::Format(other)),
        }
        match reader.byte()? {
            found if found == kind => Ok(reader),
            other => Err(DecodeError::Kind(other)),
        }
    }

    fn close<T>(self, value: T) -> Result<T, DecodeError> {
        match self.rest.len() {
            0 => Ok(value),
            left => Err(DecodeError::Trailing(left)),
        }
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Invalid("number above 64 bits"));
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                // One spelling per number, so that equal states are equal bytes.
                return if byte == 0 && shift > 0 {
                    Err(DecodeError::Invalid("padded number"))
                } else {
                    Ok(number)
                };
            }
        }
        Err(DecodeError::Invalid("number above 64 bits"))
    }

    fn narrow<N: TryFrom<u64>>(&mut self, what: &'static str) -> Result<N, DecodeError> {
        N::try_from(self.number()?).map_err(|_| DecodeError::Invalid(what))
    }

    fn list<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count: usize = self.narrow("length")?;
        // Every entry takes a byte at least: a length beyond that is a lie, and allocates nothing.
        if count > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(read(self)?);
        }
        Ok(list)
    }

    fn bytes(&mut self, count_max: usize) -> Result<Vec<u8>, DecodeError> {
        let count: usize = self.narrow("length")?;
        if count > count_max {
            return Err(DecodeError::Invalid("byte string too long"));
        }
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(bytes.to_vec())
    }

    fn span(&mut self) -> Result<Span, DecodeError> {
        let from = self.number()?;
        let to = from.checked_add(self.number()?).ok_or(DecodeError::Invalid("span"))?;
        Ok(Span { from, to })
    }

    fn record(&mut self) -> Result<AttemptRecord, DecodeError> {
        let record = AttemptRecord {
            offset: self.number()?,
            count: self.narrow("attempt count")?,
            times: self.list(Self::number)?,
            not_before: self.number()?,
            error: self.bytes(ERROR_BYTES_MAX)?,
            fingerprint: self.number()?,
        };
        if record.times.len() > ATTEMPT_TIMES_MAX {
            return Err(DecodeError::Invalid("too many attempt times"));
        }
        Ok(record)
    }

    fn parked(&mut self) -> Result<ParkedKey, DecodeError> {
        Ok(ParkedKey { key: self.number()?, offset: self.number()? })
    }

    fn released(&mut self) -> Result<ReleasedEvent, DecodeError> {
        Ok(ReleasedEvent {
            offset: self.number()?,
            round: self.narrow("round")?,
            key: match self.byte()? {
                0 => None,
                1 => Some(self.number()?),
                _ => return Err(DecodeError::Invalid("key mark")),
            },
        })
    }

    fn change(&mut self) -> Result<Change, DecodeError> {
        Ok(match self.byte()? {
            1 => Change::Floor(self.number()?),
            2 => Change::Acked(self.span()?),
            3 => Change::Horizon(self.number()?),
            4 => Change::Attempted(self.record()?),
            5 => Change::Parked(self.parked()?),
            6 => Change::Resolved(self.parked()?),
            7 => Change::Released(self.released()?),
            8 => Change::Finished { offset: self.number()? },
            9 => Change::Seek {
                epoch: self.narrow("epoch")?,
                floor: self.number()?,
                horizon: self.number()?,
            },
            10 => Change::Generation(self.narrow("generation")?),
            other => return Err(DecodeError::Change(other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = AttemptRecord> {
        (
            any::<(u64, u16, u64, u64)>(),
            prop::collection::vec(any::<u64>(), 0..4),
            prop::collection::vec(any::<u8>(), 0..40),
        )
            .prop_map(|((offset, count, not_before, fingerprint), times, error)| {
                AttemptRecord { offset, count, times, not_before, error, fingerprint }
            })
    }

    fn span() -> impl Strategy<Value = Span> {
        (0..1u64 << 40, 0..1u64 << 30).prop_map(|(from, count)| Span { from, to: from + count })
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            any::<u64>().prop_map(Change::Floor),
            span().prop_map(Change::Acked),
            any::<u64>().prop_map(Change::Horizon),
            record().prop_map(Change::Attempted),
            any::<(u64, u64)>().prop_map(|(key, offset)| Change::Parked(ParkedKey { key, offset })),
            any::<(u64, u64)>()
                .prop_map(|(key, offset)| Change::Resolved(ParkedKey { key, offset })),
            any::<(u64, Option<u64>, u16)>().prop_map(|(offset, key, round)| Change::Released(
                ReleasedEvent { offset, key, round }
            )),
            any::<u64>().prop_map(|offset| Change::Finished { offset }),
            any::<(u32, u64, u64)>().prop_map(|(epoch, floor, horizon)| Change::Seek {
                epoch,
                floor,
                horizon
            }),
            any::<u32>().prop_map(Change::Generation),
        ]
    }

    proptest! {
        #[test]
        fn deltas_and_the_states_they_make_come_back(
            changes in prop::collection::vec(change(), 0..30),
            version: u64,
        ) {
            let delta = LaneDelta { version, changes };
            let bytes = delta.encode();
            prop_assert_eq!(LaneDelta::decode(&bytes), Ok(delta.clone()));
            let mut state = LaneState::starting_at(3);
            state.version = version.saturating_sub(1);
            state.apply(&delta).unwrap();
            prop_assert_eq!(LaneState::decode(&state.encode()), Ok(state));
            for cut in 0..bytes.len() {
                prop_assert!(LaneDelta::decode(&bytes[..cut]).is_err());
            }
        }

        #[test]
        fn garbage_is_refused_or_is_what_it_encodes_to(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut framed = alloc::vec![FORMAT, STATE];
            framed.extend_from_slice(&bytes);
            for bytes in [&bytes, &framed] {
                if let Ok(state) = LaneState::decode(bytes) {
                    prop_assert_eq!(&state.encode(), bytes);
                }
            }
            if let Some(kind) = framed.get_mut(1) {
                *kind = DELTA;
            }
            if let Ok(delta) = LaneDelta::decode(&framed) {
                prop_assert_eq!(delta.encode(), framed);
            }
        }

        #[test]
        fn a_flipped_byte_never_panics(changes in prop::collection::vec(change(), 1..10), at: usize, to: u8) {
            let delta = LaneDelta { version: 1, changes };
            let mut bytes = delta.encode();
            let at = at % bytes.len();
            bytes[at] = to;
            if let Ok(decoded) = LaneDelta::decode(&bytes) {
                let mut state = LaneState::default();
                let _ = state.apply(&decoded);
                prop_assert!(LaneState::decode(&state.encode()).is_ok());
            }
        }
    }

    /// The format is a promise to stored bytes: this changes only together with its number.
    #[test]
    fn frozen_bytes() {
        let delta = LaneDelta {
            version: 300,
            changes: alloc::vec![
                Change::Floor(5),
                Change::Acked(Span { from: 7, to: 9 }),
                Change::Horizon(4096),
            ],
        };
        assert_eq!(delta.encode(), [1, 2, 0xac, 2, 3, 1, 5, 2, 7, 2, 3, 0x80, 0x20]);
    }
}
