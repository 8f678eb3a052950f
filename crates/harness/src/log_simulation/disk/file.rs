use crate::log_simulation::random::Random;

/// What a disk writes whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;

/// Where a sector of the page cache stands against the durable image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SectorState {
    /// Same as the durable image.
    Clean,
    /// Written; the next successful sync makes it durable.
    Dirty,
    /// A failed sync dropped it: reads show it, no later sync keeps it.
    Dropped,
}

/// How unsynced bytes fare in one crash.
#[derive(Debug, Clone, Copy)]
pub(super) struct SectorFate {
    /// Per mille of unsynced sectors that reach the disk.
    pub(super) kept: u64,
    /// Per mille that arrive damaged: zeroed or cut inside.
    pub(super) odd: u64,
}

/// One file: what readers see, and what a crash surely keeps.
#[derive(Debug, Clone, Default)]
pub(super) struct FileImage {
    cache: Vec<u8>,
    durable: Vec<u8>,
    states: Vec<SectorState>,
    /// Sectors that are not clean, each once.
    touched: Vec<u32>,
}

impl FileImage {
    /// A file whose bytes are all durable.
    pub(super) fn durable(bytes: Vec<u8>) -> Self {
        let states = vec![SectorState::Clean; bytes.len().div_ceil(SECTOR_BYTES)];
        Self { cache: bytes.clone(), durable: bytes, states, touched: Vec::new() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.cache
    }

    pub(super) fn len(&self) -> usize {
        self.cache.len()
    }

    pub(super) fn has_unsynced(&self) -> bool {
        !self.touched.is_empty() || self.cache.len() != self.durable.len()
    }

    pub(super) fn read(&self, buffer: &mut [u8], position: usize) -> usize {
        let Some(rest) = self.cache.get(position..) else {
            return 0;
        };
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        count
    }

    pub(super) fn write(&mut self, bytes: &[u8], position: usize) {
        let end = position + bytes.len();
        let from = position.min(self.cache.len());
        if end > self.cache.len() {
            self.cache.resize(end, 0);
        }
        self.cache[position..end].copy_from_slice(bytes);
        self.dirty(from, end);
    }

    pub(super) fn set_len(&mut self, len: usize) {
        let before = self.cache.len();
        self.cache.resize(len, 0);
        // Cut bytes come back as zeroes when the file grows again, so they count as written.
        self.dirty(before.min(len), before.max(len));
    }

    fn dirty(&mut self, from: usize, to: usize) {
        if from >= to {
            return;
        }
        let sectors = to.div_ceil(SECTOR_BYTES);
        if self.states.len() < sectors {
            self.states.resize(sectors, SectorState::Clean);
        }
        for sector in from / SECTOR_BYTES..sectors {
            if self.states[sector] == SectorState::Clean {
                self.touched.push(sector as u32);
            }
            self.states[sector] = SectorState::Dirty;
        }
    }

    /// Copies one sector of the cache, as far as both images have it.
    fn persist(&mut self, sector: usize) {
        let from = sector * SECTOR_BYTES;
        let to = (from + SECTOR_BYTES).min(self.cache.len()).min(self.durable.len());
        if from < to {
            self.durable[from..to].copy_from_slice(&self.cache[from..to]);
        }
    }

    pub(super) fn sync(&mut self) {
        self.durable.resize(self.cache.len(), 0);
        let mut touched = std::mem::take(&mut self.touched);
        touched.retain(|&sector| {
            let sector = sector as usize;
            if self.states[sector] == SectorState::Dropped {
                return true;
            }
            self.persist(sector);
            self.states[sector] = SectorState::Clean;
            false
        });
        self.touched = touched;
    }

    /// A sync that fails: some sectors made it, and the rest will never be tried again.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        if random.chance(500) {
            self.durable.resize(self.cache.len(), 0);
        }
        let mut touched = std::mem::take(&mut self.touched);
        touched.retain(|&sector| {
            let sector = sector as usize;
            if self.states[sector] == SectorState::Dirty && random.chance(300) {
                self.persist(sector);
            }
            self.states[sector] = SectorState::Dropped;
            true
        });
        self.touched = touched;
    }

    /// The kernel writes some dirty sectors early, so that a crash can find an older version of a
    /// sector than the last one written.
    pub(super) fn write_back(&mut self, random: &mut Random) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.retain(|&sector| {
            let sector = sector as usize;
            let end = ((sector + 1) * SECTOR_BYTES).min(self.cache.len());
            if self.states[sector] != SectorState::Dirty || end == 0 || random.chance(500) {
                return true;
            }
            if self.durable.len() < end {
                self.durable.resize(end, 0);
            }
            self.persist(sector);
            // A sector beyond a cut end stays dirty: only the length can make it durable.
            let clean = sector * SECTOR_BYTES < self.cache.len()
                && self.durable.len() <= self.cache.len().max(end);
            if clean {
                self.states[sector] = SectorState::Clean;
            }
            !clean
        });
        self.touched = touched;
    }

    /// Power loss: the cache is gone, and each unsynced sector fares on its own.
    pub(super) fn crash(&mut self, fate: SectorFate, random: &mut Random) {
        if !self.has_unsynced() {
            return;
        }
        let (old, new) = (self.durable.len(), self.cache.len());
        let len = match random.below(5) {
            0 | 1 => old,
            2 | 3 => new,
            _ => random.between(old.min(new) as u64, old.max(new) as u64) as usize,
        };
        self.durable.resize(len, 0);
        for sector in std::mem::take(&mut self.touched) {
            let sector = sector as usize;
            if self.states[sector] == SectorState::Dirty {
                if random.chance(fate.odd) {
                    self.damage(sector, random);
                } else if random.chance(fate.kept) {
                    self.persist(sector);
                }
            }
            self.states[sector] = SectorState::Clean;
            let from = sector * SECTOR_BYTES;
            let to = (from + SECTOR_BYTES).min(self.durable.len()).min(self.cache.len());
            if from < to {
                self.cache[from..to].copy_from_slice(&self.durable[from..to]);
            }
        }
        let common = self.cache.len().min(len);
        self.cache.truncate(common);
        self.cache.extend_from_slice(&self.durable[common..]);
        self.states.resize(len.div_ceil(SECTOR_BYTES), SectorState::Clean);
    }

    /// A sector that was being written when the power went: zeroed, or new up to a byte and old
    /// after it. Bytes that were to stay the same do stay the same ("powersafe overwrite"): no
    /// log could keep its promises if a write could damage its neighbours.
    fn damage(&mut self, sector: usize, random: &mut Random) {
        let from = sector * SECTOR_BYTES;
        let to = (from + SECTOR_BYTES).min(self.cache.len()).min(self.durable.len());
        if from >= to {
            return;
        }
        let zeroed = random.chance(500);
        let cut = random.between(from as u64, to as u64) as usize;
        for at in from..to {
            if zeroed && self.durable[at] != self.cache[at] {
                self.durable[at] = 0;
            } else if !zeroed && at < cut {
                self.durable[at] = self.cache[at];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: SectorFate = SectorFate { kept: 1000, odd: 0 };
    const LOSE: SectorFate = SectorFate { kept: 0, odd: 0 };

    #[test]
    fn synced_bytes_survive_and_others_need_luck() {
        let mut file = FileImage::default();
        file.write(&[1; 2000], 0);
        file.sync();
        file.write(&[2; 600], 100);
        let mut lucky = file.clone();
        file.crash(LOSE, &mut Random::new(1));
        assert_eq!(file.bytes(), &[1; 2000]);
        lucky.crash(KEEP, &mut Random::new(1));
        assert_eq!(&lucky.bytes()[100..700], &[2; 600]);
        assert!(!lucky.has_unsynced());
    }

    #[test]
    fn dropped_sectors_are_seen_until_the_crash_and_never_synced() {
        for seed in 0..50 {
            let mut file = FileImage::durable(vec![1; 1024]);
            file.write(&[2; 1024], 0);
            file.fail_sync(&mut Random::new(seed));
            file.sync();
            assert_eq!(file.bytes(), &[2; 1024]);
            file.crash(KEEP, &mut Random::new(seed));
            if file.bytes().contains(&1) {
                return;
            }
        }
        panic!("a failed sync never lost anything");
    }

    #[test]
    fn sectors_fare_alone_and_lengths_too() {
        let mut mixed = false;
        let mut lengths = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut file = FileImage::durable(vec![1; 8 * SECTOR_BYTES]);
            file.write(&[2; 10 * SECTOR_BYTES], 0);
            file.crash(SectorFate { kept: 500, odd: 20 }, &mut Random::new(seed));
            mixed |= file.bytes().contains(&1) && file.bytes().contains(&2);
            lengths.insert(file.len());
        }
        assert!(mixed && lengths.len() > 2);
    }

    #[test]
    fn damage_keeps_bytes_that_do_not_change() {
        for seed in 0..100 {
            let mut file = FileImage::durable(vec![7; SECTOR_BYTES]);
            file.write(&[9; 100], 200);
            file.crash(SectorFate { kept: 0, odd: 1000 }, &mut Random::new(seed));
            assert!(file.bytes()[..200].iter().chain(&file.bytes()[300..]).all(|&byte| byte == 7));
        }
    }

    #[test]
    fn early_write_back_leaves_older_versions() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let mut file = FileImage::durable(vec![0; SECTOR_BYTES]);
            file.write(&[1; SECTOR_BYTES], 0);
            file.write_back(&mut random);
            file.write(&[2; SECTOR_BYTES], 0);
            file.crash(SectorFate { kept: 500, odd: 0 }, &mut random);
            seen.insert(file.bytes()[0]);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn cut_files_come_back_whole_or_cut() {
        for seed in 0..100 {
            let mut file = FileImage::durable(vec![3; 2000]);
            file.set_len(700);
            let mut synced = file.clone();
            file.crash(SectorFate { kept: 500, odd: 10 }, &mut Random::new(seed));
            assert!((700..=2000).contains(&file.len()));
            assert!(file.bytes()[..700].iter().all(|&byte| byte == 3));
            synced.sync();
            synced.set_len(2000);
            assert!(synced.bytes()[700..].iter().all(|&byte| byte == 0));
        }
    }
}
