//! Commands that make collections and indexes, and take them away, fail: what could not be done is said, and is
//! done when it is asked for again.

use std::sync::Arc;

use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions;
use mongodb::{Client, ClientSession};
use promethean::projection::{
    Changelog, Field, Projection, ProjectionError, View, ViewError, Views,
};
use promethean::store::{Put, Restore, Store, TopicDefinition};
use promethean::{Bus, BusOptions};
use promethean_event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
use promethean_mongo::outbox::MongoOutbox;
use promethean_mongo::views::MongoViews;
use promethean_mongo::{MongoOptions, MongoStore, OpenError};
use tempfile::TempDir;

use super::commands::ways;
use super::set::{Set, rounds};
use crate::conformance::wait_for;

/// What is sent where something is made, named anew or taken away.
const MAKING: [&str; 6] =
    ["listCollections", "create", "createIndexes", "listIndexes", "renameCollection", "drop"];
/// More often than a command fails.
const TRIES_MAX: usize = 20;

/// Does something until it works; it has to fail by an error that says so, and not for ever.
async fn again<T, E: std::fmt::Debug>(
    cell: &str,
    is_honest: impl Fn(&E) -> bool,
    mut work: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    for _ in 0..TRIES_MAX {
        match work().await {
            Ok(done) => return done,
            Err(error) => assert!(is_honest(&error), "{cell}: {error:?}"),
        }
    }
    panic!("{cell}: it never works");
}

fn is_of_opening(error: &OpenError) -> bool {
    matches!(error, OpenError::Preparation(_) | OpenError::Unreachable(_))
}

fn is_of_views(error: &ViewError) -> bool {
    use ProjectionError::Database;
    matches!(error, ViewError::Database(_) | ViewError::Projection(Database(_)))
}

/// Some ways in which a command fails; all of them where there is the time.
fn some_ways(command: &str) -> Vec<Document> {
    let step = if rounds() > 1 { 1 } else { 4 };
    ways(command).into_iter().step_by(step).collect()
}

/// A database with everything in it, and a view.
struct Place {
    bus: Bus,
    views: Views,
    view: Projection,
    _scratch: TempDir,
}

impl Place {
    async fn make(set: &Set, cell: &str, name: &str) -> Self {
        let url = set.url.replacen("/?", &format!("/{name}?"), 1);
        let open = async || MongoStore::open(&url, MongoOptions::default()).await;
        let store = again(cell, is_of_opening, open).await;
        let collections = again(cell, is_of_opening, async || MongoViews::of(&store).await).await;
        let shop = Client::with_uri_str(&set.url).await.unwrap().database(name);
        again(cell, |_| true, async || MongoOutbox::install(&shop).await).await;
        let bus = Bus::with_store(Arc::new(store) as Arc<dyn Store>, BusOptions::default());
        bus.define(TopicDefinition::new(Topic::new("orders").unwrap())).await.unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let views = Views::over(&bus, Arc::new(collections), scratch.path().join("views"));
        let shape = || View::new("latest").field(Field::integer("n")).index(["n"]);
        let start = async || views.changelog(Changelog::new(shape(), "orders")).await;
        let view = again(cell, is_of_views, start).await;
        Self { bus, views, view, _scratch: scratch }
    }

    async fn go_through(self, cell: &str) {
        let event = |n: u64| {
            let (ts, topic) = (Timestamp::from_millis(n), Topic::new("orders").unwrap());
            let payload = Payload::of(&serde_json::json!({ "n": n })).unwrap();
            let event = NewEvent::new(EventId::generate(), ts, topic, payload);
            event.with_key(Key::new(format!("k{n}")).unwrap())
        };
        self.bus.publish_batch((0..5).map(event).collect()).await.unwrap();
        self.view.caught_up().await.unwrap();
        again(cell, is_of_views, async || self.view.rebuild().await).await;
        assert_eq!(self.view.scan("latest", None, 10).await.unwrap().len(), 5, "{cell}");
        let verified = self.view.verify().await.unwrap();
        assert_eq!((verified.different, verified.missed), (0, 0), "{cell}: {verified:?}");
        self.view.stop().await;
        again(cell, is_of_views, async || self.views.forget("latest").await).await;
        self.bus.close().await;
    }
}

#[test]
fn what_could_not_be_made_is_made_when_it_is_asked_for_again() {
    let set = Set::for_commands();
    wait_for(async {
        let client = Client::with_uri_str(&set.url).await.unwrap();
        for command in MAKING {
            for (number, how) in some_ways(command).iter().enumerate() {
                let cell = format!("{command} {how}");
                let name = format!("{command}-{number}");
                // Some of them once at the beginning, and the others later on.
                set.fail(command, doc! { "times": 3 }, how.clone()).await;
                let place = Place::make(&set, &cell, &name).await;
                set.fail(command, doc! { "times": 2 }, how.clone()).await;
                place.go_through(&cell).await;
                let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
                let seen = client.database("admin").run_command(off).await.unwrap();
                assert!(seen.get_i32("count").unwrap() > 0, "{cell}: nothing sends it");
                client.database(&name).drop().await.unwrap();
            }
        }
    });
}

/// Somebody of ours who holds what every put needs, and says nothing any more.
async fn hold_up(set: &Set) -> ClientSession {
    let mut options = ClientOptions::parse(&set.url).await.unwrap();
    options.app_name = Some("promethean".to_owned());
    let client = Client::with_options(options).unwrap();
    let mut session = client.start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let counters = client.database("faults").collection::<Document>("counters");
    let taken = counters.update_one(doc! { "_id": "entries" }, doc! { "$inc": { "next": 1 } });
    assert_eq!(taken.session(&mut session).await.unwrap().matched_count, 1);
    session
}

/// Whoever is in the way was looked at once, and never again: if he could not be ended then, or had rested
/// for too short a time, everybody waited for the server to give him up, which takes a minute.
#[test]
fn who_is_in_the_way_is_looked_at_again() {
    let set = Set::for_commands();
    wait_for(async {
        let store = set.store().await;
        let put = async || {
            let (key, value) = (Key::new("k").unwrap(), Some(Payload::null()));
            store.put(vec![Put { space: "test", key, value, expect: None }]).await
        };
        put().await.unwrap();
        for how in [doc! { "errorCode": 11600 }, doc! { "errorCode": 50 }] {
            let session = hold_up(&set).await;
            set.fail("killSessions", doc! { "times": 1 }, how).await;
            put().await.unwrap();
            drop(session);
        }
    });
}

/// Which spaces there are is asked for by whoever moves them.
#[test]
fn spaces_that_could_not_be_listed_are_refused() {
    let set = Set::for_commands();
    wait_for(async {
        let store = set.store().await;
        let (key, value) = (Key::new("k").unwrap(), Some(Payload::null()));
        store.put(vec![Put { space: "test", key, value, expect: None }]).await.unwrap();
        for how in ways("distinct") {
            set.fail("distinct", doc! { "times": 1 }, how).await;
            let spaces = again("distinct", |_| true, async || store.spaces().await).await;
            assert_eq!(spaces, ["test"]);
        }
    });
}
