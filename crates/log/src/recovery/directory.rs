//! What is in a log's directory, before any of it is read through.

use std::io;
use std::sync::Arc;

use super::{Damage, OpenReport};
use crate::disk::{Disk, DiskFile, read_exact_at};
use crate::engine::{Spare, Upkeep};
use crate::error::OpenError;
use crate::segment::{BadHeader, FileKind, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentName};

/// A segment file whose header was read.
pub(super) struct Found {
    pub(super) name: SegmentName,
    pub(super) salt: u32,
    pub(super) file: Arc<dyn DiskFile>,
    /// As long the file was made; a segment that is not sealed must not be shorter.
    pub(super) file_bytes: u64,
    /// Whether the log was kept whole when it was made.
    pub(super) whole: bool,
}

/// Looks at the header of every segment before anything is changed.
pub(super) fn read_headers(
    disk: &dyn Disk,
    names: &[String],
    report: &mut OpenReport,
) -> Result<(Vec<Found>, Option<[u8; 16]>), OpenError> {
    let mut segments = Vec::new();
    for file_name in names {
        if let FileKind::Segment(name) = FileKind::of(file_name) {
            segments.push((name, file_name));
        }
    }
    segments.sort();
    let mut found: Vec<Found> = Vec::new();
    let mut log_id = None;
    let last = segments.last().map(|(name, _)| *name);
    for (name, file_name) in segments {
        let file = disk.open(file_name)?;
        let reason = match read_header(&*file, file_name)? {
            Ok((header, salt)) if header.name == name => {
                if *log_id.get_or_insert(header.log_id) != header.log_id {
                    return Err(OpenError::ForeignSegment { file: file_name.clone() });
                }
                let SegmentHeader { file_bytes, whole, .. } = header;
                found.push(Found { name, salt, file, file_bytes, whole });
                continue;
            }
            Ok(_) => "it is another segment than its name says",
            Err(()) => "its header is damaged",
        };
        if Some(name) == last {
            return Err(OpenError::Damaged { file: file_name.clone(), reason });
        }
        let bytes = 0..file.len()?;
        report.damage.push(Damage { file: file_name.clone(), bytes, seqs: 0..0, reason });
    }
    Ok((found, log_id))
}

fn read_header(
    file: &dyn DiskFile,
    name: &str,
) -> Result<Result<(SegmentHeader, u32), ()>, OpenError> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
    match read_exact_at(file, &mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Err(())),
        other => other?,
    }
    match SegmentHeader::decode(&bytes) {
        Ok(header) => Ok(Ok(header)),
        Err(BadHeader::Damaged) => Ok(Err(())),
        Err(BadHeader::Version(version)) => {
            Err(OpenError::UnknownFormat { file: name.to_owned(), version })
        }
    }
}

/// Removes what an earlier process did not finish; keeps its spare files for use.
pub(super) fn tidy_up(disk: &dyn Disk, names: &[String], upkeep: &Upkeep) -> Result<(), OpenError> {
    for name in names {
        match FileKind::of(name) {
            FileKind::Unfinished => disk.remove(name)?,
            FileKind::Spare => {
                upkeep.note_spare_name(name);
                let file = disk.open(name)?;
                let bytes = file.len()?;
                let (name, filled, room_taken) = (name.clone(), true, false);
                upkeep.put_spare(Spare { name, file, bytes, filled, room_taken });
            }
            // The cleaner indexes a new segment before it gives it its name.
            FileKind::Index(segment) if !names.contains(&segment.segment_file()) => {
                disk.remove(name)?;
            }
            FileKind::Segment(_) | FileKind::Index(_) | FileKind::Aside | FileKind::Other => {}
        }
    }
    Ok(())
}

/// The name of a segment that was taken out of the way.
pub(crate) fn set_aside(file: &str) -> String {
    format!("{file}.damaged")
}

/// One of these names that no file has yet: what was taken out of the way earlier stays.
fn free_aside(names: &[String], file: &str, first: Option<String>) -> String {
    let numbered = (1..).map(|number| format!("{file}.{number}.damaged"));
    let mut wanted = first.into_iter().chain(numbered);
    wanted.find(|name| !names.contains(name)).unwrap_or_else(|| set_aside(file))
}

/// Takes segments that cannot be read at all out of the way, without deleting them.
pub(super) fn quarantine(
    disk: &dyn Disk,
    names: &[String],
    report: &OpenReport,
) -> Result<(), OpenError> {
    for damage in &report.damage {
        let aside = free_aside(names, &damage.file, Some(set_aside(&damage.file)));
        disk.rename(&damage.file, &aside)?;
    }
    if !report.damage.is_empty() {
        disk.sync_dir()?;
    }
    Ok(())
}

/// Keeps a copy of a damaged segment, out of the way, before another one takes its name. A copy, since
/// the name must not be without a file: a crash would leave a log that begins anew. It gets a number,
/// so that it is not taken for the word of somebody who knows what is lost.
pub(super) fn copy_aside(disk: &dyn Disk, names: &[String], found: &Found) -> io::Result<()> {
    let name = free_aside(names, &found.name.segment_file(), None);
    let unfinished = format!("{name}.tmp");
    let copy = disk.create(&unfinished)?;
    let written = copy_bytes(&*found.file, &*copy).and_then(|()| copy.sync_data());
    written.inspect_err(|_| drop(disk.remove(&unfinished)))?;
    disk.rename(&unfinished, &name)?;
    disk.sync_dir()
}

/// Copies all that is not zero: most of it is.
fn copy_bytes(from: &dyn DiskFile, to: &dyn DiskFile) -> io::Result<()> {
    const CHUNK_BYTES: u64 = 256 * 1024;
    let length = from.len()?;
    let mut buffer = Vec::new();
    let mut position = 0;
    while position < length {
        let count = CHUNK_BYTES.min(length - position);
        buffer.resize(count as usize, 0);
        read_exact_at(from, &mut buffer, position)?;
        if buffer.iter().any(|&byte| byte != 0) {
            to.write_at(&buffer, position)?;
        }
        position += count;
    }
    to.set_len(length)
}
