//! Bugs on purpose. A harness that does not find them proves nothing.

use std::cell::Cell;
use std::io;

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
    /// Records are served whatever their checksum says. For the whole process, from then on.
    SkipBadCrc,
    /// A failed sync is tried again, and believed.
    RetriedFsync,
}

thread_local! {
    /// Checksums of records are not looked at. By thread, so that tests beside this one are not
    /// hit; with `Drive::Caller` a log has one thread.
    static SKIP_BAD_CRC: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn apply(options: &Options) {
    SKIP_BAD_CRC.set(options.planted == Some(PlantedBug::SkipBadCrc));
}

pub(crate) fn skips_bad_crc() -> bool {
    SKIP_BAD_CRC.get()
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
