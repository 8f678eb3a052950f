//! The two sides of a move: how they are looked at, and how they are taken for oneself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use promethean::embedded::{EmbeddedOptions, EmbeddedStore, OpenError};
use promethean::memory::MemoryStore;
use promethean::store::{Clock, Store};
use promethean_event::Timestamp;
use promethean_mongo::{IfMoved, MongoOptions, MongoStore};

use crate::command::{Status, place, private_directory};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Source,
    Target,
}

/// One side of a move.
#[derive(Debug)]
pub(super) enum Place {
    Directory(PathBuf),
    Mongodb(String),
}

/// A side that is open.
pub(super) struct Side {
    pub(super) name: String,
    pub(super) store: Arc<dyn Store>,
    /// To ask who else is there.
    mongodb: Option<Arc<MongoStore>>,
    pub(super) directory: Option<PathBuf>,
}

/// A time before all events, so that theirs are taken.
#[derive(Debug)]
struct BeforeAll;

impl Clock for BeforeAll {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0)
    }
}

impl Place {
    pub(super) fn new(given: Option<&str>, file: Option<&Path>) -> anyhow::Result<Option<Self>> {
        Ok(match (given, file) {
            (Some(text), _) if text.contains("://") => Some(Self::Mongodb(place::checked(text)?)),
            // The same from wherever the command is run: it is what the other side knows it by.
            (Some(text), _) => Some(Self::Directory(std::path::absolute(text)?)),
            (None, Some(file)) => Some(Self::Mongodb(place::read(file)?)),
            (None, None) => None,
        })
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Directory(path) => path.display().to_string(),
            Self::Mongodb(url) => place::shown(url),
        }
    }

    pub(super) const fn is_mongodb(&self) -> bool {
        matches!(self, Self::Mongodb(_))
    }

    /// The side as it is now, to read from, whoever else uses it. Makes and changes nothing; a
    /// target that is not there yet is an empty one.
    pub(super) async fn look(&self, role: Role) -> anyhow::Result<Side> {
        let name = self.name();
        match self {
            Self::Directory(path) if path.join("log").exists() => {
                let folder = path.clone();
                let store = tokio::task::spawn_blocking(move || EmbeddedStore::glimpse(&folder));
                let store = store.await?.map_err(|error| unopened(error, &name))?;
                let directory = Some(path.clone());
                return Ok(Side { name, store: Arc::new(store), mongodb: None, directory });
            }
            Self::Directory(_) => {}
            Self::Mongodb(url) => {
                let options = MongoOptions { if_moved: IfMoved::Open, ..MongoOptions::default() };
                let store = MongoStore::open_existing(url, options).await;
                if let Some(store) = store.map_err(|error| place::refused(&error))? {
                    return Ok(Side::of_mongodb(name, Arc::new(store)));
                }
            }
        }
        if role == Role::Source {
            let what = match self {
                Self::Directory(_) => format!("there is no data directory at {name}"),
                Self::Mongodb(_) => format!("nothing of a server is in {name}"),
            };
            return Err(Failure::new(Status::NotFound, what).into());
        }
        let store = Arc::new(MemoryStore::new());
        Ok(Side { name, store, mongodb: None, directory: None })
    }

    /// The side for this process alone; who uses it, in words, if somebody does.
    pub(super) async fn take(&self, role: Role) -> anyhow::Result<Result<Side, String>> {
        match self {
            Self::Directory(path) => take_directory(path, self.name(), role).await,
            Self::Mongodb(url) => {
                let side = Side::of_mongodb(self.name(), place::open(url).await?);
                match side.hubs().await? {
                    0 => Ok(Ok(side)),
                    hubs => {
                        side.store.close().await;
                        let hubs = output::count(hubs, "hub uses", "hubs use");
                        Ok(Err(format!("{hubs} {}", self.name())))
                    }
                }
            }
        }
    }

    /// The same; refused if somebody uses it.
    pub(super) async fn taken(&self, role: Role) -> anyhow::Result<Side> {
        self.take(role).await?.map_err(|user| in_use(user).into())
    }
}

async fn take_directory(
    path: &Path,
    name: String,
    role: Role,
) -> anyhow::Result<Result<Side, String>> {
    private_directory(path)?;
    let mut options = EmbeddedOptions::default();
    if role == Role::Target {
        options.log.clock = Arc::new(BeforeAll);
    }
    let folder = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(&folder, options)).await?;
    match opened {
        Ok((store, _)) => {
            let directory = Some(path.to_owned());
            Ok(Ok(Side { name, store: Arc::new(store), mongodb: None, directory }))
        }
        Err(OpenError::Log(promethean_log::OpenError::Locked { holder, .. })) => {
            Ok(Err(format!("process {holder} uses {name}")))
        }
        Err(error) => Err(unopened(error, &name)),
    }
}

fn unopened(error: OpenError, name: &str) -> anyhow::Error {
    anyhow::Error::new(error).context(format!("cannot open {name}"))
}

fn in_use(user: String) -> Failure {
    let hint = "stop it with SIGTERM; a hub that was killed is gone when its lease has ended";
    Failure::new(Status::Conflict, user).hint(hint)
}

impl Side {
    fn of_mongodb(name: String, store: Arc<MongoStore>) -> Self {
        let mongodb = Some(Arc::clone(&store));
        Self { name, store, mongodb, directory: None }
    }

    async fn hubs(&self) -> anyhow::Result<usize> {
        Ok(match &self.mongodb {
            Some(store) => store.hubs_there().await?,
            None => 0,
        })
    }

    /// Refused while hubs are there. One that was killed counts as there until its lease ends.
    pub(super) async fn alone(&self) -> anyhow::Result<()> {
        match self.hubs().await? {
            0 => Ok(()),
            hubs => {
                let hubs = output::count(hubs, "hub uses", "hubs use");
                Err(in_use(format!("{hubs} {}", self.name)).into())
            }
        }
    }
}
