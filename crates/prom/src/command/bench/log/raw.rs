//! The reference: a plain file, appended to and read.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use crate::command::bench::events::{Source, new_log};
use crate::command::bench::measure::timed;

/// A plain file that the same bytes are appended to, with one `fdatasync` each.
#[derive(Debug)]
pub(super) struct Plain {
    path: PathBuf,
    batch: Vec<u8>,
    file: Option<File>,
}

impl Plain {
    /// Of batches of so many events, encoded as the log does.
    pub(super) fn new(scratch: &Path, events: usize) -> anyhow::Result<Self> {
        let batch = encoded_batch(&scratch.join("encoded"), events)?;
        Ok(Self { path: scratch.join("raw"), batch, file: None })
    }

    /// Begins with an empty file.
    pub(super) fn begin(&mut self) -> anyhow::Result<()> {
        self.file = Some(File::create(&self.path)?);
        Ok(())
    }

    /// Appends so many batches; gives the time it took.
    pub(super) fn append_synced(&mut self, times: usize) -> anyhow::Result<Duration> {
        let file = self.file.as_mut().context("the file was begun")?;
        let (written, time) = timed(|| {
            (0..times).try_for_each(|_| file.write_all(&self.batch).and_then(|()| file.sync_data()))
        });
        written?;
        Ok(time)
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // It is in a scratch directory, which goes as well.
        let removed = std::fs::remove_file(&self.path);
        drop(removed);
    }
}

/// The bytes of one frame as the log writes it, for a batch of so many events.
fn encoded_batch(path: &Path, events: usize) -> anyhow::Result<Vec<u8>> {
    let (log, _) = new_log(path, 1)?;
    let before = log.bytes();
    log.append(&Source::new(1, 1000)?.batch(events)?).wait()?;
    let bytes = (log.bytes() - before) as usize;
    log.close();
    let segment = segments(path)?.pop().map(std::fs::read).transpose()?.unwrap_or_default();
    let frame = segment.get(before as usize..before as usize + bytes).unwrap_or_default().to_vec();
    anyhow::ensure!(frame.len() == bytes, "the frame must be in the newest segment");
    std::fs::remove_dir_all(path)?;
    Ok(frame)
}

/// Reads files front to back and sums them up, as a reader that checks must at least.
pub(super) fn read_summed(files: &[PathBuf]) -> anyhow::Result<u32> {
    use std::os::unix::fs::FileExt;
    let mut buffer = vec![0; 1024 * 1024];
    let mut crc = 0;
    for path in files {
        let file = File::open(path)?;
        let mut position = 0;
        loop {
            let count = file.read_at(&mut buffer, position)?;
            if count == 0 {
                break;
            }
            crc = crc32c::crc32c_append(crc, buffer.get(..count).unwrap_or_default());
            position += count as u64;
        }
    }
    Ok(crc)
}

/// The segments of a log, oldest first.
pub(super) fn segments(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "seg") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
