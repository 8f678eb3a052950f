//! The reference: a plain file, appended to and read.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::command::bench::events::{Source, new_log};

/// The bytes of one frame as the log writes it, for a batch of so many events.
pub(super) fn encoded_batch(path: &Path, events: usize) -> anyhow::Result<Vec<u8>> {
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

/// Appends the bytes so many times to a plain file, with one `fdatasync` each.
pub(super) fn append_synced(path: &Path, batch: &[u8], times: usize) -> anyhow::Result<()> {
    let mut file = File::create(path)?;
    for _ in 0..times {
        file.write_all(batch)?;
        file.sync_data()?;
    }
    drop(file);
    std::fs::remove_file(path)?;
    Ok(())
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
