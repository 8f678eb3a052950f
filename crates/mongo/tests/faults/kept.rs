//! What is kept beside the bus, while MongoDB fails: a view, a counter that code keeps with a session, an
//! outbox, and a feed of what that is written with. Afterwards each has counted every event once.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::{Acknowledgment, ClientOptions, WriteConcern};
use mongodb::{Client, Collection};
use promethean::Bus;
use promethean::changefeed::{Definition, Feeds, Phase, Status};
use promethean::outbox::{DrainCounters, DrainOptions, Drainer};
use promethean::projection::{Changelog, Projection, View, Views};
use promethean::store::TopicDefinition;
use promethean_event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
use promethean_mongo::MongoStore;
use promethean_mongo::changefeed::{Changefeed, FeedEnd, FeedOptions};
use promethean_mongo::outbox::MongoOutbox;
use promethean_mongo::views::{MongoViews, SessionProjection};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::hubs::until_all;
use crate::verdict::must_hold;

/// The topic that the projections read.
const ORDERS: &str = "orders";
/// The topic that the outbox is published to.
const SHIPMENTS: &str = "shipments";
/// The topic that the feed of the collection goes to, and the feed.
const SHIPPED: &str = "shipments.changed";

/// An outbox that is written to by a client of its own.
#[derive(Clone)]
pub(super) struct Shop {
    client: Client,
    outbox: MongoOutbox,
    shipments: Collection<Document>,
}

impl Shop {
    async fn open(url: &str) -> Self {
        let mut options = ClientOptions::parse(url).await.unwrap();
        options.heartbeat_freq = Some(Duration::from_secs(2));
        options.connect_timeout = Some(Duration::from_secs(3));
        options.server_selection_timeout = Some(Duration::from_secs(5));
        let durable = WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build();
        options.write_concern = Some(durable);
        let client = Client::with_options(options).unwrap();
        let database = client.database("shop");
        let outbox = MongoOutbox::install(&database).await.unwrap();
        database.create_collection("shipments").await.unwrap();
        Self { outbox, shipments: database.collection("shipments"), client }
    }

    /// Ships, and says so: both or neither, again until it is known to be so.
    pub(super) async fn ship(&self, number: i64) {
        let (ts, topic) = (Timestamp::from_millis(1), Topic::new(SHIPMENTS).unwrap());
        let event = NewEvent::new(EventId::generate(), ts, topic, Payload::of(&number).unwrap());
        let event = event.with_key(Key::new(format!("s{}", number % 5)).unwrap());
        loop {
            let trying =
                tokio::time::timeout(Duration::from_secs(5), self.try_to_ship(number, &event));
            if let Ok(Ok(())) = trying.await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn try_to_ship(
        &self,
        number: i64,
        event: &NewEvent,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut session = self.client.start_session().await?;
        session.start_transaction().await?;
        let by_id = doc! { "_id": number };
        let shipped = doc! { "$set": { "shipped": true } };
        self.shipments.update_one(by_id, shipped).upsert(true).session(&mut session).await?;
        // The same id each time: if it is there already, that is all right.
        self.outbox.add(&mut session, event).await?;
        session.commit_transaction().await?;
        self.outbox.wake();
        Ok(())
    }
}

/// A feed of the shop's collection, into the bus.
struct Fed {
    feeds: Feeds,
    stop: oneshot::Sender<()>,
    running: JoinHandle<FeedEnd>,
}

impl Fed {
    /// Begins before anything is there.
    async fn start(url: &str, bus: &Bus) -> Self {
        bus.define(TopicDefinition::new(Topic::new(SHIPPED).unwrap())).await.unwrap();
        let feeds = Feeds::new(bus.store());
        let definition = Definition {
            url: url.to_owned(),
            collection: "shop.shipments".into(),
            topic: SHIPPED.into(),
            key: None,
            filter: None,
            map: None,
            snapshot: true,
        };
        feeds.add(SHIPPED, definition).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let feed = Changefeed::new(SHIPPED, bus, FeedOptions::default());
        let running = tokio::spawn(feed.run(async { drop(stopped.await) }));
        let fed = Self { feeds, stop, running };
        until_all("the feed has begun", async || {
            matches!(fed.status().await, Some(Status { phase: Phase::Stream { .. }, .. }))
        })
        .await;
        fed
    }

    async fn status(&self) -> Option<Status> {
        self.feeds.status(SHIPPED).await.ok().flatten().map(|status| status.value)
    }
}

/// All of them, at work.
pub(super) struct Kept {
    bus: Bus,
    view: Projection,
    counted: Projection,
    totals: Collection<Document>,
    pub(super) shop: Shop,
    stop: oneshot::Sender<()>,
    draining: JoinHandle<DrainCounters>,
    views: Views,
    fed: Fed,
    _scratch: TempDir,
}

impl Kept {
    pub(super) async fn start(url: &str, bus: &Bus, store: &MongoStore) -> Self {
        bus.define(TopicDefinition::new(Topic::new(SHIPMENTS).unwrap())).await.unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let collections = MongoViews::of(store).await.unwrap();
        let views = Views::over(bus, Arc::new(collections.clone()), scratch.path().join("views"));
        let view = views.changelog(Changelog::new(View::new("latest"), ORDERS)).await.unwrap();
        let totals: Collection<Document> = collections.database().collection("totals");
        let counting = totals.clone();
        let counted = SessionProjection::new("totals").topic(ORDERS);
        let counted = counted.start(&views, &collections, move |session, _event| {
            let totals = counting.clone();
            Box::pin(async move {
                let more = doc! { "$inc": { "events": 1_i64 } };
                totals
                    .update_one(doc! { "_id": "all" }, more)
                    .upsert(true)
                    .session(session)
                    .await?;
                Ok(())
            })
        });
        let counted = counted.await.unwrap();
        let shop = Shop::open(url).await;
        let options =
            DrainOptions { backoff_max: Duration::from_secs(1), ..DrainOptions::default() };
        let drainer = Drainer::over(shop.outbox.table(), bus.clone(), options).unwrap();
        let (stop, stopped) = oneshot::channel();
        let draining = tokio::spawn(drainer.run(async { drop(stopped.await) }));
        let (fed, bus) = (Fed::start(url, bus).await, bus.clone());
        Self { bus, view, counted, totals, shop, stop, draining, views, fed, _scratch: scratch }
    }

    async fn events(&self, topic: &str) -> u64 {
        let topics = self.bus.topics();
        let entry = topics.get(&Topic::new(topic).unwrap()).unwrap();
        let mut events = 0;
        for lane in entry.lanes() {
            events += self.bus.store().bounds(lane).await.unwrap().next.get();
        }
        events
    }

    /// Each has every event once, and nothing else; so many were shipped. Gives what there was.
    pub(super) async fn all_is_well(self, shipped: u64) -> String {
        let events = self.events(ORDERS).await;
        until_all("the projections have every event", async || {
            let counts = [&self.view, &self.counted].map(|one| one.progress().counts.events);
            counts.iter().all(|count| *count >= events)
        })
        .await;
        until_all("the outbox is empty", async || {
            self.shop.outbox.stats().await.is_ok_and(|stats| stats.pending == 0)
        })
        .await;
        until_all("the feed has every change", async || self.events(SHIPPED).await >= shipped)
            .await;
        let mut wrong = Vec::new();
        let mut must = |holds: bool, text: String| {
            if !holds {
                wrong.push(text);
            }
        };
        let total = self.totals.find_one(doc! { "_id": "all" }).await.unwrap().unwrap();
        let total = total.get_i64("events").unwrap();
        must(total as u64 == events, format!("{events} events were counted as {total}"));
        for one in [&self.view, &self.counted] {
            let counts = one.progress().counts;
            must(
                counts.events == events && counts.dead == 0,
                format!("{events} events: {counts:?}"),
            );
        }
        let verified = self.view.verify().await.unwrap();
        must(verified.different == 0 && verified.missed == 0, format!("{verified:?}"));
        let published = self.events(SHIPMENTS).await;
        must(published == shipped, format!("{shipped} shipped, {published} said so"));
        let business = self.shop.shipments.count_documents(doc! {}).await.unwrap();
        must(business == shipped, format!("{shipped} shipped, {business} are there"));
        let fed = self.events(SHIPPED).await;
        must(fed == shipped, format!("{shipped} shipped, {fed} changes"));
        let status = self.fed.status().await.unwrap();
        must(status.gap.is_none() && status.alarm.is_none(), format!("{status:?}"));
        let stats = self.shop.outbox.stats().await.unwrap();
        must(stats.dead == 0, format!("{stats:?}"));
        must_hold(&wrong);
        drop(self.fed.stop);
        self.fed.running.await.unwrap();
        drop(self.stop);
        let counters = self.draining.await.unwrap();
        self.views.stop().await;
        format!("{events} events in a view and a counter, {shipped} shipped and fed; {counters:?}")
    }
}
