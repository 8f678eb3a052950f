//! `prom.toml`: checked, planned, applied, served.

use std::path::Path;

use super::server::Server;
use super::{eventually, json_lines, prom, stderr, stdout};

const GOOD: &str = r#"
version = 1

[defaults.topic]
retention = "7d"

[topic."orders.placed"]
partitions = 4

[topic."customer.state"]
compaction = "latest"
retention = "forever"

[group.shop]
topics = ["orders.*"]
from = "earliest"
max_attempts = 3
"#;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_manifest_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prom.toml");
    std::fs::write(&file, GOOD).unwrap();
    let good = prom(&["check", "config", text(&file), "--text"]);
    assert_eq!((good.status.code(), stdout(&good).trim()), (Some(0), "good"));
    std::fs::write(&file, GOOD.replace("partitions", "partitons")).unwrap();
    let misspelt = prom(&["check", "config", text(&file), "--text"]);
    assert_eq!(misspelt.status.code(), Some(2));
    let said = stdout(&misspelt);
    assert!(
        said.contains("prom.toml:8:1") && said.contains("did you mean `partitions`?"),
        "{said}"
    );
    std::fs::write(&file, GOOD.replace("orders.*\"", "other.*\"")).unwrap();
    let doubtful = prom(&["check", "config", text(&file)]);
    assert_eq!(doubtful.status.code(), Some(1));
    let finding: serde_json::Value = serde_json::from_str(&stdout(&doubtful)).unwrap();
    assert_eq!(
        (&finding["severity"], &finding["at"]),
        (&"warning".into(), &"group.shop.topics".into())
    );
    for command in [&["apply", "--config"][..], &["serve", "--config"], &["dev", "--config"]] {
        std::fs::write(&file, "[topic.\"A\"]").unwrap();
        let refused = prom(&[command, &[text(&file)]].concat());
        assert_eq!(refused.status.code(), Some(78), "{command:?}: {}", stderr(&refused));
    }
    assert_eq!(prom(&["check", "config", "nowhere.toml"]).status.code(), Some(3));
    assert_eq!(prom(&["check", "nothing"]).status.code(), Some(3), "2 would be a bad manifest");
}

#[test]
fn a_plan_is_made_applied_and_then_empty() {
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("prom.toml"), folder.path().join("data"));
    std::fs::write(&file, GOOD).unwrap();
    let at = ["--config", text(&file), "--data", text(&data)];
    let run = |arguments: &[&str]| prom(&[arguments, &at].concat());
    let plan = run(&["plan", "--exit-code", "--text"]);
    assert_eq!(plan.status.code(), Some(100));
    assert!(
        stdout(&plan).contains("+ topic orders.placed   4 partitions, keeps 7 d"),
        "{}",
        stdout(&plan)
    );
    assert!(run(&["apply"]).status.success(), "what only adds needs no yes");
    assert_eq!(run(&["plan", "--exit-code"]).status.code(), Some(0));
    let group = &json_lines(&["group", "get", "shop", "--data", text(&data)])[0];
    assert_eq!(group["settings"]["max_attempts"], 3);

    std::fs::write(&file, GOOD.replace("\"7d\"", "\"1d\"").replace("= 3", "= 4")).unwrap();
    let refused = run(&["apply", "--yes"]);
    assert_eq!(refused.status.code(), Some(2), "it removes events");
    assert!(stderr(&refused).contains("7 d -> 1 d   removes events"), "{}", stderr(&refused));
    let confirm = format!("--confirm={}", text(&file));
    assert!(run(&["apply", &confirm]).status.success());
    assert_eq!(run(&["plan", "--exit-code"]).status.code(), Some(0));

    std::fs::write(&file, GOOD.replace("partitions = 4", "partitions = 8")).unwrap();
    let fixed = run(&["apply", &confirm]);
    assert_eq!(fixed.status.code(), Some(6));
    assert!(stderr(&fixed).contains("keys would change their place"), "{}", stderr(&fixed));

    std::fs::write(&file, "version = 1\n").unwrap();
    assert_eq!(
        run(&["plan", "--exit-code"]).status.code(),
        Some(0),
        "nothing is removed by itself"
    );
    let pruned = run(&["plan", "--prune"]);
    let steps: serde_json::Value = serde_json::from_str(&stdout(&pruned)).unwrap();
    assert_eq!(steps["steps"].as_array().unwrap().len(), 3);
    assert_eq!(run(&["apply", "--prune", "--yes"]).status.code(), Some(2));
    assert!(run(&["apply", "--prune", &confirm]).status.success());
    assert!(json_lines(&["topic", "ls", "--data", text(&data)]).is_empty());
}

#[test]
fn a_server_has_what_its_manifest_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prom.toml");
    let server_table = "[server]\nlisten = \"127.0.0.1:0\"\n[store]\npath = \"kept\"\n";
    std::fs::write(&file, format!("{GOOD}\n{server_table}\n[auth]\nmode = \"off\"\n")).unwrap();
    let server = Server::start(&["serve", "--config", text(&file)]);
    let url = server.url();
    assert!(
        folder.path().join("kept").join("log").exists(),
        "paths are from where the manifest is"
    );
    assert_eq!(json_lines(&["topic", "ls", "--url", &url]).len(), 2);
    assert!(prom(&["pub", "orders.placed", "1", "--url", &url]).status.success());
    let unknown = prom(&["pub", "nobody.knows", "1", "--url", &url]);
    assert_eq!(unknown.status.code(), Some(4), "{}", stderr(&unknown));
    assert_eq!(server.stop(), Some(0));
    let server = Server::start(&["dev", "--config", text(&file), "--port", "0"]);
    assert!(
        server.banner.contains("2 topics, 1 group  (watching for changes)"),
        "{}",
        server.banner
    );
    let more = std::fs::read_to_string(&file).unwrap() + "\n[topic.\"made.later\"]\n";
    std::fs::write(&file, more).unwrap();
    eventually(|| !json_lines(&["topic", "ls", "made.*", "--url", &server.url()]).is_empty());
    assert!(prom(&["pub", "nobody.knows", "1", "--url", &server.url()]).status.success());
    assert_eq!(
        json_lines(&["tail", "orders.placed", "--no-follow", "--url", &server.url()]).len(),
        1
    );
    assert_eq!(server.stop(), Some(0));
}

/// `kind = "memory"` forgets everything but who may come in, whatever else is said.
#[test]
fn a_store_in_memory_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prom.toml");
    let manifest = "[store]\nkind = \"memory\"\npath = \"kept\"\n\n[topic.\"orders.placed\"]\n";
    std::fs::write(&file, manifest).unwrap();
    let kept = folder.path().join("kept");
    let serve = ["serve", "--config", text(&file), "--listen", "127.0.0.1:0"];
    for _ in 0..2 {
        let server = Server::start(&serve);
        let token = std::fs::read_to_string(kept.join("admin.token")).unwrap();
        let answer = server.post("/publish/orders.placed", &token, "1");
        assert!(answer.starts_with("HTTP/1.1 201") && answer.contains("\"offset\":0"), "{answer}");
        assert_eq!(server.stop(), Some(0));
        let mut files: Vec<String> = std::fs::read_dir(&kept)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        assert_eq!(files, ["admin.token", "tokens.json"]);
    }
    // As it is for `prom dev`, unless a directory is named to it.
    let server = Server::start(&["dev", "--config", text(&file), "--port", "0"]);
    assert!(server.banner.contains("memory - everything is lost on exit"), "{}", server.banner);
    assert!(server.post("/publish/orders.placed", "none", "1").contains("\"offset\":0"));
    assert_eq!(server.stop(), Some(0));
    assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 2);
}
