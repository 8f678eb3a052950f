//! `prom topic`, `group`, `dlq`, `get`, `export`, `import`.

use super::server::Server;
use super::{json_lines, prom, prom_with, stderr, stdout};

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn topics_with_and_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&["dev", "--port", "0"]);
    for at in [["--data", text(&data)], ["--url", &server.url()]] {
        let run = |arguments: &[&str]| prom(&[arguments, &at].concat());
        let lines = |arguments: &[&str]| json_lines(&[arguments, &at].concat());
        let made = lines(&["topic", "add", "a.b", "--partitions", "3", "--retention", "7d"]);
        assert_eq!(
            (&made[0]["partitions"], &made[0]["retention_ms"]),
            (&3.into(), &604_800_000.into())
        );
        assert!(
            run(&["topic", "add", "a.b", "--partitions", "3", "--retention", "7d"])
                .status
                .success()
        );
        let other = run(&["topic", "add", "a.b"]);
        assert_eq!(other.status.code(), Some(6));
        assert!(stderr(&other).contains("prom topic set a.b"));

        let longer = run(&["topic", "set", "a.b", "--retention", "30d"]);
        assert_eq!(longer.status.code(), Some(2), "not without a yes");
        assert!(stderr(&longer).contains("--yes") && stderr(&longer).contains("7 d -> 30 d"));
        let longer = lines(&["topic", "set", "a.b", "--retention", "30d", "--yes"]);
        assert_eq!(longer[0]["retention_ms"], 2_592_000_000_u64);
        let shorter = run(&["topic", "set", "a.b", "--retention", "1d", "--yes"]);
        assert_eq!(shorter.status.code(), Some(2), "what removes events needs the name");
        assert!(stderr(&shorter).contains("--confirm=a.b"), "{}", stderr(&shorter));
        let wrong = run(&["topic", "set", "a.b", "--retention", "1d", "--confirm", "b"]);
        assert_eq!(wrong.status.code(), Some(2));
        assert!(
            run(&["topic", "set", "a.b", "--retention", "1d", "--confirm", "a.b"]).status.success()
        );
        let set = lines(&["topic", "set", "a.b", "--compaction", "latest", "--confirm", "a.b"]);
        assert!(set[0]["compaction"].is_object());
        assert_eq!(set[0]["retention_ms"], 86_400_000);

        assert_eq!(lines(&["topic", "ls"]).len(), 1);
        assert!(lines(&["topic", "ls", "x.**"]).is_empty());
        let table = stdout(&run(&["topic", "ls", "--text"]));
        assert!(table.starts_with("TOPIC") && table.contains("newest of each key, 1 d"), "{table}");
        let document: serde_json::Value =
            serde_json::from_str(&stdout(&run(&["topic", "ls", "--json"]))).unwrap();
        assert_eq!(document["topics"][0]["topic"], "a.b");

        let dry = run(&["topic", "rm", "a.b", "--dry-run"]);
        assert!(dry.status.success() && stderr(&dry).contains("nothing was changed"));
        assert_eq!(run(&["topic", "rm", "a.b"]).status.code(), Some(2));
        assert!(run(&["topic", "rm", "a.b", "--confirm=a.b"]).status.success());
        let gone = run(&["topic", "get", "a.b"]);
        assert_eq!(gone.status.code(), Some(4));
        assert!(stderr(&gone).contains("prom topic ls"));
    }
    assert_eq!(server.stop(), Some(0));
}

/// The consumer of the demo fails on what is no heartbeat: a dead letter from end to end.
#[test]
fn dead_letters_are_found_shown_replayed_mended_and_given_up() {
    let server = Server::start(&["dev", "--demo", "--port", "0"]);
    let url = server.url();
    let run = |arguments: &[&str]| prom(&[arguments, &["--url", &url]].concat());
    let lines = |arguments: &[&str]| json_lines(&[arguments, &["--url", &url]].concat());
    let wait = |topic: &str, filter: &str| {
        lines(&["tail", topic, "--since", "earliest", "-c", "1", "--where", filter])
    };
    for payload in [r#"{"oops":1}"#, r#"{"oops":2}"#] {
        assert!(run(&["pub", "heartbeat.received", payload, "--key", "k"]).status.success());
    }
    wait("dlq.heartbeat.received", "payload.original.payload.oops == 2");
    let kinds = lines(&["dlq", "ls"]);
    assert_eq!(kinds.len(), 1, "the same kind of error");
    assert_eq!((&kinds[0]["count"], &kinds[0]["group"]), (&2.into(), &"process-projector".into()));
    let each = lines(&["dlq", "ls", "--each"]);
    let id = each[0]["id"].as_str().unwrap();
    let short = &id[id.len() - 6..];
    let shown = stdout(&run(&["dlq", "show", short, "--text"]));
    assert!(shown.contains("not a heartbeat: missing field `pid`"), "{shown}");
    assert!(shown.contains(r#"payload    {"oops":1}"#) && shown.contains("attempts   1"));

    let first = run(&["dlq", "replay", short, "--rate", "10", "--dry-run"]);
    assert!(stderr(&first).contains("1 key has newer events"), "{}", stderr(&first));
    assert!(stderr(&first).contains("10/s, about 100 ms"), "{}", stderr(&first));
    let asked = run(&["dlq", "replay"]);
    assert_eq!(asked.status.code(), Some(2), "which?");
    let kind = kinds[0]["fingerprint"].as_str().unwrap();
    let plan = run(&["dlq", "replay", "--error", &kind[..8], "--dry-run"]);
    assert!(plan.status.success() && stderr(&plan).contains("replay 2 dead letters"));
    assert!(!stderr(&plan).contains("newer"), "the newest is among them: {}", stderr(&plan));
    let replayed = lines(&["dlq", "replay", "--error", &kind[..8], "--yes"]);
    assert_eq!(replayed[0]["done"].as_array().unwrap().len(), 2);
    wait("dlq.heartbeat.received", "payload.original.payload.oops == 2 && payload.round == 1");
    assert_eq!(lines(&["dlq", "ls"])[0]["returned"], 2, "nothing was mended, so they came back");

    let each = lines(&["dlq", "ls", "--each"]);
    let ids: Vec<&str> = each.iter().map(|letter| letter["id"].as_str().unwrap()).collect();
    let mended =
        r#"{"payload":{"pid":7,"name":"a:b","host":"dev","cpu_pct":1,"mem_mb":2},"key":"k"}"#;
    let edit = ["dlq", "edit", ids[0], "--with", "-", "--yes", "--url", &url];
    let edited = prom_with(&edit, mended);
    assert_eq!(edited.status.code(), Some(0), "{}", stderr(&edited));
    let state = wait("process.state", "payload.name == \"a:b\"");
    assert_eq!(state[0]["key"], "dev:a%3ab:7", "a colon in a name is escaped");
    let nonsense = prom_with(&["dlq", "edit", ids[1], "--with", "-", "--yes", "--url", &url], "{}");
    assert_eq!(nonsense.status.code(), Some(2));

    assert_eq!(run(&["dlq", "rm", ids[1]]).status.code(), Some(2));
    assert!(run(&["dlq", "rm", ids[1], "--yes"]).status.success());
    assert!(lines(&["dlq", "ls"]).is_empty());
    assert_eq!(run(&["dlq", "replay", ids[1], "--yes"]).status.code(), Some(6), "it was given up");
    assert_eq!(run(&["dlq", "show", "nothing"]).status.code(), Some(4));
    assert_eq!(server.stop(), Some(0));
}

/// More than a server lists at once: all are counted, found and replayed.
#[test]
fn many_dead_letters_are_all_seen() {
    let server = Server::start(&["dev", "--demo", "--port", "0"]);
    let at = ["--url", &server.url()];
    let many: String = (0..1100).map(|n| format!("{{\"payload\":{{\"oops\":{n}}}}}\n")).collect();
    let last = "{\"payload\":\"neither\"}\n";
    let beats = [&["pub", "heartbeat.received", "-"][..], &at].concat();
    assert!(prom_with(&beats, &format!("{many}{last}")).status.success());
    let given_up = "payload.original.payload == \"neither\"";
    let wait = ["tail", "dlq.**", "--since", "earliest", "-c", "1", "--where", given_up];
    json_lines(&[&wait[..], &at].concat());
    let kinds = json_lines(&[&["dlq", "ls"][..], &at].concat());
    let counts: Vec<u64> = kinds.iter().map(|kind| kind["count"].as_u64().unwrap()).collect();
    assert_eq!(counts, [1, 1100], "the newest kind first");
    let rare = kinds[0]["fingerprint"].as_str().unwrap();
    let found = json_lines(&[&["dlq", "rm", "--error", &rare[..8], "--yes"][..], &at].concat());
    assert_eq!(found[0]["done"].as_array().unwrap().len(), 1, "behind a thousand others");
    let plan = prom(&[&["dlq", "replay", "--all", "--dry-run"][..], &at].concat());
    assert!(stderr(&plan).contains("replay 1\u{202f}100 dead letters"), "{}", stderr(&plan));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn groups_are_listed_moved_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("prom.toml");
    std::fs::write(&manifest, "[topic.a]\n[group.ops]\ntopics = [\"a\"]\nfrom = \"earliest\"\n")
        .unwrap();
    let data = folder.path().join("data");
    let at = ["--data", text(&data)];
    let run = |arguments: &[&str]| prom(&[arguments, &at].concat());
    assert!(run(&["apply", "--config", text(&manifest)]).status.success());
    let input = "{\"payload\":1}\n{\"payload\":2}\n{\"payload\":3}\n";
    assert!(prom_with(&[&["pub", "a", "-"][..], &at].concat(), input).status.success());
    let groups = json_lines(&[&["group", "ls"][..], &at].concat());
    assert_eq!((&groups[0]["events"], &groups[0]["members"]), (&3.into(), &0.into()));
    let table = stdout(&run(&["group", "ls", "--text"]));
    assert!(table.contains("LAG") && table.contains("OLDEST") && table.contains("ops"), "{table}");
    let plan = run(&["group", "seek", "ops", "--to", "latest", "--dry-run"]);
    assert!(stderr(&plan).contains("0 events come again, 3 are passed over"), "{}", stderr(&plan));
    assert_eq!(run(&["group", "seek", "ops", "--to", "latest"]).status.code(), Some(2));
    let moved =
        json_lines(&[&["group", "seek", "ops", "--to", "latest", "--yes"][..], &at].concat());
    assert_eq!((&moved[0]["applied"], &moved[0]["moves"][0]["to"]), (&true.into(), &3.into()));
    let back = run(&["group", "seek", "ops", "--to", "1h ago", "--yes"]);
    assert!(back.status.success() && stderr(&back).contains("3 events come again"));
    let shown = json_lines(&[&["group", "get", "ops"][..], &at].concat());
    assert_eq!(shown[0]["settings"]["topics"][0], "a");
    assert_eq!(run(&["group", "rm", "ops", "--yes"]).status.code(), Some(2), "by its name only");
    assert!(run(&["group", "rm", "ops", "--confirm=ops"]).status.success());
    assert_eq!(run(&["group", "get", "ops"]).status.code(), Some(4));
}

#[test]
fn what_is_exported_can_be_imported_any_number_of_times() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let file = folder.path().join("backup.ndjson");
    let many: String =
        (0..1500).map(|n| format!("{{\"payload\":{{\"n\":{n}}},\"key\":\"k{n}\"}}\n")).collect();
    for topic in ["a.x", "a.y"] {
        assert!(prom_with(&["pub", topic, "-", "--data", text(&one)], &many).status.success());
    }
    let exported = json_lines(&["export", "a.*", "-o", text(&file), "--data", text(&one)]);
    assert_eq!(exported[0]["events"], 3000);
    let imported = json_lines(&["import", text(&file), "--data", text(&two)]);
    assert_eq!(
        (&imported[0]["added"], &imported[0]["topics"]["a.y"]),
        (&3000.into(), &1500.into())
    );
    let again = json_lines(&["import", text(&file), "--data", text(&two)]);
    assert_eq!((&again[0]["added"], &again[0]["duplicates"]), (&0.into(), &3000.into()));
    let copy = prom(&["export", "a.*", "--data", text(&two)]);
    assert_eq!(stdout(&copy), std::fs::read_to_string(&file).unwrap(), "the same, to the byte");
    let some = prom(&["export", "--where", "payload.n < 3", "--data", text(&one)]);
    assert_eq!(stdout(&some).lines().count(), 6);
    // What another store has made for itself means nothing here.
    let state = r#"{"id":"018f2b6c-7d2e-7c4a-8b1e-0123456789ab","topic":"a.x.snapshot","payload":1,
        "headers":{"x-source-offset":"7"}}"#;
    let state = state.replace('\n', "");
    let left = prom_with(&["import", "-", "--data", text(&two)], &state);
    assert!(stdout(&left).contains(r#""added":0"#) && stdout(&left).contains(r#""left_out":1"#));
    assert!(stderr(&left).contains("1 left out"), "{}", stderr(&left));
    let wrong = prom_with(&["import", "-", "--data", text(&two)], "{\"payload\":1}\n");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("line 1: there is no topic in it"));
    let into = prom_with(&["import", "-", "--into", "b", "--data", text(&two)], &stdout(&some));
    assert!(into.status.success(), "{}", stderr(&into));
    let event = &json_lines(&["tail", "b", "--no-follow", "--data", text(&two)])[0];
    let id = event["id"].as_str().unwrap();
    assert_eq!(json_lines(&["get", id, "--data", text(&two)]).len(), 2, "here and where it was");
    assert_eq!(json_lines(&["get", id, "--topic", "b", "--data", text(&two)])[0], *event);
    let none = prom(&["get", "018c2e65-4b00-7000-8000-000000000001", "--data", text(&two)]);
    assert_eq!(none.status.code(), Some(4), "{}", stderr(&none));
}

#[test]
fn exports_are_compressed_by_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let (plain, packed) = (folder.path().join("a.ndjson"), folder.path().join("a.ndjson.gz"));
    let many: String = (0..2000).map(|n| format!("{{\"payload\":{{\"n\":{n}}}}}\n")).collect();
    assert!(prom_with(&["pub", "a", "-", "--data", text(&one)], &many).status.success());
    for file in [&plain, &packed] {
        let exported = json_lines(&["export", "-o", text(file), "--data", text(&one)]);
        assert_eq!(exported[0]["events"], 2000);
    }
    let bytes = |path| std::fs::read(path).unwrap();
    assert!(bytes(&packed).starts_with(&[0x1f, 0x8b]));
    assert!(bytes(&packed).len() * 3 < bytes(&plain).len());
    // What it is called does not matter to who reads it.
    let other = folder.path().join("backup");
    std::fs::rename(&packed, &other).unwrap();
    assert_eq!(json_lines(&["import", text(&other), "--data", text(&two)])[0]["added"], 2000);
    let copy = prom(&["export", "--data", text(&two)]);
    assert_eq!(stdout(&copy).as_bytes(), bytes(&plain), "the same, to the byte");
    let mut cut = bytes(&other);
    cut.truncate(cut.len() / 2);
    std::fs::write(&other, cut).unwrap();
    let broken = prom(&["import", text(&other), "--data", text(&two)]);
    assert_eq!(broken.status.code(), Some(1), "{}", stderr(&broken));
}

#[test]
fn pages_and_completions_are_made_from_the_commands() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish", "nushell"] {
        let made = prom(&["completions", shell]);
        assert!(made.status.success() && stdout(&made).contains("dlq"), "{shell}");
    }
    let page = stdout(&prom(&["man", "topic", "add"]));
    assert!(page.contains(".TH") && page.contains("partitions"), "{page}");
    assert_eq!(prom(&["man", "nothing"]).status.code(), Some(4));
    let folder = tempfile::tempdir().unwrap();
    assert!(prom(&["man", "--into", text(folder.path())]).status.success());
    assert!(std::fs::read_dir(folder.path()).unwrap().count() > 20);
}
