//! The clients of the notes, which know no tokens, credits or batches.

use super::server::TestServer;

#[tokio::test]
async fn publish_subscribe_ack() {
    let server = TestServer::open().await;
    let mut client = server.plain().await;
    let ok = client.ask(r#"{"op":"SUBSCRIBE","topic":"a.b","group":"g","corr":"s"}"#).await;
    assert_eq!(ok.to_string(), r#"{"corr":"s","op":"OK"}"#);
    client
        .say(r#"{"op":"PUBLISH","topic":"a.b","payload":{"z":1.50},"opts":{"key":"k","headers":{"x-a":"1"},"tags":["t"]},"corr":7}"#)
        .await;
    let (first, second) = (client.next().await, client.next().await);
    let (ok, event) = if first["op"] == "OK" { (first, second) } else { (second, first) };
    assert_eq!(ok["corr"], 7);
    assert_eq!(ok["id"], event["event"]["id"]);
    assert_eq!(event["op"], "EVENT");
    assert_eq!((&event["topic"], &event["group"]), (&"a.b".into(), &"g".into()));
    assert_eq!(event["event"]["key"], "k");
    assert_eq!(event["event"]["headers"]["x-a"], "1");
    assert_eq!(event["ctx"]["attempt"], 1);
    assert_eq!(event["ctx"]["max_attempts"], 5);
    assert!(event["ctx"]["ack_deadline_ms"].as_u64().unwrap() <= 30_000);
    let id = event["event"]["id"].as_str().unwrap().to_owned();

    let ack = format!(r#"{{"op":"ACK","topic":"a.b","group":"g","id":"{id}"}}"#);
    assert_eq!(client.ask(ack.clone()).await["op"], "OK");
    // Pitfall 51: a late ack answered OK and did nothing.
    let late = client.ask(ack).await;
    assert_eq!((&late["op"], &late["code"]), (&"ERR".into(), &"unknown_id".into()));
    server.bus.caught_up(&"g".parse().unwrap()).await.unwrap();
}

#[tokio::test]
async fn nack_is_redelivered_with_the_next_attempt() {
    let server = TestServer::open().await;
    let mut client = server.plain().await;
    client.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await;
    client.say(r#"{"op":"PUBLISH","topic":"a","payload":1}"#).await;
    let event = client.next_of("EVENT").await;
    let id = event["event"]["id"].as_str().unwrap().to_owned();
    client
        .say(format!(
            r#"{{"op":"NACK","topic":"a","group":"g","id":"{id}","reason":"no","delay_ms":1}}"#
        ))
        .await;
    let again = client.next_of("EVENT").await;
    assert_eq!(again["event"]["id"], id.as_str());
    assert_eq!(again["ctx"]["attempt"], 2);
    let more = format!(
        r#"{{"op":"MODACK","topic":"a","group":"g","id":"{id}","extend_ms":5000,"corr":"m"}}"#
    );
    client.say(more).await;
    assert_eq!(client.next_of("OK").await["corr"], "m");
}

/// Pitfall 50: a lease that ran out was forgotten, and the attempt stayed 1.
#[tokio::test]
async fn a_lease_that_runs_out_is_redelivered() {
    let server = TestServer::open().await;
    let mut client = server.plain().await;
    client
        .ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{"ackTimeoutMs":50,"maxAttempts":9}}"#)
        .await;
    client.say(r#"{"op":"PUBLISH","topic":"a","payload":1}"#).await;
    assert_eq!(client.next_of("EVENT").await["ctx"]["attempt"], 1);
    assert_eq!(client.next_of("EVENT").await["ctx"]["attempt"], 2);
}

/// Pitfall 59: on close, leases just vanished.
#[tokio::test]
async fn leases_return_at_once_when_a_client_goes() {
    let server = TestServer::open().await;
    let mut first = server.plain().await;
    let subscribe = r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{"ackTimeoutMs":600000}}"#;
    first.ask(subscribe).await;
    first.say(r#"{"op":"PUBLISH","topic":"a","payload":1}"#).await;
    first.next_of("EVENT").await;
    let mut second = server.plain().await;
    second.ask(subscribe).await;
    drop(first);
    // Long before the lease would have run out.
    assert_eq!(second.next_of("EVENT").await["ctx"]["attempt"], 2);
}

/// Pitfall 57: messages of one socket were handled concurrently, so that order was lost.
#[tokio::test]
async fn publish_order_of_a_connection_is_kept() {
    let server = TestServer::open().await;
    let mut client = server.plain().await;
    for n in 0..500 {
        // New topics on the way, which have to be made first.
        let topic = if n % 100 == 0 { format!("t{n}") } else { "t0".to_owned() };
        client
            .say(format!(r#"{{"op":"PUBLISH","topic":"{topic}","payload":{n},"corr":{n}}}"#))
            .await;
    }
    for n in 0..500 {
        let ok = client.next().await;
        assert_eq!((&ok["op"], &ok["corr"]), (&"OK".into(), &n.into()));
    }
    let page = server.get("/events/t0?limit=1000").await.json();
    let stored: Vec<u64> =
        page["events"].as_array().unwrap().iter().map(|e| e["payload"].as_u64().unwrap()).collect();
    assert!(stored.is_sorted() && stored.len() == 496, "{stored:?}");
}

#[tokio::test]
async fn pause_resume_unsubscribe() {
    let server = TestServer::open().await;
    let mut client = server.plain().await;
    client.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await;
    let pause = r#"{"op":"PAUSE","topic":"a","group":"g","corr":"p"}"#;
    assert_eq!(client.ask(pause).await["corr"], "p");
    assert_eq!(
        client.ask(r#"{"op":"PUBLISH","topic":"a","payload":1,"corr":1}"#).await["op"],
        "OK"
    );
    // Nothing was delivered in between: the next frame is the answer to this one.
    let resume = r#"{"op":"RESUME","topic":"a","group":"g","corr":"r"}"#;
    assert_eq!(client.ask(resume).await["corr"], "r");
    assert_eq!(client.next().await["op"], "EVENT");
    let end = r#"{"op":"UNSUBSCRIBE","topic":"a","group":"g","corr":"u"}"#;
    assert_eq!(client.ask(end).await["corr"], "u");
    assert_eq!(client.ask(end).await["code"], "not_found");
}

#[tokio::test]
async fn refusals_carry_code_and_corr() {
    let server = TestServer::open().await;
    for (frame, code) in [
        (r#"{"op":"PUBLISH","corr":"c"}"#, "bad_request"),
        (r#"{"op":"PUBLISH","topic":"A B","payload":1,"corr":"c"}"#, "bad_request"),
        (r#"{"op":"PUBLISH","topic":"$groups","payload":1,"corr":"c"}"#, "forbidden"),
        (
            r#"{"op":"PUBLISH","topic":"a","payload":1,"opts":{"headers":{"cookie":"x"}},"corr":"c"}"#,
            "invalid_event",
        ),
        (r#"{"op":"NOPE","corr":"c"}"#, "unknown_op"),
        (
            r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{"filter":"nope"},"corr":"c"}"#,
            "invalid_filter",
        ),
        (
            r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{"ackTimeoutMs":0},"corr":"c"}"#,
            "bad_request",
        ),
        (r#"{"op":"PAUSE","topic":"a","group":"g","corr":"c"}"#, "not_found"),
        (
            r#"{"op":"ACK","topic":"a","group":"g","id":"018c2e65-4b00-7000-8000-000000000001","corr":"c"}"#,
            "unknown_id",
        ),
    ] {
        let mut client = server.plain().await;
        let err = client.ask(frame).await;
        assert_eq!((&err["op"], &err["code"]), (&"ERR".into(), &code.into()), "{frame}: {err}");
        assert_eq!(err["corr"], "c");
        // It stays open.
        assert_eq!(client.ask(r#"{"op":"PUBLISH","topic":"a","payload":1}"#).await["op"], "OK");
    }
}

#[tokio::test]
async fn filters_are_for_groups_too() {
    let server = TestServer::open().await;
    let mut client = server.plain().await;
    client
        .ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{"filter":"payload.n > 1"}}"#)
        .await;
    for n in 0..3 {
        client.say(format!(r#"{{"op":"PUBLISH","topic":"a","payload":{{"n":{n}}}}}"#)).await;
    }
    let event = client.next_of("EVENT").await;
    assert_eq!(event["event"]["payload"]["n"], 2);
}

/// The same id again answers with the first result and adds nothing.
#[tokio::test]
async fn publishing_again_is_safe() {
    let server = TestServer::open().await;
    let mut client = server.negotiated().await;
    let frame = r#"{"op":"PUBLISH","topic":"a","payload":1,"opts":{"id":"018c2e65-4b00-7000-8000-000000000001"}}"#;
    let first = client.ask(frame).await;
    let again = client.ask(frame).await;
    assert_eq!(first["places"][0]["offset"], again["places"][0]["offset"]);
    assert_eq!(again["places"][0]["duplicate"], true);
    let other = client.ask(frame.replace("\"payload\":1", "\"payload\":2")).await;
    assert_eq!(other["code"], "id_conflict");
}
