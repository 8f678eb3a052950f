use super::*;
use http::{HeaderName, HeaderValue};
use promethean_event::{Event, Key, Offset, Partition, SessionId, Tag};
use proptest::prelude::*;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| {
            (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
        })
        .collect()
}

fn read_as(pairs: &[(&str, &str)], body: &str) -> Result<Intake, Rejection> {
    let headers = headers(pairs);
    let topic: Topic = "orders.placed".parse().unwrap();
    let request = Request {
        topic: &topic,
        subject: "ann",
        described: Described::default(),
        headers: &headers,
        now: Timestamp::from_millis(7),
    };
    read(&request, Form::of(&headers)?, &Bytes::copy_from_slice(body.as_bytes()))
}

const JSON: (&str, &str) = ("content-type", "application/json");

fn code(pairs: &[(&str, &str)], body: &str) -> Code {
    read_as(pairs, body).unwrap_err().code
}

#[test]
fn one_payload_as_it_is() {
    for body in ["{\"z\":1.50}", "null", "7", "\"a\"", "true"] {
        let intake = read_as(&[JSON], body).unwrap();
        assert!(!intake.batch);
        assert_eq!(intake.events[0].payload.as_str(), body);
        assert_eq!(intake.events[0].ts, Timestamp::from_millis(7));
    }
}

#[test]
fn arrays_and_lines_are_envelopes() {
    let array =
        r#"[{"payload":{"a":1},"key":"k","ts":9},{"payload":null,"topic":"orders.placed"}]"#;
    let intake = read_as(&[JSON], array).unwrap();
    assert!(intake.batch);
    assert_eq!(intake.events[0].key, Some(Key::new("k").unwrap()));
    assert!(intake.events[1].payload.is_tombstone());
    let ndjson = ("content-type", "application/x-ndjson; charset=utf-8");
    let lines = "{\"payload\":1}\r\n\n{\"payload\":2,\"headers\":{\"x-a\":\"1\"}}";
    let intake = read_as(&[ndjson, ("x-a", "0"), ("x-b", "2")], lines).unwrap();
    assert_eq!(intake.events.len(), 2);
    assert_eq!(intake.events[0].headers.get("x-a"), Some("0"));
    assert_eq!(intake.events[1].headers.get("x-a"), Some("1"));
    assert_eq!(intake.events[1].headers.get("x-b"), Some("2"));
}

#[test]
fn bad_bodies_say_where() {
    for (body, words) in [
        ("[]", "there is no event"),
        ("[1]", "array of envelopes"),
        (r#"[{"key":"k"}]"#, "payload"),
        (r#"[{"payload":1,"pay":2}]"#, "unknown field"),
        (r#"[{"payload":1},{"payload":1,"topic":"other"}]"#, "entry 2: topic is not"),
        (r#"[{"payload":1,"headers":{"authorization":"x"}}]"#, "does not travel"),
        ("{", "not JSON"),
        ("", "not JSON"),
        ("{} {}", "not JSON"),
    ] {
        let detail = read_as(&[JSON], body).unwrap_err().detail;
        assert!(detail.contains(words), "{body}: {detail}");
    }
    let deep = "[".repeat(80);
    assert_eq!(code(&[JSON], &format!("{{\"a\":{deep}")), Code::TooComplex);
    let many = format!("[{}]", vec![r#"{"payload":1}"#; 1001].join(","));
    assert_eq!(code(&[JSON], &many), Code::TooLarge);
    let large = format!("\"{}\"", "x".repeat(1024 * 1024));
    assert_eq!(code(&[JSON], &large), Code::TooLarge);
}

#[test]
fn types_and_encodings() {
    for (name, value) in [
        ("content-type", "text/plain"),
        ("content-type", "application/x-www-form-urlencoded"),
        ("content-type", "application/json; charset=latin1"),
        ("content-type", ""),
        ("x-none", "1"),
    ] {
        assert_eq!(code(&[(name, value)], "1"), Code::UnsupportedMediaType, "{value}");
    }
    for encoding in ["gzip", "deflate", "br", "gzip, identity"] {
        let pairs = [JSON, ("content-encoding", encoding)];
        assert_eq!(code(&pairs, "1"), Code::UnsupportedMediaType, "{encoding}");
    }
    assert!(read_as(&[JSON, ("content-encoding", "identity")], "1").is_ok());
}

/// Pitfall 61: Authorization and cookies were stored with the event.
#[test]
fn credentials_stay_behind() {
    let pairs = [
        JSON,
        ("authorization", "Bearer s3cret"),
        ("cookie", "a=s3cret"),
        ("x-api-key", "s3cret"),
        ("x-auth-token", "s3cret"),
        ("x-amz-security-token", "s3cret"),
        ("x-csrf-token", "s3cret"),
        ("x-forwarded-for", "10.0.0.1"),
        ("proxy-authorization", "s3cret"),
        ("x-source", "agent"),
        ("traceparent", "00-a-b-01"),
        ("tracestate", "x"),
        ("user-agent", "curl"),
    ];
    let intake = read_as(&pairs, "1").unwrap();
    let names: Vec<&str> = intake.events[0].headers.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["x-source", "traceparent"]);
}

#[test]
fn idempotency_keys() {
    let id = "018c2e65-4b00-7000-8000-000000000001";
    let one = |key: &str, body: &str| read_as(&[JSON, ("idempotency-key", key)], body).unwrap();
    assert_eq!(one(id, "1").events[0].id.to_string(), id);
    assert_eq!(one("order-7", "1").events[0].id, one("order-7", "2").events[0].id);
    assert_ne!(one("order-7", "1").events[0].id, one("order-8", "1").events[0].id);
    let list = one("order-7", r#"[{"payload":1},{"payload":1}]"#);
    assert_ne!(list.events[0].id, list.events[1].id);
    let own = format!(r#"[{{"payload":1,"id":"{id}"}}]"#);
    assert_eq!(one("order-7", &own).events[0].id.to_string(), id);
    assert_eq!(code(&[JSON, ("idempotency-key", "")], "1"), Code::BadRequest);
    assert_eq!(code(&[JSON, ("idempotency-key", &"k".repeat(129))], "1"), Code::BadRequest);
    let mut unnamed = read_as(&[JSON], "1").unwrap();
    name_events(&mut unnamed);
    assert!(unnamed.events[0].id.millis().is_some());
}

#[test]
fn cloud_events_in_three_forms() {
    let structured = r#"{"specversion":"1.0","id":"a-1","source":"/shop","type":"orders.placed",
        "subject":"k","time":"2023-11-14T22:13:20Z","data":{"n":1.50},"comexampleext":7,"x":true}"#;
    let intake = read_as(&[("content-type", "application/cloudevents+json")], structured).unwrap();
    let event = &intake.events[0];
    assert_eq!(event.payload.as_str(), r#"{"n":1.50}"#);
    assert_eq!(event.key.as_ref().unwrap().as_str(), "k");
    assert_eq!(event.ts.millis(), 1_700_000_000_000);
    assert_eq!(event.headers.get("ce-id"), Some("a-1"));
    assert_eq!(event.headers.get("ce-source"), Some("/shop"));
    assert_eq!(event.headers.get("ce-comexampleext"), Some("7"));
    assert_eq!(event.headers.get("ce-type"), None);

    let binary = [
        JSON,
        ("ce-specversion", "1.0"),
        ("ce-id", "a-1"),
        ("ce-source", "/shop"),
        ("ce-type", "com.example.%C3%A9"),
        ("ce-subject", "k"),
    ];
    let other = read_as(&binary, r#"{"n":1.50}"#).unwrap();
    assert_eq!(other.events[0].id, event.id);
    assert_eq!(other.events[0].headers.get("ce-type"), Some("com.example.é"));

    let list = format!("[{structured},{structured}]");
    let batch = read_as(&[("content-type", "application/cloudevents-batch+json")], &list).unwrap();
    assert!(batch.batch && batch.events.len() == 2);
}

#[test]
fn bad_cloud_events() {
    let kind = ("content-type", "application/cloudevents+json");
    let event = |change: &str| {
        let mut fields: serde_json::Value = serde_json::from_str(
            r#"{"specversion":"1.0","id":"a","source":"/s","type":"t","data":1}"#,
        )
        .unwrap();
        let change: serde_json::Value = serde_json::from_str(change).unwrap();
        for (name, value) in change.as_object().unwrap() {
            fields[name] = value.clone();
        }
        code(&[kind], &fields.to_string())
    };
    for change in [
        r#"{"specversion":"0.3"}"#,
        r#"{"specversion":null}"#,
        r#"{"id":""}"#,
        r#"{"source":null}"#,
        r#"{"type":7.5,"id":null}"#,
        r#"{"time":"yesterday"}"#,
        r#"{"Upper":"a"}"#,
        r#"{"with-dash":"a"}"#,
        r#"{"ext":{"a":1}}"#,
        r#"{"causedby":"x"}"#,
        r#"{"promheaders":"{"}"#,
    ] {
        assert_eq!(event(change), Code::BadRequest, "{change}");
    }
    assert_eq!(event(r#"{"promheaders":"{\"authorization\":\"x\"}"}"#), Code::InvalidEvent);
    assert_eq!(event(r#"{"data_base64":"AA=="}"#), Code::UnsupportedMediaType);
    assert_eq!(event(r#"{"datacontenttype":"text/xml"}"#), Code::UnsupportedMediaType);
}

proptest! {
    /// What we write as a CloudEvent is read back as the same event.
    #[test]
    fn events_survive_as_cloud_events(
        id in any::<[u8; 16]>(),
        sid in any::<Option<[u8; 16]>>(),
        ts in 0u64..4_000_000_000_000,
        key in proptest::option::of("[^\\p{Cc}]{1,20}"),
        pairs in proptest::collection::btree_map(
            prop_oneof!["x-[a-z-]{1,8}", "ce-[a-z0-9]{5,8}", "traceparent"], "[ -~é]{0,12}", 0..5),
        tags in proptest::collection::vec("[^\\p{Cc}]{1,8}", 0..3),
        payload in prop_oneof![Just("null"), Just(r#"{"z":1.50,"a":["\u00e9"]}"#), Just("[1]")],
    ) {
        let own = ["ce-subject", "ce-source", "ce-specversion", "ce-sequence", "ce-causedby"];
        let mut event = NewEvent::new(
            EventId::from_bytes(id),
            Timestamp::from_millis(ts),
            "orders.placed".parse().unwrap(),
            Payload::parse(payload).unwrap(),
        );
        event.sid = sid.map(SessionId::from_bytes);
        event.caused_by = sid.map(EventId::from_bytes).into_iter().collect();
        event.key = key.map(|key| Key::new(key).unwrap());
        event.tags = tags.into_iter().map(|tag| Tag::new(tag).unwrap()).collect();
        for (name, value) in pairs.iter().filter(|(name, _)| !own.contains(&name.as_str())) {
            event.headers.insert(name, value).unwrap();
        }
        let stored: Event = event.clone().placed(Partition::new(1), Offset::new(2));
        let mut out = Vec::new();
        write_cloud_event(&mut out, &stored);
        let text = String::from_utf8(out).unwrap();
        let kind = ("content-type", "application/cloudevents+json");
        let read = read_as(&[kind], &text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let mut again = read.events[0].clone();
        let sorted = |headers: &Headers| {
            let mut pairs: Vec<_> =
                headers.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
            pairs.sort();
            pairs
        };
        prop_assert_eq!(sorted(&again.headers), sorted(&event.headers));
        again.headers = event.headers.clone();
        prop_assert_eq!(again, event);
    }

    #[test]
    fn no_body_makes_it_panic(body in "[{}\\[\\]\":,a-z0-9 \\n\\\\]{0,60}") {
        for kind in ["json", "x-ndjson", "cloudevents+json", "cloudevents-batch+json"] {
            let _ = read_as(&[("content-type", &format!("application/{kind}"))], &body);
        }
    }
}
