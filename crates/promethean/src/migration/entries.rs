//! The small things of the system's, whatever they are. Where one names a topic by its number, that is
//! the number it has in the target.

use std::collections::BTreeMap;

use promethean_event::{Key, Payload};
use serde_json::Value;

use super::error::MigrateError;
use super::mark;
use super::places::Places;
use crate::store::{Put, Restore, Store, TopicId};

/// Entries in one step.
const AT_ONCE: usize = 100;

/// What hubs want of each other at this moment, and marks of moves, are no part of what is moved. Nor
/// are tokens: not every server has them in its store.
const LEFT_OUT: [&str; 3] = [mark::SPACE, "requests", "tokens"];

pub(super) type Entries = BTreeMap<(&'static str, Key), Payload>;

/// All entries of a store that are moved, as they are kept there.
pub(super) async fn all(store: &dyn Store, restore: &dyn Restore) -> Result<Entries, MigrateError> {
    let mut all = Entries::new();
    for space in restore.spaces().await? {
        if LEFT_OUT.contains(&space.as_str()) {
            continue;
        }
        // Few, and wanted for as long as the program moves things.
        let space: &'static str = String::leak(space);
        let entries = store.entries(space).await?;
        all.extend(entries.into_iter().map(|entry| ((space, entry.key), entry.value)));
    }
    Ok(all)
}

/// The same as they are in the target.
pub(super) fn placed(entries: Entries, places: &Places) -> Result<Entries, MigrateError> {
    let placed = entries.into_iter().map(|((space, key), value)| {
        let value = match space {
            "jobs" => job(&value, places),
            "snapshots" => renumbered(&value, &["topic", "target"], places),
            _ => Ok(value),
        };
        let malformed = |text| MigrateError::Malformed(format!("entry {key} of `{space}`"), text);
        let value = value.map_err(malformed)?;
        Ok(((space, key), value))
    });
    placed.collect()
}

/// Makes the target's entries the wanted ones.
pub(super) async fn take_over(
    to: &dyn Store,
    restore: &dyn Restore,
    wanted: &Entries,
) -> Result<(), MigrateError> {
    let there = all(to, restore).await?;
    let gone = there.keys().filter(|place| !wanted.contains_key(place));
    let gone = gone.map(|(space, key)| Put { space, key: key.clone(), value: None, expect: None });
    let new = wanted.iter().filter(|(place, value)| there.get(place) != Some(*value));
    let new = new.map(|((space, key), value)| Put {
        space,
        key: key.clone(),
        value: Some(value.clone()),
        expect: None,
    });
    let puts: Vec<Put> = gone.chain(new).collect();
    for piece in puts.chunks(AT_ONCE) {
        to.put(piece.to_vec()).await?;
    }
    Ok(())
}

/// A job knows its topics by name and number.
fn job(value: &Payload, places: &Places) -> Result<Payload, String> {
    let mut job: Value = serde_json::from_str(value.as_str()).map_err(|error| error.to_string())?;
    let cursors = job.get_mut("cursors").and_then(Value::as_array_mut);
    for cursor in cursors.into_iter().flatten() {
        renumber(cursor, "number", places);
    }
    Payload::of(&job).map_err(|error| error.to_string())
}

fn renumbered(value: &Payload, fields: &[&str], places: &Places) -> Result<Payload, String> {
    let mut entry: Value =
        serde_json::from_str(value.as_str()).map_err(|error| error.to_string())?;
    fields.iter().for_each(|field| renumber(&mut entry, field, places));
    Payload::of(&entry).map_err(|error| error.to_string())
}

/// A topic that is gone stays gone: no number stands for it in the target, so it gets one that none
/// has.
fn renumber(value: &mut Value, field: &str, places: &Places) {
    if let Some(number) = value.get_mut(field)
        && let Some(topic) = number.as_u64().and_then(|topic| u32::try_from(topic).ok())
    {
        let there = places.topic(TopicId::new(topic)).map_or(u32::MAX, TopicId::get);
        *number = there.into();
    }
}
