use super::*;
use crate::frame::{AckMode, From};
use proptest::prelude::*;

fn parse(text: &str) -> Result<ClientFrame, FrameError> {
    ClientFrame::parse(&Bytes::copy_from_slice(text.as_bytes())).1
}

const ID: &str = "018c2e65-4b00-7000-8000-000000000001";

/// The frames of the notes, word for word.
#[test]
fn plain_clients_are_understood() {
    assert_eq!(
        parse(r#"{"op":"AUTH","token":"t","corr":"1"}"#),
        Ok(ClientFrame::Auth { token: "t".into() })
    );
    let publish = parse(
        r#"{"op":"PUBLISH","topic":"a.b","payload":{"z":1.50},"opts":{"key":"k","headers":{"x-a":"1"}},"corr":"2"}"#,
    );
    let Ok(ClientFrame::Publish { events, batch: false }) = publish else { panic!("{publish:?}") };
    assert_eq!(events[0].payload.as_str(), r#"{"z":1.50}"#);
    assert_eq!(events[0].opts.key.as_ref().unwrap().as_str(), "k");
    let subscribe = parse(
        r#"{"op":"SUBSCRIBE","topic":"a.*","group":"G","opts":{"from":"afterId","afterId":"018c2e65-4b00-7000-8000-000000000001","batchSize":10,"maxInFlight":5,"ackTimeoutMs":1000,"maxAttempts":3}}"#,
    );
    let Ok(ClientFrame::Subscribe(subscribe)) = subscribe else { panic!("{subscribe:?}") };
    assert_eq!(subscribe.opts.from, Some(From::AfterId));
    assert_eq!(subscribe.opts.max_in_flight, Some(5));
    assert_eq!(subscribe.opts.max_attempts, Some(3));
    for op in ["ACK", "NACK"] {
        let text = format!(r#"{{"op":"{op}","topic":"a","group":"g","id":"{ID}"}}"#);
        assert!(parse(&text).is_ok(), "{text}");
    }
    let modack = format!(r#"{{"op":"MODACK","topic":"a","group":"g","id":"{ID}","extend_ms":5}}"#);
    assert!(matches!(parse(&modack), Ok(ClientFrame::Modack { extend_ms: 5, .. })));
    for op in ["PAUSE", "RESUME", "UNSUBSCRIBE"] {
        let text = format!(r#"{{"op":"{op}","topic":"a","group":"g"}}"#);
        assert!(parse(&text).is_ok(), "{text}");
    }
    assert!(matches!(
        parse(r#"{"op":"RESUME","topic":"a","group":"g"}"#),
        Ok(ClientFrame::Resume(_))
    ));
}

#[test]
fn null_is_a_payload() {
    let publish = parse(r#"{"op":"PUBLISH","topic":"a","payload":null}"#);
    let Ok(ClientFrame::Publish { events, .. }) = publish else { panic!("{publish:?}") };
    assert!(events[0].payload.is_tombstone());
}

#[test]
fn negotiated_frames() {
    let batch = parse(
        r#"{"op":"PUBLISH","events":[{"topic":"a","payload":null},{"topic":"b","payload":1}]}"#,
    );
    assert!(
        matches!(batch, Ok(ClientFrame::Publish { ref events, batch: true }) if events.len() == 2)
    );
    let acks = parse(
        r#"{"op":"ACKS","tokens":["1-0-0-5-1-1-0"],"ranges":[{"sub":1,"topic":"a","partition":0,"from":1,"to":4,"epoch":0}]}"#,
    );
    assert!(
        matches!(acks, Ok(ClientFrame::Acks(ref acks)) if acks.tokens.len() == 1 && acks.ranges.len() == 1)
    );
    assert_eq!(
        parse(r#"{"op":"CREDIT","sub":1,"credit":10}"#),
        Ok(ClientFrame::Credit { target: Target::Sub(1), events: 10 })
    );
    let again = parse(
        r#"{"op":"RESUME","topic":"a","opts":{"after":[{"topic":"a","partition":0,"next":7}],"ack":"auto","credit":4,"batch":true}}"#,
    );
    let Ok(ClientFrame::Reconnect(again)) = again else { panic!("{again:?}") };
    assert_eq!(again.group, None);
    assert_eq!(again.opts.after.len(), 1);
    assert_eq!(again.opts.ack, Some(AckMode::Auto));
}

#[test]
fn corr_survives_a_refusal() {
    for text in [
        r#"{"corr":"c","op":"PUBLISH"}"#,
        r#"{"corr":"c","op":"NOPE"}"#,
        r#"{"corr":"c","op":"ACK","id":7}"#,
        r#"{"corr":"c"}"#,
    ] {
        let (corr, result) = ClientFrame::parse(&Bytes::copy_from_slice(text.as_bytes()));
        assert_eq!(corr, Corr::from_json("\"c\""), "{text}");
        assert!(result.is_err(), "{text}");
    }
}

#[test]
fn refusals_say_what_is_missing() {
    for (text, what) in [
        (r#"{"op":"AUTH"}"#, "AUTH needs \"token\""),
        (r#"{"op":"PUBLISH","topic":"a"}"#, "PUBLISH needs \"payload\""),
        (r#"{"op":"PUBLISH","topic":"a.*","payload":1}"#, "PUBLISH needs \"topic\""),
        (r#"{"op":"SUBSCRIBE"}"#, "SUBSCRIBE needs \"topic\""),
        (r#"{"op":"ACK","topic":"a","group":"g"}"#, "ACK needs \"id\""),
        (r#"{"op":"MODACK","topic":"a"}"#, "MODACK needs \"extend_ms\""),
        (r#"{"op":"CREDIT","sub":1}"#, "CREDIT needs \"credit\""),
        (r#"{"op":"auth"}"#, "op \"auth\" is not one of this protocol"),
        (r#"{"op":"ACKS"}"#, "\"tokens\" has 0 entries; 1 to 10000 at a time"),
        (r#"{"op":"PUBLISH","events":[]}"#, "\"events\" has 0 entries; 1 to 1000 at a time"),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), what, "{text}");
    }
    for text in ["", "[]", "7", "{", "null", r#"{"op":7}"#, r#"{"op":"ACK","token":"x"}"#] {
        assert!(matches!(parse(text), Err(FrameError::Syntax(_) | FrameError::Op(_))), "{text}");
    }
    let deep =
        format!(r#"{{"op":"PUBLISH","topic":"a","payload":{}{}}}"#, "[".repeat(65), "]".repeat(65));
    assert_eq!(parse(&deep), Err(FrameError::Payload(JsonError::TooDeep)));
}

/// Pitfall 55: options of a client pass an allow-list.
#[test]
fn unknown_options_do_not_get_in() {
    let text = r#"{"op":"PUBLISH","topic":"a","payload":1,"opts":{"partition":9,"offset":1,"tenant":"x"}}"#;
    let Ok(ClientFrame::Publish { events, .. }) = parse(text) else { panic!() };
    assert_eq!(events[0].opts, PublishOpts::default());
}

#[test]
fn a_payload_is_a_slice_of_its_frame() {
    let frame =
        Bytes::from_static(br#"{"op":"PUBLISH","topic":"a","payload":{"a":"long enough"}}"#);
    let (_, Ok(ClientFrame::Publish { events, .. })) = ClientFrame::parse(&frame) else { panic!() };
    let range = frame.as_ptr_range();
    assert!(range.contains(&events[0].payload.as_bytes().as_ptr()));
}

#[test]
fn long_reasons_are_cut_at_a_character() {
    let text = format!(
        r#"{{"op":"NACK","topic":"a","group":"g","id":"{ID}","reason":"{}"}}"#,
        "é".repeat(5000)
    );
    let Ok(ClientFrame::Nack(nack)) = parse(&text) else { panic!() };
    assert!(nack.reason.unwrap().len() <= REASON_BYTES_MAX);
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "[{}\\[\\]\":,a-zA-Z0-9 \\\\]{0,80}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_object_makes_it_panic(
        op in "(AUTH|PUBLISH|SUBSCRIBE|ACK|ACKS|NACK|MODACK|PAUSE|RESUME|CREDIT)",
        member in "(token|topic|topics|group|payload|events|opts|sub|id|tokens|ranges|corr|credit)",
        value in "(null|1|-1|\"a\"|\"\"|\\[\\]|\\{\\}|\\[1\\]|\\[\"a\"\\]|1e400|\"a.*\")",
    ) {
        let _ = parse(&format!(r#"{{"op":"{op}","{member}":{value}}}"#));
    }
}

/// Frames and things like frames: members of every kind, also twice, in any order, with white space.
fn frame_like() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just(r#"{"a":[1.50,-0,"\u00e9"],"b":{}}"#.to_owned()),
        Just("[ 1 , {\"x\" : null} ]".to_owned()),
        Just("\"PUBLISH\"".to_owned()),
        Just("\"a.b\"".to_owned()),
        Just("\"$sys\"".to_owned()),
        Just("\"a.*\"".to_owned()),
        Just("null".to_owned()),
        Just("7".to_owned()),
        Just("01".to_owned()),
        Just("\"\\ud800\"".to_owned()),
        Just(format!(r#"{{"id":"{ID}","key":"k","headers":{{"h":"v"}}}}"#)),
        Just(r#"{"id":"no"}"#.to_owned()),
        Just("{}".to_owned()),
        "[a-z\\\\\"\t\u{e9}.]{0,12}".prop_map(|text| format!("\"{text}\"")),
        proptest::collection::vec(
            ("[a-z]{1,3}|payload|topic|opts", "\"[a-z.]{1,4}\"|1|null"),
            0..4
        )
        .prop_map(|events| {
            let event = |(name, value): (String, String)| {
                format!(r#"{{"topic":"a","payload":{value},"{name}":{value}}}"#)
            };
            format!("[{}]", events.into_iter().map(event).collect::<Vec<_>>().join(","))
        }),
        Just(
            r#"[{"topic":"a","payload":1},{"payload":{"x":[ ]},"topic":"b","opts":{}}]"#.to_owned()
        ),
    ];
    let known = prop_oneof![
        Just(("topic", "\"a.b\"".to_owned())),
        Just((
            "payload",
            r#"{"pid":17,"note":"a longer text, with more than eight bytes"}"#.to_owned()
        )),
        Just(("corr", "17".to_owned())),
        Just(("corr", "\"c\"".to_owned())),
    ];
    let name = prop_oneof!["op|topic|payload|corr|opts|events|sub", "[a-z]{1,4}"];
    let odd = (name, value).prop_map(|(name, value)| format!("\"{name}\":{value}"));
    let usual = known.prop_map(|(name, value)| format!("\"{name}\":{value}"));
    let member = prop_oneof![2 => usual, 1 => odd];
    let space = prop_oneof![4 => Just(""), 1 => Just(" \n")];
    (proptest::collection::vec(member, 0..6), 0..6_usize, space).prop_map(
        |(mut members, op, space)| {
            members.insert(op.min(members.len()), "\"op\":\"PUBLISH\"".to_owned());
            format!("{{{space}{}{space}}}{space}", members.join(&format!("{space},{space}")))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    /// What the quick reader takes, it takes for what the general one does.
    #[test]
    fn both_readers_agree(text in frame_like()) {
        let frame = Bytes::copy_from_slice(text.as_bytes());
        if let Some((corr, publish)) = crate::frame::quick::publish(&frame) {
            prop_assert_eq!((corr, Ok(publish)), ClientFrame::parse_any(&frame), "{}", text);
        }
    }
}

#[test]
fn usual_publishes_are_read_quickly() {
    for text in [
        r#"{"op":"PUBLISH","topic":"a.b","payload":{"z":1.50},"corr":1}"#.to_owned(),
        r#"{"op":"PUBLISH","corr":"c","topic":"a","payload":null}"#.to_owned(),
        format!(r#"{{ "topic": "a", "op": "PUBLISH", "payload": [ 1 ], "opts": {{"id":"{ID}"}} }}"#),
        r#"{"op":"PUBLISH","events":[{"topic":"a","payload":1},{"topic":"b","payload":"é","opts":{"key":"k"}}],"corr":2}"#
            .to_owned(),
    ] {
        let frame = Bytes::copy_from_slice(text.as_bytes());
        let quick = crate::frame::quick::publish(&frame);
        let (corr, publish) = quick.unwrap_or_else(|| panic!("{text}"));
        assert_eq!((corr, Ok(publish)), ClientFrame::parse_any(&frame));
    }
}
