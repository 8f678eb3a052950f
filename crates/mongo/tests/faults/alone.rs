//! Servers that are no replica set are refused, with what to do; and sets that are not set up well
//! are told of.

use mongodb::Client;
use mongodb::bson::doc;
use promethean_mongo::{MongoOptions, MongoStore, OpenError, Verdict, examine};

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

/// A set as MongoDB itself makes it: what is left to set is said, with how to.
#[test]
fn a_set_with_the_defaults_of_mongodb_is_told_of() {
    let set = Set::start(&["--mongodb-defaults"]);
    wait_for(async {
        let findings = examine(&set.url, MongoOptions::default()).await.unwrap();
        let about = |check: &str| findings.iter().find(|found| found.check == check).unwrap();
        let (copying, catching_up) = (about("failover"), about("catch_up"));
        assert_eq!(copying.verdict, Verdict::Warning, "{copying:?}");
        assert!(copying.text.contains("--setParameter oplogNetworkTimeoutBufferSeconds=1"));
        assert_eq!(catching_up.verdict, Verdict::Warning, "{catching_up:?}");
        assert!(catching_up.text.contains("catchUpTimeoutMillis = 1000; rs.reconfig(c)"));
        // What it says to do, done while the set runs.
        let admin = Client::with_uri_str(&set.url).await.unwrap().database("admin");
        let found = admin.run_command(doc! { "replSetGetConfig": 1 }).await.unwrap();
        let mut config = found.get_document("config").unwrap().clone();
        let version = config.get_i32("version").unwrap() + 1;
        config.insert("version", version);
        let settings = config.get_document_mut("settings").unwrap();
        settings.insert("catchUpTimeoutMillis", 1_000);
        admin.run_command(doc! { "replSetReconfig": config }).await.unwrap();
        let findings = examine(&set.url, MongoOptions::default()).await.unwrap();
        let catching_up = findings.iter().find(|found| found.check == "catch_up").unwrap();
        assert_eq!(catching_up.verdict, Verdict::Good, "{catching_up:?}");
    });
}
