//! The file seam. The log reaches storage through [`Disk`] and [`DiskFile`] only, so that a
//! simulator can lose, tear and corrupt what a real disk would.
//!
//! A `Disk` is one flat directory. What each call leaves behind after a crash:
//!
//! - bytes written are kept only once `sync_data` of that file has returned;
//! - a new name, a rename or a removal is kept only once `sync_dir` has returned;
//! - a sector of 512 bytes that was being written holds its old or its new bytes, not a mixture;
//! - after any failed sync nothing is known about the bytes it should have kept.

mod real;

mod glimpse;

use std::fmt;
use std::io;
use std::sync::Arc;

pub use glimpse::Glimpse;
pub use real::RealDisk;

/// One flat directory of files.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Makes a new, empty file; an error if the name exists.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// All names, sorted.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes names, renames and removals durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// Bytes that can still be written.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// A file of a [`Disk`], read and written at positions.
#[expect(clippy::len_without_is_empty, reason = "nobody asks a file whether it is empty")]
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// Reads into `buffer` from `position`; fewer bytes than asked for only at the end.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;
    /// Adds up to `count` bytes from `position` to `buffer`; fewer only at the end.
    fn append_at(&self, buffer: &mut Vec<u8>, position: u64, count: usize) -> io::Result<usize> {
        let start = buffer.len();
        buffer.resize(start + count, 0);
        let read = self.read_at(buffer.get_mut(start..).unwrap_or_default(), position)?;
        buffer.truncate(start + read);
        Ok(read)
    }
    /// Writes all of `bytes` at `position`. After an error any part of it may have been written.
    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Makes the file's bytes and length durable.
    fn sync_data(&self) -> io::Result<()>;
    /// Cuts or extends (with zeroes) the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;
}

/// Reads exactly `buffer.len()` bytes, or fails with `UnexpectedEof`.
pub(crate) fn read_exact_at(
    file: &dyn DiskFile,
    buffer: &mut [u8],
    position: u64,
) -> io::Result<()> {
    if file.read_at(buffer, position)? == buffer.len() {
        return Ok(());
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
