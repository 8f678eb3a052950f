//! `prom view`, `at`, `diff`, `why`, `history`, `trace`, `replay`, `job`: over the demo, with a server
//! and then on its directory.

use serde_json::Value;

use super::server::Server;
use super::{json_lines, prom, stderr, stdout};

const KEY: &str = "dev:stt:1";

fn document(arguments: &[&str]) -> Value {
    let done = prom(arguments);
    assert!(done.status.success(), "{arguments:?}: {}", stderr(&done));
    serde_json::from_str(&stdout(&done)).unwrap()
}

/// What holds with a server and on a directory alike.
fn look_back(at: &[&str]) {
    let run = |arguments: &[&str]| prom(&[arguments, at].concat());
    let json = |arguments: &[&str]| document(&[arguments, at, &["--json"]].concat());
    let views = json(&["view", "ls"]);
    let names: Vec<&str> =
        views["views"].as_array().unwrap().iter().map(|v| v["view"].as_str().unwrap()).collect();
    assert_eq!(names, ["host_stats", "host_members", "processes"]);
    assert!(stdout(&run(&["view", "ls", "--text"])).starts_with("VIEW"));

    let process = json(&["view", "get", "processes", KEY]);
    assert_eq!((&process["host"], &process["_key"]), (&"dev".into(), &KEY.into()));
    let listed = json(&["view", "list", "processes", "host=dev", "pid.le=1"]);
    assert_eq!(listed["documents"][0]["_key"], KEY);
    let bad = run(&["view", "list", "processes", "nothing=1"]);
    assert_eq!(bad.status.code(), Some(2));
    assert!(stderr(&bad).contains("cpu_pct"), "{}", stderr(&bad));
    let described = stdout(&run(&["view", "get", "processes", "--text"]));
    assert!(described.contains("status text") && described.contains("(host, status)"));
    assert_eq!(json(&["view", "get", "processes"])["view"], "processes");
    assert_eq!(run(&["view", "get", "nothing"]).status.code(), Some(4));
    assert_eq!(run(&["view", "list", "processes", "nothing"]).status.code(), Some(2));
    assert_eq!(run(&["view", "get", "processes", "nobody"]).status.code(), Some(4));
    let stats = json(&["view", "get", "host_stats", "dev"]);
    assert_eq!(stats["processes"].as_u64().unwrap() + stats["gone"].as_u64().unwrap(), 1);

    let history = json(&["history", "processes", KEY]);
    let steps = history["steps"].as_array().unwrap();
    let first = steps.last().unwrap()["position"].as_str().unwrap().to_owned();
    let then = json(&["at", &first, "processes", KEY]);
    assert_eq!(then["document"]["status"], "alive");
    assert_eq!(then["events"][0]["position"], first.as_str());
    assert_eq!(json(&["at", "now", "processes", KEY])["outcome"], "document");
    let never = run(&["at", "1 hour ago", "processes", KEY]);
    assert_eq!(never.status.code(), Some(4));
    let shown = stdout(&run(&["at", &first, "processes", KEY, "--text"]));
    assert!(shown.contains("built from process.state/"), "{shown}");
    assert!(shown.find("\"processId\"") < shown.find("\"cpu_pct\""), "as it was written: {shown}");
    let shown = stdout(&run(&["at", "1 hour ago", "processes", KEY, "--text"]));
    assert_eq!(shown, format!("{KEY} had never been there\n"));
    let soon = run(&["at", "soon", "processes", KEY]);
    assert_eq!(soon.status.code(), Some(2));
    let all = run(&["at", "now", "processes", "--all"]);
    assert!(all.status.success() && stdout(&all).lines().any(|line| line.contains(KEY)));

    let diff = json(&["diff", "processes", KEY, "--from", &first]);
    assert!(diff["patch"].as_array().unwrap().iter().any(|change| change["path"] == "/status"));
    let why = json(&["why", "processes", KEY, "/status"]);
    assert_eq!(why["members"][0]["value"], "stale");
    let id = why["members"][0]["event"]["id"].as_str().unwrap().to_owned();
    let trace = json(&["trace", &id]);
    assert!(trace["events"].as_array().unwrap().len() >= 2, "{trace}");
    let tree = stdout(&run(&["trace", &id, "--text"]));
    assert!(
        tree.starts_with("heartbeat.received/0/") && tree.contains("─ process.state/0/"),
        "{tree}"
    );
    assert!(tree.contains("<- asked for"), "{tree}");
    let changes = stdout(&run(&["diff", "processes", KEY, "--from", &first, "--text"]));
    assert!(changes.contains("~ /status: \"alive\" -> \"stale\""), "{changes}");

    let verified = json(&["view", "verify", "processes"]);
    assert_eq!(verified["different"], 0);
    assert_eq!(json(&["view", "verify", "host_stats"])["different"], 0);
    assert_eq!(json(&["view", "rebuild", "processes", "--yes"])["rebuilt"], true);
    assert_eq!(run(&["view", "rebuild", "processes"]).status.code(), Some(2), "not without a yes");
    assert!(run(&["view", "warm", "processes"]).status.success());
}

#[test]
fn the_demo_is_looked_back_at() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let server = Server::start(&["dev", "--demo", "--port", "0", "--data", data]);
    let url = server.url();
    let payload = r#"{"pid":1,"name":"stt","host":"dev","cpu_pct":3,"mem_mb":90}"#;
    let beat = prom(&["pub", "heartbeat.received", payload, "--ts", "20s ago", "--url", &url]);
    assert!(beat.status.success(), "{}", stderr(&beat));
    let stale = "key == \"dev:stt:1\" && payload.status == \"stale\"";
    let tail = ["tail", "process.state", "--url", &url, "-c", "1", "--since", "earliest"];
    json_lines(&[&tail[..], &["--where", stale]].concat());
    let warm = prom(&["view", "warm", "processes", "--url", &url]);
    assert!(warm.status.success(), "{}", stderr(&warm));
    look_back(&["--url", &url]);

    let at = ["--url", url.as_str()];
    let replay = ["replay", "process.state", "--to", "copy", "--where", "key == \"dev:stt:1\""];
    let plan = document(&[&replay[..], &at, &["--dry-run", "--json"]].concat());
    assert!(plan["wanted"].as_u64().unwrap() >= 2 && plan["duplicates"] == 0, "{plan}");
    assert_eq!(
        (&plan["topics"][0]["topic"], &plan["complete"]),
        (&"process.state".into(), &true.into())
    );
    let shown = stdout(&prom(&[&replay[..], &at, &["--dry-run", "--text"]].concat()));
    assert!(
        shown.starts_with("Plan: replay at http") && shown.contains("{\"processId\""),
        "{shown}"
    );
    assert_eq!(prom(&[&replay[..], &at].concat()).status.code(), Some(2), "not without a yes");
    let job = document(&[&replay[..], &at, &["--yes", "--json"]].concat());
    assert_eq!((&job["state"], &job["refused"]), (&"done".into(), &0.into()));
    let published = job["published"].as_u64().unwrap();
    let again = document(&[&replay[..], &at, &["--yes", "--json", "--until", "now"]].concat());
    assert!(again["duplicates"].as_u64().unwrap() >= published.min(2), "{again}");
    let jobs = document(&["job", "ls", "--url", &url, "--json"]);
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 2);
    let id = job["id"].as_str().unwrap();
    assert_eq!(prom(&["job", "cancel", id, "--url", &url]).status.code(), Some(6));
    assert!(stdout(&prom(&["job", "show", id, "--url", &url, "--text"])).contains("done"));
    assert_eq!(server.stop(), Some(0));

    look_back(&["--data", data]);
    let here = document(&[&replay[..], &["--data", data, "--yes", "--json"]].concat());
    assert_eq!(here["state"], "done");
}
