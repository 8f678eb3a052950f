use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(u64);

        impl $name {
            /// The one with this number.
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// Its number.
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// One (topic, partition) that a group reads. The caller chooses the number; it must mean the
    /// same partition for as long as the store lives, for tokens carry it (on the embedded log:
    /// the topic's number and the partition).
    LaneId
}

number! {
    /// One connected consumer. The caller chooses the number and never uses it again.
    MemberId
}

number! {
    /// What the caller calls a question, to know the reply by.
    RequestId
}

/// Names one delivery of one event, and no other: every delivery of an event in an epoch has its
/// own attempt, and attempts are never counted short, also over crashes, so that no two
/// deliveries ever share a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// Where the event lies.
    pub lane: LaneId,
    /// Its place there.
    pub offset: u64,
    /// The lane's epoch; a seek begins a new one.
    pub epoch: u32,
    /// Which delivery it is, counted from 1.
    pub attempt: u16,
    /// How often the event had been released from the dead letters before.
    pub round: u16,
}

impl Token {
    /// Bytes of a token.
    pub const BYTES: usize = 24;

    /// The token for the wire. It proves nothing by itself: the group compares all of it, and
    /// the member, with the lease.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let parts = self
            .lane
            .get()
            .to_be_bytes()
            .into_iter()
            .chain(self.offset.to_be_bytes())
            .chain(self.epoch.to_be_bytes())
            .chain(self.attempt.to_be_bytes())
            .chain(self.round.to_be_bytes());
        for (to, from) in bytes.iter_mut().zip(parts) {
            *to = from;
        }
        bytes
    }

    /// The token in these bytes. Any bytes are some token; most of them name no lease.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [
            a0,
            a1,
            a2,
            a3,
            a4,
            a5,
            a6,
            a7,
            b0,
            b1,
            b2,
            b3,
            b4,
            b5,
            b6,
            b7,
            c0,
            c1,
            c2,
            c3,
            d0,
            d1,
            e0,
            e1,
        ] = bytes;
        Self {
            lane: LaneId(u64::from_be_bytes([a0, a1, a2, a3, a4, a5, a6, a7])),
            offset: u64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7]),
            epoch: u32::from_be_bytes([c0, c1, c2, c3]),
            attempt: u16::from_be_bytes([d0, d1]),
            round: u16::from_be_bytes([e0, e1]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_one_token(bytes: [u8; 24]) {
            prop_assert_eq!(Token::from_bytes(bytes).to_bytes(), bytes);
        }
    }
}
