//! New segments: made ready beside the log, then given their name.
//!
//! A file gets the name of a segment only when its header and the catalog at its start are on the
//! disk, and only when the segment before it is sealed. So a named segment always explains itself,
//! and one that is not the newest always has an end. And a segment is sealed only when the file that
//! follows is on the disk, name and all: if there is none behind a seal, it was lost.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::catalog::CatalogEntry;
use crate::clock::Stopwatch;
use crate::disk::DiskFile;
use crate::engine::{Engine, Site, Spare, Upkeep};
use crate::error::WriteError;
use crate::limits::SEGMENT_BYTES_LIMIT;
use crate::options::Drive;
use crate::segment::{
    FRAME_HEADER_BYTES, FrameHeader, FrameKind, SEGMENT_HEADER_BYTES, SegmentHeader, SegmentName,
};
use crate::writer::OpenSegment;

/// Filled on the spot when there is no spare; larger ones grow as they are written.
const FILL_NOW_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Zeroes between two syncs. A publisher's sync may have to wait for one piece, and larger ones are no
/// faster in sum (`docs/benchmarks.md`).
const FILL_BYTES: u64 = 256 * 1024;
/// How long the filler rests after each of them, as a multiple of what they took: it has a tenth of
/// the disk's time at most. A log that grows faster than that goes on in files that grow with it,
/// where a sync costs more, but less than to write everything twice.
const FILL_REST: u32 = 9;

/// How fast spare files are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Behind publishers, who have the disk first.
    Resting,
    /// Somebody waits for it.
    AtOnce,
}

/// What a new segment is for.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) name: SegmentName,
    /// The frame that must fit.
    pub(crate) frame_bytes: u64,
    /// How large the segment should be, if nothing else speaks against it.
    pub(crate) segment_bytes: u64,
    pub(crate) seq: u64,
    pub(crate) append_ms: u64,
    /// The catalog as it is now.
    pub(crate) catalog: Vec<CatalogEntry>,
}

/// A file that is ready to become a segment.
#[derive(Debug)]
pub(crate) struct Prepared {
    spare: String,
    segment: OpenSegment,
}

/// Whether a file is ready that is filled and has room for a frame.
pub(crate) fn is_spare_ready(site: &Site, frame_bytes: u64) -> bool {
    let least = SEGMENT_HEADER_BYTES + frame_bytes.saturating_mul(2);
    site.upkeep.has_spare(least)
}

/// Writes header and catalog into a spare file and syncs it.
pub(crate) fn prepare(site: &Site, place: &Place) -> Result<Prepared, WriteError> {
    let catalog = encoded(&place.catalog);
    let least = least_bytes(place, catalog.len());
    let wanted = least.max(place.segment_bytes).min(SEGMENT_BYTES_LIMIT);
    // A much larger one would only lie there half empty.
    let spare = match site.upkeep.take_spare(least..=wanted * 2) {
        Some(spare) => spare,
        None => create(site, wanted, site.options.free_bytes_min)?,
    };
    prepare_in(site, place, spare, catalog)
}

/// The same where there is hardly any room: any file that is there, or the least that will do, out
/// of what is otherwise left free. For a log that is opened: it can be read, and goes on when there
/// is room again.
pub(crate) fn prepare_least(site: &Site, place: &Place) -> Result<Prepared, WriteError> {
    let catalog = encoded(&place.catalog);
    let least = least_bytes(place, catalog.len());
    let spare = match site.upkeep.take_spare(least..=SEGMENT_BYTES_LIMIT) {
        Some(spare) => spare,
        None => create(site, least, 0)?,
    };
    prepare_in(site, place, spare, catalog)
}

fn encoded(catalog: &[CatalogEntry]) -> Vec<u8> {
    let mut frame = vec![0; FRAME_HEADER_BYTES];
    catalog.iter().for_each(|entry| entry.encode(&mut frame));
    frame
}

/// The least that a file must hold. A sixteenth is kept for the system, and the frame must fit
/// beside it.
fn least_bytes(place: &Place, catalog_bytes: usize) -> u64 {
    let head_bytes = SEGMENT_HEADER_BYTES + catalog_bytes as u64;
    let needed = head_bytes + place.frame_bytes + 4 * FRAME_HEADER_BYTES as u64;
    needed + needed / 8
}

fn prepare_in(
    site: &Site,
    place: &Place,
    spare: Spare,
    catalog: Vec<u8>,
) -> Result<Prepared, WriteError> {
    let (head, salt, chain) = head(site, place, spare.bytes, catalog);
    let written = spare.file.write_at(&head, 0).and_then(|()| spare.file.sync_data());
    let result = written.and_then(|()| site.disk.sync_dir());
    if let Err(error) = result {
        return Err(take_back(site, &spare.name, WriteError::of_write(error)));
    }
    let segment = OpenSegment {
        name: place.name,
        salt,
        second: Arc::clone(&spare.file),
        file: spare.file,
        filled: spare.filled,
        room_taken: spare.room_taken,
        capacity: spare.bytes,
        position: head.len() as u64,
        chain,
    };
    Ok(Prepared { spare: spare.name, segment })
}

/// A segment that a crash has kept from getting its name.
pub(crate) fn found_prepared(spare: String, segment: OpenSegment) -> Prepared {
    Prepared { spare, segment }
}

/// A file that does not become a segment because the one before it could not be sealed for want of room.
/// Nothing may be left of it: the next one that is made ready may have the same seq and another
/// catalog. (It syncs the directory before it is sealed.) After any other failure the seal may be on the
/// disk, and it is needed.
pub(crate) fn give_up(site: &Site, prepared: &Prepared, error: WriteError) -> WriteError {
    match error {
        WriteError::NoSpace => take_back(site, &prepared.spare, error),
        WriteError::Failed(_) => error,
    }
}

/// Removes a file that has a head by now, or a part of one, and is not part of the log. If it stays, the
/// log must not go on to where it could be taken for the segment that follows; opening makes it a spare.
fn take_back(site: &Site, name: &str, error: WriteError) -> WriteError {
    site.disk.remove(name).map_or_else(WriteError::Failed, |()| error)
}

/// An empty segment for a log whose oldest ones are gone: from seq 0 to `end`. Written beside, then
/// given its name, durably.
pub(crate) fn write_front(site: &Site, end: u64) -> Result<SegmentName, WriteError> {
    let name = SegmentName { base: 0, generation: 1 };
    let place =
        Place { name, frame_bytes: 0, segment_bytes: 0, seq: 0, append_ms: 0, catalog: Vec::new() };
    let (mut bytes, salt, chain) = head(site, &place, 0, encoded(&[]));
    let mut seal = [0; FRAME_HEADER_BYTES];
    let header = FrameHeader {
        kind: FrameKind::Seal,
        body_bytes: 0,
        count: 0,
        first_seq: end,
        append_ms: 0,
        synced_to: 0,
        previous_crc: chain,
        position: bytes.len() as u32,
    };
    header.seal(salt, &mut seal);
    bytes.extend_from_slice(&seal);
    let unfinished = format!("{}.tmp", name.segment_file());
    let file = site.disk.create(&unfinished).map_err(WriteError::of_write)?;
    let written = file.write_at(&bytes, 0).and_then(|()| file.sync_data());
    if let Err(error) = written {
        discard(site, &unfinished);
        return Err(WriteError::of_write(error));
    }
    site.disk.rename(&unfinished, &name.segment_file()).map_err(WriteError::Failed)?;
    site.disk.sync_dir().map_err(WriteError::Failed)?;
    Ok(name)
}

/// Gives a prepared file its name, durably.
pub(crate) fn publish(site: &Site, mut prepared: Prepared) -> Result<OpenSegment, WriteError> {
    let name = prepared.segment.name.segment_file();
    site.disk.rename(&prepared.spare, &name).map_err(WriteError::Failed)?;
    prepared.segment.second =
        opened_again(site, &name, &prepared.segment.file).map_err(WriteError::Failed)?;
    #[cfg(feature = "planted-bugs")]
    if crate::planted::no_directory_sync(&site.options) {
        return Ok(prepared.segment);
    }
    site.disk.sync_dir().map_err(WriteError::Failed)?;
    Ok(prepared.segment)
}

/// A segment's file for the second of the threads that sync, where there are two.
pub(crate) fn opened_again(
    site: &Site,
    name: &str,
    file: &Arc<dyn DiskFile>,
) -> io::Result<Arc<dyn DiskFile>> {
    match site.options.drive {
        Drive::Threads => site.disk.open(name),
        Drive::Caller => Ok(Arc::clone(file)),
    }
}

/// The first bytes of a segment: its header, and the catalog as it is now.
fn head(site: &Site, place: &Place, file_bytes: u64, mut frame: Vec<u8>) -> (Vec<u8>, u32, u32) {
    let (name, created_ms) = (place.name, place.append_ms);
    let (log_id, whole) = (site.log_id, site.whole);
    let header = SegmentHeader { log_id, name, created_ms, file_bytes, whole };
    let (mut out, salt) = header.encode();
    let header = FrameHeader {
        kind: FrameKind::Catalog,
        body_bytes: (frame.len() - FRAME_HEADER_BYTES) as u32,
        count: place.catalog.len() as u32,
        first_seq: place.seq,
        append_ms: place.append_ms,
        synced_to: SEGMENT_HEADER_BYTES,
        previous_crc: salt,
        position: SEGMENT_HEADER_BYTES as u32,
    };
    let chain = header.seal(salt, &mut frame);
    debug_assert_eq!(out.len() as u64, SEGMENT_HEADER_BYTES);
    out.extend_from_slice(&frame);
    (out, salt, chain)
}

/// A new file of the wanted size; filled with zeroes if that does not take long.
fn create(site: &Site, bytes: u64, left_free: u64) -> Result<Spare, WriteError> {
    let free = site.disk.free_bytes().map_err(WriteError::of_write)?;
    if free < bytes.saturating_add(left_free) {
        return Err(WriteError::NoSpace);
    }
    let name = site.upkeep.spare_name();
    let file = site.disk.create(&name).map_err(WriteError::of_write)?;
    // The length is part of the header: a file that is shorter has lost its end.
    let made = match bytes {
        ..=FILL_NOW_BYTES_MAX => fill(&*file, 0..bytes),
        _ => file.set_len(bytes),
    };
    if let Err(error) = made {
        discard(site, &name);
        return Err(WriteError::of_write(error));
    }
    let filled = bytes <= FILL_NOW_BYTES_MAX;
    Ok(Spare { name, file, bytes, filled, room_taken: filled })
}

/// Makes a spare file ahead of need, if there are too few. For the upkeep.
pub(crate) fn fill_spare(engine: &Engine, pace: Pace) -> Result<bool, io::Error> {
    let site = &engine.site;
    let _one_at_a_time = match pace {
        Pace::Resting => site.upkeep.filling(),
        Pace::AtOnce => site.upkeep.filling_at_once(),
    };
    if site.upkeep.spare_count() >= site.options.spare_segments {
        return Ok(false);
    }
    let bytes = engine.read().segment_bytes(&site.options);
    let free = site.disk.free_bytes()?;
    if free < bytes.saturating_add(site.options.free_bytes_min) {
        return Ok(false);
    }
    let name = site.upkeep.spare_name();
    let file = site.disk.create(&name)?;
    match fill_synced(&site.upkeep, &*file, bytes, pace) {
        Ok(true) => {
            let (filled, room_taken) = (true, true);
            site.upkeep.put_spare(Spare { name, file, bytes, filled, room_taken });
        }
        Ok(false) => {
            discard(site, &name);
            return Ok(false);
        }
        Err(error) => {
            discard(site, &name);
            return Err(error);
        }
    }
    Ok(true)
}

/// Fills a file with zeroes; false if the log closed meanwhile. Synced here, so that the first sync
/// of the segment does not have to; and piece by piece, so that a publisher's sync never has to wait
/// for much of it.
fn fill_synced(upkeep: &Upkeep, file: &dyn DiskFile, bytes: u64, pace: Pace) -> io::Result<bool> {
    let mut position = 0;
    while position < bytes {
        let begun = Stopwatch::start();
        let end = bytes.min(position + FILL_BYTES);
        fill(file, position..end)?;
        file.sync_data()?;
        position = end;
        if pace == Pace::Resting && !upkeep.rest(begun.elapsed() * FILL_REST) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn fill(file: &dyn DiskFile, range: Range<u64>) -> io::Result<()> {
    let zeroes = vec![0; FILL_BYTES.min(range.end - range.start) as usize];
    let mut position = range.start;
    while position < range.end {
        let count = (zeroes.len() as u64).min(range.end - position) as usize;
        file.write_at(zeroes.get(..count).unwrap_or(&zeroes), position)?;
        position += count as u64;
    }
    Ok(())
}

/// A file that nobody takes for the segment that follows. If it cannot be removed now, opening the log
/// will remove or use it.
fn discard(site: &Site, name: &str) {
    let removed = site.disk.remove(name);
    drop(removed);
}
