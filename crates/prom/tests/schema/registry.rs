//! The registry of a server, and of a data directory without one.

use serde_json::Value;

use crate::project::{Files, json};
use crate::server::Server;
use crate::{stderr, stdout};

const V1: &str = r#"{"type": "object", "required": ["host", "mem_mb"],
    "properties": {"host": {"type": "string"}, "mem_mb": {"type": "number"}}}"#;

fn files() -> Files {
    let v2 = V1.replace("mem_mb", "mem_mib");
    Files::new(&[("schemas/beat/v1.json", V1), ("schemas/beat/v2.json", &v2)])
}

/// With a server and with a directory, by turns.
fn places(files: &Files, check: impl Fn(&Files, &[&str])) {
    let server = Server::start(&["dev", "--port", "0"]);
    check(files, &["--url", &server.url()]);
    let data = files.at("data");
    check(files, &["--data", data.to_str().unwrap()]);
}

fn run(files: &Files, arguments: &[&str], at: &[&str]) -> std::process::Output {
    files.prom(&[arguments, at].concat())
}

#[test]
fn add_list_get_and_plan() {
    let files = files();
    places(&files, |files, at| {
        let run = |arguments: &[&str]| run(files, arguments, at);
        let add = run(&["schema", "add", "beat", "schemas/beat/v1.json"]);
        assert_eq!(add.status.code(), Some(0), "{}{}", stdout(&add), stderr(&add));
        assert!(stdout(&add).contains("beat@1 registered"), "{}", stdout(&add));
        let again = run(&["schema", "add", "beat", "schemas/beat/v1.json", "--json"]);
        assert_eq!(json(&again).1["added"], false);
        assert_eq!(run(&["pub", "beat", r#"{"host":"a","mem_mb":1}"#]).status.code(), Some(0));
        assert_ne!(run(&["pub", "beat", r#"{"host":7}"#]).status.code(), Some(0));

        let refused = run(&["schema", "add", "beat", "schemas/beat/v2.json"]);
        assert_eq!(refused.status.code(), Some(100), "{}", stderr(&refused));
        for part in ["PROM-S104", "no upcaster from 1 to 2", "refused"] {
            assert!(stdout(&refused).contains(part), "{part}: {}", stdout(&refused));
        }
        let written = run_upcaster(files, 1, 2);
        assert_eq!(written["good"], true, "{written}");
        let plan = run(&["schema", "plan", "beat", "--sample", "all", "--json"]);
        let (code, plan) = json(&plan);
        assert_eq!((code, &plan["tried"]["stored"]), (Some(0), &1.into()), "{plan}");
        assert_eq!(run(&["schema", "add", "beat"]).status.code(), Some(0));

        let (_, listed) = json(&run(&["schema", "ls", "--json"]));
        assert_eq!((&listed["topics"][0]["latest"]), &2);
        let (_, versions) = json(&run(&["schema", "ls", "beat", "--json"]));
        assert_eq!(versions["versions"][1]["up"]["operations"][0]["op"], "rename");
        let (_, one) = json(&run(&["schema", "get", "beat@1", "--json"]));
        assert_eq!(one["schema"], serde_json::from_str::<Value>(V1).unwrap());
        let diff = run(&["schema", "diff", "beat@1", "beat@2"]);
        assert!(stdout(&diff).contains("+ /properties/mem_mib"), "{}", stderr(&diff));
        assert_eq!(run(&["schema", "get", "beat@9"]).status.code(), Some(4));
        assert_eq!(run(&["schema", "retire", "beat", "1"]).status.code(), Some(0));
        assert_eq!(run(&["schema", "rm", "beat", "1"]).status.code(), Some(6), "still stored");
        let policy = ["schema", "policy", "beat", "--compat", "full", "--json"];
        assert_eq!(json(&run(&policy)).1["compat"], "full");
        std::fs::remove_file(files.at("schemas/beat/v1.upcast.json")).unwrap();
    });
}

fn run_upcaster(files: &Files, from: u32, to: u32) -> Value {
    let (from, to) = (from.to_string(), to.to_string());
    json(&files.prom(&["schema", "upcaster", "beat", &from, &to, "--json"])).1
}

#[test]
fn the_whole_project_at_once() {
    let files = files();
    run_upcaster(&files, 1, 2);
    run_upcaster(&files, 2, 1);
    files.write("prom.toml", "[topic.beat]\nschema = \"schemas/beat\"\ncompat = \"full\"\n");
    let data = ["--data", "data"];
    let added = run(&files, &["schema", "add", "--all"], &data);
    assert_eq!(added.status.code(), Some(0), "{}{}", stdout(&added), stderr(&added));
    let (_, listed) = json(&run(&files, &["schema", "ls", "--json"], &data));
    assert_eq!(listed["topics"][0]["policy"]["compat"], "full");
    assert_eq!(listed["topics"][0]["versions"].as_array().unwrap().len(), 2);
    assert_eq!(run(&files, &["schema", "add", "--all"], &data).status.code(), Some(0));
}

#[test]
fn against_a_server() {
    let files = files();
    let server = Server::start(&["dev", "--port", "0"]);
    let url = server.url();
    let check = ["schema", "check", "--against", &url];
    // What is new has nothing to break, but for itself: version 2 is held against version 1.
    assert_eq!(files.prom(&check).status.code(), Some(100));
    run(&files, &["schema", "add", "beat", "schemas/beat/v1.json"], &["--url", &url]);
    let broken = files.prom(&check);
    assert_eq!(broken.status.code(), Some(100));
    assert!(stdout(&broken).contains("beat@1"), "{}", stdout(&broken));
    run_upcaster(&files, 1, 2);
    assert_eq!(files.prom(&check).status.code(), Some(0));
}

#[test]
fn inferred_from_stored_events() {
    let files = Files::new(&[]);
    let data = ["--data", "data"];
    run(&files, &["pub", "a", r#"{"n": 1, "s": "x"}"#], &data);
    run(&files, &["pub", "a", r#"{"n": 2.5}"#], &data);
    let inferred = run(&files, &["schema", "infer", "a", "-o", "a.json"], &data);
    assert_eq!(inferred.status.code(), Some(0), "{}", stderr(&inferred));
    files.write("good.json", r#"{"n": 7}"#);
    assert_eq!(files.prom(&["schema", "validate", "a.json", "good.json"]).status.code(), Some(0));
    assert_eq!(run(&files, &["schema", "add", "a", "a.json"], &data).status.code(), Some(0));
}

/// A file of events in one form; what has no such form is said, and the exit code says so, too.
#[test]
fn exported_in_the_form_of_a_version() {
    let files = files();
    places(&files, |files, at| {
        let run = |arguments: &[&str]| run(files, arguments, at);
        run(&["schema", "add", "beat", "schemas/beat/v1.json"]);
        run(&["pub", "beat", r#"{"host":"a","mem_mb":1}"#]);
        assert_eq!(run_upcaster(files, 1, 2)["good"], true);
        assert_eq!(run(&["schema", "add", "beat"]).status.code(), Some(0));
        for (form, member) in [("written", "mem_mb"), ("1", "mem_mb"), ("latest", "mem_mib")] {
            let done = run(&["export", "beat", "--reads", form]);
            assert_eq!(done.status.code(), Some(0), "{form}: {}", stderr(&done));
            assert!(stdout(&done).contains(&format!("\"{member}\":")), "{}", stdout(&done));
        }
        run(&["schema", "policy", "beat", "--payload", "warn"]);
        // The caster finds the new name taken.
        let both = r#"{"host":"a","mem_mb":1,"mem_mib":2}"#;
        let odd = ["pub", "beat", both, "-H", "x-schema-version:1"];
        assert_eq!(run(&odd).status.code(), Some(0));
        let partial = run(&["export", "beat", "--reads", "latest"]);
        assert_eq!(partial.status.code(), Some(8), "{}", stderr(&partial));
        assert_eq!(stdout(&partial).lines().count(), 1, "{}", stdout(&partial));
        assert!(stderr(&partial).contains("not in that form"), "{}", stderr(&partial));
        std::fs::remove_file(files.at("schemas/beat/v1.upcast.json")).unwrap();
    });
}

#[test]
fn a_forced_version_says_who_and_why() {
    let files = files();
    let data = ["--data", "data"];
    let run = |arguments: &[&str]| run(&files, arguments, &data);
    run(&["schema", "add", "beat", "schemas/beat/v1.json"]);
    // The upcaster is there, but makes nothing good.
    files.write("schemas/beat/v1.upcast.json", "[]");
    assert_eq!(run(&["schema", "add", "beat"]).status.code(), Some(100));
    let forced = run(&["schema", "add", "beat", "--force", "known to be noise"]);
    assert_eq!(forced.status.code(), Some(0), "{}{}", stdout(&forced), stderr(&forced));
    let (_, versions) = json(&run(&["schema", "ls", "beat", "--json"]));
    assert_eq!(versions["versions"][1]["forced"], "anonymous: known to be noise");
    // What has no way from one version to the next is refused by force, too.
    files.write("other.json", r#"{"type": "string"}"#);
    let refused = run(&["schema", "add", "beat", "other.json", "--force", "in a hurry"]);
    assert_eq!(refused.status.code(), Some(100), "{}", stderr(&refused));
    assert!(stdout(&refused).contains("no upcaster from 2 to 3"), "{}", stdout(&refused));
}
