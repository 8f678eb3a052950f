//! Commits whose answer is lost, by the server's fail points: in a replica set of its own, because they
//! meet whoever comes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Bson, Document, doc};
use promethean::projection::{Changelog, Coded, Projection, ProjectionState, View};
use promethean_mongo::MongoOptions;
use tokio::sync::watch;

use super::place::{Hub, MongoPlace, define, publish};
use super::session::{Tables, counted, start_with};
use crate::conformance::wait_for;
use crate::hubs::until;

const LONG: Duration = Duration::from_secs(600);

/// A replica set of one.
struct Set {
    child: Child,
    url: String,
}

impl Set {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/mongod");
        let mut command = Command::new(script);
        command.arg("--in-memory").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("mongodb://"), "no replica set: {url}");
        Self { child, url: url.trim().to_owned() }
    }

    async fn fail_commits(&self, mode: impl Into<Bson>, mut fault: Document) {
        fault.insert("failCommands", vec!["commitTransaction"]);
        let command =
            doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": fault };
        let client = Client::with_uri_str(&self.url).await.unwrap();
        client.database("admin").run_command(command).await.unwrap();
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        // It ends when nobody gives it orders any more.
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

async fn is_retrying(projection: &Projection) {
    until("nobody knows what became of a commit", async || {
        matches!(projection.progress().state, ProjectionState::Retrying { .. })
    })
    .await;
}

/// Lets events through, or holds them up in the middle of their handling.
#[derive(Clone)]
struct Gate {
    is_open: watch::Sender<bool>,
    held: Arc<AtomicU32>,
}

impl Gate {
    fn open() -> Self {
        Self { is_open: watch::Sender::new(true), held: Arc::default() }
    }

    fn turn(&self, is_open: bool) {
        self.held.store(0, Ordering::SeqCst);
        self.is_open.send_replace(is_open);
    }

    async fn pass(&self) {
        let mut is_open = self.is_open.subscribe();
        if !*is_open.borrow() {
            self.held.fetch_add(1, Ordering::SeqCst);
        }
        is_open.wait_for(|is_open| *is_open).await.unwrap();
    }

    async fn holds_some(&self) {
        until("one is held up", async || self.held.load(Ordering::SeqCst) > 0).await;
    }
}

/// P28: the cursor tells whether a commit went through of which nobody has heard; nothing is done a
/// second time that was, nor left out that was not.
#[test]
fn a_commit_without_an_answer_is_known_by_its_cursor() {
    let set = Set::start();
    wait_for(async {
        let place = MongoPlace::at(&set.url);
        let options = MongoOptions { deadline: Duration::from_secs(2), ..MongoOptions::default() };
        let hub = Hub::start_with(&place, LONG, options).await;
        define(&hub.bus, 1).await;
        let (tables, gates) = (Tables::of(&hub), [Gate::open(), Gate::open()]);
        let [of_session, of_view] = gates.clone();
        let counting = tables.clone();
        let session = start_with(&hub, 25, move |session, event| {
            let (tables, gate) = (counting.clone(), of_session.clone());
            Box::pin(async move {
                gate.pass().await;
                tables.count(session, event).await
            })
        })
        .await;
        let views = hub.views.clone();
        let mapping = Coded::new().document(move |event| {
            // On a thread for blocking work.
            tokio::runtime::Handle::current().block_on(of_view.pass());
            Ok::<_, String>(event.payload.clone())
        });
        let view = Changelog::new(View::new("processes"), super::place::TOPIC).coded(mapping);
        let changelog = hub.run(async move { views.changelog(view).await.unwrap() }).await;
        publish(&hub.bus, 0..30).await;
        for one in [&session, &changelog] {
            one.caught_up().await.unwrap();
        }
        // Done, and answered as if it were not known; or not done, and not answered.
        let faults = [
            doc! { "writeConcernError": { "code": 91, "errmsg": "going down" } },
            doc! { "closeConnection": true },
        ];
        for (round, fault) in (1_u64..).zip(faults) {
            gates.iter().for_each(|gate| gate.turn(false));
            publish(&hub.bus, round * 30..(round + 1) * 30).await;
            for gate in &gates {
                gate.holds_some().await;
            }
            set.fail_commits("alwaysOn", fault).await;
            gates.iter().for_each(|gate| gate.turn(true));
            for one in [&session, &changelog] {
                is_retrying(one).await;
            }
            set.fail_commits("off", Document::new()).await;
            for one in [&session, &changelog] {
                one.caught_up().await.unwrap();
                assert_eq!(one.progress().counts.events, (round + 1) * 30);
            }
            assert_eq!(tables.seen().await, counted(0..(round + 1) * 30));
            let verified = changelog.verify().await.unwrap();
            assert_eq!((verified.different, verified.missed), (0, 0), "{verified:?}");
        }
        drop(hub);
    });
}
