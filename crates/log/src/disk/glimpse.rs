use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile, RealDisk};
use crate::segment::FileKind;

/// A log's directory as it is now, also while another process writes to it. What is written here
/// stays in memory, and nobody else sees it: opening a log on it is as after a crash at this
/// moment, and changes nothing.
///
/// The files that are there are opened at once, so that none is missing when it is cleaned away
/// later. What is being written at this moment can look damaged: make another one then.
#[derive(Debug)]
pub struct Glimpse {
    path: PathBuf,
    files: Mutex<BTreeMap<String, Arc<GlimpseFile>>>,
}

impl Glimpse {
    /// Of a directory that exists. [`io::ErrorKind::NotFound`], too, if a file went meanwhile.
    pub fn of(path: &Path) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        for name in RealDisk::open_existing(path)?.list()? {
            let is_part = match FileKind::of(&name) {
                FileKind::Segment(_) | FileKind::Index(_) => true,
                // It may be the next segment, or word of what may be lost.
                FileKind::Spare | FileKind::Aside => true,
                // The other process's own.
                FileKind::Unfinished | FileKind::Other => false,
            };
            if is_part {
                let real = File::open(path.join(&name))?;
                let len = real.metadata()?.len();
                let changed = Changed { len, real_len: len, pages: BTreeMap::new() };
                let changed = Mutex::new(changed);
                files.insert(name, Arc::new(GlimpseFile { real: Some(real), changed }));
            }
        }
        Ok(Self { path: path.to_owned(), files: Mutex::new(files) })
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Arc<GlimpseFile>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for Glimpse {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut files = self.files();
        if files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = Arc::new(GlimpseFile { real: None, changed: Mutex::default() });
        files.insert(name.to_owned(), Arc::clone(&file));
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.files().get(name).cloned();
        Ok(file.ok_or(io::ErrorKind::NotFound)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files();
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files().remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files().keys().cloned().collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        RealDisk::open_existing(&self.path)?.free_bytes()
    }
}

const PAGE_BYTES: usize = 4096;

/// A file of the directory, or one that is in memory only.
#[derive(Debug)]
struct GlimpseFile {
    real: Option<File>,
    changed: Mutex<Changed>,
}

/// What was written since, in whole pages.
#[derive(Debug, Default)]
struct Changed {
    len: u64,
    /// Up to here the bytes of the other process count.
    real_len: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
}

impl GlimpseFile {
    fn changed(&self) -> MutexGuard<'_, Changed> {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the other process has there. Zeroes beyond its end: where it was cut, only zeroes were.
    fn read_real(&self, buffer: &mut [u8], position: u64, real_len: u64) -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        let (mut done, count) = (0, real_len.saturating_sub(position).min(buffer.len() as u64));
        if let Some(real) = &self.real {
            while let Some(rest) = buffer.get_mut(done..count as usize).filter(|r| !r.is_empty()) {
                match real.read_at(rest, position + done as u64) {
                    Ok(0) => break,
                    Ok(count) => done += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        buffer.get_mut(done..).unwrap_or_default().fill(0);
        Ok(())
    }
}

/// The pages that a range touches: the number of each, and which of its bytes.
fn pages(position: u64, count: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let size = PAGE_BYTES as u64;
    let end = position + count as u64;
    (position / size..end.div_ceil(size)).map(move |page| {
        let from = position.max(page * size) - page * size;
        let to = end.min((page + 1) * size) - page * size;
        (page, from as usize..to as usize)
    })
}

impl DiskFile for GlimpseFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let changed = self.changed();
        let there = changed.len.saturating_sub(position).min(buffer.len() as u64) as usize;
        let buffer = buffer.get_mut(..there).unwrap_or_default();
        self.read_real(buffer, position, changed.real_len)?;
        let (first, last) = (position / PAGE_BYTES as u64, position + there as u64);
        if changed.pages.range(first..last.div_ceil(PAGE_BYTES as u64)).next().is_none() {
            return Ok(there);
        }
        let mut rest = buffer;
        for (page, range) in pages(position, there) {
            let (part, behind) = rest.split_at_mut(range.len());
            if let Some(bytes) = changed.pages.get(&page).and_then(|page| page.get(range)) {
                part.copy_from_slice(bytes);
            }
            rest = behind;
        }
        Ok(there)
    }

    fn write_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut changed = self.changed();
        let real_len = changed.real_len;
        let mut rest = bytes;
        for (page, range) in pages(position, bytes.len()) {
            let (part, behind) = rest.split_at(range.len());
            let place = match changed.pages.entry(page) {
                std::collections::btree_map::Entry::Occupied(place) => place.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    let mut kept = Box::new([0; PAGE_BYTES]);
                    self.read_real(&mut *kept, page * PAGE_BYTES as u64, real_len)?;
                    place.insert(kept)
                }
            };
            place.get_mut(range).unwrap_or_default().copy_from_slice(part);
            rest = behind;
        }
        changed.len = changed.len.max(position + bytes.len() as u64);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut changed = self.changed();
        // What was cut off comes back as zeroes.
        changed.real_len = changed.real_len.min(len);
        let (page, within) = (len / PAGE_BYTES as u64, (len % PAGE_BYTES as u64) as usize);
        drop(changed.pages.split_off(&(page + 1)));
        if let Some(bytes) = changed.pages.get_mut(&page) {
            bytes.get_mut(within..).unwrap_or_default().fill(0);
        }
        changed.len = len;
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.changed().len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &dyn DiskFile, position: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![7; count];
        let read = file.read_at(&mut bytes, position).unwrap();
        bytes.truncate(read);
        bytes
    }

    /// What is written here is seen here only, over any number of pages; what the other process
    /// writes shines through where nothing was.
    #[test]
    fn changes_stay_here() {
        let folder = tempfile::tempdir().unwrap();
        let name = crate::segment::SegmentName { base: 0, generation: 0 }.segment_file();
        let path = folder.path().join(&name);
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        std::fs::write(folder.path().join("0.spare"), [1]).unwrap();
        let glimpse = Glimpse::of(folder.path()).unwrap();
        assert_eq!(glimpse.list().unwrap(), ["0.spare", name.as_str()]);
        let file = glimpse.open(&name).unwrap();
        file.write_at(&[2; 5_000], 4_000).unwrap();
        let expected: Vec<u8> = [[1; 10].as_slice(), &[2; 10]].concat();
        assert_eq!(read(&*file, 3_990, 20), expected);
        assert_eq!(read(&*file, 8_990, 20), [[2; 10], [1; 10]].concat());
        assert_eq!(read(&*file, 9_990, 20), [1; 10], "it ends where it ended");
        // Cut and made longer again: nothing of before comes back.
        file.set_len(6_000).unwrap();
        file.set_len(12_000).unwrap();
        assert_eq!(read(&*file, 5_990, 20), [[2; 10], [0; 10]].concat());
        assert_eq!(read(&*file, 9_000, 10), [0; 10]);
        // Another name, another file, a file that goes: here only.
        let made = glimpse.create("new").unwrap();
        made.write_at(b"here", 2).unwrap();
        glimpse.rename("new", "other").unwrap();
        assert_eq!(read(&*glimpse.open("other").unwrap(), 0, 10), b"\0\0here");
        assert!(glimpse.create("other").is_err());
        glimpse.remove(&name).unwrap();
        assert!(glimpse.open(&name).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), vec![1; 10_000]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        // One that is removed by the other process can still be read.
        let glimpse = Glimpse::of(folder.path()).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(&*glimpse.open(&name).unwrap(), 9_995, 10), [1; 5]);
    }
}
