//! Reading documents.

use bytes::Bytes;
use promethean_event::{Offset, Payload, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::DatabaseError;
use super::builds::lane_of;
use crate::projection::view_store::{Rows, StoredRow};

/// What a row is read from, in order.
pub(crate) const COLUMNS: &str = "_key, _ts, _at, _lane, _offset, _v, doc";

pub(crate) fn read_row(row: &Row<'_>) -> Result<StoredRow, rusqlite::Error> {
    let number = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
    let value: String = row.get(6)?;
    Ok(StoredRow {
        key: row.get(0)?,
        ts: Timestamp::from_millis(number(1)?),
        appended_at: Timestamp::from_millis(number(2)?),
        lane: lane_of(row.get(3)?),
        offset: Offset::new(number(4)?),
        version: row.get(5)?,
        value: Payload::from_stored(Bytes::from(value)),
    })
}

/// The row of a key.
pub(super) fn get(
    connection: &Connection,
    table: &str,
    key: &str,
) -> Result<Option<StoredRow>, DatabaseError> {
    let sql = format!("SELECT {COLUMNS} FROM \"{table}\" WHERE _key = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    Ok(statement.query_row(params![key], read_row).optional()?)
}

/// Rows by key, after a key.
pub(super) fn rows(
    connection: &Connection,
    table: &str,
    after: Option<&str>,
    max: usize,
) -> Result<Rows, DatabaseError> {
    let sql = format!("SELECT {COLUMNS} FROM \"{table}\" WHERE _key > ?1 ORDER BY _key LIMIT ?2");
    let mut statement = connection.prepare_cached(&sql)?;
    // No key is empty, so that all keys come after the empty one.
    let rows = statement.query_map(params![after.unwrap_or(""), max as i64], read_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}
