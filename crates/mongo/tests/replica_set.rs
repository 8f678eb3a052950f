//! The replica set that the tests run against, and databases in it.

use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::Client;
use mongodb::bson::{Bson, Document, doc};

use crate::conformance::wait_for;

/// The connection string of the replica set. There is no test without one.
pub(crate) fn url() -> String {
    std::env::var("PROM_MONGO_URL").unwrap_or_else(|_| {
        panic!(
            "PROM_MONGO_URL is not set: these tests need a MongoDB replica set.\n\
             Run them as scripts/mongod -- cargo nextest run -p promethean-mongo, which starts one \
             (and fetches mongod if there is none), or set PROM_MONGO_URL to one that may be \
             written to."
        )
    })
}

/// The connection string with a database in it.
pub(crate) fn url_of(database: &str) -> String {
    url().replacen("/?", &format!("/{database}?"), 1)
}

/// A name that no other test uses.
pub(crate) fn database() -> String {
    format!("test-{}", promethean_event::EventId::generate())
}

pub(crate) async fn drop_database(name: &str) {
    let client = Client::with_uri_str(url()).await.unwrap();
    let database = client.database(name);
    let mut dropping = pin!(database.drop().into_future());
    // It waits for the transactions that stores which crashed have left open, and the server gives
    // those up after a minute only.
    while tokio::time::timeout(LEFT_OPEN, &mut dropping).await.map(Result::unwrap).is_err() {
        end_transactions_left_open(&client).await;
    }
}

/// The same for several, on a thread of its own: where something is dropped, a runtime may be at work.
pub(crate) fn drop_databases(names: Vec<String>) {
    let dropping = std::thread::spawn(move || {
        wait_for(async {
            for name in names {
                drop_database(&name).await;
            }
        });
    });
    dropping.join().unwrap();
}

/// Nobody goes on with a transaction that has rested for so long: they take milliseconds.
const LEFT_OPEN: Duration = Duration::from_secs(1);

async fn end_transactions_left_open(client: &Client) {
    let admin = client.database("admin");
    let rests = doc! { "$gt": LEFT_OPEN.as_micros() as i64 };
    let left_open = [
        doc! { "$currentOp": { "idleSessions": true } },
        doc! { "$match": { "type": "idleSession", "transaction.timeInactiveMicros": rests } },
    ];
    let found: Vec<Document> =
        admin.aggregate(left_open).await.unwrap().try_collect().await.unwrap();
    let id = |session: &Document| {
        let id = session.get_document("lsid").unwrap().get("id").unwrap();
        Bson::Document(doc! { "id": id.clone() })
    };
    let sessions: Vec<Bson> = found.iter().map(id).collect();
    if sessions.is_empty() {
        // To the server, none are all: everything that other tests do would be cut off.
        return;
    }
    admin.run_command(doc! { "killSessions": sessions }).await.unwrap();
}
