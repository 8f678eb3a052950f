//! What a drainer does to the table in SQLite, one function per step. No step looks at a clock.

use std::time::Duration;

use promethean_event::Timestamp;
use rusqlite::{
    Connection, OptionalExtension, Transaction, TransactionBehavior, named_params, params,
};

use super::error::DatabaseError;
use super::limits::HOLD_MAX;
use super::options::AfterDead;
use super::row::{self, ENVELOPE, from_millis, to_millis};
use super::table::{Claim, Outcome, Row, Settled, Settlement, shortened};

/// Rows that may be claimed, in order. Named indexes: a plan that goes over all rows ever sent
/// should fail rather than be slow.
pub(super) const CANDIDATES: &str = "
SELECT r.seq FROM promethean_outbox AS r INDEXED BY promethean_outbox_open
WHERE r.sent_at IS NULL AND r.dead_at IS NULL
  AND (r.not_before <= :now OR r.not_before > :horizon)
  AND (r.key IS NULL OR NOT EXISTS (
    SELECT 1 FROM promethean_outbox AS e INDEXED BY promethean_outbox_held
    WHERE e.topic = r.topic AND e.key = r.key AND e.seq < r.seq
      AND e.sent_at IS NULL AND e.not_before > 0
      AND CASE WHEN e.dead_at IS NULL
          THEN e.not_before > :now AND e.not_before <= :horizon
          ELSE :dead_hold END))
ORDER BY r.seq LIMIT :limit";

/// Whether there is anything to claim; does not write.
pub(super) fn is_any(
    connection: &Connection,
    now: Timestamp,
    after_dead: AfterDead,
) -> Result<bool, DatabaseError> {
    let found = connection
        .prepare_cached(CANDIDATES)?
        .query_row(
            named_params! {
                ":now": to_millis(now),
                ":horizon": horizon(now),
                ":dead_hold": after_dead == AfterDead::Wait,
                ":limit": 1,
            },
            |_| Ok(()),
        )
        .optional()?;
    Ok(found.is_some())
}

/// Claims rows in one statement; they come in their order.
pub(super) fn claim(
    connection: &mut Connection,
    now: Timestamp,
    claim: &Claim,
) -> Result<Vec<Row>, DatabaseError> {
    let sql = format!(
        "UPDATE promethean_outbox SET claim = :token, claimed_by = :worker, not_before = :until
         WHERE seq IN ({CANDIDATES}) RETURNING seq, attempts, {ENVELOPE}"
    );
    let tx = write(connection)?;
    let mut rows = Vec::new();
    {
        let mut statement = tx.prepare_cached(&sql)?;
        let mut claimed = statement.query(named_params! {
            ":token": claim.token,
            ":worker": claim.worker,
            ":until": to_millis(later(now, claim.lease)),
            ":now": to_millis(now),
            ":horizon": horizon(now),
            ":dead_hold": claim.after_dead == AfterDead::Wait,
            ":limit": i64::try_from(claim.rows).unwrap_or(i64::MAX),
        })?;
        while let Some(row) = claimed.next()? {
            let attempts: i64 = row.get(1)?;
            rows.push(Row {
                seq: row.get(0)?,
                attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
                order: row::read_order(row, 2),
                content: row::read(row, 2),
            });
        }
    }
    tx.commit()?;
    rows.sort_unstable_by_key(|row| row.seq);
    Ok(rows)
}

/// Prolongs a claim on what is still held under it; tells on how many rows.
pub(super) fn renew(
    connection: &Connection,
    token: &str,
    until: Timestamp,
) -> Result<usize, DatabaseError> {
    Ok(connection
        .prepare_cached(
            "UPDATE promethean_outbox INDEXED BY promethean_outbox_held SET not_before = :until
             WHERE claim = :token AND sent_at IS NULL AND not_before > 0",
        )?
        .execute(named_params! { ":token": token, ":until": to_millis(until) })?)
}

/// Ends the claim on some rows, each only if the claim still has it.
pub(super) fn settle(
    connection: &mut Connection,
    now: Timestamp,
    token: &str,
    settlements: &[Settlement],
) -> Result<Settled, DatabaseError> {
    let tx = write(connection)?;
    let mut settled = Settled::default();
    for settlement in settlements {
        if mark(&tx, now, token, settlement)? == 0 {
            settled.fenced += 1;
            continue;
        }
        settled.count(&settlement.outcome);
    }
    tx.commit()?;
    Ok(settled)
}

fn mark(
    tx: &Transaction<'_>,
    now: Timestamp,
    token: &str,
    settlement: &Settlement,
) -> rusqlite::Result<usize> {
    let Settlement { seq, outcome } = settlement;
    match outcome {
        Outcome::Sent => tx
            .prepare_cached(
                "UPDATE promethean_outbox SET sent_at = ?3, error = NULL, not_before = 0,
                 claim = NULL, claimed_by = NULL WHERE seq = ?1 AND claim = ?2",
            )?
            .execute(params![seq, token, to_millis(now)]),
        Outcome::Again { delay, error } => tx
            .prepare_cached(
                "UPDATE promethean_outbox SET attempts = attempts + 1, not_before = ?3, error = ?4,
                 claim = NULL, claimed_by = NULL WHERE seq = ?1 AND claim = ?2",
            )?
            .execute(params![seq, token, to_millis(later(now, *delay)), shortened(error)]),
        Outcome::Dead { error } => tx
            .prepare_cached(
                "UPDATE promethean_outbox SET attempts = attempts + 1, dead_at = ?3, error = ?4,
                 not_before = 1, claim = NULL, claimed_by = NULL WHERE seq = ?1 AND claim = ?2",
            )?
            .execute(params![seq, token, to_millis(now), shortened(error)]),
        // What had gone wrong before is still so: the error stays.
        Outcome::Released => tx
            .prepare_cached(
                "UPDATE promethean_outbox SET not_before = 0, claim = NULL, claimed_by = NULL
                 WHERE seq = ?1 AND claim = ?2",
            )?
            .execute(params![seq, token]),
    }
}

/// Gives back whatever a worker still holds; tells how many rows.
pub(super) fn give_back(connection: &Connection, worker: &str) -> Result<usize, DatabaseError> {
    Ok(connection.execute(
        "UPDATE promethean_outbox INDEXED BY promethean_outbox_held
         SET not_before = 0, claim = NULL, claimed_by = NULL
         WHERE claimed_by = ?1 AND sent_at IS NULL AND not_before > 0",
        [worker],
    )?)
}

/// Gives back what a worker still holds by other claims than this one; tells how many rows.
pub(super) fn give_back_others(
    connection: &Connection,
    worker: &str,
    token: &str,
) -> Result<usize, DatabaseError> {
    Ok(connection.execute(
        "UPDATE promethean_outbox INDEXED BY promethean_outbox_held
         SET not_before = 0, claim = NULL, claimed_by = NULL
         WHERE claimed_by = ?1 AND claim <> ?2 AND sent_at IS NULL AND not_before > 0",
        [worker, token],
    )?)
}

/// When the next held row comes free by itself.
pub(super) fn next_free(
    connection: &Connection,
    now: Timestamp,
) -> Result<Option<Timestamp>, DatabaseError> {
    let free: Option<i64> = connection
        .prepare_cached(
            "SELECT MIN(not_before) FROM promethean_outbox INDEXED BY promethean_outbox_held
             WHERE sent_at IS NULL AND not_before > 0 AND dead_at IS NULL AND not_before > ?1",
        )?
        .query_row([to_millis(now)], |row| row.get(0))?;
    Ok(free.map(from_millis))
}

/// Removes some rows that were sent at or before a time; tells how many.
pub(super) fn purge(
    connection: &Connection,
    sent_until: Timestamp,
    rows_max: usize,
) -> Result<usize, DatabaseError> {
    let rows_max = i64::try_from(rows_max).unwrap_or(i64::MAX);
    Ok(connection
        .prepare_cached(
            "DELETE FROM promethean_outbox WHERE seq IN (
                SELECT seq FROM promethean_outbox INDEXED BY promethean_outbox_sent
                WHERE sent_at IS NOT NULL AND sent_at <= ?1 LIMIT ?2)",
        )?
        .execute([to_millis(sent_until), rows_max])?)
}

/// Changes whenever another connection has changed the database.
pub(super) fn data_version(connection: &Connection) -> Result<i64, DatabaseError> {
    Ok(connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?)
}

/// A transaction that waits for other writers at its beginning, and not in its middle, where
/// SQLite would have to refuse it.
fn write(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// A moment some time from another.
pub(super) fn later(now: Timestamp, wait: Duration) -> Timestamp {
    now.plus_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

fn horizon(now: Timestamp) -> i64 {
    to_millis(later(now, HOLD_MAX))
}
