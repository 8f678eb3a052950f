use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::id::EventId;
use crate::key::Key;
use crate::limits::PARTITIONS_MAX;

/// One of the parts of a topic, counted from 0. Events of one key share a partition.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Partition(u32);

/// How many partitions a topic has: at least one. It belongs to the topic and is stored with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct PartitionCount(u32);

/// A partition count of 0 or beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a topic cannot have {0} partitions; choose 1 to {PARTITIONS_MAX}")]
pub struct PartitionCountError(u32);

impl Partition {
    /// The first partition, which every topic has.
    pub const ZERO: Self = Self(0);

    /// The partition with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartitionCount {
    /// A topic that is not divided.
    pub const ONE: Self = Self(1);

    /// Checks a count.
    pub const fn new(count: u32) -> Result<Self, PartitionCountError> {
        if count == 0 || count > PARTITIONS_MAX {
            return Err(PartitionCountError(count));
        }
        Ok(Self(count))
    }

    /// The count.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// All partitions of such a topic.
    pub fn partitions(self) -> impl ExactSizeIterator<Item = Partition> {
        (0..self.0).map(Partition)
    }

    /// Where an event belongs: by its key, or by its id if it has none.
    pub fn partition_of(self, key: Option<&Key>, id: &EventId) -> Partition {
        if self.0 == 1 {
            return Partition::ZERO;
        }
        let hash = match key {
            Some(key) => xxh3_64(key.as_str().as_bytes()),
            None => xxh3_64(id.as_bytes()),
        };
        Partition(jump(hash, self.0))
    }
}

impl TryFrom<u32> for PartitionCount {
    type Error = PartitionCountError;

    fn try_from(count: u32) -> Result<Self, PartitionCountError> {
        Self::new(count)
    }
}

impl From<PartitionCount> for u32 {
    fn from(count: PartitionCount) -> Self {
        count.0
    }
}

/// Jump consistent hash (Lamping and Veach, 2014): going from n to n + 1 buckets moves 1/(n + 1)
/// of the keys, all of them to the new bucket. `buckets` is at least 1.
fn jump(mut hash: u64, buckets: u32) -> u32 {
    let mut bucket: i64 = 0;
    let mut next: i64 = 0;
    while next < i64::from(buckets) {
        bucket = next;
        hash = hash.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let step = f64::from(1u32 << 31) / ((hash >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * step) as i64;
    }
    bucket as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Vectors of the reference implementation (Guava's and the paper's code agree on them).
    #[test]
    fn jump_matches_published_vectors() {
        for (hash, buckets, bucket) in [
            (0, 1, 0),
            (1, 1, 0),
            (0, 60, 0),
            (1, 60, 55),
            (2, 60, 46),
            (10_863_919_174_838_991, 11, 6),
            (2_016_238_256_797_177_309, 11, 3),
            (1_673_758_223_894_951_030, 11, 5),
            (2, 100_001, 80_343),
            (2201, 100_001, 22_152),
            (2202, 100_001, 15_018),
        ] {
            assert_eq!(jump(hash, buckets), bucket, "jump({hash}, {buckets})");
        }
    }

    /// Published XXH3-64 values (seed 0), so that other languages can compute partitions.
    #[test]
    fn hash_matches_published_vectors() {
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
        let partition = |key: &str, count| {
            PartitionCount::new(count)
                .unwrap()
                .partition_of(Some(&Key::new(key).unwrap()), &EventId::generate())
                .get()
        };
        // Our own, frozen: a change here moves every stored key.
        assert_eq!(
            ["a", "b", "dev:stt:1", "käse"].map(|key| partition(key, 64)),
            FROZEN_PARTITIONS_OF_64
        );
    }

    const FROZEN_PARTITIONS_OF_64: [u32; 4] = [14, 26, 15, 51];

    #[test]
    fn zero_partitions_are_refused() {
        assert!(PartitionCount::new(0).is_err());
        assert!(PartitionCount::new(PARTITIONS_MAX + 1).is_err());
    }

    proptest! {
        #[test]
        fn growing_by_one_moves_keys_only_to_the_new_bucket(hash: u64, buckets in 1u32..5000) {
            let before = jump(hash, buckets);
            let after = jump(hash, buckets + 1);
            prop_assert!(before < buckets);
            prop_assert!(after == before || after == buckets);
        }
    }
}
