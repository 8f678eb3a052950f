use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The first one.
            pub const ZERO: Self = Self(0);

            /// The one with this number.
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// Its number.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The one after this.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }

            /// The one `count` places on.
            #[must_use]
            pub const fn plus(self, count: u64) -> Self {
                Self(self.0 + count)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter! {
    /// The place of an event in its partition: 0, 1, 2, ... without holes, given at commit.
    /// Offset order is the only order.
    Offset
}

counter! {
    /// The place of an event in the whole embedded log, over all topics.
    Seq
}
