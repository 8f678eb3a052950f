//! What `prom.v1` adds: batches, tokens, credits, tails, resume.

use super::server::TestServer;

#[tokio::test]
async fn batches_go_in_whole_or_not_at_all() {
    let server = TestServer::open().await;
    let mut client = server.negotiated().await;
    let ok = client
        .ask(r#"{"op":"PUBLISH","events":[{"topic":"a","payload":1},{"topic":"b","payload":2}],"corr":1}"#)
        .await;
    assert_eq!(ok["places"].as_array().unwrap().len(), 2);
    let err = client
        .ask(r#"{"op":"PUBLISH","events":[{"topic":"a","payload":1},{"topic":"$b","payload":2}]}"#)
        .await;
    assert_eq!(err["code"], "forbidden");
    let page = server.get("/events/a").await.json();
    assert_eq!(page["events"].as_array().unwrap().len(), 1);
}

/// Frames that came together are handed to the store together; each is still a publish of its own,
/// in its place, and what follows them comes after them.
#[tokio::test]
async fn what_comes_together_is_stored_in_order_and_answered_one_by_one() {
    const TAKEN: &str = "018c2e65-4b00-7000-8000-000000000001";
    let server = TestServer::open().await;
    let mut client = server.negotiated().await;
    let first = format!(r#"{{"op":"PUBLISH","topic":"a","payload":-1,"opts":{{"id":"{TAKEN}"}}}}"#);
    assert_eq!(client.ask(first).await["op"], "OK");
    let publish = |n: usize| {
        let opts = match n {
            // Another event has this id; a header has no name.
            30 => format!(r#"{{"id":"{TAKEN}"}}"#),
            40 => r#"{"headers":{"":"x"}}"#.to_owned(),
            _ => "{}".to_owned(),
        };
        // A topic that is made on the way does not let others pass.
        let topic = if n == 50 { "made.now" } else { "a" };
        format!(r#"{{"op":"PUBLISH","topic":"{topic}","payload":{n},"opts":{opts},"corr":{n}}}"#)
    };
    let subscribe = r#"{"op":"SUBSCRIBE","topic":"a","group":"g","corr":"sub"}"#.to_owned();
    client.say_all((0..100).map(publish).chain([subscribe])).await;
    let (mut stored, mut refused) = (Vec::new(), Vec::new());
    let mut is_subscribed = false;
    while stored.len() + refused.len() < 100 || !is_subscribed {
        let answer = client.next().await;
        match (answer["op"].as_str().unwrap(), answer["corr"].as_u64()) {
            ("OK", Some(n)) => stored.push((n, answer["places"][0]["offset"].as_u64().unwrap())),
            ("OK", None) => is_subscribed = true,
            ("ERR", Some(n)) => refused.push((n, answer["code"].as_str().unwrap().to_owned())),
            _ => panic!("{answer}"),
        }
    }
    refused.sort();
    assert_eq!(refused.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [30, 40], "{refused:?}");
    let of_a: Vec<_> = stored.iter().filter(|(n, _)| *n != 50).collect();
    assert!(stored.is_sorted_by_key(|(n, _)| *n), "answers are in order: {stored:?}");
    assert!(of_a.iter().map(|(_, offset)| *offset).eq(1..98), "without a hole: {of_a:?}");
    // The group began behind all of them.
    client.say(publish(100)).await;
    assert_eq!(client.next_of("EVENT").await["event"]["payload"], 100);
}

#[tokio::test]
async fn tokens_batches_and_ranges() {
    let server = TestServer::open().await;
    let mut client = server.negotiated().await;
    let ok = client
        .ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{"batch":true,"from":"earliest"},"corr":1}"#)
        .await;
    let sub = ok["sub"].as_u64().unwrap();
    let events: Vec<String> = (0..6).map(|n| format!(r#"{{"topic":"a","payload":{n}}}"#)).collect();
    client.say(format!(r#"{{"op":"PUBLISH","events":[{}]}}"#, events.join(","))).await;
    let mut got = Vec::new();
    while got.len() < 6 {
        let frame = client.next_of("EVENTS").await;
        assert_eq!(frame["sub"], sub);
        got.extend(frame["events"].as_array().unwrap().clone());
    }
    let token = |n: usize| got[n]["ctx"]["token"].as_str().unwrap().to_owned();
    let acks = format!(r#"{{"op":"ACKS","tokens":["{}","{}"],"corr":"t"}}"#, token(0), token(1));
    let ok = client.ask(acks).await;
    assert_eq!((&ok["corr"], &ok["accepted"]), (&"t".into(), &2.into()), "{ok}");
    let epoch = u32::from_str_radix(token(2).split('-').nth(4).unwrap(), 16).unwrap();
    let range = format!(
        r#"{{"op":"ACKS","ranges":[{{"sub":{sub},"topic":"a","partition":0,"from":2,"to":4,"epoch":{epoch}}}],"corr":"r"}}"#
    );
    assert_eq!(client.ask(range).await["accepted"], 3);
    let last = format!(r#"{{"op":"ACK","token":"{}","corr":"l"}}"#, token(5));
    assert_eq!(client.ask(last.clone()).await["op"], "OK");
    let again = client.ask(last).await;
    assert_eq!((&again["op"], &again["code"]), (&"ERR".into(), &"conflict".into()), "{again}");
    server.bus.caught_up(&"g".parse().unwrap()).await.unwrap();
}

#[tokio::test]
async fn nothing_comes_without_credit() {
    let server = TestServer::open().await;
    let mut client = server.negotiated().await;
    let subscribe = r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{"credit":0},"corr":1}"#;
    let sub = client.ask(subscribe).await["sub"].as_u64().unwrap();
    for n in 0..3 {
        let frame = format!(r#"{{"op":"PUBLISH","topic":"a","payload":{n},"corr":{n}}}"#);
        assert_eq!(client.ask(frame).await["op"], "OK");
    }
    client.say(format!(r#"{{"op":"CREDIT","sub":{sub},"credit":2}}"#)).await;
    assert_eq!(client.next().await["event"]["payload"], 0);
    assert_eq!(client.next().await["event"]["payload"], 1);
    assert_eq!(
        client.ask(r#"{"op":"PUBLISH","topic":"b","payload":0,"corr":"x"}"#).await["corr"],
        "x"
    );
    client.say(format!(r#"{{"op":"CREDIT","sub":{sub},"credit":1}}"#)).await;
    assert_eq!(client.next().await["event"]["payload"], 2);
}

#[tokio::test]
async fn tails_need_no_group_and_go_on_where_they_were() {
    let server = TestServer::open().await;
    let mut client = server.negotiated().await;
    client.ask(r#"{"op":"PUBLISH","topic":"a.x","payload":0}"#).await;
    client.ask(r#"{"op":"SUBSCRIBE","topic":"a.*","opts":{"from":"earliest"},"corr":1}"#).await;
    let event = client.next_of("EVENT").await;
    assert_eq!(event["event"]["payload"], 0);
    assert!(event["group"].is_null() && event["ctx"]["token"].is_null());
    // A topic that is new is followed as well.
    client.say(r#"{"op":"PUBLISH","topic":"a.y","payload":1}"#).await;
    assert_eq!(client.next_of("EVENT").await["topic"], "a.y");
    drop(client);

    let mut again = server.negotiated().await;
    again.ask(r#"{"op":"PUBLISH","topic":"a.x","payload":2}"#).await;
    let resumed = again
        .ask(r#"{"op":"RESUME","topic":"a.*","opts":{"after":[{"topic":"a.x","partition":0,"next":1},{"topic":"a.y","partition":0,"next":1}]},"corr":"r"}"#)
        .await;
    assert_eq!((&resumed["op"], &resumed["recovered"]), (&"RESUMED".into(), &true.into()));
    let event = again.next_of("EVENT").await;
    assert_eq!((&event["topic"], &event["event"]["payload"]), (&"a.x".into(), &2.into()));
}

/// A topic that was made while the tail was away was followed from its end, and the tail was told that
/// it had all.
#[tokio::test]
async fn a_tail_that_comes_back_gets_all_of_topics_that_were_made_meanwhile() {
    let server = TestServer::open().await;
    assert_eq!(server.post("/publish/a.x", "0").await.status, 201);
    let mut client = server.negotiated().await;
    client.say(r#"{"op":"SUBSCRIBE","topic":"a.*","opts":{"from":"earliest"}}"#).await;
    assert_eq!(client.next_of("EVENT").await["event"]["payload"], 0);
    drop(client);
    assert_eq!(server.post("/publish/a.y", "1").await.status, 201);
    let mut client = server.negotiated().await;
    let resume = r#"{"op":"RESUME","topic":"a.*","opts":{"after":[{"topic":"a.x","partition":0,"next":1}]},"corr":"r"}"#;
    let resumed = client.ask(resume).await;
    assert_eq!((&resumed["op"], &resumed["recovered"]), (&"RESUMED".into(), &true.into()));
    assert_eq!(resumed["after"].as_array().unwrap().len(), 2, "{resumed}");
    let event = client.next_of("EVENT").await;
    assert_eq!((&event["topic"], &event["event"]["payload"]), (&"a.y".into(), &1.into()));
    // Who was nowhere begins as anybody who is new.
    let resume = r#"{"op":"RESUME","topic":"a.*","opts":{},"corr":"r"}"#;
    let resumed = client.ask(resume).await;
    assert_eq!(resumed["after"][1]["next"], 1, "{resumed}");
}

/// So was a group whose events retention had taken away, and one that was gone.
#[tokio::test]
async fn a_group_that_comes_too_late_is_told_what_it_missed() {
    use promethean::memory::MemoryStore;
    use promethean::{Bus, BusOptions};
    let options = BusOptions::default().clean_every(std::time::Duration::from_millis(5));
    let bus = Bus::with_store(std::sync::Arc::new(MemoryStore::new()), options);
    let server = TestServer::over(bus, promethean_gateway::Access::Anonymous, |_| {}).await;
    let resume = |group: &str| {
        format!(
            r#"{{"op":"RESUME","topic":"a","group":"{group}","opts":{{"from":"earliest"}},"corr":"r"}}"#
        )
    };
    let wish = r#"{"settings":{"topics":["a"]},"from":"earliest"}"#;
    server.post("/topics/a", r#"{"partitions":1}"#).await;
    assert_eq!(server.post("/groups/g", wish).await.status, 200);
    let mut client = server.negotiated().await;
    assert_eq!(client.ask(resume("g")).await["recovered"], true);
    drop(client);
    for n in 0..3 {
        assert_eq!(server.post("/publish/a", &n.to_string()).await.status, 201);
    }
    server.post("/topics/a", r#"{"partitions":1,"retention_ms":1}"#).await;
    while server.get("/ops/partitions").await.json()["partitions"][0]["start"] != 3 {}
    let mut client = server.negotiated().await;
    let resumed = client.ask(resume("g")).await;
    assert_eq!((&resumed["op"], &resumed["recovered"]), (&"RESUMED".into(), &false.into()));
    let gap = serde_json::json!({
        "topic": "a", "partition": 0, "from": 0, "to": 3, "reason": "retention",
    });
    assert_eq!(resumed["gaps"], serde_json::json!([gap]), "{resumed}");
    let resumed = client.ask(resume("unknown")).await;
    assert_eq!((&resumed["op"], &resumed["recovered"]), (&"RESUMED".into(), &false.into()));
}

/// What is not there any more is named, with where it begins and ends.
#[tokio::test]
async fn a_tail_that_comes_too_late_is_told_what_it_missed() {
    use promethean::memory::MemoryStore;
    use promethean::{Bus, BusOptions};
    let options = BusOptions::default().clean_every(std::time::Duration::from_millis(5));
    let bus = Bus::with_store(std::sync::Arc::new(MemoryStore::new()), options);
    let server = TestServer::over(bus, promethean_gateway::Access::Anonymous, |_| {}).await;
    server.post("/topics/a", r#"{"retention_ms":1}"#).await;
    for n in 0..3 {
        assert_eq!(server.post("/publish/a", &n.to_string()).await.status, 201);
    }
    while server.get("/ops/partitions").await.json()["partitions"][0]["start"] != 3 {}
    let mut client = server.negotiated().await;
    let resume = r#"{"op":"RESUME","topic":"a","opts":{"after":[{"topic":"a","partition":0,"next":1}]},"corr":"r"}"#;
    let resumed = client.ask(resume).await;
    assert_eq!((&resumed["op"], &resumed["recovered"]), (&"RESUMED".into(), &false.into()));
    let gap = &resumed["gaps"][0];
    assert_eq!((&gap["topic"], &gap["partition"]), (&"a".into(), &0.into()), "{resumed}");
    assert_eq!(
        (&gap["from"], &gap["to"], &gap["reason"]),
        (&1.into(), &3.into(), &"retention".into())
    );
}

/// One that was further than there is: it was told that nothing was missing, and then nothing for as
/// long as it took to come there again.
#[tokio::test]
async fn a_tail_that_was_further_than_there_is_is_told_so() {
    let server = TestServer::open().await;
    for n in 0..3 {
        assert_eq!(server.post("/publish/a", &n.to_string()).await.status, 201);
    }
    assert_eq!(server.send("DELETE", "/topics/a", &[], b"").await.status, 200);
    assert_eq!(server.post("/publish/a", "10").await.status, 201);
    let mut client = server.negotiated().await;
    let resume = r#"{"op":"RESUME","topic":"a","opts":{"after":[{"topic":"a","partition":0,"next":3}]},"corr":"r"}"#;
    let resumed = client.ask(resume).await;
    assert_eq!((&resumed["op"], &resumed["recovered"]), (&"RESUMED".into(), &false.into()));
    let gap = &resumed["gaps"][0];
    assert_eq!((&gap["from"], &gap["to"]), (&0.into(), &3.into()), "{resumed}");
    assert_eq!((&gap["reason"], &resumed["after"][0]["next"]), (&"beyond_end".into(), &1.into()));
    assert_eq!(server.post("/publish/a", "11").await.status, 201);
    assert_eq!(client.next_of("EVENT").await["event"]["payload"], 11);
}

/// One whose topic is gone was told the same, and got nothing of what came in its place until that was
/// as long.
#[tokio::test]
async fn a_tail_whose_topic_was_removed_is_told_so() {
    let server = TestServer::open().await;
    for topic in ["a.x", "a.y"] {
        assert_eq!(server.post(&format!("/publish/{topic}"), "0").await.status, 201);
    }
    assert_eq!(server.send("DELETE", "/topics/a.x", &[], b"").await.status, 200);
    let mut client = server.negotiated().await;
    // What it does not follow is none of its business.
    let resume = r#"{"op":"RESUME","topic":"a.*","opts":{"after":[
        {"topic":"a.x","partition":0,"next":1},{"topic":"a.y","partition":0,"next":1},
        {"topic":"a.y","partition":7,"next":4},{"topic":"other","partition":0,"next":1}]},"corr":"r"}"#;
    let resumed = client.ask(resume).await;
    assert_eq!((&resumed["op"], &resumed["recovered"]), (&"RESUMED".into(), &false.into()));
    let gap = |topic: &str, partition: u32, at: u64| {
        serde_json::json!({
            "topic": topic, "partition": partition, "from": at, "to": at, "reason": "removed",
        })
    };
    assert_eq!(resumed["gaps"], serde_json::json!([gap("a.x", 0, 1), gap("a.y", 7, 4)]));
    let after = serde_json::json!([{ "topic": "a.y", "partition": 0, "next": 1 }]);
    assert_eq!(resumed["after"], after);
    // Made again, it is followed from its beginning.
    for n in 10..12 {
        assert_eq!(server.post("/publish/a.x", &n.to_string()).await.status, 201);
    }
    for n in 10..12 {
        assert_eq!(client.next_of("EVENT").await["event"]["payload"], n);
    }
    // Who asks for nothing else than what there is has all of it.
    let resume = r#"{"op":"RESUME","topic":"a.*","opts":{"after":[
        {"topic":"a.x","partition":0,"next":2},{"topic":"a.y","partition":0,"next":1}]},"corr":"r"}"#;
    assert_eq!(client.ask(resume).await["recovered"], true);
}

#[tokio::test]
async fn subscriptions_of_a_connection_are_bounded() {
    let server =
        TestServer::with(promethean_gateway::Access::Anonymous, |s| s.bounds.subscriptions = 2)
            .await;
    let mut client = server.negotiated().await;
    for n in 0..2 {
        let frame = format!(r#"{{"op":"SUBSCRIBE","topic":"a","group":"g{n}"}}"#);
        assert_eq!(client.ask(frame).await["op"], "OK");
    }
    assert_eq!(client.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"x"}"#).await["code"], "limit");
}

/// Of many acks, those that are refused are named; one answer for all of them, asked for or not.
#[tokio::test]
async fn acks_that_are_refused_are_named() {
    let server = TestServer::open().await;
    let mut client = server.negotiated().await;
    let mut tokens = Vec::new();
    for topic in ["a", "b"] {
        let subscribe = format!(
            r#"{{"op":"SUBSCRIBE","topic":"{topic}","group":"g-{topic}","opts":{{"batch":true}},"corr":1}}"#
        );
        assert_eq!(client.ask(subscribe).await["op"], "OK");
        client.say(format!(r#"{{"op":"PUBLISH","topic":"{topic}","payload":1,"corr":2}}"#)).await;
        let frame = client.next_of("EVENTS").await;
        tokens.push(frame["events"][0]["ctx"]["token"].as_str().unwrap().to_owned());
    }
    let ack = format!(r#"{{"op":"ACK","token":"{}","corr":"a"}}"#, tokens[0]);
    client.say(ack).await;
    while client.next_of("OK").await["corr"] != "a" {}
    // A subscription that there is not: the first part of a token.
    let strange = format!("63{}", &tokens[1][tokens[1].find('-').unwrap()..]);
    let (done, open) = (&tokens[0], &tokens[1]);
    let acks =
        |corr: &str| format!(r#"{{"op":"ACKS","tokens":["{open}","{done}","{strange}"]{corr}}}"#);
    let ok = client.ask(acks(r#","corr":"m""#)).await;
    assert_eq!((&ok["op"], &ok["corr"], &ok["accepted"]), (&"OK".into(), &"m".into(), &1.into()));
    let named = |frame: &serde_json::Value| {
        let mut named: Vec<(String, String)> = frame["refused"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| {
                let text = |name: &str| one[name].as_str().unwrap().to_owned();
                (text("token"), text("code"))
            })
            .collect();
        named.sort();
        named
    };
    let mut expected =
        vec![(done.clone(), "conflict".to_owned()), (strange.clone(), "unknown_id".to_owned())];
    expected.sort();
    assert_eq!(named(&ok), expected);
    // Nothing of it is left to be acked: said without being asked for, and once.
    let err = client.ask(acks("")).await;
    assert_eq!((&err["op"], &err["code"]), (&"ERR".into(), &"conflict".into()), "{err}");
    assert_eq!(named(&err).len(), 3);
    let pause = r#"{"op":"PAUSE","sub":1,"corr":"p"}"#;
    assert_eq!(client.ask(pause).await["corr"], "p");
}

/// RELIABILITY 4.2: a lease has 600,000 ms at most, from its beginning and however often it is extended.
#[tokio::test]
async fn a_lease_has_a_greatest_length() {
    let server = TestServer::open().await;
    let mut client = server.negotiated().await;
    let subscribe = |ms: u32| {
        format!(
            r#"{{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{{"ack_timeout_ms":{ms}}},"corr":1}}"#
        )
    };
    assert_eq!(client.ask(subscribe(600_001)).await["code"], "bad_request");
    assert_eq!(client.ask(subscribe(30_000)).await["op"], "OK");
    assert_eq!(server.post("/publish/a", "1").await.status, 201);
    let event = client.next_of("EVENT").await;
    let token = event["ctx"]["token"].as_str().unwrap();
    let extend =
        |ms: u32| format!(r#"{{"op":"MODACK","token":"{token}","extend_ms":{ms},"corr":"m"}}"#);
    assert_eq!(client.ask(extend(60_000)).await["op"], "OK");
    assert_eq!(client.ask(extend(u32::MAX)).await["op"], "OK", "as long as it may be");
    let refused = client.ask(extend(600_001)).await;
    assert_eq!((&refused["op"], &refused["code"]), (&"ERR".into(), &"conflict".into()));
    // It is still out, and can be acked.
    let ack = format!(r#"{{"op":"ACK","token":"{token}","corr":"k"}}"#);
    assert_eq!(client.ask(ack).await["op"], "OK");
}
