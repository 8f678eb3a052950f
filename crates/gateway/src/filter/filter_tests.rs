use super::*;
use promethean_event::{
    EventId, Headers, Key, NewEvent, Offset, Partition, Payload, Tag, Timestamp,
};
use proptest::prelude::*;

fn event(payload: &str) -> Event {
    let mut event = NewEvent::new(
        EventId::from_bytes([7; 16]),
        Timestamp::from_millis(1_700_000_000_000),
        "heartbeat.received".parse().unwrap(),
        Payload::parse(payload.to_owned()).unwrap(),
    )
    .with_key(Key::new("dev:stt:1").unwrap());
    event.headers = Headers::new();
    event.headers.insert("x-source", "agent").unwrap();
    event.tags = vec![Tag::new("#duck").unwrap()];
    event.placed(Partition::new(3), Offset::new(42))
}

const PAYLOAD: &str = r#"{"cpu_pct":91.5,"pid":7,"name":"stt","neg":-3,"big":18446744073709551615,
    "host":{"name":"dev","os":{"kernel":"6.1"}},"a-b":true,"none":null,
    "list":[1,2,3],"items":[{"sku":"a","tags":["x"]},{"sku":"b","tags":["y","z"]}]}"#;

fn verdict(source: &str) -> Verdict {
    Expression::compile(source)
        .unwrap_or_else(|error| panic!("{source}: {error}"))
        .verdict(&event(PAYLOAD))
}

#[test]
fn what_passes() {
    for source in [
        "true",
        "topic == 'heartbeat.received'",
        "event.topic.startsWith('heartbeat.')",
        "key == 'dev:stt:1' && key.contains(':')",
        "ts == 1700000000000 && event.ts > 0",
        "partition == 3 && offset >= 42",
        "id == '07070707-0707-0707-0707-070707070707'",
        "sid == null",
        "headers['x-source'] == 'agent'",
        "event.headers['x-source'].endsWith('nt')",
        "'x-source' in headers && !('x-other' in event.headers)",
        "'a-b' in payload && !('b-a' in payload)",
        "'#duck' in tags",
        "tags.exists(t, t == '#duck')",
        "size(caused_by) == 0",
        "!tombstone",
        "payload.cpu_pct > 90",
        "payload.cpu_pct > 90.0",
        "payload.pid == 7 && payload.pid < 7.5",
        "event.payload.pid in [1, 7]",
        "payload.neg < 0",
        "payload.name.matches('^s.t$')",
        "payload.host.name == 'dev'",
        "payload.host.os.kernel.startsWith('6')",
        "payload['a-b']",
        "payload['host']['name'] == 'dev'",
        "payload.none == null",
        "has(payload.pid) && !has(payload.missing)",
        "has(payload.host.name) && !has(payload.host.missing)",
        "has(payload.host) && payload.host.name == 'dev' && has(payload.host.os)",
        "has(payload.none)",
        "payload.list[0] == 1 && size(payload.list) == 3",
        "payload.items[1].sku == 'b'",
        "payload.items.exists(i, i.sku == 'b')",
        "payload.items.all(i, has(i.sku))",
        "payload.items.exists(i, i.tags.exists(t, t == 'z'))",
        "payload.items.filter(i, i.sku == 'a').size() == 1",
        "payload.missing == 1 || payload.pid == 7",
        "payload.pid == 7 ? true : false",
        "string(payload.pid) == '7'",
        "payload.list.map(x, x * 2) == [2, 4, 6]",
    ] {
        assert_eq!(verdict(source), Verdict::Pass, "{source}");
    }
}

#[test]
fn what_does_not() {
    for source in [
        "false",
        "payload.cpu_pct > 95",
        "topic == 'other'",
        "payload.missing == 1 && payload.pid == 8",
        "payload.host.name == 'prod'",
        "has(payload.name.first)",
    ] {
        assert_eq!(verdict(source), Verdict::Skip, "{source}");
    }
    for source in [
        "payload.missing == 1",
        "payload.missing.deeper > 1",
        "payload.name > 7",
        "payload.pid",
        "headers['x-none'] == 'a'",
        "payload.host.name.first == 'd'",
        "payload.list[9] == 1",
        "payload.pid / 0 == 1",
        "payload.big + payload.big > 0",
    ] {
        assert_eq!(verdict(source), Verdict::Fault, "{source}");
    }
}

#[test]
fn expressions_are_checked_when_given() {
    use FilterError as E;
    let error = |source: &str| Expression::compile(source).unwrap_err();
    assert!(matches!(error(""), E::Syntax(_)));
    assert!(matches!(error("payload.a >"), E::Syntax(_)));
    assert!(matches!(error("a == 1"), E::UnknownName(name) if name == "a"));
    assert!(matches!(error("payloads.x == 1"), E::UnknownName(_)));
    assert!(matches!(error("event.nope == 1"), E::UnknownName(_)));
    assert!(matches!(error("tenant == 'x'"), E::UnknownName(_)));
    for source in [
        "payload == null",
        "size(payload) > 1",
        "payload[key] == 1",
        "event == null",
        "headers == null",
        "payload.exists(k, k == 'a')",
        "headers[key] == 'a'",
    ] {
        assert_eq!(error(source), E::WholePayload, "{source}");
    }
    assert!(matches!(error("key.first == 'a'"), E::NoMembers(_)));
    assert!(matches!(error("headers['x-a'].b == 'a'"), E::NoMembers(_)));
    assert!(matches!(error("now() > 1"), E::UnknownFunction(_)));
    assert!(matches!(error("timestamp('x') > 1"), E::UnknownFunction(_)));
    assert!(matches!(error("payload.a.matches(key)"), E::Regex(_)));
    assert!(matches!(error("key.matches('(')"), E::Regex(_)));
    assert!(matches!(error("key.matches('((a{500}){500}){500}')"), E::Regex(_)));
    assert!(matches!(error("{'a': 1}.a == 1"), E::Unsupported(_)));
    assert!(matches!(error("tags.exists(payload, payload == 'a')"), E::Unsupported(_)));
    assert!(matches!(error("tags.exists(key, key == 'a')"), E::Unsupported(_)));
}

#[test]
fn sizes_and_costs_are_bounded() {
    use FilterError as E;
    let error = |source: &str| Expression::compile(source).unwrap_err();
    assert!(matches!(error(&" ".repeat(5000)), E::TooLong(5000)));
    assert_eq!(error(&vec!["key == 'a'"; 200].join("||")), E::TooLarge);
    assert_eq!(error(&format!("{}1{}", "(".repeat(500), ")".repeat(500))), E::TooLarge);
    let many: Vec<_> = (0..40).map(|n| format!("payload.m{n} == 1")).collect();
    assert!(matches!(error(&many.join("||")), E::TooManyMembers(_)));
    assert_eq!(error("payload.a.exists(x, payload.a.exists(y, x == y))"), E::NestedLoop);
    assert_eq!(error("tags.exists(x, [1, 2].exists(y, true))"), E::NestedLoop);

    // More values or bytes than a filter takes.
    let long = format!(r#"{{"a":[{}],"b":1}}"#, vec!["1"; 1200].join(","));
    let a = Expression::compile("payload.a.exists(x, x == 2)").unwrap();
    assert_eq!(a.verdict(&event(&long)), Verdict::Undecided);
    let b = Expression::compile("payload.b == 1").unwrap();
    assert_eq!(b.verdict(&event(&long)), Verdict::Pass);
    let text = format!(r#"{{"a":"{}"}}"#, "x".repeat(20_000));
    let there = Expression::compile("has(payload.a)").unwrap();
    assert_eq!(there.verdict(&event(&text)), Verdict::Pass);
    let used = Expression::compile("payload.a == 'x'").unwrap();
    assert_eq!(used.verdict(&event(&text)), Verdict::Undecided);

    // Many elements, each compared with a long text, many times over.
    let part = "payload.t.contains(x)";
    let costly = format!("payload.l.exists(x, {})", vec![part; 20].join("||"));
    let costly = Expression::compile(&costly).unwrap();
    let list = vec!["\"a\""; 900].join(",");
    let heavy = format!(r#"{{"t":"{}","l":[{list}]}}"#, "x".repeat(12_000));
    assert_eq!(costly.verdict(&event(&heavy)), Verdict::Undecided);
}

/// As every other reader of JSON does it.
#[test]
fn the_last_of_equal_names_counts() {
    let twice = event(r#"{"a":{"b":1},"a":{"c":2},"d":1,"d":2}"#);
    for source in ["!has(payload.a.b) && payload.a.c == 2", "payload.d == 2"] {
        assert_eq!(Expression::compile(source).unwrap().verdict(&twice), Verdict::Pass, "{source}");
    }
}

#[test]
fn payloads_of_any_kind() {
    let filter = Expression::compile("has(payload.a) || tombstone").unwrap();
    for (payload, verdict) in [
        ("null", Verdict::Pass),
        (r#"{"_deleted":true}"#, Verdict::Pass),
        ("[1,2]", Verdict::Skip),
        ("7", Verdict::Skip),
        ("\"a\"", Verdict::Skip),
        ("true", Verdict::Skip),
        ("{}", Verdict::Skip),
        (r#"{"\u0061":1}"#, Verdict::Pass),
    ] {
        assert_eq!(filter.verdict(&event(payload)), verdict, "{payload}");
    }
}

#[test]
fn expressions_are_used_from_many_threads() {
    fn takes<T: Send + Sync + 'static>(_: &T) {}
    let filter = Expression::compile("payload.pid == 7").unwrap();
    takes(&filter);
    assert_eq!(filter.source(), "payload.pid == 7");
    assert_eq!(filter.verdict(&event(PAYLOAD)), Verdict::Pass);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_text_makes_it_panic(source in "[a-z.()\\[\\]'\"&|!<>=+*?:,0-9 \\\\{}-]{0,60}") {
        if let Ok(filter) = Expression::compile(&source) {
            let _ = filter.verdict(&event(PAYLOAD));
        }
    }

    #[test]
    fn nor_do_expressions_of_real_parts(
        parts in proptest::collection::vec(prop_oneof![
            "payload", "payload.a", "payload.list", "key", "ts", "tags", "\\.", "==", "&&", "\\|\\|", "!",
            "\\(", "\\)", "\\[", "\\]", "1", "-1", "'a'", "has\\(payload.a\\)", "\\.exists\\(x, x == 1\\)",
            "in", "\\?", ":", "\\+", "size\\(", "matches\\('a'\\)", "b'x'", "1u", "1.5", "null", "0x7f"
        ], 1..12),
    ) {
        if let Ok(filter) = Expression::compile(&parts.join(" ")) {
            let _ = filter.verdict(&event(PAYLOAD));
        }
    }
}
