//! A server that is no replica set is refused, with what to do.

use promethean_mongo::{MongoOptions, MongoStore, OpenError, examine};

use super::set::Set;
use crate::conformance::wait_for;

#[test]
fn a_server_that_stands_alone_is_refused_with_what_to_do() {
    let server = Set::start(&["--standalone"]);
    wait_for(async {
        let refused = MongoStore::open(&server.url, MongoOptions::default()).await.unwrap_err();
        assert!(matches!(refused, OpenError::Standalone), "{refused}");
        assert!(refused.to_string().contains("rs.initiate()"), "{refused}");
        let examined = examine(&server.url, MongoOptions::default()).await;
        assert!(matches!(examined, Err(OpenError::Standalone)), "{examined:?}");
    });
}
