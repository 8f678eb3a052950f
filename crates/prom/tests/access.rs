//! `prom token`, `auth explain` and `ctx`.

use std::process::Command;

use super::server::Server;
use super::{eventually, json_lines, prom, stderr, stdout};

#[test]
fn tokens_are_minted_used_and_revoked_while_a_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let server = Server::start(&["serve", "--data", data, "--listen", "127.0.0.1:0"]);
    let url = server.url();
    let minted =
        json_lines(&["token", "mint", "shop", "--scope", "publish:orders.*", "--data", data]);
    let secret = minted[0]["secret"].as_str().unwrap();
    let file = folder.path().join("shop.token");
    std::fs::write(&file, secret).unwrap();
    let file = file.to_str().unwrap();
    let publish = |topic: &str| prom(&["pub", topic, "1", "--url", &url, "--token-file", file]);
    // Nobody tells the server: it looks now and then.
    eventually(|| publish("orders.placed").status.code() == Some(0));
    let other = publish("other");
    assert_eq!(other.status.code(), Some(5));
    assert!(stderr(&other).contains("prom auth explain"), "{}", stderr(&other));
    assert_eq!(prom(&["pub", "orders.placed", "1", "--url", &url]).status.code(), Some(5));

    let listed = json_lines(&["token", "ls", "--data", data]);
    assert_eq!(listed.len(), 2, "the administrator's and the shop's");
    let all = stdout(&prom(&["token", "ls", "--data", data, "--text"]));
    assert!(all.contains("publish:orders.*") && !all.contains(secret));
    let id = minted[0]["id"].as_str().unwrap();
    assert_eq!(prom(&["token", "revoke", id, "--data", data]).status.code(), Some(2));
    assert!(prom(&["token", "revoke", id, "--data", data, "--yes"]).status.success());
    eventually(|| publish("orders.placed").status.code() == Some(5));
    assert_eq!(prom(&["token", "revoke", id, "--data", data, "--yes"]).status.code(), Some(4));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn scopes_are_explained() {
    let ask = |arguments: &[&str]| {
        let output = prom(&[&["auth", "explain"], arguments].concat());
        let verdict: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        (output.status.code(), verdict["by"].clone())
    };
    let scopes = ["--scope", "publish:orders.*", "--scope", "subscribe:**@shop"];
    let (code, by) = ask(&[&["publish", "orders.placed"][..], &scopes].concat());
    assert_eq!((code, by), (Some(0), serde_json::json!(["publish:orders.*"])));
    assert_eq!(ask(&[&["publish", "a"][..], &scopes].concat()).0, Some(5));
    assert_eq!(ask(&[&["subscribe", "a", "--group", "shop"][..], &scopes].concat()).0, Some(0));
    assert_eq!(ask(&[&["subscribe", "a", "--group", "other"][..], &scopes].concat()).0, Some(5));
    assert_eq!(ask(&["ops-read", "--scope", "admin:ops"]).0, Some(0));
    let wrong = prom(&["auth", "explain", "publish", "a", "--scope", "publish"]);
    assert_eq!(wrong.status.code(), Some(2));
    let whose = prom(&["auth", "explain", "publish", "a"]);
    assert_eq!(whose.status.code(), Some(2));
}

#[test]
fn a_token_that_allows_nothing_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    for scope in ["openid", "publish", "publish:"] {
        let refused = prom(&["token", "mint", "x", "--scope", scope, "--data", data]);
        assert_eq!(refused.status.code(), Some(2), "{scope}");
    }
    let short =
        json_lines(&["token", "mint", "x", "--scope", "admin:ops", "--ttl", "1h", "--data", data]);
    assert!(short[0]["expires_at_ms"].as_u64().is_some());
}

#[test]
fn contexts_name_servers() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["dev", "--port", "0"]);
    let run = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_prom"))
            .args(arguments)
            .env("XDG_CONFIG_HOME", folder.path())
            .env_remove("PROM_URL")
            .output()
            .unwrap()
    };
    assert!(run(&["ctx", "add", "here", "--url", &server.url()]).status.success());
    assert!(run(&["ctx", "add", "prod", "--url", &server.url(), "--protected"]).status.success());
    assert!(run(&["pub", "a", "1"]).status.success(), "the first one is used");
    let shown = stdout(&run(&["ctx", "ls", "--text"]));
    assert!(shown.contains("*  here") && shown.contains("protected"), "{shown}");
    assert!(run(&["ctx", "use", "prod"]).status.success());
    let careful = run(&["topic", "set", "a", "--retention", "1d", "--yes"]);
    assert_eq!(careful.status.code(), Some(2), "a protected server is changed by name only");
    assert!(run(&["ctx", "use", "-"]).status.success());
    assert!(stdout(&run(&["ctx", "ls", "--text"])).contains("*  here"));
    assert!(stdout(&run(&["ctx", "-", "--text"])).contains("*  prod"));
    assert!(run(&["ctx", "-"]).status.success());
    assert_eq!(run(&["topic", "ls", "--context", "none"]).status.code(), Some(4));
    assert!(run(&["ctx", "rm", "prod", "--yes"]).status.success());
    assert_eq!(run(&["ctx", "use", "prod"]).status.code(), Some(4));
    assert_eq!(server.stop(), Some(0));
}
