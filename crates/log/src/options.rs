use std::sync::Arc;

use crate::clock::{Clock, SystemClock};
use crate::limits::SEGMENT_BYTES_LIMIT;

/// How a log is opened. Defaults are right for one server on one disk.
#[derive(Debug, Clone)]
pub struct Options {
    /// Largest segment. Segments start small and grow with the log, so that a small log stays
    /// small on disk. Default 64 MiB.
    pub segment_bytes_max: u64,
    /// Smallest segment. Default 4 MiB.
    pub segment_bytes_min: u64,
    /// Zero-filled segments kept ready ahead of need; 0 turns it off. Default 1.
    pub spare_segments: usize,
    /// Newest frames kept in memory, so that readers who keep up never touch the disk.
    /// Default 8 MiB.
    pub tail_bytes: usize,
    /// Most memory for the filters of sealed segments; beyond it they are read from their files.
    /// Default 16 MiB.
    pub filter_bytes: usize,
    /// Below this much free space publishing is refused; state of the system is still written.
    /// Default 64 MiB.
    pub free_bytes_min: u64,
    /// Most publishers waiting for the log. Default 65,536.
    pub queue_requests_max: usize,
    /// With so many bytes waiting for the log, no more are taken. Default 256 MiB.
    pub queue_bytes_max: usize,
    /// The cleaner writes segments again when at least this share of their bytes is dead.
    /// Default 0.2.
    pub clean_share_min: f64,
    /// Where append times come from.
    pub clock: Arc<dyn Clock>,
    /// Who runs the log's work.
    pub drive: Drive,
    /// A bug on purpose, to prove that a harness sees it.
    #[cfg(feature = "planted-bugs")]
    pub planted: Option<crate::planted::PlantedBug>,
}

/// Who runs the writer and the upkeep of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drive {
    /// Threads of the log's own.
    Threads,
    /// The caller, by `Log::commit_waiting` and `Log::maintain`: nothing happens by itself, so
    /// that a simulation is the same for the same seed.
    Caller,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes_max: 64 * 1024 * 1024,
            segment_bytes_min: 4 * 1024 * 1024,
            spare_segments: 1,
            tail_bytes: 8 * 1024 * 1024,
            filter_bytes: 16 * 1024 * 1024,
            free_bytes_min: 64 * 1024 * 1024,
            queue_requests_max: 65_536,
            queue_bytes_max: 256 * 1024 * 1024,
            clean_share_min: 0.2,
            clock: Arc::new(SystemClock),
            drive: Drive::Threads,
            #[cfg(feature = "planted-bugs")]
            planted: None,
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if self.segment_bytes_min < 4096 {
            return Err("segment_bytes_min must be at least 4096");
        }
        if self.segment_bytes_max < self.segment_bytes_min {
            return Err("segment_bytes_max must not be below segment_bytes_min");
        }
        if self.segment_bytes_max > SEGMENT_BYTES_LIMIT {
            return Err("segment_bytes_max must be at most 2 GiB");
        }
        if self.queue_requests_max == 0 || self.queue_bytes_max == 0 {
            return Err(
                "queue_requests_max and queue_bytes_max must not be 0: nothing would be taken",
            );
        }
        Ok(())
    }
}
