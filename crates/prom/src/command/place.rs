//! Where everything is kept, if that is not this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use promethean_mongo::views::MongoViews;
use promethean_mongo::{IfMoved, MongoOptions, MongoStore, OpenError};

use super::Status;
use crate::failure::Failure;
use crate::manifest::{Manifest, StoreKind};

/// A replica set that hubs share.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct StoreFlags {
    /// MongoDB replica set that everything is kept in, shared by any number of hubs, such as
    /// `mongodb://HOST,HOST/DATABASE?replicaSet=NAME`.
    #[arg(long, value_name = "URL", env = "PROM_STORE", hide_env_values = true)]
    store: Option<String>,
    /// File with that URL: the way to give one with a password.
    #[arg(long, value_name = "FILE", env = "PROM_STORE_FILE", conflicts_with = "store")]
    store_file: Option<PathBuf>,
}

/// The connection string, if MongoDB is asked for: of the flags, then of the manifest.
pub(super) fn mongodb(
    flags: &StoreFlags,
    manifest: Option<&Manifest>,
) -> anyhow::Result<Option<String>> {
    if let Some(url) = &flags.store {
        return checked(url).map(Some);
    }
    if let Some(file) = &flags.store_file {
        return read(file).map(Some);
    }
    let Some(manifest) = manifest else { return Ok(None) };
    let store = &manifest.document.store;
    if store.kind != Some(StoreKind::Mongodb) {
        return Ok(None);
    }
    match (&store.url, &store.url_file) {
        (Some(url), _) => checked(url).map(Some),
        (None, Some(file)) => read(&manifest.resolve(file)).map(Some),
        // Refused when the manifest was checked.
        (None, None) => Ok(None),
    }
}

pub(super) fn read(file: &Path) -> anyhow::Result<String> {
    let bytes = super::secret_file(file)?;
    checked(String::from_utf8_lossy(&bytes).trim())
}

pub(super) fn checked(url: &str) -> anyhow::Result<String> {
    if url.starts_with("mongodb://") || url.starts_with("mongodb+srv://") {
        return Ok(url.to_owned());
    }
    // Not repeated: there may be a password in it.
    let what = "the store is not a connection string of MongoDB";
    let hint = "write it as mongodb://HOST:PORT/DATABASE?replicaSet=NAME; a directory of this \
                machine is named with --data";
    Err(Failure::usage(what).hint(hint).into())
}

/// What to call it: its hosts and database, without who logs in.
pub(super) fn shown(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    format!("mongodb://{}", rest.split_once('?').map_or(rest, |(place, _)| place))
}

/// Opens the store. Its messages have no passwords in them.
pub(super) async fn open(url: &str) -> anyhow::Result<Arc<MongoStore>> {
    // Whoever opens it looks for himself: a move has to open both sides.
    let options = MongoOptions { if_moved: IfMoved::Open, ..MongoOptions::default() };
    let opened = MongoStore::open(url, options).await;
    Ok(Arc::new(opened.map_err(|error| refused(&error))?))
}

/// Views in the same database.
pub(super) async fn views(store: &MongoStore) -> anyhow::Result<Arc<MongoViews>> {
    let opened = MongoViews::of(store).await;
    Ok(Arc::new(opened.map_err(|error| refused(&error))?))
}

/// The failure with its exit code.
pub(super) fn refused(error: &OpenError) -> Failure {
    let status = match error {
        OpenError::Unreachable(_) => Status::Unreachable,
        OpenError::BadUrl(_) | OpenError::Standalone | OpenError::TooOld(_) => {
            Status::Misconfigured
        }
        _ => Status::Failed,
    };
    Failure::new(status, error.to_string())
}
