//! Builds: one making of all views of a projection, with its cursors. A projection has one that is
//! live, and at most one that is being built to replace it.

use promethean_event::{Offset, Partition, Topic};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::layout::{arrange, create};
use super::{DatabaseError, Faults};
use crate::projection::view::View;
use crate::projection::view_store::{Build, BuildCursor, BuildState, Counts, Phase, Requested};
use crate::store::{Lane, TopicId};

const fn text(state: BuildState) -> &'static str {
    match state {
        BuildState::Live => "live",
        BuildState::Building => "building",
    }
}

/// Whether a build is there, in a state.
pub(super) fn is_there(
    connection: &Connection,
    build: i64,
    state: BuildState,
) -> Result<bool, DatabaseError> {
    let sql = "SELECT 1 FROM promethean_builds WHERE build = ?1 AND state = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.exists(params![build, text(state)])?)
}

/// The build of a projection in a state, if there is one.
pub(super) fn find(
    connection: &Connection,
    projection: &str,
    state: BuildState,
) -> Result<Option<Build>, DatabaseError> {
    let sql = "SELECT build, definition, phase, after_key, events, stale, unkeyed, dead \
               FROM promethean_builds WHERE projection = ?1 AND state = ?2";
    let read = |row: &Row<'_>| {
        let phase: String = row.get(2)?;
        let count = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
        Ok(Build {
            number: row.get(0)?,
            state,
            definition: row.get(1)?,
            phase: if phase == "keys" { Phase::Keys(row.get(3)?) } else { Phase::Events },
            counts: Counts {
                events: count(4)?,
                stale: count(5)?,
                unkeyed: count(6)?,
                dead: count(7)?,
            },
            cursors: Vec::new(),
            plan: Vec::new(),
        })
    };
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row(params![projection, text(state)], read).optional()?;
    let Some(mut build) = found else {
        return Ok(None);
    };
    build.cursors = cursors(connection, build.number)?;
    build.plan = plan(connection, build.number)?;
    Ok(Some(build))
}

/// The build that is wanted: the one that is there, if it follows the same definition (or is
/// the live one, which is kept until it is replaced), or a new one.
pub(super) fn obtain(
    connection: &mut Connection,
    faults: &Faults,
    wanted: &Requested,
) -> Result<Build, DatabaseError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    check_owner(&transaction, wanted)?;
    let found = find(&transaction, &wanted.projection, wanted.state)?;
    let build = match found {
        Some(build) if wanted.goes_on_with(&build) => build,
        other => {
            if let Some(old) = other {
                remove(&transaction, &old, &wanted.views)?;
            }
            begin(&transaction, wanted)?
        }
    };
    for view in &wanted.views {
        arrange_if_other(&transaction, &build, view, &wanted.projection)?;
    }
    for cursor in &wanted.cursors {
        insert_cursor(&transaction, build.number, cursor)?;
    }
    faults.step()?;
    let cursors = cursors(&transaction, build.number)?;
    transaction.commit()?;
    Ok(Build { cursors, ..build })
}

/// Puts the build that was made in the place of the live one: one transaction.
pub(super) fn switch(
    build: Build,
    connection: &mut Connection,
    faults: &Faults,
    wanted: &Requested,
) -> Result<Build, DatabaseError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if let Some(live) = find(&transaction, &wanted.projection, BuildState::Live)? {
        remove(&transaction, &live, &wanted.views)?;
    }
    for view in &wanted.views {
        let (table, name) = (build.table(&view.name), &view.name);
        faults.step()?;
        transaction.execute_batch(&format!("ALTER TABLE \"{table}\" RENAME TO \"{name}\""))?;
    }
    let sql = "UPDATE promethean_builds SET state = 'live' WHERE build = ?1";
    transaction.execute(sql, params![build.number])?;
    faults.step()?;
    let cursors = cursors(&transaction, build.number)?;
    transaction.commit()?;
    Ok(Build { state: BuildState::Live, cursors, ..build })
}

fn cursors(connection: &Connection, build: i64) -> Result<Vec<BuildCursor>, DatabaseError> {
    let sql = "SELECT lane, topic, next, begun, missed FROM promethean_cursors \
               WHERE build = ?1 ORDER BY lane";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![build])?;
    let mut cursors = Vec::new();
    while let Some(row) = rows.next()? {
        let number = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
        let topic: String = row.get(1)?;
        let Ok(topic) = Topic::stored(&topic) else {
            continue;
        };
        cursors.push(BuildCursor {
            lane: lane_of(row.get(0)?),
            topic,
            next: Offset::new(number(2)?),
            begun: Offset::new(number(3)?),
            missed: number(4)?,
        });
    }
    Ok(cursors)
}

fn plan(connection: &Connection, build: i64) -> Result<Vec<(Lane, Offset)>, DatabaseError> {
    let sql = "SELECT lanes FROM promethean_plans WHERE build = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let lanes: Option<String> = statement.query_row(params![build], |row| row.get(0)).optional()?;
    let Some(lanes) = lanes else {
        return Ok(Vec::new());
    };
    let lanes: Vec<(i64, Offset)> = serde_json::from_str(&lanes)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    Ok(lanes.into_iter().map(|(lane, next)| (lane_of(lane), next)).collect())
}

/// Keeps in which order lanes are read, before anything is appended for it: durable at once.
pub(super) fn keep_plan(
    connection: &mut Connection,
    faults: &Faults,
    build: i64,
    plan: &[(Lane, Offset)],
) -> Result<(), DatabaseError> {
    let lanes: Vec<(i64, Offset)> =
        plan.iter().map(|&(lane, next)| (lane_number(lane), next)).collect();
    // Numbers have a JSON form.
    let lanes = serde_json::to_string(&lanes).unwrap_or_default();
    connection.pragma_update(None, "synchronous", "FULL")?;
    let sql = "INSERT OR REPLACE INTO promethean_plans (build, lanes) VALUES (?1, ?2)";
    let kept = faults.step().and_then(|()| connection.execute(sql, params![build, lanes]));
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    kept?;
    Ok(())
}

/// A lane as SQLite keeps it, and back.
pub(super) const fn lane_number(lane: Lane) -> i64 {
    lane.id().get().cast_signed()
}

pub(super) const fn lane_of(number: i64) -> Lane {
    let number = number.cast_unsigned();
    let (topic, partition) = ((number >> 32) as u32, number as u32);
    Lane { topic: TopicId::new(topic), partition: Partition::new(partition) }
}

fn begin(transaction: &Transaction<'_>, wanted: &Requested) -> Result<Build, DatabaseError> {
    let phase = if wanted.from_keys { Phase::Keys(None) } else { Phase::Events };
    let phase_text = if wanted.from_keys { "keys" } else { "events" };
    let sql = "INSERT INTO promethean_builds (projection, state, definition, phase) \
               VALUES (?1, ?2, ?3, ?4)";
    let values = params![wanted.projection, text(wanted.state), wanted.definition, phase_text];
    transaction.execute(sql, values)?;
    let build = Build {
        number: transaction.last_insert_rowid(),
        state: wanted.state,
        definition: wanted.definition.clone(),
        phase,
        counts: Counts::default(),
        cursors: Vec::new(),
        plan: Vec::new(),
    };
    for view in &wanted.views {
        let table = build.table(&view.name);
        create(transaction, &table)?;
        arrange(transaction, &table, view)?;
    }
    Ok(build)
}

fn insert_cursor(
    transaction: &Transaction<'_>,
    build: i64,
    cursor: &BuildCursor,
) -> Result<(), DatabaseError> {
    let sql = "INSERT INTO promethean_cursors (build, lane, topic, partition, next, begun) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO NOTHING";
    transaction.prepare_cached(sql)?.execute(params![
        build,
        lane_number(cursor.lane),
        cursor.topic.as_str(),
        cursor.lane.partition.get(),
        cursor.next.get().cast_signed(),
        cursor.begun.get().cast_signed(),
    ])?;
    Ok(())
}

/// A view has one projection, also one that does not run now.
fn check_owner(transaction: &Transaction<'_>, wanted: &Requested) -> Result<(), DatabaseError> {
    let sql = "SELECT projection FROM promethean_views WHERE view = ?1";
    for view in &wanted.views {
        let owner: Option<String> =
            transaction.query_row(sql, params![view.name], |row| row.get(0)).optional()?;
        if let Some(owner) = owner.filter(|owner| *owner != wanted.projection) {
            return Err(DatabaseError::Taken { view: view.name.clone(), owner });
        }
    }
    Ok(())
}

/// Removes all that there is of a projection: views, cursors, what is half built.
pub(super) fn forget(connection: &mut Connection, projection: &str) -> Result<(), DatabaseError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let views: Vec<String> = transaction
        .prepare("SELECT view FROM promethean_views WHERE projection = ?1")?
        .query_map(params![projection], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let views: Vec<View> = views.into_iter().map(View::new).collect();
    for state in [BuildState::Building, BuildState::Live] {
        if let Some(build) = find(&transaction, projection, state)? {
            remove(&transaction, &build, &views)?;
        }
    }
    let sql = "DELETE FROM promethean_views WHERE projection = ?1";
    transaction.execute(sql, params![projection])?;
    transaction.commit()?;
    Ok(())
}

/// Arranges the table of a view anew if its declaration has changed.
fn arrange_if_other(
    transaction: &Transaction<'_>,
    build: &Build,
    view: &View,
    projection: &str,
) -> Result<(), DatabaseError> {
    if build.state == BuildState::Building {
        return Ok(());
    }
    let layout = serde_json::to_string(view).unwrap_or_default();
    let sql = "SELECT layout FROM promethean_views WHERE view = ?1";
    let known: Option<String> =
        transaction.query_row(sql, params![view.name], |row| row.get(0)).optional()?;
    if known.as_ref() == Some(&layout) {
        return Ok(());
    }
    let exists = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    if transaction.query_row(exists, params![view.name], |_| Ok(())).optional()?.is_none() {
        // A view that the live build does not have yet: empty until the new build replaces it.
        create(transaction, &view.name)?;
    }
    arrange(transaction, &view.name, view)?;
    let sql = "INSERT INTO promethean_views (view, projection, layout) VALUES (?1, ?2, ?3) \
               ON CONFLICT (view) DO UPDATE SET layout = excluded.layout";
    transaction.execute(sql, params![view.name, projection, layout])?;
    Ok(())
}

/// Removes a build with its tables.
fn remove(
    transaction: &Transaction<'_>,
    build: &Build,
    views: &[View],
) -> Result<(), DatabaseError> {
    for view in views {
        transaction
            .execute_batch(&format!("DROP TABLE IF EXISTS \"{}\"", build.table(&view.name)))?;
    }
    let tables =
        ["promethean_cursors", "promethean_graves", "promethean_plans", "promethean_builds"];
    for table in tables {
        let sql = format!("DELETE FROM {table} WHERE build = ?1");
        transaction.execute(&sql, params![build.number])?;
    }
    Ok(())
}
