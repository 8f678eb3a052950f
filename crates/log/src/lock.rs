use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::OpenError;

const LOCK_FILE: &str = "LOCK";

/// Keeps other processes away from a directory as long as it lives. The operating system lets go
/// of it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct DirectoryLock(File);

impl DirectoryLock {
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path.join(LOCK_FILE))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder)?;
                let holder = holder.trim().to_owned();
                return Err(OpenError::Locked { path: path.to_owned(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        file.set_len(0)?;
        file.rewind()?;
        // Only a hint to others: a full disk has no room for it, and is no reason not to open.
        let noted = writeln!(file, "{}", std::process::id());
        drop(noted);
        Ok(Self(file))
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing the file lets go of it too; this only makes it explicit.
        drop(self.0.unlock());
    }
}
