//! Every bound of the stores.

/// Changes that are remembered so that one who waits for growth is told which lanes grew; one who
/// comes later than that looks at all of them.
pub(crate) const RECENT_LANES_MAX: usize = 4096;
