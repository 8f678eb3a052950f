//! The schemas of a project against those in use.

use crate::project::{Files, json};
use crate::{stderr, stdout};

const V1: &str = r#"{"type": "object", "required": ["mem_mb"],
    "properties": {"mem_mb": {"type": "number"}}}"#;
const V2: &str = r#"{"type": "object", "required": ["mem_mib"],
    "properties": {"mem_mib": {"type": "number"}}}"#;

fn project() -> Files {
    let files = Files::new(&[("schemas/heartbeat.received/v1.json", V1)]);
    files.git(&["init", "-q", "-b", "main"]);
    files.git(&["add", "."]);
    files.git(&["commit", "-q", "-m", "first"]);
    files
}

#[test]
fn against_a_commit() {
    let files = project();
    let check = ["schema", "check", "--against", "git:main"];
    let same = files.prom(&check);
    assert_eq!(same.status.code(), Some(0), "{}", stderr(&same));
    assert!(stdout(&same).contains("in 1 schemas (1 unchanged)"), "{}", stdout(&same));

    files.write("schemas/heartbeat.received/v2.json", V2);
    let broken = files.prom(&check);
    let words = stdout(&broken);
    assert_eq!(broken.status.code(), Some(100), "{words}");
    assert!(words.contains("schemas/heartbeat.received/v2.json:1: error PROM-S104"), "{words}");
    assert!(words.contains("prom schema upcaster heartbeat.received 1 2"), "{words}");
    assert!(words.contains("events of main:schemas/heartbeat.received/v1.json:1"), "{words}");

    let up = r#"[{"op": "rename", "pointer": "/mem_mb", "to": "mem_mib"}]"#;
    files.write("schemas/heartbeat.received/v1.upcast.json", up);
    let cast = files.prom(&check);
    assert_eq!(cast.status.code(), Some(0), "{}", stdout(&cast));
    // An upcaster that does not do it is found by trying.
    files.write("schemas/heartbeat.received/v1.upcast.json", &up.replace("mem_mib", "mem"));
    let (code, document) =
        json(&files.prom(&["--json", "schema", "check", "--against", "git:main"]));
    assert_eq!((code, &document["findings"][0]["rule"]), (Some(100), &"PROM-S201".into()));
    assert!(document["findings"][0]["counter_example"]["mem_mb"].is_number(), "{document}");
}

#[test]
fn what_is_in_use_stays() {
    let files = project();
    files.write("schemas/heartbeat.received/v1.json", &V1.replace("number", "integer"));
    let check = ["schema", "check", "--against", "git:HEAD", "schemas"];
    let changed = files.prom(&check);
    assert_eq!(changed.status.code(), Some(100), "{}", stdout(&changed));
    std::fs::rename(
        files.at("schemas/heartbeat.received/v1.json"),
        files.at("schemas/heartbeat.received/v2.json"),
    )
    .unwrap();
    let words = stdout(&files.prom(&check));
    assert!(words.contains("PROM-S202 version removed"), "{words}");
}

#[test]
fn against_a_directory_by_the_rules_of_the_manifest() {
    let files = Files::new(&[
        ("used/a.b/v1.json", V1),
        ("events/a-b/v1.json", V1),
        ("events/a-b/v2.json", &V1.replace("\"number\"", "[\"number\", \"null\"]")),
        ("prom.toml", "[topic.\"a.b\"]\nschema = \"events/a-b\"\n"),
    ]);
    let check = ["schema", "check", "--against", "used"];
    assert_eq!(files.prom(&check).status.code(), Some(0));
    files.write("prom.toml", "[topic.\"a.b\"]\nschema = \"events/a-b\"\ncompat = \"full\"\n");
    let full = files.prom(&check);
    assert_eq!(full.status.code(), Some(100), "{}", stdout(&full));
    assert!(stdout(&full).contains("(forward)"), "{}", stdout(&full));
}

#[test]
fn bad_bases() {
    let files = project();
    for base in ["git:", "git:nowhere", "git:--help", "nowhere"] {
        let done = files.prom(&["schema", "check", "--against", base]);
        assert_eq!(done.status.code(), Some(2), "{base}: {}", stderr(&done));
    }
}
