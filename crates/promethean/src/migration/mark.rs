use std::fmt;

use promethean_event::{EventId, Key, Payload};
use serde::{Deserialize, Serialize};

use super::error::MigrateError;
use crate::store::{Put, Store};

/// Where marks are kept. They are no part of what is moved.
pub(super) const SPACE: &str = "migration";

/// Which side of a move a store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// What it holds goes elsewhere.
    Source,
    /// What it holds comes from elsewhere.
    Target,
}

impl Role {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Target => "target",
        }
    }
}

/// How far a move is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// It was begun and has not ended.
    Moving,
    /// It has ended, and both were the same.
    Moved,
}

/// What a store says of a move that it is part of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Which move: the same at both ends.
    pub id: EventId,
    /// Which side the store is.
    pub role: Role,
    /// How far it is.
    pub stage: Stage,
    /// What the other side is called.
    pub other: String,
}

impl Mark {
    /// Whether the store is to be left alone because of it.
    pub const fn is_closed(&self) -> bool {
        match self.role {
            // What is written to a source that was moved is lost to everybody else.
            Role::Source => true,
            Role::Target => matches!(self.stage, Stage::Moving),
        }
    }
}

impl fmt::Display for Mark {
    /// What it means for one who wants to use the store.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let other = &self.other;
        match (self.role, self.stage) {
            (Role::Source, Stage::Moved) => write!(
                f,
                "everything was moved from here to {other}, and what is written here now is not there; \
                 open that one (prom migrate --abandon opens this one again)"
            ),
            (Role::Source, Stage::Moving) => write!(
                f,
                "everything is being moved from here to {other}; wait until that has ended (prom \
                 migrate --abandon gives it up)"
            ),
            (Role::Target, _) => write!(
                f,
                "everything is being moved here from {other}; wait until that has ended (if it was \
                 cut off, run prom migrate again)"
            ),
        }
    }
}

pub(super) async fn marks(store: &dyn Store) -> Result<Vec<(Mark, u64)>, MigrateError> {
    let entries = store.entries(SPACE).await?;
    let read = |entry: crate::store::Entry| {
        let malformed = |error: serde_json::Error| {
            MigrateError::Malformed(format!("the mark `{}`", entry.key), error.to_string())
        };
        let mark = serde_json::from_str(entry.value.as_str()).map_err(malformed)?;
        Ok((mark, entry.version))
    };
    entries.into_iter().map(read).collect()
}

pub(super) async fn of_role(
    store: &dyn Store,
    role: Role,
) -> Result<Option<(Mark, u64)>, MigrateError> {
    Ok(marks(store).await?.into_iter().find(|(mark, _)| mark.role == role))
}

/// The mark because of which a store is to be left alone, if there is one.
pub async fn standing(store: &dyn Store) -> Result<Option<Mark>, MigrateError> {
    let marks = marks(store).await?;
    Ok(marks.into_iter().map(|(mark, _)| mark).find(Mark::is_closed))
}

/// Leaves a mark, on condition that the one before it is still there.
pub(super) async fn leave(
    store: &dyn Store,
    mark: &Mark,
    version: u64,
) -> Result<(), MigrateError> {
    let malformed = |text: String| MigrateError::Malformed("a mark".to_owned(), text);
    let value = Payload::of(mark).map_err(|error| malformed(error.to_string()))?;
    let key = Key::new(mark.role.word()).map_err(|error| malformed(error.to_string()))?;
    let put = Put { space: SPACE, key, value: Some(value), expect: Some(version) };
    Ok(store.put(vec![put]).await?)
}

/// Takes the mark of a source back: it is whole, and may be used again. True if there was one.
pub async fn abandon(store: &dyn Store) -> Result<bool, MigrateError> {
    let Some((mark, version)) = of_role(store, Role::Source).await? else { return Ok(false) };
    let malformed = |text: String| MigrateError::Malformed("a mark".to_owned(), text);
    let key = Key::new(mark.role.word()).map_err(|error| malformed(error.to_string()))?;
    store.put(vec![Put { space: SPACE, key, value: None, expect: Some(version) }]).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bus;
    use crate::embedded::{EmbeddedOptions, EmbeddedStore, OpenError};

    /// A program that opened the bus itself went on writing to a directory that had been moved: only
    /// `prom` looked for the mark.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_program_does_not_open_what_was_moved_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let bus = Bus::open(folder.path()).await.unwrap();
        let mark = Mark {
            id: EventId::generate(),
            role: Role::Source,
            stage: Stage::Moved,
            other: "mongodb://db1/prom".to_owned(),
        };
        leave(&**bus.store(), &mark, 0).await.unwrap();
        bus.close().await;
        drop(bus);
        let refused = Bus::open(folder.path()).await.unwrap_err();
        assert!(matches!(&refused, OpenError::Moved(found) if *found == mark), "{refused}");
        assert!(refused.to_string().contains("mongodb://db1/prom"), "{refused}");
        // Whoever moves opens it all the same, and takes the mark back.
        let (store, _) = EmbeddedStore::open(folder.path(), EmbeddedOptions::default()).unwrap();
        assert!(abandon(&store).await.unwrap());
        store.close().await;
        drop(store);
        Bus::open(folder.path()).await.unwrap().close().await;
    }
}
