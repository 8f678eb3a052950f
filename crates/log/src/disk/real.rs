use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Disk, DiskFile};

/// A directory of the operating system's. Made with mode 0700, its files with 0600.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    directory: File,
}

impl RealDisk {
    /// Opens the directory, making it first if it is not there.
    pub fn open(path: &Path) -> io::Result<Self> {
        make(path, &mut sync_directory)?;
        Ok(Self { path: path.to_owned(), directory: File::open(path)? })
    }

    /// Opens a directory that exists.
    pub fn open_existing(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), directory: File::open(path)? })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a directory and those above it. The new name of each must survive a crash, or nothing in it
/// does; also that of one which is there, because who has made it may have been killed before it was
/// synced.
fn make(path: &Path, sync: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    if path.is_dir() {
        // Which may be none of ours to open, and there long since.
        return sync(parent).or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput => Ok(()),
            _ => Err(error),
        });
    }
    make(parent, sync)?;
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        // Another process has made it at the same time.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    sync(parent)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

impl Disk for RealDisk {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        Ok(Arc::new(RealFile(options.open(self.path.join(name))?)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.path.join(name);
        // Sealed files may be opened where only reading is allowed, as `prom log verify` does.
        let file = OpenOptions::new().read(true).write(true).open(&path).or_else(|error| {
            match error.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    File::open(&path)
                }
                _ => Err(error),
            }
        })?;
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            // A name that is not UTF-8 is none of ours.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.directory)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.0.read_at(rest, position + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn append_at(&self, buffer: &mut Vec<u8>, position: u64, count: usize) -> io::Result<usize> {
        // Into memory that nobody has to clear first.
        buffer.reserve_exact(count);
        let start = buffer.len();
        while buffer.len() < start + count {
            let at = position + (buffer.len() - start) as u64;
            match rustix::io::pread(&self.0, rustix::buffer::spare_capacity(buffer), at) {
                Ok(0) => break,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // More may have been reserved, and so read, than was asked for.
        buffer.truncate(start + count);
        Ok(buffer.len() - start)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, position)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Killed between making a directory and syncing the one above it: the next one to open it took it for
    /// durable, and a power cut took it with all that was in it.
    #[test]
    fn a_directory_is_synced_into_the_one_above_it_by_whoever_opens_it() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("a/b");
        let mut synced = Vec::new();
        let mut killed = |_: &Path| Err(io::Error::other("killed"));
        assert!(make(&path, &mut killed).is_err(), "before the first of them was made");
        std::fs::create_dir(above.path().join("a")).unwrap();
        let mut sync = |path: &Path| {
            synced.push(path.to_owned());
            Ok(())
        };
        make(&path, &mut sync).unwrap();
        make(&path, &mut sync).unwrap();
        let a = above.path().join("a");
        assert_eq!(synced, [above.path(), &a, &a]);
    }
}
