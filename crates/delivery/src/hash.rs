use core::hash::{BuildHasherDefault, Hasher};

/// Spreads a number over all 64 bits (the finaliser of splitmix64): a change of any bit of the
/// input changes every bit of the output with probability one half.
pub(crate) const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One number from two, with the order of them told apart.
pub(crate) const fn mix2(first: u64, second: u64) -> u64 {
    mix(mix(first).rotate_left(23) ^ second)
}

/// The hasher of every map in this crate: fixed, so that a run is a function of its inputs. The
/// keys are numbers that a client cannot choose bit by bit (ids, and hashes of keys).
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = mix(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // One multiplication and a fold: the numbers are well mixed or few.
        let product = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

/// A map by number. Never iterated: its order means nothing.
pub(crate) type NumberMap<V> = hashbrown::HashMap<u64, V, BuildHasherDefault<NumberHasher>>;
