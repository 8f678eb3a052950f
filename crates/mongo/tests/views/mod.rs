//! Views as collections: the suite for stores of views, several hubs, and code with sessions.

mod place;

mod keeping;

mod rejected;

mod handling;

mod session;

mod commits;

mod cleaning;

mod feeds;

use promethean_harness::conformance::views::{ViewPlace, run};

use crate::conformance::wait_for;
use place::MongoPlace;

#[test]
fn the_views_in_mongodb_hold() {
    let violations = wait_for(run(&|| {
        Box::pin(async { Ok(Box::new(MongoPlace::new()) as Box<dyn ViewPlace>) })
    }));
    assert!(violations.is_empty(), "{violations:#?}");
}
