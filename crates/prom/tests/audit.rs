//! `prom audit`: at a server, and in a directory without one.

use super::server::Server;
use super::{json_lines, prom, stderr, stdout};

#[test]
fn a_log_that_was_changed_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    for _ in 0..2 {
        let server = Server::start(&["dev", "--port", "0", "--data", &data]);
        let at = ["--url", &server.url()];
        let run = |arguments: &[&str]| prom(&[arguments, &at].concat());
        run(&["topic", "add", "orders.placed"]);
        assert!(run(&["audit", "verify"]).status.success());
        let table = stdout(&run(&["audit", "--text"]));
        assert!(table.contains("POST /topics/orders.placed"), "{table}");
        assert!(run(&["topic", "rm", "orders.placed", "--confirm=orders.placed"]).status.success());
        assert_eq!(server.stop(), Some(0));
    }
    let at = ["--data", data.as_str()];
    let records = json_lines(&[&["audit"], &at[..]].concat());
    assert_eq!(records.len(), 8, "{records:?}");
    let numbers: Vec<_> = records.iter().map(|row| row["record"]["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=8).collect::<Vec<_>>(), "the second start went on");
    // Without a server it is administrated, and noted, all the same.
    assert!(prom(&[&["topic", "add", "late"], &at[..]].concat()).status.success());
    assert_eq!(json_lines(&[&["audit"], &at[..]].concat()).len(), 10);
    let good = prom(&[&["audit", "verify"], &at[..]].concat());
    assert!(good.status.success(), "{}", stderr(&good));
    assert!(stdout(&good).contains("10"), "{}", stdout(&good));

    forge(std::path::Path::new(&data), 11);
    let bad = prom(&[&["audit", "verify", "--text"], &at[..]].concat());
    assert_eq!(bad.status.code(), Some(100), "{}{}", stdout(&bad), stderr(&bad));
    assert!(stdout(&bad).contains("record 10 of chain main"), "{}", stdout(&bad));
    let document = prom(&[&["audit", "verify", "--json"], &at[..]].concat());
    let document: serde_json::Value = serde_json::from_str(&stdout(&document)).unwrap();
    assert_eq!(
        (&document["faults"][0]["fault"], &document["records"]),
        (&"changed".into(), &11.into())
    );
}

/// Whoever can write to the directory adds a record that knows another one before it.
fn forge(data: &std::path::Path, n: u64) {
    use promethean::embedded::{EmbeddedOptions, EmbeddedStore};
    use promethean::store::{Append, Store};
    use promethean_event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
    let record = serde_json::json!({
        "v": 1, "chain": "main", "n": n, "prev": "0".repeat(64), "at": 1, "action": "x",
        "outcome": "done",
    });
    let id = EventId::derived("audit", format!("main\0{n}").as_bytes());
    let (at, topic) = (Timestamp::from_millis(1), Topic::system("$audit").unwrap());
    let event = NewEvent::new(id, at, topic, Payload::of(&record).unwrap());
    let event = event.with_key(Key::new("main").unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (store, _) = EmbeddedStore::open(data, EmbeddedOptions::default()).unwrap();
        store.append(Append::from(event)).await.unwrap();
        store.close().await;
    });
}
