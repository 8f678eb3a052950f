//! The tables. Those of the system begin with `promethean_`; a view is a table of its own:
//!
//! ```text
//! _key, _ts, _at, _lane, _offset, _v, doc, and a computed column for each declared field
//! ```
//!
//! `_lane` is topic number and partition (`promethean_cursors` has the names). While a view is
//! built anew, the new table is `<view>__build_<number>`; the switch renames.

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::DatabaseError;
use crate::projection::view::View;

/// The newest layout of the system's tables.
const FORMAT: i64 = 1;

const SYSTEM: &str = "
CREATE TABLE IF NOT EXISTS promethean_builds (
  build INTEGER PRIMARY KEY AUTOINCREMENT,
  projection TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('live', 'building')),
  definition TEXT NOT NULL,
  phase TEXT NOT NULL CHECK (phase IN ('keys', 'events')),
  after_key TEXT,
  events INTEGER NOT NULL DEFAULT 0,
  stale INTEGER NOT NULL DEFAULT 0,
  unkeyed INTEGER NOT NULL DEFAULT 0,
  dead INTEGER NOT NULL DEFAULT 0,
  UNIQUE (projection, state)
);
CREATE TABLE IF NOT EXISTS promethean_views (
  view TEXT PRIMARY KEY NOT NULL,
  projection TEXT NOT NULL,
  layout TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS promethean_cursors (
  build INTEGER NOT NULL,
  lane INTEGER NOT NULL,
  topic TEXT NOT NULL,
  partition INTEGER NOT NULL,
  next INTEGER NOT NULL,
  begun INTEGER NOT NULL,
  missed INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (build, lane)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS promethean_graves (
  build INTEGER NOT NULL,
  view TEXT NOT NULL,
  key TEXT NOT NULL,
  v INTEGER,
  at INTEGER NOT NULL,
  lane INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  PRIMARY KEY (build, view, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS promethean_plans (
  build INTEGER PRIMARY KEY,
  lanes TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS promethean_graves_at ON promethean_graves (build, at);
";

/// Makes the system's tables, or checks that they are known.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), DatabaseError> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(
        "CREATE TABLE IF NOT EXISTS promethean_format \
         (part TEXT PRIMARY KEY NOT NULL, format INTEGER NOT NULL) WITHOUT ROWID;",
    )?;
    let select = "SELECT format FROM promethean_format WHERE part = 'views'";
    let found: Option<i64> = transaction.query_row(select, [], |row| row.get(0)).optional()?;
    match found {
        Some(found) if found > FORMAT => {
            return Err(DatabaseError::Format { found, known: FORMAT });
        }
        Some(_) => {}
        None => {
            transaction
                .execute("INSERT INTO promethean_format VALUES ('views', ?1)", params![FORMAT])?;
        }
    }
    transaction.execute_batch(SYSTEM)?;
    transaction.commit()?;
    Ok(())
}

/// Makes the table of a view. Indexes come with [`arrange`].
pub(super) fn create(transaction: &Transaction<'_>, table: &str) -> Result<(), DatabaseError> {
    // A name that was checked is safe between quotes.
    transaction.execute_batch(&format!(
        "CREATE TABLE \"{table}\" (
           _key TEXT PRIMARY KEY NOT NULL,
           _ts INTEGER NOT NULL,
           _at INTEGER NOT NULL,
           _lane INTEGER NOT NULL,
           _offset INTEGER NOT NULL,
           _v INTEGER,
           doc TEXT NOT NULL
         )"
    ))?;
    Ok(())
}

/// Gives a table the columns and indexes that its view declares, and takes away others.
pub(super) fn arrange(
    transaction: &Transaction<'_>,
    table: &str,
    view: &View,
) -> Result<(), DatabaseError> {
    for index in names(transaction, INDEXES, table)? {
        transaction.execute_batch(&format!("DROP INDEX \"{index}\""))?;
    }
    for column in names(transaction, COMPUTED, table)? {
        transaction.execute_batch(&format!("ALTER TABLE \"{table}\" DROP COLUMN \"{column}\""))?;
    }
    for field in &view.fields {
        let (name, expression) = (&field.name, field.expression());
        // No type: values are compared as what they are in the document, text never as a number.
        transaction.execute_batch(&format!(
            "ALTER TABLE \"{table}\" ADD COLUMN \"{name}\" AS ({expression}) VIRTUAL"
        ))?;
    }
    for (number, fields) in view.indexes.iter().enumerate() {
        let columns: Vec<String> = fields.iter().map(|name| format!("\"{name}\"")).collect();
        let columns = columns.join(", ");
        let index = index_name(transaction, &view.name, number)?;
        transaction
            .execute_batch(&format!("CREATE INDEX \"{index}\" ON \"{table}\" ({columns}, _key)"))?;
    }
    Ok(())
}

const INDEXES: &str =
    "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ?1 AND sql IS NOT NULL";
/// Hidden is 2 for a column that is computed when it is read.
const COMPUTED: &str = "SELECT name FROM pragma_table_xinfo(?1) WHERE hidden = 2";

fn names(
    transaction: &Transaction<'_>,
    sql: &str,
    table: &str,
) -> Result<Vec<String>, DatabaseError> {
    let mut statement = transaction.prepare(sql)?;
    let names = statement.query_map(params![table], |row| row.get(0))?;
    Ok(names.collect::<Result<_, _>>()?)
}

/// A name for an index: one that no other table has, also not one that is about to be replaced.
fn index_name(
    transaction: &Transaction<'_>,
    view: &str,
    number: usize,
) -> Result<String, DatabaseError> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?1";
    let mut round = 0;
    loop {
        let name = format!("{view}__index_{number}_{round}");
        if transaction.query_row(sql, params![name], |_| Ok(())).optional()?.is_none() {
            return Ok(name);
        }
        round += 1;
    }
}
