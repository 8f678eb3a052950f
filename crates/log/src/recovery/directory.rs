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
                upkeep.put_spare(Spare { name: name.clone(), file, bytes, filled: true });
            }
            // The cleaner indexes a new segment before it gives it its name.
            FileKind::Index(segment) if !names.contains(&segment.segment_file()) => {
                disk.remove(name)?;
            }
            FileKind::Segment(_) | FileKind::Index(_) | FileKind::Other => {}
        }
    }
    Ok(())
}

/// The name of a segment that was taken out of the way.
pub(crate) fn set_aside(file: &str) -> String {
    format!("{file}.damaged")
}

/// Takes segments that cannot be read at all out of the way, without deleting them.
pub(super) fn quarantine(disk: &dyn Disk, report: &OpenReport) -> Result<(), OpenError> {
    for damage in &report.damage {
        disk.rename(&damage.file, &set_aside(&damage.file))?;
    }
    if !report.damage.is_empty() {
        disk.sync_dir()?;
    }
    Ok(())
}
