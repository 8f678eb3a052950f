//! The suite for tables of an outbox; and rows that another program has written as documented.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use mongodb::bson::{Bson, Document, Timestamp as ServerTime, doc};
use mongodb::{Client, Database};
use promethean::outbox::{
    AddError, AfterDead, Claim, FailedEvent, Listing, OutboxTable, ReviveError,
};
use promethean_event::{EventId, NewEvent, Payload, Timestamp};
use promethean_harness::conformance::Check;
use promethean_harness::conformance::outbox::{Ending, OutboxPlace, run};
use promethean_mongo::outbox::MongoOutbox;

use crate::conformance::wait_for;
use crate::replica_set::{database, drop_database, url};

#[derive(Debug)]
struct MongoPlace {
    client: Client,
    database: Database,
    outbox: MongoOutbox,
}

impl MongoPlace {
    async fn new() -> Check<Self> {
        let client = Client::with_uri_str(url()).await?;
        let database = client.database(&database());
        let outbox = MongoOutbox::install(&database).await?;
        Ok(Self { client, database, outbox })
    }

    async fn add_now(
        &self,
        events: &[NewEvent],
        ending: Ending,
    ) -> mongodb::error::Result<Result<(), AddError>> {
        let mut session = self.client.start_session().await?;
        session.start_transaction().await?;
        let mut added = Ok(());
        for event in events {
            added = added.and(self.outbox.add(&mut session, event).await);
        }
        match ending {
            Ending::Commit => session.commit_transaction().await?,
            Ending::Rollback => session.abort_transaction().await?,
        }
        self.outbox.wake();
        Ok(added)
    }

    fn rows(&self) -> mongodb::Collection<Document> {
        self.database.collection("outbox")
    }
}

impl OutboxPlace for MongoPlace {
    fn table(&self) -> Arc<dyn OutboxTable> {
        self.outbox.table()
    }

    fn add(
        &self,
        events: Vec<NewEvent>,
        ending: Ending,
    ) -> BoxFuture<'_, Check<Result<(), AddError>>> {
        Box::pin(async move { Ok(self.add_now(&events, ending).await?) })
    }

    fn dead(&self) -> BoxFuture<'_, Check<Vec<FailedEvent>>> {
        Box::pin(async { Ok(self.outbox.dead(Listing::default()).await?) })
    }

    fn retry(&self, id: EventId) -> BoxFuture<'_, Result<(), ReviveError>> {
        Box::pin(self.outbox.retry(id))
    }

    fn discard(&self, id: EventId) -> BoxFuture<'_, Result<(), ReviveError>> {
        Box::pin(self.outbox.discard(id))
    }

    fn spoil(&self, id: EventId) -> BoxFuture<'_, Check> {
        Box::pin(async move {
            let spoil = doc! { "$unset": { "payload": 1, "payload_json": 1 } };
            self.rows().update_one(doc! { "_id": id.to_string() }, spoil).await?;
            Ok(())
        })
    }

    /// The server's time cannot be moved; what is kept of times can, which is the same.
    fn pass(&self, time: Duration) -> BoxFuture<'_, Check> {
        let millis = i64::try_from(time.as_millis()).unwrap();
        Box::pin(async move {
            for name in ["not_before", "sent_at", "dead_at"] {
                let earlier = doc! { "$subtract": [format!("${name}"), millis] };
                let there = doc! { name: { "$type": "date" } };
                let change = vec![doc! { "$set": { name: earlier } }];
                self.rows().update_many(there, change).await?;
            }
            Ok(())
        })
    }
}

#[test]
fn the_table_in_mongodb_holds() {
    let violations = wait_for(run(&|| {
        Box::pin(async { Ok(Box::new(MongoPlace::new().await?) as Box<dyn OutboxPlace>) })
    }));
    assert!(violations.is_empty(), "{violations:#?}");
}

/// Pitfall 40.
#[test]
fn adding_outside_a_transaction_is_refused() {
    wait_for(async {
        let place = MongoPlace::new().await.unwrap();
        let event = NewEvent::new(
            EventId::generate(),
            Timestamp::from_millis(1),
            "order.placed".parse().unwrap(),
            Payload::null(),
        );
        let mut session = place.client.start_session().await.unwrap();
        let refused = place.outbox.add(&mut session, &event).await;
        assert!(matches!(refused, Err(AddError::NoTransaction)), "{refused:?}");
        session.start_transaction().await.unwrap();
        place.outbox.add(&mut session, &event).await.unwrap();
        session.commit_transaction().await.unwrap();
        let refused = place.outbox.add(&mut session, &event).await;
        assert!(matches!(refused, Err(AddError::NoTransaction)), "{refused:?}");
        assert_eq!(place.outbox.stats().await.unwrap().pending, 1);
        drop_database(place.database.name()).await;
    });
}

fn wish() -> Claim {
    let (token, worker, after_dead) = ("one".into(), "one".into(), AfterDead::Wait);
    Claim { token, worker, rows: 100, lease: Duration::from_secs(60), after_dead }
}

/// `docs/outbox.md`: what a program in another language inserts.
#[test]
fn plain_documents_are_rows() {
    wait_for(async {
        let place = MongoPlace::new().await.unwrap();
        let empty = ServerTime { time: 0, increment: 0 };
        let id = |n: u8| EventId::v7(7, [n; 10]).to_string();
        let least =
            doc! { "_id": id(1), "topic": "order.placed", "payload": { "n": 1 }, "added": empty };
        let full = doc! {
            "_id": id(2), "topic": "order.placed", "key": "k", "ts": mongodb::bson::DateTime::from_millis(5),
            "headers": { "x-a": "1" }, "payload": { "at": mongodb::bson::DateTime::from_millis(0) },
            "caused_by": [id(1)], "tags": ["t"], "added": empty,
        };
        let unplaced = doc! { "_id": id(3), "topic": "order.placed", "payload": 1 };
        let nameless = doc! { "topic": "order.placed", "payload": 1, "added": empty };
        for row in [least, full, unplaced, nameless] {
            place.rows().insert_one(row).await.unwrap();
        }
        let rows = place.outbox.table().claim(wish()).await.unwrap().rows;
        let contents: Vec<_> = rows.iter().map(|row| row.content.as_ref()).collect();
        let reason = |at: usize| contents[at].unwrap_err().to_string();
        assert!(reason(0).contains("`added`"), "{}", reason(0));
        let least = contents[1].unwrap();
        assert_eq!((least.id.to_string(), least.payload.as_str()), (id(1), r#"{"n":1}"#));
        assert!(least.ts.millis() > 1_600_000_000_000, "when it was added");
        let full = contents[2].unwrap();
        assert_eq!(full.payload.as_str(), r#"{"at":{"$date":"1970-01-01T00:00:00Z"}}"#);
        assert_eq!((full.headers.get("x-a"), full.ts.millis()), (Some("1"), 5));
        assert!(reason(3).contains("`_id`"), "{}", reason(3));
        drop_database(place.database.name()).await;
    });
}

/// The server places rows, in the order of inserting, also in a transaction.
#[test]
fn rows_are_placed_by_the_server() {
    wait_for(async {
        let place = MongoPlace::new().await.unwrap();
        let event = |n: u64| {
            let (id, ts) = (EventId::generate(), Timestamp::from_millis(n));
            NewEvent::new(id, ts, "order.placed".parse().unwrap(), Payload::of(&n).unwrap())
        };
        let events: Vec<_> = (0..50).map(event).collect();
        place.add_now(&events, Ending::Commit).await.unwrap().unwrap();
        let row = place.rows().find_one(doc! {}).await.unwrap().unwrap();
        assert!(matches!(row.get("added"), Some(Bson::Timestamp(time)) if time.time > 0), "{row}");
        let rows = place.outbox.table().claim(wish()).await.unwrap().rows;
        let claimed: Vec<_> = rows.into_iter().map(|row| row.content.unwrap()).collect();
        assert_eq!(claimed, events);
        drop_database(place.database.name()).await;
    });
}

/// `docs/outbox.md`: the order of events of one key whose transactions are open at once is that of their
/// `add`s, unless the later one is through before the other one is there; where they write something in
/// common, one of them is refused.
#[test]
fn transactions_of_one_key_that_are_open_at_once_keep_what_is_documented() {
    wait_for(async {
        let place = MongoPlace::new().await.unwrap();
        let orders = place.database.collection::<Document>("orders");
        orders.insert_one(doc! { "_id": 7 }).await.unwrap();
        let event = || {
            let (id, ts) = (EventId::generate(), Timestamp::from_millis(1));
            NewEvent::new(id, ts, "order.placed".parse().unwrap(), Payload::null())
                .with_key(promethean_event::Key::new("7").unwrap())
        };
        let table = place.outbox.table();
        let claimed = async || {
            let rows = table.claim(wish()).await.unwrap().rows;
            let settlement = |row: &promethean::outbox::Row| promethean::outbox::Settlement {
                seq: row.seq,
                outcome: promethean::outbox::Outcome::Sent,
            };
            table.settle("one".into(), rows.iter().map(settlement).collect()).await.unwrap();
            rows.into_iter().map(|row| row.content.unwrap().id).collect::<Vec<_>>()
        };
        let both = async || {
            let (first, second) = (event(), event());
            let mut sessions = [
                place.client.start_session().await.unwrap(),
                place.client.start_session().await.unwrap(),
            ];
            for (session, event) in sessions.iter_mut().zip([&first, &second]) {
                session.start_transaction().await.unwrap();
                place.outbox.add(session, event).await.unwrap();
            }
            (sessions, first.id, second.id)
        };
        // Nobody looks in between: the order of adding, not that of commits.
        let ([mut one, mut other], first, second) = both().await;
        other.commit_transaction().await.unwrap();
        one.commit_transaction().await.unwrap();
        assert_eq!(claimed().await, [first, second]);
        // Somebody does.
        let ([mut one, mut other], first, second) = both().await;
        other.commit_transaction().await.unwrap();
        assert_eq!(claimed().await, [second]);
        one.commit_transaction().await.unwrap();
        assert_eq!(claimed().await, [first]);
        // They write the order itself: only one of them can.
        let ([mut one, mut other], _, second) = both().await;
        let (by_id, paid) = (doc! { "_id": 7 }, doc! { "$inc": { "paid": 1 } });
        orders.update_one(by_id.clone(), paid.clone()).session(&mut other).await.unwrap();
        other.commit_transaction().await.unwrap();
        let refused = orders.update_one(by_id, paid).session(&mut one).await.unwrap_err();
        assert!(refused.contains_label("TransientTransactionError"), "{refused}");
        assert_eq!(claimed().await, [second]);
        drop_database(place.database.name()).await;
    });
}

/// A worker's claim that nobody has heard of, told from the one that it works on.
#[test]
fn what_is_held_by_other_claims_is_given_back_by_itself() {
    wait_for(async {
        let place = MongoPlace::new().await.unwrap();
        let events: Vec<_> = (0..4_u64)
            .map(|n| {
                let (id, ts) = (EventId::generate(), Timestamp::from_millis(n));
                NewEvent::new(id, ts, "order.placed".parse().unwrap(), Payload::of(&n).unwrap())
            })
            .collect();
        place.add_now(&events, Ending::Commit).await.unwrap().unwrap();
        let table = place.outbox.table();
        let claim = |worker: &str, token: &str| Claim {
            token: token.into(),
            worker: worker.into(),
            rows: 1,
            ..wish()
        };
        for (worker, token) in [("a", "lost"), ("a", "mine"), ("b", "other")] {
            assert_eq!(table.claim(claim(worker, token)).await.unwrap().rows.len(), 1);
        }
        assert_eq!(table.give_back_others("a".into(), "mine".into()).await.unwrap(), 1);
        let held = async |token: &str| {
            table.renew(token.to_owned(), Duration::from_secs(60)).await.unwrap()
        };
        assert_eq!((held("lost").await, held("mine").await, held("other").await), (0, 1, 1));
        drop_database(place.database.name()).await;
    });
}

/// Claims, marks and listings go by indexes.
#[test]
fn no_step_reads_the_outbox_through() {
    wait_for(async {
        let place = MongoPlace::new().await.unwrap();
        place.database.run_command(doc! { "profile": 2 }).await.unwrap();
        let events: Vec<_> = (0..20_u64)
            .map(|n| {
                let (id, ts) = (EventId::generate(), Timestamp::from_millis(n));
                NewEvent::new(id, ts, "order.placed".parse().unwrap(), Payload::of(&n).unwrap())
                    .with_key(promethean_event::Key::new("k").unwrap())
            })
            .collect();
        place.add_now(&events, Ending::Commit).await.unwrap().unwrap();
        let table = place.outbox.table();
        let rows = table.claim(Claim { rows: 5, ..wish() }).await.unwrap().rows;
        assert!(table.claim(wish()).await.unwrap().rows.is_empty());
        let sent = promethean::outbox::Outcome::Sent;
        let settlement = |row: &promethean::outbox::Row| promethean::outbox::Settlement {
            seq: row.seq,
            outcome: sent.clone(),
        };
        table.renew("one".into(), Duration::from_secs(1)).await.unwrap();
        table.settle("one".into(), rows.iter().map(settlement).collect()).await.unwrap();
        table.give_back_others("one".into(), "two".into()).await.unwrap();
        table.give_back("one".into()).await.unwrap();
        table.purge(Duration::ZERO, 10).await.unwrap();
        place.outbox.dead(Listing::default()).await.unwrap();
        place.database.run_command(doc! { "profile": 0 }).await.unwrap();
        let profile = place.database.collection::<Document>("system.profile");
        let ns = format!("{}.outbox", place.database.name());
        let seen = doc! { "ns": &ns, "planSummary": { "$exists": true } };
        assert!(profile.count_documents(seen).await.unwrap() > 6);
        let through = doc! { "ns": &ns, "planSummary": { "$regex": "COLLSCAN" } };
        let through = profile.find_one(through).await.unwrap();
        assert!(through.is_none(), "read through: {through:#?}");
        drop_database(place.database.name()).await;
    });
}
