//! The replica set that the tests run against, and databases in it.

use mongodb::Client;
use mongodb::bson::doc;

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
    client.database(name).drop().await.unwrap();
    client.database("admin").run_command(doc! { "ping": 1 }).await.unwrap();
}
