/// A small deterministic generator (splitmix64): the same seed gives the same run, everywhere.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator that starts at `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number from 0 to `bound - 1`; 0 if the bound is 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        // The bias is far below what a simulation could notice.
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// An index below `len`; 0 if `len` is 0.
    pub const fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True in `per_mille` of 1,000 cases.
    pub const fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// A generator of its own, so that one consumer's draws do not move another's.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        Self(self.next())
    }
}

/// The output function of splitmix64: spreads every bit of `value` over the result.
pub const fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_sequence() {
        // First outputs of splitmix64 from seed 1234567 (Vigna's reference code).
        let mut random = Random::new(1_234_567);
        assert_eq!(
            [random.next(), random.next(), random.next()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn bounds_hold() {
        let mut random = Random::new(7);
        for bound in 1..200 {
            assert!(random.below(bound) < bound);
            assert!((3..=3 + bound).contains(&random.between(3, 3 + bound)));
        }
        assert!(!(0..1000).any(|_| random.chance(0)));
        assert!((0..1000).all(|_| random.chance(1000)));
    }
}
