//! One batch of a projection: documents, counts and cursors, in one transaction.

use std::collections::BTreeMap;

use promethean_event::{Offset, Payload};
use rusqlite::{CachedStatement, Connection, Transaction, TransactionBehavior, params};

use super::builds::{is_there, lane_number, lane_of};
use super::{DatabaseError, Faults};
use crate::projection::stamp::{Order, Stamp, Write};
use crate::projection::view_store::{Batch, Counts, Phase, Table};

/// Commits; answers how many writes were stale.
pub(super) fn apply(
    batch: &Batch,
    connection: &mut Connection,
    faults: &Faults,
) -> Result<u64, DatabaseError> {
    if batch.synced {
        connection.pragma_update(None, "synchronous", "FULL")?;
    }
    let result = batch.commit(connection, faults);
    if batch.synced {
        connection.pragma_update(None, "synchronous", "NORMAL")?;
    }
    result
}

impl Batch {
    fn commit(&self, connection: &mut Connection, faults: &Faults) -> Result<u64, DatabaseError> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        faults.step()?;
        if !is_there(&transaction, self.of.build, self.of.state)? {
            // The build was replaced or dropped meanwhile.
            return Err(DatabaseError::Fenced);
        }
        let mut stale = 0;
        for (table, writes) in self.tables.iter().zip(&self.writes) {
            stale += match self.order {
                Order::Sequence | Order::Offset => self.write(&transaction, faults, table, writes),
                Order::Rank | Order::Version => self.compare(&transaction, faults, table, writes),
            }?;
        }
        self.move_cursors(&transaction)?;
        faults.step()?;
        self.note(&transaction, stale)?;
        faults.step()?;
        transaction.commit()?;
        Ok(stale)
    }

    /// Writes that need no look at what is there: the statement itself leaves newer rows alone.
    fn write(
        &self,
        transaction: &Transaction<'_>,
        faults: &Faults,
        table: &Table,
        writes: &BTreeMap<String, Write>,
    ) -> Result<u64, DatabaseError> {
        let name = &table.name;
        let (newer, older) = match self.order {
            Order::Offset => (
                format!(
                    "WHERE excluded._offset > \"{name}\"._offset OR excluded._lane <> \"{name}\"._lane"
                ),
                "AND (_offset < ?2 OR _lane <> ?3)",
            ),
            _ => (String::new(), ""),
        };
        let mut put = transaction.prepare_cached(&format!("{} {newer}", upsert(name)))?;
        let delete = format!("DELETE FROM \"{name}\" WHERE _key = ?1 {older}");
        let mut delete = transaction.prepare_cached(&delete)?;
        let mut stale = 0;
        for (key, write) in writes {
            faults.step()?;
            let changed = match write {
                Write::Put(stamp, document) => put_row(&mut put, key, stamp, document)?,
                Write::Delete(stamp) if self.order == Order::Offset => {
                    let (offset, lane) =
                        (stamp.offset.get().cast_signed(), lane_number(stamp.lane));
                    delete.execute(params![key, offset, lane])?;
                    1
                }
                Write::Delete(_) => {
                    delete.execute(params![key])?;
                    1
                }
            };
            stale += u64::from(changed == 0);
        }
        Ok(stale)
    }

    /// Writes that depend on what is there, or was.
    fn compare(
        &self,
        transaction: &Transaction<'_>,
        faults: &Faults,
        table: &Table,
        writes: &BTreeMap<String, Write>,
    ) -> Result<u64, DatabaseError> {
        let name = &table.name;
        let row = format!("SELECT _v, _at, _lane, _offset FROM \"{name}\" WHERE _key = ?1");
        let mut row = transaction.prepare_cached(&row)?;
        let mut graves = Graves::new(transaction, self.of.build, &table.view)?;
        let mut put = transaction.prepare_cached(&upsert(name))?;
        let delete = format!("DELETE FROM \"{name}\" WHERE _key = ?1");
        let mut delete = transaction.prepare_cached(&delete)?;
        let mut stale = 0;
        for (key, write) in writes {
            faults.step()?;
            let there = stamp_in(&mut row, params![key])?;
            let grave = graves.get(key)?;
            let at = write.stamp().at;
            let counts = |grave: &Stamp| at <= grave.at.saturating_add(self.grave_ms);
            let old = there.or_else(|| grave.filter(counts));
            let stands = match &old {
                Some(old) => self.order.after(write.clone(), old),
                None => Some(write.clone()),
            };
            match stands {
                None => stale += 1,
                Some(Write::Put(stamp, document)) => {
                    put_row(&mut put, key, &stamp, &document)?;
                    if grave.is_some() {
                        graves.remove(key)?;
                    }
                }
                Some(Write::Delete(stamp)) => {
                    delete.execute(params![key])?;
                    graves.put(key, &stamp)?;
                }
            }
        }
        Ok(stale)
    }

    fn move_cursors(&self, transaction: &Transaction<'_>) -> Result<(), DatabaseError> {
        let sql = "UPDATE promethean_cursors SET next = ?4, missed = missed + ?5 \
                   WHERE build = ?1 AND lane = ?2 AND next = ?3";
        let mut update = transaction.prepare_cached(sql)?;
        for cursor in &self.cursors {
            let changed = update.execute(params![
                self.of.build,
                lane_number(cursor.lane),
                cursor.from.get().cast_signed(),
                cursor.to.get().cast_signed(),
                cursor.missed.cast_signed(),
            ])?;
            if changed != 1 {
                return Err(DatabaseError::Fenced);
            }
        }
        Ok(())
    }

    fn note(&self, transaction: &Transaction<'_>, stale: u64) -> Result<(), DatabaseError> {
        let sql = "UPDATE promethean_builds SET events = events + ?2, stale = stale + ?3, \
                   unkeyed = unkeyed + ?4, dead = dead + ?5 WHERE build = ?1";
        let count = |count: u64| count.cast_signed();
        let Counts { events, stale: before, unkeyed, dead } = self.counts;
        transaction.prepare_cached(sql)?.execute(params![
            self.of.build,
            count(events),
            count(before + stale),
            count(unkeyed),
            count(dead)
        ])?;
        if self.synced {
            let sql = "DELETE FROM promethean_plans WHERE build = ?1";
            transaction.prepare_cached(sql)?.execute(params![self.of.build])?;
        }
        if let Some(phase) = &self.phase {
            let (text, after) = match phase {
                Phase::Keys(after) => ("keys", after.as_deref()),
                Phase::Events => ("events", None),
            };
            let sql = "UPDATE promethean_builds SET phase = ?2, after_key = ?3 WHERE build = ?1";
            transaction.prepare_cached(sql)?.execute(params![self.of.build, text, after])?;
        }
        if let Some(until) = self.graves_until.filter(|_| self.order.has_graves()) {
            let sql = "DELETE FROM promethean_graves WHERE build = ?1 AND at < ?2";
            transaction
                .prepare_cached(sql)?
                .execute(params![self.of.build, until.cast_signed()])?;
        }
        Ok(())
    }
}

fn upsert(table: &str) -> String {
    format!(
        "INSERT INTO \"{table}\" (_key, _ts, _at, _lane, _offset, _v, doc) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (_key) DO UPDATE SET \
         _ts = excluded._ts, _at = excluded._at, _lane = excluded._lane, \
         _offset = excluded._offset, _v = excluded._v, doc = excluded.doc"
    )
}

fn put_row(
    put: &mut CachedStatement<'_>,
    key: &str,
    stamp: &Stamp,
    document: &Payload,
) -> Result<usize, DatabaseError> {
    Ok(put.execute(params![
        key,
        stamp.ts.cast_signed(),
        stamp.at.cast_signed(),
        lane_number(stamp.lane),
        stamp.offset.get().cast_signed(),
        stamp.version,
        document.as_str(),
    ])?)
}

/// The stamp in a row of version, append time, lane, offset.
fn stamp_in(
    statement: &mut CachedStatement<'_>,
    values: impl rusqlite::Params,
) -> Result<Option<Stamp>, DatabaseError> {
    let mut rows = statement.query(values)?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let number = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
    Ok(Some(Stamp {
        ts: 0,
        version: row.get(0)?,
        at: number(1)?,
        lane: lane_of(row.get(2)?),
        offset: Offset::new(number(3)?),
    }))
}

/// What was deleted from a view, and when.
struct Graves<'a> {
    build: i64,
    view: &'a str,
    find: CachedStatement<'a>,
    insert: CachedStatement<'a>,
    delete: CachedStatement<'a>,
}

impl<'a> Graves<'a> {
    fn new(
        transaction: &'a Transaction<'_>,
        build: i64,
        view: &'a str,
    ) -> Result<Self, DatabaseError> {
        let of_key = "WHERE build = ?1 AND view = ?2 AND key = ?3";
        let find = format!("SELECT v, at, lane, offset FROM promethean_graves {of_key}");
        let delete = format!("DELETE FROM promethean_graves {of_key}");
        let insert = "INSERT OR REPLACE INTO promethean_graves \
                      (build, view, key, v, at, lane, offset) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        Ok(Self {
            build,
            view,
            find: transaction.prepare_cached(&find)?,
            insert: transaction.prepare_cached(insert)?,
            delete: transaction.prepare_cached(&delete)?,
        })
    }

    fn get(&mut self, key: &str) -> Result<Option<Stamp>, DatabaseError> {
        stamp_in(&mut self.find, params![self.build, self.view, key])
    }

    fn put(&mut self, key: &str, stamp: &Stamp) -> Result<(), DatabaseError> {
        self.insert.execute(params![
            self.build,
            self.view,
            key,
            stamp.version,
            stamp.at.cast_signed(),
            lane_number(stamp.lane),
            stamp.offset.get().cast_signed(),
        ])?;
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<(), DatabaseError> {
        self.delete.execute(params![self.build, self.view, key])?;
        Ok(())
    }
}
