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

/// UX 1.2: the banner says how to turn it on, and then where the token is.
#[test]
fn dev_asks_for_a_token_when_it_is_told_to() {
    let open = Server::start(&["dev", "--port", "0"]);
    assert!(open.banner.contains("prom dev --auth"), "{}", open.banner);
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("data");
    for more in [&[][..], &["--data", kept.to_str().unwrap()]] {
        let server = Server::start(&[&["dev", "--auth", "--port", "0"], more].concat());
        let file =
            server.banner.split("with the token in ").nth(1).unwrap().lines().next().unwrap();
        let needed = format!("--token-file {file}");
        assert!(
            server.banner.trim_end().lines().last().unwrap().contains(&needed),
            "{}",
            server.banner
        );
        let file = std::path::PathBuf::from(file);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let token = std::fs::read_to_string(&file).unwrap();
        assert!(!server.banner.contains(&token));
        assert!(server.post("/publish/a", "none", "1").starts_with("HTTP/1.1 401"));
        assert!(server.post("/publish/a", &token, "1").starts_with("HTTP/1.1 201"));
        assert_eq!(server.stop(), Some(0));
        assert_eq!(file.exists(), !more.is_empty(), "what is kept nowhere leaves nothing");
    }
}

/// The clock of a test goes on by an hour at once when it is told to.
#[test]
fn dev_with_a_clock_that_is_told() {
    use std::io::{BufRead, BufReader, Write};
    let mut server = Server::start_told(&["dev", "--test-clock", "--port", "0"]);
    let (mut told, heard) = server.pipes();
    let mut heard = BufReader::new(heard);
    let url = server.url();
    assert!(server.post("/publish/a", "none", "1").starts_with("HTTP/1.1 201"));
    let at = |offset: usize| {
        let lines =
            super::json_lines(&["tail", "a", "--since", "earliest", "--no-follow", "--url", &url]);
        lines[offset]["ts"].as_u64().unwrap()
    };
    let first = at(0);
    writeln!(told, "advance 3600000").unwrap();
    let mut line = String::new();
    heard.read_line(&mut line).unwrap();
    assert_eq!(line, "advanced 3600000\n");
    assert!(server.post("/publish/a", "none", "2").starts_with("HTTP/1.1 201"));
    assert!((3_600_000..3_700_000).contains(&(at(1) - first)), "an hour, and little more");
    writeln!(told, "nonsense").unwrap();
    line.clear();
    heard.read_line(&mut line).unwrap();
    assert!(line.contains("advance MILLISECONDS"), "{line}");
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

/// RELIABILITY 4.3: what could be guessed, or fetched from anywhere, is refused before anything is
/// bound.
#[test]
fn weak_or_careless_keys_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, short) = (path("data"), path("short"));
    std::fs::write(&short, "only thirty-one bytes, not more").unwrap();
    std::fs::set_permissions(&short, std::fs::Permissions::from_mode(0o600)).unwrap();
    let jwt = ["--jwt-issuer", "https://issuer", "--jwt-audience", "bus"];
    for (more, words) in [
        (&["--jwt-secret-file", short.as_str()][..], "32 at least"),
        (&["--jwks-url", "http://issuer.example/keys"], "https"),
        (&["--jwks-url", "file:///etc/passwd"], "https"),
        (&["--jwks-url", "https://a:b@issuer.example/keys"], "without a user"),
        (&[], "--jwks-url"),
    ] {
        let arguments =
            [&["serve", "--data", &data, "--listen", "127.0.0.1:0"], &jwt[..], more].concat();
        let refused = prom(&arguments);
        assert_eq!(refused.status.code(), Some(78), "{more:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(words), "{}", stderr(&refused));
    }
}

/// What the manifest forbids is forbidden, whatever a token says.
#[test]
fn rules_of_the_manifest_hold_for_every_token() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("prom.toml");
    let write = |rules: &str| {
        std::fs::write(&config, format!("[auth]\nrules = [{rules}]\n")).unwrap();
    };
    let data = folder.path().join("data");
    let arguments = [
        "serve",
        "-f",
        config.to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
    ];
    write("\"!publish:secret.**\"");
    let server = Server::start(&arguments);
    let token = std::fs::read_to_string(data.join("admin.token")).unwrap();
    assert!(server.post("/publish/open", &token, "1").starts_with("HTTP/1.1 201"));
    assert!(server.post("/publish/secret.a", &token, "1").starts_with("HTTP/1.1 403"));
    assert_eq!(server.stop(), Some(0));
    write("\"!publish\"");
    let refused = prom(&arguments);
    assert_eq!(refused.status.code(), Some(78), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("auth.rules"), "{}", stderr(&refused));
}

/// RELIABILITY 4.1: also in a folder that was there, and that others may look into.
#[test]
fn files_of_a_server_are_its_own() {
    fn files(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { files(&path, found) } else { found.push(path) }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let server = Server::start(&arguments);
    let token = std::fs::read_to_string(data.join("admin.token")).unwrap();
    assert!(server.post("/publish/a", &token, "1").starts_with("HTTP/1.1 201"));
    let mut found = Vec::new();
    files(&data, &mut found);
    assert!(found.len() > 5, "{found:?}");
    for path in found {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
    assert_eq!(server.stop(), Some(0));
}
