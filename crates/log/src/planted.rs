//! Bugs on purpose. A harness that does not find them proves nothing.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::disk::DiskFile;
use crate::options::Options;

/// A bug that can be switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// Appends are answered before they are synced.
    AckBeforeSync,
    /// A new segment's name is not synced.
    NoDirectorySync,
    /// A segment is left before its last frames are synced.
    RollWithoutSync,
    /// Records are served whatever their checksum says.
    SkipBadCrc,
    /// A failed sync is tried again, and believed.
    RetriedFsync,
}

/// Checksums of records are not looked at, for the whole process.
pub(crate) static SKIP_BAD_CRC: AtomicBool = AtomicBool::new(false);

pub(crate) fn apply(options: &Options) {
    SKIP_BAD_CRC.store(
        options.planted == Some(PlantedBug::SkipBadCrc),
        Ordering::Relaxed,
    );
}

/// What a buggy writer does instead of a sync; `None` for a good one.
pub(crate) fn sync(options: &Options, file: &dyn DiskFile) -> Option<io::Result<()>> {
    match options.planted? {
        PlantedBug::AckBeforeSync => Some(Ok(())),
        PlantedBug::RetriedFsync => Some(file.sync_data().or_else(|_| file.sync_data())),
        PlantedBug::NoDirectorySync | PlantedBug::RollWithoutSync | PlantedBug::SkipBadCrc => None,
    }
}

pub(crate) fn no_directory_sync(options: &Options) -> bool {
    options.planted == Some(PlantedBug::NoDirectorySync)
}

pub(crate) fn roll_without_sync(options: &Options) -> bool {
    options.planted == Some(PlantedBug::RollWithoutSync)
}
