use crate::limits::{BACKOFF_FIRST_MS, BACKOFF_MAX_MS};

/// How long to wait before trying again: a part, by chance, of a ceiling that doubles with each
/// failure, so that clients that were cut off together do not come back together.
#[derive(Debug, Clone)]
pub(super) struct Backoff {
    failures: u32,
    seed: u64,
}

impl Backoff {
    pub(super) const fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self { failures: 0, seed: seed | 1 }
    }

    pub(super) fn next_ms(&mut self) -> u64 {
        let ceiling = BACKOFF_FIRST_MS << self.failures.min(16);
        self.failures += 1;
        // Xorshift: chance enough for this.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % ceiling.min(BACKOFF_MAX_MS)
    }

    /// It worked: the next failure is a first one.
    pub(super) const fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_bound_and_begin_anew() {
        let mut longest = [0; 3];
        for seed in 0..200 {
            let mut backoff = Backoff::new(seed);
            let first = backoff.next_ms();
            let later = (0..20).map(|_| backoff.next_ms()).max().unwrap();
            backoff.reset();
            let again = backoff.next_ms();
            longest = [longest[0].max(first), longest[1].max(later), longest[2].max(again)];
        }
        assert!((200..250).contains(&longest[0]), "{longest:?}");
        assert!((19_000..20_000).contains(&longest[1]), "{longest:?}");
        assert!((200..250).contains(&longest[2]), "{longest:?}");
    }
}
