use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Identity of an event: a UUID, version 7 when we make it. It never orders anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Uuid);

/// The last generated id of this process: its millisecond, then the count within it. One number, so
/// that threads which generate at the same time do not wait for each other.
static LAST: AtomicU64 = AtomicU64::new(0);

const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Why a text is not an event id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a UUID; write it as 8-4-4-4-12 hexadecimal digits, or leave it out")]
pub struct IdError {
    text: String,
}

impl EventId {
    /// A new id. Ids made by one process rise strictly, also within one millisecond and when the
    /// wall clock goes back.
    pub fn generate() -> Self {
        let since_epoch = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        // Of the thread's own generator, seeded by the operating system.
        let random = Uuid::new_v4().into_bytes();
        Self::in_turn(&LAST, since_epoch.as_millis() as u64, random)
    }

    /// The next id after the last one: its millisecond and a count within it. The count begins
    /// somewhere in the lower half, so that two processes hardly ever share one.
    fn in_turn(last: &AtomicU64, millis: u64, random: [u8; 16]) -> Self {
        let [a, b, c, tail @ ..] = random;
        let begin = u64::from_be_bytes([0, 0, 0, 0, 0, a, b, c]) & (COUNT_MASK >> 1);
        let fresh = (millis << COUNT_BITS) | begin;
        let after = |last: u64| if fresh > last { fresh } else { last + 1 };
        let update =
            last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(after(last)));
        let turn = after(update.unwrap_or_else(|last| last));
        let (millis, count) = (turn >> COUNT_BITS, turn & COUNT_MASK);
        // Twelve bits of the count stand before the variant, eight behind it, in its byte and the
        // next one.
        let [high, low] = ((count >> 8) as u16).to_be_bytes();
        let [.., rest] = count.to_be_bytes();
        let [d, e, f, g, h, i, j, ..] = tail;
        let random = [high, low, rest >> 2, (rest << 6) | (d & 0x3f), e, f, g, h, i, j];
        Self::v7(millis, random)
    }

    /// A version 7 id from its parts, for callers that own time and randomness.
    pub fn v7(millis: u64, random: [u8; 10]) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }

    /// An id that is the same whenever `domain` and `name` are the same: for retries of work that
    /// must not be stored twice. Version 8, so that it cannot meet a generated one.
    pub fn derived(domain: &str, name: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(domain.len() + 1 + name.len());
        bytes.extend_from_slice(domain.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(name);
        let hash = xxhash_rust::xxh3::xxh3_128(&bytes);
        Self(uuid::Builder::from_custom_bytes(hash.to_be_bytes()).into_uuid())
    }

    /// The id with these sixteen bytes, of whatever version.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Length of its text.
    pub const TEXT_BYTES: usize = 36;

    /// Writes its text, without the detour of a formatter.
    pub fn encode<'a>(&self, text: &'a mut [u8; Self::TEXT_BYTES]) -> &'a str {
        self.0.as_hyphenated().encode_lower(text)
    }

    /// The sixteen bytes, most significant first.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The time inside a version 7 id, in epoch milliseconds.
    pub fn millis(&self) -> Option<u64> {
        (self.0.get_version_num() == 7).then(|| {
            let [a, b, c, d, e, f, ..] = *self.0.as_bytes();
            u64::from_be_bytes([0, 0, a, b, c, d, e, f])
        })
    }
}

impl FromStr for EventId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        // `Uuid` also reads braces, URNs and undashed forms; one spelling keeps ids greppable.
        if text.len() != 36 {
            return Err(IdError { text: text.chars().take(64).collect() });
        }
        Uuid::try_parse(text).map(Self).map_err(|_| IdError { text: text.to_owned() })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_rise_strictly() {
        let ids: Vec<_> = (0..100_000).map(|_| EventId::generate()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn ids_of_one_millisecond_and_of_a_clock_that_goes_back_rise() {
        let last = AtomicU64::new(0);
        let mut random = [0xff; 16];
        let mut before = EventId::in_turn(&last, 1_700_000_000_123, random);
        assert_eq!(before.millis(), Some(1_700_000_000_123));
        for step in 0..2_000_000_u64 {
            // More than the count holds: it goes on in the next millisecond.
            random[8..].copy_from_slice(&step.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
            let next = EventId::in_turn(&last, 1_700_000_000_123 - step % 3, random);
            assert!(next > before, "{before} {next}");
            before = next;
        }
        assert_eq!(before.0.get_version_num(), 7);
        assert_eq!(before.0.get_variant(), uuid::Variant::RFC4122);
        assert!(before.millis().unwrap() < 1_700_000_000_127);
    }

    #[test]
    fn threads_never_make_the_same_id() {
        let make = || (0..50_000).map(|_| EventId::generate()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(make)).collect();
        let made: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(made.iter().flat_map(|ids| ids.windows(2)).all(|pair| pair[0] < pair[1]));
        let all: std::collections::HashSet<_> = made.into_iter().flatten().collect();
        assert_eq!(all.len(), 200_000);
    }

    #[test]
    fn time_is_inside_a_version_7_id_only() {
        assert_eq!(EventId::v7(1_700_000_000_123, [7; 10]).millis(), Some(1_700_000_000_123));
        assert_eq!(EventId::derived("outbox", b"a").millis(), None);
    }

    #[test]
    fn derived_ids_depend_on_domain_and_name() {
        assert_eq!(EventId::derived("a", b"x"), EventId::derived("a", b"x"));
        assert_ne!(EventId::derived("a", b"x"), EventId::derived("b", b"x"));
        assert_ne!(EventId::derived("a", b"bx"), EventId::derived("ab", b"x"));
    }

    #[test]
    fn text_has_one_spelling() {
        let id = EventId::generate();
        assert_eq!(id.to_string().parse::<EventId>(), Ok(id));
        for bad in ["", "7", &id.to_string().replace('-', ""), &format!("{{{id}}}"), "not-a-uuid"] {
            assert!(bad.parse::<EventId>().is_err(), "{bad}");
        }
    }
}
