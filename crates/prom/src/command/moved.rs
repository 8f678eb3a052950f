//! Whether a store is part of a move, and so to be left alone.

use std::time::Duration;

use promethean::Bus;
use promethean::migration::{self, Mark, Role, Stage};
use promethean::store::Store;

use super::Status;
use crate::failure::Failure;

/// Where a move can begin while a server runs, its mark is looked for so often.
const LOOK: Duration = Duration::from_secs(1);

/// Refused if the store is part of a move.
pub(crate) async fn refuse(store: &dyn Store) -> anyhow::Result<()> {
    match migration::standing(store).await? {
        Some(mark) => Err(failure(&mark).into()),
        None => Ok(()),
    }
}

/// Waits until the store becomes part of a move. Where nobody else can have it open, none can begin.
pub(super) async fn wait(bus: &Bus) -> anyhow::Error {
    if bus.store().claims().is_none() {
        return std::future::pending().await;
    }
    let mut ticks = tokio::time::interval(LOOK);
    loop {
        ticks.tick().await;
        // While it cannot be read nobody moves it, either.
        if let Ok(Some(mark)) = migration::standing(&**bus.store()).await {
            return failure(&mark).into();
        }
    }
}

/// Why a store is left alone, and what to do.
pub(crate) fn failure(mark: &Mark) -> Failure {
    let (what, hint) = match (mark.role, mark.stage) {
        (Role::Source, Stage::Moved) => (
            format!("everything was moved from here to {}", mark.other),
            "start the server there, or use this one again: prom migrate --abandon --from ...",
        ),
        (Role::Source, Stage::Moving) => (
            format!("everything is being moved from here to {}", mark.other),
            "wait until it has ended, or give it up: prom migrate --abandon --from ...",
        ),
        (Role::Target, _) => (
            format!("everything is being moved here from {}", mark.other),
            "wait until it has ended; if it was cut off, run prom migrate again",
        ),
    };
    Failure::new(Status::Conflict, what).hint(hint)
}
