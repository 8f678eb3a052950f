//! The table, and how it came to be.
//!
//! The columns are plain texts and numbers, so that one can look at them with `sqlite3`, and so
//! that a program in another language can add rows in its own transactions: `id`, `ts`, `topic`,
//! `payload` and `added_at` are what it has to give. `seq` is the order of adding. SQLite has one
//! writer at a time, so it is also the order of committing: no row appears before one that has
//! been seen.
//!
//! | `sent_at` | `dead_at` | `not_before` | the row |
//! | --- | --- | --- | --- |
//! | null | null | 0 | waits to be claimed |
//! | null | null | later | is claimed (`claim` is set), or waits for its next attempt |
//! | null | set | 1 | is dead |
//! | set | null | 0 | is sent, and goes with a purge |

use rusqlite::{Connection, OptionalExtension};

use super::error::DatabaseError;

/// The newest version. A new one adds a step to [`STEPS`] and leaves the old ones alone.
pub(super) const VERSION: i64 = 1;

/// Step `n` leads from version `n` to version `n + 1`.
const STEPS: [&str; 1] = ["
CREATE TABLE promethean_outbox (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    sid        TEXT,
    ts         INTEGER NOT NULL,
    topic      TEXT NOT NULL,
    key        TEXT,
    headers    TEXT NOT NULL DEFAULT '{}',
    payload    TEXT NOT NULL,
    caused_by  TEXT NOT NULL DEFAULT '[]',
    tags       TEXT NOT NULL DEFAULT '[]',
    added_at   INTEGER NOT NULL,
    attempts   INTEGER NOT NULL DEFAULT 0,
    not_before INTEGER NOT NULL DEFAULT 0,
    claim      TEXT,
    claimed_by TEXT,
    error      TEXT,
    sent_at    INTEGER,
    dead_at    INTEGER,
    CHECK (sent_at IS NULL OR dead_at IS NULL)
) STRICT;
CREATE INDEX promethean_outbox_open ON promethean_outbox (seq)
    WHERE sent_at IS NULL AND dead_at IS NULL;
CREATE INDEX promethean_outbox_held ON promethean_outbox (topic, key, seq)
    WHERE sent_at IS NULL AND not_before > 0;
CREATE INDEX promethean_outbox_sent ON promethean_outbox (sent_at)
    WHERE sent_at IS NOT NULL;
"];

const _: () = assert!(STEPS.len() as i64 == VERSION);

/// Creates or updates the tables; does nothing if they are as they should be. Joins a transaction
/// that is open.
pub(super) fn install(connection: &Connection) -> Result<(), DatabaseError> {
    if version(connection)? == Some(VERSION) {
        return Ok(());
    }
    // Two programs may start at once: the second one waits here, and finds the work done.
    let (begin, commit, back) = if connection.is_autocommit() {
        ("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK")
    } else {
        (
            "SAVEPOINT promethean_outbox",
            "RELEASE promethean_outbox",
            "ROLLBACK TO promethean_outbox; RELEASE promethean_outbox",
        )
    };
    connection.execute_batch(begin)?;
    let done = update(connection)
        .and_then(|()| connection.execute_batch(commit).map_err(DatabaseError::from));
    if done.is_err() && !connection.is_autocommit() {
        connection.execute_batch(back)?;
    }
    done
}

fn update(connection: &Connection) -> Result<(), DatabaseError> {
    let found = version(connection)?.unwrap_or(0);
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS promethean_outbox_schema (
            one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL) STRICT",
    )?;
    let done = usize::try_from(found).unwrap_or(0);
    for step in STEPS.iter().skip(done) {
        connection.execute_batch(step)?;
    }
    connection.execute(
        "INSERT INTO promethean_outbox_schema (one, version) VALUES (1, ?1)
         ON CONFLICT (one) DO UPDATE SET version = excluded.version",
        [VERSION],
    )?;
    Ok(())
}

/// Whether the outbox is there, in the version that this program knows.
pub(super) fn check(connection: &Connection) -> Result<(), DatabaseError> {
    match version(connection)? {
        Some(VERSION) => Ok(()),
        _ => Err(DatabaseError::NotInstalled),
    }
}

fn version(connection: &Connection) -> Result<Option<i64>, DatabaseError> {
    let tables: i64 = connection.query_row(
        "SELECT COUNT(*) FROM main.sqlite_schema WHERE type = 'table'
         AND name IN ('promethean_outbox', 'promethean_outbox_schema')",
        [],
        |row| row.get(0),
    )?;
    if tables < 2 {
        return Ok(None);
    }
    let version = connection
        .query_row("SELECT version FROM promethean_outbox_schema", [], |row| row.get(0))
        .optional()?;
    match version {
        Some(found) if found > VERSION => Err(DatabaseError::Newer { found, known: VERSION }),
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installing_again_changes_nothing() {
        let connection = Connection::open_in_memory().unwrap();
        assert!(matches!(check(&connection), Err(DatabaseError::NotInstalled)));
        install(&connection).unwrap();
        let changes = connection.total_changes();
        install(&connection).unwrap();
        assert_eq!(connection.total_changes(), changes);
        check(&connection).unwrap();
    }

    #[test]
    fn a_newer_schema_is_left_alone() {
        let connection = Connection::open_in_memory().unwrap();
        install(&connection).unwrap();
        connection.execute("UPDATE promethean_outbox_schema SET version = 2", []).unwrap();
        let newer = |result| matches!(result, Err(DatabaseError::Newer { found: 2, known: 1 }));
        assert!(newer(install(&connection)));
        assert!(newer(check(&connection)));
    }

    #[test]
    fn a_failed_installation_leaves_nothing_and_no_open_transaction() {
        let connection = Connection::open_in_memory().unwrap();
        // Somebody else's table is in the way of an index.
        connection.execute_batch("CREATE TABLE promethean_outbox_held (a)").unwrap();
        assert!(install(&connection).is_err());
        assert!(connection.is_autocommit());
        assert!(!connection.table_exists(None, "promethean_outbox").unwrap());
    }

    #[test]
    fn joins_a_transaction_of_the_caller() {
        let mut connection = Connection::open_in_memory().unwrap();
        let tx = connection.transaction().unwrap();
        install(&tx).unwrap();
        tx.rollback().unwrap();
        assert!(matches!(check(&connection), Err(DatabaseError::NotInstalled)));
    }
}
