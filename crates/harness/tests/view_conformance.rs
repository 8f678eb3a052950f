//! The suite for stores of views, run for the one in SQLite. `crates/mongo` runs it for its own.

use std::path::PathBuf;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use promethean::projection::view_store::{SqliteViews, ViewStore};
use promethean::store::HubId;
use promethean_harness::conformance::Check;
use promethean_harness::conformance::views::{ViewPlace, run};
use tempfile::TempDir;

#[derive(Debug)]
struct SqlitePlace {
    folder: TempDir,
}

impl SqlitePlace {
    fn path(&self) -> PathBuf {
        self.folder.path().join("state.db")
    }
}

impl ViewPlace for SqlitePlace {
    fn open(&self) -> BoxFuture<'_, Check<Arc<dyn ViewStore>>> {
        let opened = SqliteViews::open(&self.path());
        Box::pin(async move { Ok(Arc::new(opened?) as Arc<dyn ViewStore>) })
    }

    fn attend(&self, _: HubId, _: bool) -> BoxFuture<'_, Check> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test]
async fn the_views_in_sqlite_hold() {
    let violations = run(&|| {
        Box::pin(async {
            let place = SqlitePlace { folder: TempDir::new()? };
            Ok(Box::new(place) as Box<dyn ViewPlace>)
        })
    })
    .await;
    assert!(violations.is_empty(), "{violations:#?}");
}
