//! The segment behind a seal. Its head is on the disk before the seal is written (`roll`), in a spare
//! file at first: so a crash in between is told from a segment that was lost.

use std::io;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, read_exact_at};
use crate::segment::{
    FileKind, FrameEvent, FrameKind, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentName, SegmentScan,
};

/// A spare file with the head of a segment that has not got its name yet.
pub(crate) struct Prepared {
    pub(crate) spare: String,
    pub(crate) name: SegmentName,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) salt: u32,
    /// Behind the catalog.
    pub(crate) position: u64,
    /// The checksum of the catalog's frame.
    pub(crate) chain: u32,
}

/// The spare files of this log that are ready to be segments from `base` on.
pub(crate) fn prepared(
    disk: &dyn Disk,
    names: &[String],
    log_id: [u8; 16],
    base: u64,
) -> io::Result<Vec<Prepared>> {
    let mut found = Vec::new();
    for name in names.iter().filter(|name| FileKind::of(name) == FileKind::Spare) {
        let file = disk.open(name)?;
        let head = head(&*file)?.filter(|(header, _)| {
            let SegmentName { base: at, generation } = header.name;
            header.log_id == log_id && generation == 0 && at >= base
        });
        let Some((header, salt)) = head else { continue };
        let first = SegmentScan::new(&*file, salt)?.next()?;
        let Some(FrameEvent::Frame { position, header: frame, crc, .. }) = first else { continue };
        if frame.kind == FrameKind::Catalog && frame.first_seq == header.name.base {
            let position = position + frame.frame_bytes();
            let (spare, name) = (name.clone(), header.name);
            found.push(Prepared { spare, name, file, salt, position, chain: crc });
        }
    }
    Ok(found)
}

fn head(file: &dyn DiskFile) -> io::Result<Option<(SegmentHeader, u32)>> {
    let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
    match read_exact_at(file, &mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        other => other.map(|()| SegmentHeader::decode(&bytes).ok()),
    }
}

impl Prepared {
    /// Makes it a spare file like any other: it must not stand in for a segment that is lost later.
    pub(crate) fn forget(&self) -> io::Result<()> {
        self.file.write_at(&[0; SEGMENT_HEADER_BYTES as usize], 0)?;
        self.file.sync_data()
    }
}
