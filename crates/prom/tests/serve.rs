//! `prom serve` and `prom dev` as processes.

use std::os::unix::fs::PermissionsExt;

use super::server::Server;
use super::{prom, stderr};

#[test]
fn what_was_published_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let server = Server::start(&arguments);
    let token = std::fs::read_to_string(data.join("admin.token")).unwrap();
    for file in ["admin.token", "tokens.json"] {
        let mode = std::fs::metadata(data.join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert!(!std::fs::read_to_string(data.join("tokens.json")).unwrap().contains(&token));
    assert!(server.post("/publish/a", &token, "1").starts_with("HTTP/1.1 201"));
    assert!(server.post("/publish/a", "wrong", "1").starts_with("HTTP/1.1 401"));
    assert_eq!(server.stop(), Some(0));

    let server = Server::start(&arguments);
    let answer = server.post("/publish/a", &token, "2");
    assert!(answer.contains("\"offset\":1"), "{answer}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn dev_asks_for_no_token() {
    let server = Server::start(&["dev", "--port", "0"]);
    assert!(server.post("/publish/a", "none", "1").starts_with("HTTP/1.1 201"));
    assert_eq!(server.stop(), Some(0));
}

/// RELIABILITY 4.1: exit code 78, and both flags are named.
#[test]
fn others_are_not_let_in_by_accident() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    for more in [&["--insecure-no-auth"][..], &[]] {
        let arguments = [&["serve", "--data", data, "--listen", "0.0.0.0:0"], more].concat();
        let refused = prom(&arguments);
        assert_eq!(refused.status.code(), Some(78), "{}", stderr(&refused));
        let words = stderr(&refused);
        assert!(words.contains("--insecure-no-auth") && words.contains("--insecure-no-tls"));
    }
}

#[test]
fn secrets_that_others_can_read_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens.json");
    std::fs::write(&tokens, "[]").unwrap();
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o644)).unwrap();
    let data = folder.path().to_str().unwrap();
    let refused = prom(&["serve", "--data", data, "--tokens", tokens.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("chmod 600"));
}
