//! Every command that the store uses fails, in every way that servers have: what is answered is the
//! truth, and afterwards everything goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use promethean::store::{
    Append, AppendError, Attend, HubId, Put, SaveError, Store, TopicDefinition,
};
use promethean::{Bus, BusOptions, PublishError, Start};
use promethean_event::{EventId, GroupName, Key, NewEvent, Payload, Timestamp, Topic};

use super::failovers::is_honest;
use super::kept::Kept;
use super::set::{Set, rounds};
use crate::conformance::wait_for;
use crate::hubs::{until, until_all};
use crate::verdict::must_hold;

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

/// Those that ask for a write concern: the server answers that they are done, and that it is not known
/// whether a majority has it.
const WRITES: [&str; 5] = ["insert", "update", "findAndModify", "delete", "commitTransaction"];

/// What it says then: not met, shut down, no primary any more.
const UNCONFIRMED: [i32; 3] = [64, 91, 11600];

/// All ways in which a command fails.
pub(super) fn ways(command: &str) -> Vec<Document> {
    let codes = CODES.iter().map(|code| doc! { "errorCode": code });
    let unconfirmed = UNCONFIRMED.iter().filter(|_| WRITES.contains(&command));
    let unconfirmed = unconfirmed.map(|code| {
        doc! { "writeConcernError": { "code": code, "errmsg": "not confirmed" } }
    });
    let closed = doc! { "closeConnection": true };
    codes.chain(unconfirmed).chain([closed]).collect()
}

/// How often everything is done at most before a command must have failed. Some are only sent now and
/// then: what listens asks once a second, and so do monitors.
const DRIVES_MAX: usize = 200;

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
    /// The values that an entry may have.
    entry: BTreeSet<u64>,
    /// A hub that is there, and has no members.
    hub: HubId,
    turns: u64,
}

impl Course {
    /// Lets a command fail so many times; gives how often any has failed before.
    async fn fail(&self, command: &str, how: Document, times: i32) -> i32 {
        let mut data = doc! { "failCommands": [command] };
        data.extend(how);
        self.point(doc! { "mode": { "times": times }, "data": data }).await
    }

    /// Gives how often commands have failed by it so far.
    async fn point(&self, how: Document) -> i32 {
        let mut order = doc! { "configureFailPoint": "failCommand" };
        order.extend(how);
        self.admin(order).await.get_i32("count").unwrap()
    }

    async fn admin(&self, command: Document) -> Document {
        let admin = self.client.database("admin");
        loop {
            // It may be the one that fails.
            if let Ok(answer) = admin.run_command(command.clone()).await {
                return answer;
            }
        }
    }

    /// A command fails while everything is done that the store does. Again, until it has failed: or
    /// nothing sends it, and nothing was tried.
    async fn go_through(&mut self, command: &str, how: &Document, times: i32) {
        let cell = format!("{command} {how} {times}");
        for _ in 0..DRIVES_MAX {
            let before = self.fail(command, how.clone(), times).await;
            self.drive(&cell).await;
            if self.point(doc! { "mode": "off" }).await > before {
                return;
            }
        }
        panic!("{cell}: nothing sends it");
    }

    async fn drive(&mut self, cell: &str) {
        self.publish().await;
        self.put().await;
        let mut definition = TopicDefinition::new(Topic::new("bills").unwrap());
        // Another one each time, so that there is something to write.
        definition.cleaning.age_ms_max = Some(1_000_000_000 + self.turns);
        let bus = self.bus.clone();
        assert_honest(cell, &bus.store().define(definition).await);
        let claims = bus.store().claims().unwrap();
        let lease = std::time::Duration::from_secs(600);
        let attend = Attend { hub: self.hub, arrives: true, groups: Vec::new(), lease };
        assert_honest(cell, &claims.attend(attend).await);
        // It is another's: this is taken back.
        let lane = bus.topics().get(&Topic::new("orders").unwrap()).unwrap().lanes().next();
        let claimed = claims.claim(self.hub, group(), lane.into_iter().collect()).await;
        assert_honest(cell, &claimed);
        // What it could not clean it says, and the next time it does.
        drop(bus.store().clean(Vec::new()).await);
    }

    /// Puts an entry, and notes what it may be by then.
    async fn put(&mut self) {
        self.turns += 1;
        let value = Some(Payload::of(&self.turns).unwrap());
        let put = Put { space: "test", key: Key::new("turn").unwrap(), value, expect: None };
        match self.bus.store().put(vec![put]).await {
            Ok(()) => self.entry = BTreeSet::from([self.turns]),
            Err(SaveError::Append(AppendError::Indeterminate(_))) => {
                self.entry.insert(self.turns);
            }
            Err(SaveError::Append(AppendError::Unavailable(_))) => {}
            Err(error) => panic!("{error}"),
        }
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
        let (mut found, mut wrong) = (BTreeMap::<EventId, usize>::new(), Vec::new());
        let mut must = |holds: bool, text: String| {
            if !holds {
                wrong.push(format!("{cell}: {text}"));
            }
        };
        for topic in ["orders", "bills"] {
            let topic = Topic::new(topic).unwrap();
            let lane = self.bus.topics().get(&topic).unwrap().lanes().next().unwrap();
            let (mut from, mut next) = (promethean_event::Offset::ZERO, 0);
            let end = self.bus.store().bounds(lane).await.unwrap().next;
            while from < end {
                let limit = promethean::store::PageLimit::default();
                let read = promethean::store::Read::From { lane, from, limit };
                let page = self.bus.store().read(read).await.unwrap();
                must(page.gaps.is_empty(), format!("{:?}", page.gaps));
                for stored in &page.events {
                    must(stored.event.offset.get() == next, format!("not dense at {next}"));
                    next += 1;
                    *found.entry(stored.event.id).or_default() += 1;
                }
                from = page.next;
            }
        }
        let entries = self.bus.store().entries("test").await.unwrap();
        let value: u64 = entries[0].value.decode().unwrap();
        let may_be = &self.entry;
        must(may_be.contains(&value), format!("the entry is {value}, not one of {may_be:?}"));
        for (id, answered) in &self.published {
            let count = found.get(id).copied().unwrap_or(0);
            match answered {
                Answered::Stored => must(count == 1, format!("{id}, acknowledged: {count} times")),
                Answered::Refused => must(count == 0, format!("{id}, refused: {count} times")),
                Answered::Unknown => must(count <= 1, format!("{id} is there {count} times")),
            }
        }
        // A batch is there whole or not at all.
        for (one, other) in &self.batches {
            must(found.get(one) == found.get(other), format!("half of {one} and {other}"));
        }
        must_hold(&wrong);
    }
}

#[test]
fn what_is_answered_is_the_truth_whatever_command_fails() {
    let set = Set::for_commands();
    wait_for(async {
        let bus = set.bus().await;
        for topic in ["orders", "bills"] {
            let definition = TopicDefinition::new(Topic::new(topic).unwrap());
            bus.define(definition).await.unwrap();
        }
        let client = Client::with_uri_str(&set.url).await.unwrap();
        let subscribe = bus.subscribe_to(["orders"], "g").from(Start::Earliest);
        let consumer = subscribe.handle(|_event| async { Ok(()) }).await.unwrap();
        let mut course = Course {
            bus: bus.clone(),
            client,
            published: BTreeMap::new(),
            batches: Vec::new(),
            entry: BTreeSet::new(),
            hub: HubId::generate(),
            turns: 0,
        };
        let mut cells = 0;
        for times in 1..=i32::try_from(rounds().min(5)).unwrap() {
            for command in COMMANDS {
                for how in &ways(command) {
                    let cell = format!("{command} {how} {times}");
                    course.go_through(command, how, times).await;
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
        until_all("the group is done", async || bus.caught_up(&group()).await.is_ok()).await;
        println!("{cells} cells, {} events noted", course.published.len());
        drop(consumer);
        bus.close().await;
    });
}

/// The same for what is kept beside: a view, code with a session, an outbox, a feed. Whatever fails, each has
/// every event once at the end.
#[test]
fn what_is_kept_counts_every_event_once_whatever_command_fails() {
    let set = Set::for_commands();
    wait_for(async {
        let store = set.store().await;
        let bus = Bus::with_store(Arc::clone(&store) as Arc<dyn Store>, BusOptions::default());
        bus.define(TopicDefinition::new(Topic::new("orders").unwrap())).await.unwrap();
        let kept = Kept::start(&set.url, &bus, &store).await;
        let mut shipped = 0;
        for command in COMMANDS {
            for how in &ways(command) {
                let cell = format!("{command} {how}");
                set.fail(command, doc! { "times": FAILS_OF_KEPT }, how.clone()).await;
                // Published is what is there in the end, once or not at all: its own id is not kept.
                until(&format!("{cell}: publishing goes on"), async || {
                    bus.publish(event_of("orders")).await.is_ok()
                })
                .await;
                shipped += 1;
                kept.shop.ship(shipped).await;
            }
        }
        set.fail("hello", "off", doc! {}).await;
        println!("{}", kept.all_is_well(shipped.unsigned_abs()).await);
        bus.close().await;
    });
}

/// So often that what is kept meets some of them.
const FAILS_OF_KEPT: i32 = 5;

fn group() -> GroupName {
    GroupName::new("g").unwrap()
}

/// Done, or not, or nobody knows: nothing else comes of a command that fails.
fn assert_honest<T: std::fmt::Debug>(cell: &str, answer: &Result<T, SaveError>) {
    use AppendError::{Indeterminate, Unavailable};
    let honest =
        matches!(answer, Ok(_) | Err(SaveError::Append(Unavailable(_) | Indeterminate(_))));
    assert!(honest, "{cell}: {answer:?}");
}

fn event_of(topic: &str) -> NewEvent {
    let (ts, topic) = (Timestamp::from_millis(1), Topic::new(topic).unwrap());
    let event = NewEvent::new(EventId::generate(), ts, topic, Payload::of(&2).unwrap());
    event.with_key(Key::new("k").unwrap())
}
