//! A shop on MongoDB, end to end, with a worker that is killed in the middle:
//!
//! - what changes in the collection `processes` becomes events of `processes.changed`, which a consumer
//!   writes down;
//! - an order is a business transaction with its event in the outbox; the event goes to the bus, and from
//!   there into a transactional projection, which adds up what each customer has spent, in a collection
//!   of the shop's own: its writes and how far it has come are one transaction.
//!
//! Run it with `scripts/mongod -- cargo run -p promethean-mongo --example shop`. At the end every number
//! is right, or it fails.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeSet;
use std::error::Error;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::{Client, ClientSession, Collection, Database};
use promethean::changefeed::{Definition, Feeds};
use promethean::outbox::{DrainOptions, Drainer};
use promethean::projection::{Projection, Views};
use promethean::{Bus, BusOptions, Failure, Start};
use promethean_event::{Event, EventId, Key, NewEvent, Payload, Timestamp, Topic};
use promethean_mongo::changefeed::{Changefeed, FeedOptions};
use promethean_mongo::outbox::MongoOutbox;
use promethean_mongo::views::{HandlingError, MongoViews, SessionProjection};
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
        [work, name] if work == "work" => Box::pin(worker(&url, name)).await,
        _ => shop(&url).await,
    }
}

/// The business: writes to its own collections, and looks after a worker that dies now and then.
async fn shop(url: &str) -> Outcome {
    let name = format!("shop-{}", EventId::generate());
    let database = Client::with_uri_str(url).await?.database(&name);
    let outbox = MongoOutbox::install(&database).await?;
    for collection in ["processes", "orders", "seen", "customers"] {
        database.create_collection(collection).await?;
    }
    let mut worker = start(&name)?;
    let (mut kills, mut before) = (0, 0);
    for number in 0..PROCESSES.max(ORDERS) {
        write(&database, &outbox, number).await?;
        // Twice it is killed without a word, in the middle of everything.
        if number == 100 || number == 200 {
            until("the worker is at it", async || count(&database, "seen").await > before).await?;
            worker.kill()?;
            worker.wait()?;
            kills += 1;
            before = count(&database, "seen").await;
            println!("killed the worker after {before} processes were written down");
            worker = start(&name)?;
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
    let spent = check(url, &name, &database).await?;
    println!(
        "{PROCESSES} processes, {ORDERS} orders, {spent} spent, {kills} kills: every number is right"
    );
    database.drop().await?;
    database.client().database(&format!("{name}-bus")).drop().await?;
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
async fn worker(url: &str, name: &str) -> Outcome {
    let database = Client::with_uri_str(url).await?.database(name);
    let hub = open(url, name).await?;
    let bus = &hub.bus;
    let definition: Definition = serde_json::from_value(serde_json::json!({
        "url": url, "collection": format!("{name}.processes"), "topic": "processes.changed",
    }))?;
    Feeds::new(bus.store()).add("processes", definition).await?;
    let options = FeedOptions { lease: Duration::from_secs(2), ..FeedOptions::default() };
    let feed = Changefeed::new("processes", bus, options).run(std::future::pending());
    let outbox = MongoOutbox::install(&database).await?;
    let drainer = Drainer::over(outbox.table(), bus.clone(), DrainOptions::default())?;
    let _spending = hub.spending(name).await?;
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

/// A bus on MongoDB, and the projections that it keeps.
struct Hub {
    bus: Bus,
    views: Views,
    store: MongoViews,
}

impl Hub {
    /// What each customer has spent. Adding is not idempotent: an event that came twice would show.
    async fn spending(&self, name: &str) -> Outcome<Projection> {
        let customers = self.store.database().client().database(name).collection("customers");
        let projection = SessionProjection::new("spending").topic("order.placed");
        let started = projection.start(&self.views, &self.store, move |session, event| {
            let customers = customers.clone();
            Box::pin(async move { spend(&customers, session, event).await })
        });
        Ok(started.await?)
    }
}

async fn spend(
    customers: &Collection<Document>,
    session: &mut ClientSession,
    event: &Event,
) -> Result<(), HandlingError> {
    let order: serde_json::Value = event.payload.decode().map_err(Failure::park)?;
    let customer = order.get("customer").and_then(|name| name.as_str());
    let amount = order.get("amount").and_then(|amount| amount.as_i64());
    let (customer, amount) = customer.zip(amount).ok_or_else(|| Failure::park("not an order"))?;
    let more = doc! { "$inc": { "spent": amount } };
    customers.update_one(doc! { "_id": customer }, more).upsert(true).session(session).await?;
    Ok(())
}

/// Holds what the worker has made of it against the collections themselves.
async fn check(url: &str, name: &str, database: &Database) -> Outcome<u64> {
    let (written_down, there) = (seen(database).await?, processes(database).await?);
    same("processes", written_down.len() as u64, PROCESSES - PROCESSES / 10)?;
    if written_down != there {
        return Err("other processes were written down than there are".into());
    }
    let hub = open(url, name).await?;
    hub.spending(name).await?.caught_up().await?;
    let customers = database.collection::<Document>("customers");
    let mut all = 0;
    for number in 0..CUSTOMERS {
        let customer = format!("customer-{number}");
        let orders = database.collection::<Document>("orders");
        let mut placed = orders.find(doc! { "customer": &customer }).await?;
        let mut wanted = 0;
        while placed.advance().await? {
            wanted += u64::try_from(placed.deserialize_current()?.get_i64("amount")?)?;
        }
        let known = customers.find_one(doc! { "_id": &customer }).await?;
        let spent = known.map(|customer| customer.get_i64("spent")).transpose()?;
        same(&customer, u64::try_from(spent.unwrap_or_default())?, wanted)?;
        all += wanted;
    }
    hub.views.stop().await;
    hub.bus.close().await;
    Ok(all)
}

async fn open(url: &str, name: &str) -> Outcome<Hub> {
    let url = url.replacen("/?", &format!("/{name}-bus?"), 1);
    let store = MongoStore::open(&url, MongoOptions::default()).await?;
    let views_store = MongoViews::of(&store).await?;
    let options = BusOptions::default().hub_lease(Duration::from_secs(1));
    let bus = Bus::with_store(Arc::new(store), options);
    // Only looking back at how views were in the past would need room there.
    let scratch = std::env::temp_dir().join(format!("{name}.scratch"));
    let views = Views::over(&bus, Arc::new(views_store.clone()), scratch);
    Ok(Hub { bus, views, store: views_store })
}

fn start(name: &str) -> Outcome<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    // When this process ends, so does the input of the worker, and the worker with it.
    Ok(command.arg("work").arg(name).stdin(Stdio::piped()).spawn()?)
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
