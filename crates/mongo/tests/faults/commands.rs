//! Every command that the store uses fails, in every way that servers have: what is answered is the
//! truth, and afterwards everything goes on.

use std::collections::BTreeMap;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use promethean::store::{Append, AppendError, TopicDefinition};
use promethean::{Bus, PublishError, Start};
use promethean_event::{EventId, GroupName, Key, NewEvent, Payload, Timestamp, Topic};

use super::failovers::is_honest;
use super::set::{Set, rounds};
use crate::conformance::wait_for;
use crate::hubs::until;

/// What the store, groups and entries send.
const COMMANDS: [&str; 10] = [
    "insert",
    "update",
    "find",
    "aggregate",
    "findAndModify",
    "delete",
    "commitTransaction",
    "abortTransaction",
    "getMore",
    "hello",
];

/// Ways to fail: a connection that is closed, and codes of servers. Shut down, no primary any more (three
/// kinds), write concern not met, write conflict, no such transaction, out of time.
const CODES: [i32; 8] = [11600, 10107, 189, 91, 64, 112, 251, 50];

/// What is known of an event that was published once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answered {
    Stored,
    Refused,
    Unknown,
}

struct Course {
    bus: Bus,
    client: Client,
    published: BTreeMap<EventId, Answered>,
    /// Events that were published together.
    batches: Vec<(EventId, EventId)>,
}

impl Course {
    async fn fail(&self, command: &str, how: Document, times: i32) {
        let mut data = doc! { "failCommands": [command] };
        data.extend(how);
        self.point(doc! { "mode": { "times": times }, "data": data }).await;
    }

    async fn point(&self, how: Document) {
        let mut order = doc! { "configureFailPoint": "failCommand" };
        order.extend(how);
        let admin = self.client.database("admin");
        // It may be the one that fails.
        while admin.run_command(order.clone()).await.is_err() {}
    }

    /// Publishes over two topics, and notes what was said of it. Not once more: what is refused must
    /// not be there.
    async fn publish(&mut self) {
        let event = |topic: &str| {
            let (ts, topic) = (Timestamp::from_millis(1), Topic::new(topic).unwrap());
            let event = NewEvent::new(EventId::generate(), ts, topic, Payload::of(&1).unwrap());
            event.with_key(Key::new("k").unwrap())
        };
        let events = vec![event("orders"), event("bills")];
        let ids = [events[0].id, events[1].id];
        self.batches.push((ids[0], ids[1]));
        let append = Append { events, ..Append::default() };
        let answered = match self.bus.store().append(append).await {
            Ok(_) => Answered::Stored,
            Err(AppendError::Indeterminate(_)) => Answered::Unknown,
            Err(error) => {
                assert!(is_honest(&PublishError::Append(error.clone())), "{error}");
                Answered::Refused
            }
        };
        self.published.extend(ids.into_iter().map(|id| (id, answered)));
    }

    /// What is in the store is what was said.
    async fn check(&self, cell: &str) {
        let mut found: BTreeMap<EventId, usize> = BTreeMap::new();
        for topic in ["orders", "bills"] {
            let topic = Topic::new(topic).unwrap();
            let lane = self.bus.topics().get(&topic).unwrap().lanes().next().unwrap();
            let (mut from, mut next) = (promethean_event::Offset::ZERO, 0);
            let end = self.bus.store().bounds(lane).await.unwrap().next;
            while from < end {
                let limit = promethean::store::PageLimit::default();
                let read = promethean::store::Read::From { lane, from, limit };
                let page = self.bus.store().read(read).await.unwrap();
                assert!(page.gaps.is_empty(), "{cell}: {:?}", page.gaps);
                for stored in &page.events {
                    assert_eq!(stored.event.offset.get(), next, "{cell}: not dense");
                    next += 1;
                    *found.entry(stored.event.id).or_default() += 1;
                }
                from = page.next;
            }
        }
        for (id, answered) in &self.published {
            let count = found.get(id).copied().unwrap_or(0);
            match answered {
                Answered::Stored => assert_eq!(count, 1, "{cell}: {id} was acknowledged"),
                Answered::Refused => assert_eq!(count, 0, "{cell}: {id} was refused"),
                Answered::Unknown => assert!(count <= 1, "{cell}: {id} is there twice"),
            }
        }
        // A batch is there whole or not at all.
        for (one, other) in &self.batches {
            assert_eq!(found.get(one), found.get(other), "{cell}: half of a batch");
        }
    }
}

#[test]
fn what_is_answered_is_the_truth_whatever_command_fails() {
    let set = Set::start(&["--members", "1"]);
    wait_for(async {
        let bus = set.bus().await;
        for topic in ["orders", "bills"] {
            let definition = TopicDefinition::new(Topic::new(topic).unwrap());
            bus.define(definition).await.unwrap();
        }
        let client = Client::with_uri_str(&set.url).await.unwrap();
        let group = GroupName::new("g").unwrap();
        let subscribe = bus.subscribe_to(["orders"], "g").from(Start::Earliest);
        let consumer = subscribe.handle(|_event| async { Ok(()) }).await.unwrap();
        let (published, batches) = (BTreeMap::new(), Vec::new());
        let mut course = Course { bus: bus.clone(), client, published, batches };
        let closed = doc! { "closeConnection": true };
        let codes = CODES.iter().map(|code| doc! { "errorCode": code });
        let ways: Vec<Document> = codes.chain([closed]).collect();
        let mut cells = 0;
        for times in 1..=i32::try_from(rounds().min(5)).unwrap() {
            for command in COMMANDS {
                for how in &ways {
                    let cell = format!("{command} {how} {times}");
                    course.fail(command, how.clone(), times).await;
                    course.publish().await;
                    course.point(doc! { "mode": "off" }).await;
                    until(&format!("{cell}: publishing goes on"), async || {
                        let event = event_of("orders");
                        bus.publish(event).await.is_ok()
                    })
                    .await;
                    cells += 1;
                }
                course.check(command).await;
            }
        }
        until("the group is done", async || bus.caught_up(&group).await.is_ok()).await;
        println!("{cells} cells, {} events noted", course.published.len());
        drop(consumer);
        bus.close().await;
    });
}

fn event_of(topic: &str) -> NewEvent {
    let (ts, topic) = (Timestamp::from_millis(1), Topic::new(topic).unwrap());
    NewEvent::new(EventId::generate(), ts, topic, Payload::of(&2).unwrap())
}
