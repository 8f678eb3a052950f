use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of one block: all bits of one entry stand in one block, so that asking costs one read.
pub(crate) const BLOCK_BYTES: usize = 64;
const BITS_PER_ENTRY: usize = 10;
const PROBES: u32 = 6;

/// Makes a Bloom filter of blocks; about 1% of the hashes that are not in it seem to be.
#[derive(Debug)]
pub(crate) struct FilterBuilder {
    bytes: Vec<u8>,
}

impl FilterBuilder {
    pub(crate) fn new(entries: usize) -> Self {
        let blocks = (entries * BITS_PER_ENTRY).div_ceil(BLOCK_BYTES * 8).max(1);
        Self { bytes: vec![0; blocks * BLOCK_BYTES] }
    }

    pub(crate) fn add(&mut self, hash: u64) {
        let block = block_of(hash, self.bytes.len() / BLOCK_BYTES) * BLOCK_BYTES;
        for bit in bits(hash) {
            if let Some(byte) = self.bytes.get_mut(block + bit / 8) {
                *byte |= 1 << (bit % 8);
            }
        }
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

fn block_of(hash: u64, blocks: usize) -> usize {
    ((u128::from(hash) * blocks as u128) >> 64) as usize
}

fn bits(hash: u64) -> impl Iterator<Item = usize> {
    // The high bits chose the block; these come from the low ones, well mixed.
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..PROBES).map(move |probe| ((mixed >> (probe * 9)) & 0x1ff) as usize)
}

fn block_has(block: &[u8], hash: u64) -> bool {
    bits(hash).all(|bit| block.get(bit / 8).is_some_and(|byte| byte & (1 << (bit % 8)) != 0))
}

/// How much memory all filters together may take; shared by the segments of a log.
#[derive(Debug, Clone)]
pub(crate) struct FilterBudget {
    left: Arc<AtomicUsize>,
}

impl FilterBudget {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(bytes)) }
    }

    fn take(&self, bytes: usize) -> bool {
        let spend = |left: usize| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The filter of a side file: in memory once it was asked, if the budget allows, else read block
/// by block.
#[derive(Debug)]
pub(crate) struct Filter {
    start: u64,
    bytes: usize,
    budget: FilterBudget,
    resident: OnceLock<Vec<u8>>,
}

impl Filter {
    pub(crate) const fn new(start: u64, bytes: usize, budget: FilterBudget) -> Self {
        Self { start, bytes, budget, resident: OnceLock::new() }
    }

    /// Whether the hash may be in the filter. `read` gives bytes of the side file.
    pub(crate) fn may_have<E>(
        &self,
        hash: u64,
        read: impl Fn(u64, usize) -> Result<Vec<u8>, E>,
    ) -> Result<bool, E>
    where
        E: From<io::Error>,
    {
        let block = block_of(hash, self.bytes / BLOCK_BYTES) * BLOCK_BYTES;
        if self.resident.get().is_none() && self.budget.take(self.bytes) {
            let all = match read(self.start, self.bytes) {
                Ok(all) => all,
                Err(error) => {
                    self.budget.give_back(self.bytes);
                    return Err(error);
                }
            };
            if self.resident.set(all).is_err() {
                self.budget.give_back(self.bytes);
            }
        }
        if let Some(all) = self.resident.get() {
            let block = all.get(block..block + BLOCK_BYTES).unwrap_or_default();
            return Ok(block_has(block, hash));
        }
        Ok(block_has(&read(self.start + block as u64, BLOCK_BYTES)?, hash))
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        if self.resident.get().is_some() {
            self.budget.give_back(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_forgets_and_seldom_invents() {
        let hash = |n: u64| xxhash_rust::xxh3::xxh3_64(&n.to_le_bytes());
        let mut builder = FilterBuilder::new(10_000);
        (0..10_000).for_each(|n| builder.add(hash(n)));
        let bytes = builder.finish();
        for budget in [0, 1 << 20] {
            let filter = Filter::new(0, bytes.len(), FilterBudget::new(budget));
            let asks = |n| {
                filter
                    .may_have::<io::Error>(hash(n), |start, count| {
                        Ok(bytes[start as usize..start as usize + count].to_vec())
                    })
                    .unwrap()
            };
            assert!((0..10_000).all(asks));
            let invented = (10_000..110_000).filter(|&n| asks(n)).count();
            assert!(invented < 3_000, "{invented} of 100,000");
        }
    }
}
