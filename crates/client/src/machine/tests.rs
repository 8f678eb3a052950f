//! The machine against a server that is played here, frame by frame.

use promethean_event::frame::SubscribeOpts;
use promethean_event::{EventId, Failure, GroupName, Offset, Partition, Pattern};
use serde_json::{Value, json};

use super::*;
use crate::limits::{BACKOFF_FIRST_MS, REJOIN_MS};
use crate::publish::Durability;

const URL: &str = "ws://here";

struct Scene {
    machine: Machine,
    now: u64,
}

/// What was done, with frames as values.
#[derive(Debug)]
struct Done {
    effects: Vec<Effect>,
    frames: Vec<Value>,
}

impl Done {
    fn frame(&self, op: &str) -> &Value {
        let found = self.frames.iter().find(|frame| frame["op"] == op);
        found.unwrap_or_else(|| panic!("no {op} in {self:?}"))
    }

    fn has(&self, wanted: &Effect) -> bool {
        self.effects.contains(wanted)
    }

    fn is_silent(&self) -> bool {
        self.effects.is_empty() && self.frames.is_empty()
    }
}

impl Scene {
    fn new() -> Self {
        Self { machine: Machine::new(URL, true, 7), now: 1_000 }
    }

    /// A connection that is up.
    fn connected() -> Self {
        let mut scene = Self::new();
        scene.connect();
        scene
    }

    fn step(&mut self, input: Input) -> Done {
        let mut effects = Vec::new();
        self.machine.step(self.now, input, &mut effects);
        let mut done = Done { effects: Vec::new(), frames: Vec::new() };
        for effect in effects {
            match effect {
                Effect::Send(text) => done.frames.push(serde_json::from_str(&text).unwrap()),
                other => done.effects.push(other),
            }
        }
        done
    }

    fn hear(&mut self, frame: impl std::borrow::Borrow<Value>) -> Done {
        self.step(Input::Frame(frame.borrow().to_string()))
    }

    fn wait(&mut self, ms: u64) -> Done {
        self.now += ms;
        self.step(Input::Tick)
    }

    fn greet(&mut self, epoch: &str) -> Done {
        self.step(Input::Opened);
        self.hear(json!({ "op": "HELLO", "epoch": epoch, "limits": { "frame_bytes": 1000 } }))
    }

    fn connect(&mut self) -> Done {
        self.connect_to("one")
    }

    fn connect_to(&mut self, epoch: &str) -> Done {
        let due = self.machine.due_ms().unwrap().max(self.now);
        self.now = due;
        assert!(self.step(Input::Tick).has(&Effect::Connect));
        assert!(self.greet(epoch).has(&Effect::GetToken));
        let done = self.step(Input::Token(Ok(None)));
        assert!(done.has(&Effect::State(State::Connected)));
        done
    }

    fn cut(&mut self) -> Done {
        self.step(Input::Lost(gone()))
    }

    fn publish(&mut self, ticket: Ticket) -> Done {
        let wish = PublishWish { events: "[1]".into(), id: id(), deadline_ms: self.now + 30_000 };
        self.step(Input::Publish(ticket, wish))
    }

    fn subscribe(&mut self, group: Option<&str>) -> Done {
        let wish = SubscribeWish {
            topics: vec![Pattern::new("a.*").unwrap()],
            group: group.map(|group| GroupName::new(group).unwrap()),
            opts: SubscribeOpts::default(),
            prefetch: 4,
            lease_ms: 30_000,
            processing_ms: 60_000,
        };
        self.step(Input::Subscribe(1, wish))
    }

    /// A member of a group that has one event.
    fn with_event() -> (Self, DeliveryToken) {
        let mut scene = Self::connected();
        let corr = scene.subscribe(Some("g")).frame("SUBSCRIBE")["corr"].clone();
        assert!(scene.hear(json!({ "op": "OK", "corr": corr, "sub": 9 })).has(&Effect::Joined(1)));
        let token = "9-2-0-5-0-1-0";
        scene.hear(events(9, json!({ "attempt": 1, "token": token, "ack_deadline_ms": 30_000 })));
        (scene, token.parse().unwrap())
    }

    fn reply(&mut self, token: DeliveryToken, reply: Reply, ticket: Option<Ticket>) -> Done {
        let generation = self.machine.generation;
        self.step(Input::Reply(DeliveryReply { key: 1, token, generation, reply, ticket }))
    }
}

fn gone() -> ConnectError {
    ConnectError::Unreachable { url: URL.into(), why: "gone".into() }
}

fn id() -> EventId {
    EventId::from_bytes([7; 16])
}

fn events(sub: u32, ctx: impl serde::Serialize) -> Value {
    let event =
        json!({ "id": id(), "ts": 1, "topic": "a.b", "partition": 0, "offset": 5, "payload": {} });
    json!({ "op": "EVENTS", "sub": sub, "events": [{ "event": event, "ctx": ctx }] })
}

#[test]
fn what_is_published_before_there_is_a_connection_waits_for_it() {
    let mut scene = Scene::new();
    assert!(scene.publish(1).frames.is_empty());
    assert!(scene.greet("one").has(&Effect::GetToken));
    let done = scene.step(Input::Token(Ok(None)));
    let corr = done.frame("PUBLISH")["corr"].clone();
    let done = scene.hear(json!({ "op": "OK", "corr": corr, "places": [] }));
    assert!(done.has(&Effect::Published(1, Ok(vec![]))));
}

#[test]
fn an_answer_that_names_no_durability_means_a_disk() {
    let cases = [
        (json!({}), Durability::Synced),
        (json!({ "durability": "written" }), Durability::Written),
        (json!({ "durability": "none" }), Durability::None),
        (json!({ "durability": "of a newer server" }), Durability::None),
    ];
    let mut scene = Scene::connected();
    for (ticket, (said, wanted)) in (1..).zip(cases) {
        let corr = scene.publish(ticket).frame("PUBLISH")["corr"].clone();
        let id = EventId::from_bytes([7; 16]);
        let mut answer = json!({ "op": "OK", "corr": corr });
        answer["places"] = json!([{ "id": id, "partition": 1, "offset": 2 }]);
        answer.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        let (partition, offset) = (Partition::new(1), Offset::new(2));
        let place = Place { id, partition, offset, duplicate: false, durability: wanted };
        assert!(scene.hear(answer).has(&Effect::Published(ticket, Ok(vec![place]))));
    }
}

#[test]
fn what_was_not_answered_is_sent_again_as_it_was_and_in_order() {
    let mut scene = Scene::connected();
    let first = scene.publish(1).frame("PUBLISH")["events"].clone();
    scene.publish(2);
    let done = scene.cut();
    assert!(!done.effects.iter().any(|effect| matches!(effect, Effect::Published(..))));
    let done = scene.connect();
    assert_eq!(done.frames.len(), 2, "{done:?}");
    assert_eq!(done.frames[0]["events"], first);
    assert!(done.frames[0]["corr"].as_u64() < done.frames[1]["corr"].as_u64());
}

#[test]
fn what_does_not_fit_a_frame_is_not_sent() {
    let mut scene = Scene::connected();
    let wish = PublishWish { events: "x".repeat(1_000), id: id(), deadline_ms: u64::MAX };
    let done = scene.step(Input::Publish(1, wish));
    let error = PublishError::TooLarge { bytes: 1_064, max: 1_000 };
    assert!(done.has(&Effect::Published(1, Err(error))) && done.frames.is_empty());
}

#[test]
fn a_publish_that_was_refused_for_now_is_tried_again() {
    let mut scene = Scene::connected();
    let corr = scene.publish(1).frame("PUBLISH")["corr"].clone();
    let busy =
        json!({ "op": "ERR", "corr": corr, "code": "not_ready", "msg": "", "retry_ms": 500 });
    assert!(scene.hear(busy).is_silent());
    assert!(scene.wait(499).is_silent());
    let corr = scene.wait(1).frame("PUBLISH")["corr"].clone();
    let done = scene.hear(json!({ "op": "ERR", "corr": corr, "code": "forbidden", "msg": "no" }));
    let refusal = Refusal::new("forbidden", "no", None);
    assert!(done.has(&Effect::Published(1, Err(PublishError::Refused(refusal)))));
}

#[test]
fn a_publish_ends_in_time_and_says_whether_it_was_sent() {
    let mut scene = Scene::connected();
    scene.publish(1);
    scene.cut();
    scene.publish(2);
    let done = scene.wait(30_000);
    assert!(done.has(&Effect::Published(1, Err(PublishError::Indeterminate { id: id() }))));
    assert!(done.has(&Effect::Published(2, Err(PublishError::NotSent))));
}

#[test]
fn a_lease_is_renewed_and_ends_with_its_connection() {
    let (mut scene, token) = Scene::with_event();
    assert!(scene.wait(9_999).is_silent());
    let done = scene.wait(1);
    let renewal = done.frame("MODACK");
    assert_eq!((&renewal["token"], &renewal["extend_ms"]), (&json!(token), &json!(30_000)));
    let corr = renewal["corr"].clone();
    assert!(scene.hear(json!({ "op": "OK", "corr": corr })).is_silent());
    assert!(scene.cut().has(&Effect::AllLost(1)));
    let done = scene.reply(token, Reply::Ack, Some(4));
    assert!(done.has(&Effect::Replied(4, Err(AckError::LeaseLost))));
    // The group is asked for again, with all the room there is.
    let done = scene.connect();
    assert_eq!(done.frame("SUBSCRIBE")["opts"]["credit"], 4);
    let generation = scene.machine.generation - 1;
    let late = DeliveryReply { key: 1, token, generation, reply: Reply::Ack, ticket: Some(5) };
    let done = scene.step(Input::Reply(late));
    assert!(done.has(&Effect::Replied(5, Err(AckError::LeaseLost))), "of the connection before");
}

/// A subscription that the server ends is asked for again, or is over; the connection stays.
#[test]
fn a_subscription_that_ends_ends_alone() {
    let (mut scene, token) = Scene::with_event();
    let number = token.sub;
    let ended = |code: &str| json!({ "op": "ERR", "code": code, "msg": "over", "sub": number });
    let done = scene.hear(ended("read_only"));
    assert!(done.has(&Effect::AllLost(1)) && !done.has(&Effect::HangUp), "{done:?}");
    let done = scene.wait(REJOIN_MS);
    let corr = done.frame("SUBSCRIBE")["corr"].clone();
    scene.hear(json!({ "op": "OK", "corr": corr, "sub": number }));
    let done = scene.hear(ended("forbidden"));
    let over = done.effects.iter().any(|effect| matches!(effect, Effect::Ended(1, _)));
    assert!(over && !done.has(&Effect::HangUp), "{done:?}");
    // One that is not known here is none of ours.
    assert!(scene.hear(ended("forbidden")).is_silent());
}

#[test]
fn work_that_does_not_end_loses_its_lease() {
    let (mut scene, token) = Scene::with_event();
    scene.reply(token, Reply::Begin, None);
    let mut renewals = 0;
    loop {
        // The server is there, and says yes to everything.
        scene.step(Input::Heard);
        let done = scene.wait(1_000);
        if done.has(&Effect::LeaseLost(1, token)) {
            break;
        }
        for frame in done.frames {
            renewals += 1;
            scene.hear(json!({ "op": "OK", "corr": frame["corr"] }));
        }
    }
    assert_eq!(renewals, 5, "every 10 s for 60 s");
    assert!((61_000..=92_000).contains(&scene.now), "{}", scene.now);
}

#[test]
fn acks_that_nobody_waits_for_go_together() {
    let (mut scene, token) = Scene::with_event();
    assert!(scene.reply(token, Reply::Ack, None).frames.is_empty());
    let done = scene.step(Input::Flush);
    assert_eq!(done.frame("ACKS")["tokens"], json!([token]));
    assert!(scene.step(Input::Flush).is_silent());
}

#[test]
fn answers_are_matched_and_credit_is_granted_anew() {
    let (mut scene, token) = Scene::with_event();
    let done = scene.reply(token, Reply::Ack, Some(3));
    let corr = done.frame("ACK")["corr"].clone();
    let done = scene.hear(json!({ "op": "OK", "corr": corr }));
    assert!(done.has(&Effect::Replied(3, Ok(()))));
    let ctx = json!({ "attempt": 2, "token": "9-2-0-5-0-2-0" });
    scene.hear(events(9, ctx));
    let failure = Failure::retry_after(Duration::from_secs(2), "no");
    let done = scene.reply("9-2-0-5-0-2-0".parse().unwrap(), Reply::Nack(failure), None);
    assert_eq!(done.frame("NACK")["delay_ms"], 2_000);
    assert_eq!(done.frame("CREDIT")["credit"], 2, "two of four are done");
}

#[test]
fn a_tail_goes_on_where_it_was_and_says_what_is_missing() {
    let mut scene = Scene::connected();
    let corr = scene.subscribe(None).frame("RESUME")["corr"].clone();
    let after = json!([{ "topic": "a.b", "partition": 0, "next": 5 }]);
    let answer =
        json!({ "op": "RESUMED", "corr": corr, "sub": 3, "recovered": true, "after": after });
    assert!(scene.hear(answer).has(&Effect::Joined(1)));
    scene.hear(events(3, json!({ "attempt": 1 })));
    scene.cut();
    let done = scene.connect();
    let resume = done.frame("RESUME");
    assert_eq!(resume["opts"]["after"][0]["next"], 6);
    assert_eq!(resume["opts"]["credit"], 3, "one is here, unread");
    let gap = json!({ "topic": "a.b", "partition": 0, "from": 6, "to": 8, "reason": "retention" });
    let answer = json!({
        "op": "RESUMED", "corr": resume["corr"], "sub": 1, "recovered": false, "gaps": [gap],
    });
    let done = scene.hear(answer);
    assert!(done.has(&Effect::Resumed(1, false)));
    let missing = |effect: &Effect| matches!(effect, Effect::Missing(1, gap) if gap.to.get() == 8);
    assert!(done.effects.iter().any(missing));
    scene.cut();
    let done = scene.connect();
    assert_eq!(done.frame("RESUME")["opts"]["after"][0]["next"], 8);
}

/// Places in another life of a topic are not gone on from.
#[test]
fn a_tail_forgets_where_it_was_in_a_topic_that_was_removed() {
    let mut scene = Scene::connected();
    let corr = scene.subscribe(None).frame("RESUME")["corr"].clone();
    scene.hear(json!({ "op": "RESUMED", "corr": corr, "sub": 3, "recovered": true }));
    scene.hear(events(3, json!({ "attempt": 1 })));
    let cases = [
        (json!([{ "topic": "a.b", "partition": 0, "next": 2 }]), "beyond_end", json!(2)),
        (json!([]), "removed", Value::Null),
    ];
    for (after, reason, wanted) in cases {
        scene.cut();
        let corr = scene.connect().frame("RESUME")["corr"].clone();
        let gap = json!({ "topic": "a.b", "partition": 0, "from": 6, "to": 6, "reason": reason });
        let answer = json!({
            "op": "RESUMED", "corr": corr, "sub": 1, "recovered": false, "gaps": [gap],
            "after": after,
        });
        let told =
            |effect: &Effect| matches!(effect, Effect::Missing(1, gap) if gap.reason == reason);
        assert!(scene.hear(answer).effects.iter().any(told));
        scene.cut();
        let done = scene.connect();
        assert_eq!(done.frame("RESUME")["opts"]["after"][0]["next"], wanted, "{reason}");
        let corr = done.frame("RESUME")["corr"].clone();
        scene.hear(json!({ "op": "RESUMED", "corr": corr, "sub": 1, "recovered": true }));
    }
}

#[test]
fn a_tail_of_another_store_is_told_so() {
    let mut scene = Scene::connected();
    let corr = scene.subscribe(None).frame("RESUME")["corr"].clone();
    scene.hear(json!({ "op": "RESUMED", "corr": corr, "sub": 3, "recovered": true }));
    scene.hear(events(3, json!({ "attempt": 1 })));
    scene.cut();
    let done = scene.connect_to("two");
    let is_epoch =
        |effect: &Effect| matches!(effect, Effect::Missing(1, gap) if gap.reason == "epoch");
    assert!(done.effects.iter().any(is_epoch), "{done:?}");
    let resume = done.frame("RESUME");
    assert_eq!(resume["opts"]["from"], "earliest");
    assert_eq!(resume["opts"].get("after"), None);
    let corr = resume["corr"].clone();
    let done = scene.hear(json!({ "op": "RESUMED", "corr": corr, "sub": 3, "recovered": true }));
    assert!(done.has(&Effect::Resumed(1, false)));
}

#[test]
fn a_server_that_stops_is_left_when_nothing_is_under_way() {
    let (mut scene, token) = Scene::with_event();
    let drain = json!({ "op": "DRAIN", "reason": "stops", "deadline_ms": 5_000 });
    assert!(!scene.hear(drain).has(&Effect::HangUp));
    assert!(scene.publish(1).frames.is_empty(), "it would be refused");
    let done = scene.reply(token, Reply::Ack, Some(2));
    let corr = done.frame("ACK")["corr"].clone();
    let done = scene.hear(json!({ "op": "OK", "corr": corr }));
    assert!(done.has(&Effect::HangUp));
    assert!(scene.connect().frames.iter().any(|frame| frame["op"] == "PUBLISH"));
}

#[test]
fn one_that_does_not_finish_is_left_in_time() {
    let (mut scene, _) = Scene::with_event();
    scene.hear(json!({ "op": "DRAIN", "reason": "stops", "deadline_ms": 5_000 }));
    assert!(!scene.wait(3_999).has(&Effect::HangUp));
    assert!(scene.wait(1).has(&Effect::HangUp));
}

#[test]
fn a_credential_that_is_refused_ends_it_unless_another_may_come() {
    for is_fixed in [true, false] {
        let mut scene = Scene::new();
        scene.machine = Machine::new(URL, is_fixed, 1);
        scene.publish(1);
        scene.greet("one");
        let auth = scene.step(Input::Token(Ok(Some("t".into()))));
        assert_eq!(auth.frame("AUTH")["token"], "t");
        let corr = auth.frame("AUTH")["corr"].clone();
        let refused = json!({ "op": "ERR", "corr": corr, "code": "unauthorized", "msg": "who?" });
        let done = scene.hear(refused);
        let error = ConnectError::Refused(Refusal::new("unauthorized", "who?", None));
        let failed = Effect::Published(1, Err(error.clone().into()));
        assert_eq!(done.has(&Effect::State(State::Closed { error })), is_fixed, "{done:?}");
        assert_eq!(done.has(&failed), is_fixed);
        assert_eq!(scene.machine.is_ended(), is_fixed);
    }
}

#[test]
fn a_silent_server_is_gone() {
    let mut scene = Scene::connected();
    assert!(scene.wait(QUIET_MS - 1).is_silent());
    assert!(scene.wait(1).has(&Effect::HangUp));
    assert!(!scene.machine.is_up());
}

#[test]
fn a_subscription_that_is_refused_ends_or_waits() {
    let mut scene = Scene::connected();
    let corr = scene.subscribe(Some("g")).frame("SUBSCRIBE")["corr"].clone();
    let later = json!({ "op": "ERR", "corr": corr, "code": "not_ready", "msg": "" });
    assert!(scene.hear(later).is_silent());
    let corr = scene.wait(REJOIN_MS).frame("SUBSCRIBE")["corr"].clone();
    let done = scene.hear(json!({ "op": "ERR", "corr": corr, "code": "conflict", "msg": "other" }));
    assert!(done.has(&Effect::Ended(1, Refusal::new("conflict", "other", None).into())));
}

#[test]
fn closing_waits_for_answers_and_ends_everything() {
    let mut scene = Scene::connected();
    let corr = scene.publish(1).frame("PUBLISH")["corr"].clone();
    assert!(!scene.step(Input::Close).has(&Effect::HangUp));
    let done = scene.hear(json!({ "op": "OK", "corr": corr, "places": [] }));
    assert!(done.has(&Effect::Published(1, Ok(vec![]))));
    assert!(done.has(&Effect::State(State::Closed { error: ConnectError::Closed })));
    let done = scene.publish(2);
    assert!(done.has(&Effect::Published(2, Err(ConnectError::Closed.into()))));
    assert_eq!(scene.machine.due_ms(), None);
}

#[test]
fn nonsense_ends_the_connection_and_news_are_passed_over() {
    let mut scene = Scene::connected();
    assert!(scene.hear(json!({ "op": "NEWS", "of": "later" })).is_silent());
    assert!(scene.step(Input::Frame("{".into())).has(&Effect::HangUp));
}

#[test]
fn a_certificate_that_is_no_good_ends_the_first_try_only() {
    let bad = || Input::Lost(ConnectError::Tls("expired".into()));
    let mut scene = Scene::new();
    scene.step(Input::Tick);
    scene.step(bad());
    assert!(scene.machine.is_ended());
    let mut scene = Scene::connected();
    scene.cut();
    scene.wait(BACKOFF_FIRST_MS);
    scene.step(bad());
    assert!(!scene.machine.is_ended(), "it may be exchanged");
}
