//! A shop on MongoDB, end to end, with a worker that is killed in the middle:
//!
//! - what changes in the collection `processes` becomes events of `processes.changed`, which a consumer
//!   writes down;
//! - an order is a business transaction with its event in the outbox; the event goes to the bus, and from
//!   there into a transactional projection, which adds up what each customer has spent.
//!
//! Run it with `scripts/mongod -- cargo run -p promethean-mongo --example shop`. At the end every number
//! is right, or it fails.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::{Client, Database};
use promethean::changefeed::{Definition, Feeds};
use promethean::outbox::{DrainOptions, Drainer};
use promethean::projection::{Transactional, View, Views};
use promethean::{Bus, BusOptions, Start};
use promethean_event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
use promethean_mongo::changefeed::{Changefeed, FeedOptions};
use promethean_mongo::outbox::MongoOutbox;
use promethean_mongo::{MongoOptions, MongoStore};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const PROCESSES: u64 = 300;
const ORDERS: u64 = 300;
const CUSTOMERS: u64 = 7;

#[tokio::main]
async fn main() -> Outcome {
    let url = std::env::var("PROM_MONGO_URL").map_err(|_| {
        "PROM_MONGO_URL is not set; run: scripts/mongod -- cargo run -p promethean-mongo --example shop"
    })?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [work, name, folder] if work == "work" => {
            Box::pin(worker(&url, name, Path::new(folder))).await
        }
        _ => shop(&url).await,
    }
}

/// The business: writes to its own collections, and looks after a worker that dies now and then.
async fn shop(url: &str) -> Outcome {
    let name = format!("shop-{}", EventId::generate());
    let folder = std::env::temp_dir().join(&name);
    std::fs::create_dir_all(&folder)?;
    let database = Client::with_uri_str(url).await?.database(&name);
    let outbox = MongoOutbox::install(&database).await?;
    for collection in ["processes", "orders", "seen"] {
        database.create_collection(collection).await?;
    }
    let mut worker = start(&name, &folder)?;
    let mut kills = 0;
    for number in 0..PROCESSES.max(ORDERS) {
        write(&database, &outbox, number).await?;
        // Twice it is killed without a word, in the middle of everything.
        if number == 100 || number == 200 {
            until("the worker is at it", async || count(&database, "seen").await > kills * 50)
                .await?;
            worker.kill()?;
            worker.wait()?;
            kills += 1;
            println!(
                "killed the worker after {} events were written down",
                count(&database, "seen").await
            );
            worker = start(&name, &folder)?;
        }
    }
    until("what was written down is what is there", async || {
        matches!((seen(&database).await, processes(&database).await), (Ok(a), Ok(b)) if a == b)
    })
    .await?;
    let waiting = async || outbox.stats().await.map_or(1, |stats| stats.pending);
    until("every order is published", async || waiting().await == 0).await?;
    worker.kill()?;
    worker.wait()?;
    let spent = check(url, &name, &folder, &database).await?;
    println!(
        "{PROCESSES} processes, {ORDERS} orders, {spent} spent, {kills} kills: every number is right"
    );
    database.drop().await?;
    database.client().database(&format!("{name}-bus")).drop().await?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// One process comes or goes; one order is placed, or thought better of.
async fn write(database: &Database, outbox: &MongoOutbox, number: u64) -> Outcome {
    let processes = database.collection::<Document>("processes");
    processes.insert_one(doc! { "_id": number as i32, "host": "dev" }).await?;
    if number.is_multiple_of(10) {
        processes.delete_one(doc! { "_id": number as i32 }).await?;
    }
    let customer = format!("customer-{}", number % CUSTOMERS);
    let amount = 1 + number % 50;
    let mut session = database.client().start_session().await?;
    session.start_transaction().await?;
    let order = doc! { "_id": number as i64, "customer": &customer, "amount": amount as i64 };
    database.collection::<Document>("orders").insert_one(order).session(&mut session).await?;
    let payload = Payload::of(&serde_json::json!({ "customer": customer, "amount": amount }))?;
    let topic = Topic::new("order.placed")?;
    let event = NewEvent::new(EventId::generate(), Timestamp::from_millis(number), topic, payload);
    outbox.add(&mut session, &event.with_key(Key::new(customer.as_str())?)).await?;
    if number % 7 == 3 {
        session.abort_transaction().await?;
    } else {
        session.commit_transaction().await?;
    }
    Ok(())
}

/// A hub with everything in it, until it is killed.
async fn worker(url: &str, name: &str, folder: &Path) -> Outcome {
    let database = Client::with_uri_str(url).await?.database(name);
    let bus = open(url, name).await?;
    let definition: Definition = serde_json::from_value(serde_json::json!({
        "url": url, "collection": format!("{name}.processes"), "topic": "processes.changed",
    }))?;
    Feeds::new(bus.store()).add("processes", definition).await?;
    let options = FeedOptions { lease: Duration::from_secs(2), ..FeedOptions::default() };
    let feed = Changefeed::new("processes", &bus, options).run(std::future::pending());
    let outbox = MongoOutbox::install(&database).await?;
    let drainer = Drainer::over(outbox.table(), bus.clone(), DrainOptions::default())?;
    let views = Views::open(&bus, folder.join("views.db")).await?;
    let _spending = views.transactional(spending()).await?;
    let seen = database.collection::<Document>("seen");
    let subscribe = bus.subscribe_to(["processes.changed"], "watchers").from(Start::Earliest);
    let _watchers = subscribe
        .handle(move |delivered| {
            let seen = seen.clone();
            async move {
                // At least once: whoever writes down the same thing again changes nothing.
                let event = delivered.event();
                let key = event.key.as_ref().map_or("", |key| key.as_str());
                let process: serde_json::Value = event.payload.decode()?;
                let change = doc! { "$set": {
                    "gone": event.payload.is_tombstone(),
                    "process": process.get("_id").map(ToString::to_string),
                } };
                let known = doc! { "_id": key };
                seen.update_one(known, change).upsert(true).await?;
                Ok(())
            }
        })
        .await?;
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    tokio::select! {
        _ = ended => Ok(()),
        _ = async { tokio::join!(feed, drainer.run(std::future::pending())) } => Ok(()),
    }
}

/// What each customer has spent. Adding is not idempotent: an event that came twice would show.
fn spending() -> promethean::projection::TransactionalProjection {
    let projection = Transactional::new("spending").topic("order.placed");
    projection.view(View::new("customers")).apply(|transaction, event| {
        let order: serde_json::Value = event.payload.decode()?;
        let customer =
            order.get("customer").and_then(|name| name.as_str()).unwrap_or_default().to_owned();
        let before: Option<u64> = transaction.read("customers", &customer)?;
        let amount = order.get("amount").and_then(|amount| amount.as_u64()).unwrap_or_default();
        transaction.put("customers", &customer, &(before.unwrap_or_default() + amount))?;
        Ok(())
    })
}

/// Holds what the worker has made of it against the collections themselves.
async fn check(url: &str, name: &str, folder: &Path, database: &Database) -> Outcome<u64> {
    let (written_down, there) = (seen(database).await?, processes(database).await?);
    same("processes", written_down.len() as u64, PROCESSES - PROCESSES / 10)?;
    if written_down != there {
        return Err("other processes were written down than there are".into());
    }
    let bus = open(url, name).await?;
    let views = Views::open(&bus, folder.join("views.db")).await?;
    let projection = views.transactional(spending()).await?;
    projection.caught_up().await?;
    let mut all = 0;
    for number in 0..CUSTOMERS {
        let customer = format!("customer-{number}");
        let orders = database.collection::<Document>("orders");
        let mut placed = orders.find(doc! { "customer": &customer }).await?;
        let mut wanted = 0;
        while placed.advance().await? {
            wanted += u64::try_from(placed.deserialize_current()?.get_i64("amount")?)?;
        }
        let document = views.get("customers", &customer).await?;
        let found = document.map(|document| document.value.decode::<u64>()).transpose()?;
        same(&customer, found.unwrap_or_default(), wanted)?;
        all += wanted;
    }
    views.stop().await;
    bus.close().await;
    Ok(all)
}

async fn open(url: &str, name: &str) -> Outcome<Bus> {
    let url = url.replacen("/?", &format!("/{name}-bus?"), 1);
    let store = MongoStore::open(&url, MongoOptions::default()).await?;
    let options = BusOptions::default().hub_lease(Duration::from_secs(1));
    Ok(Bus::with_store(Arc::new(store), options))
}

fn start(name: &str, folder: &Path) -> Outcome<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    // When this process ends, so does the input of the worker, and the worker with it.
    Ok(command.arg("work").arg(name).arg(folder).stdin(Stdio::piped()).spawn()?)
}

/// The processes that there are.
async fn processes(database: &Database) -> Outcome<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    let mut found = database.collection::<Document>("processes").find(doc! {}).await?;
    while found.advance().await? {
        all.insert(found.deserialize_current()?.get_i32("_id")?.to_string());
    }
    Ok(all)
}

/// Those that were written down and have not gone.
async fn seen(database: &Database) -> Outcome<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    let here = doc! { "gone": false };
    let mut found = database.collection::<Document>("seen").find(here).await?;
    while found.advance().await? {
        all.insert(found.deserialize_current()?.get_str("process")?.to_owned());
    }
    Ok(all)
}

async fn count(database: &Database, collection: &str) -> u64 {
    let collection = database.collection::<Document>(collection);
    collection.count_documents(doc! {}).await.unwrap_or_default()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) -> Outcome {
    for _ in 0..6_000 {
        if holds().await {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(format!("not so after two minutes: {what}").into())
}

fn same(what: &str, found: u64, expected: u64) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: {found}, and {expected} was expected").into())
}
