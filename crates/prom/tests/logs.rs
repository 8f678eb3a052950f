//! What a server writes about itself: lines that name requests, and no secret anywhere
//! (RELIABILITY 4.6).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;

use serde_json::Value;

/// In everything that must not be seen again.
const MARKER: &str = "c4n4ry";

/// A server whose every word is kept.
struct Heard {
    child: Child,
    at: String,
    words: JoinHandle<Vec<String>>,
}

impl Heard {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_prom"))
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (told, listening) = mpsc::sync_channel(1);
        let words = std::thread::spawn(move || {
            let mut words = Vec::new();
            for line in lines.map_while(Result::ok) {
                if let Some(at) = line.strip_prefix("listening on ") {
                    let _ = told.try_send(at.to_owned());
                }
                words.push(line);
            }
            words
        });
        let at = listening.recv().unwrap();
        Self { child, at, words }
    }

    /// Says these lines and a body, and hears the whole answer.
    fn ask(&self, request: &str, headers: &[(&str, &str)], body: &str) -> String {
        let mut head = format!("{request} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.at);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let length = body.len();
        let mut stream = TcpStream::connect(&self.at).unwrap();
        write!(stream, "{head}content-length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn stop(mut self) -> Vec<String> {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        self.words.join().unwrap()
    }
}

fn header<'a>(answer: &'a str, name: &str) -> &'a str {
    let line = answer.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_else(|| panic!("{answer}"))
}

/// A token with every right, made beside the data.
fn minted(data: &str, file: &str) -> String {
    let mut arguments = vec!["token", "mint", "ops", "--data", data, "-o", file];
    for scope in ["publish:**", "subscribe:**", "admin:**"] {
        arguments.extend(["--scope", scope]);
    }
    let minted = super::prom(&arguments);
    assert!(minted.status.success(), "{}", super::stderr(&minted));
    std::fs::read_to_string(file).unwrap()
}

/// Good requests and bad ones, with markers wherever a secret may be.
fn asked(server: &Heard, token: &str) -> Vec<String> {
    let json = ("content-type", "application/json");
    let good = format!("Bearer {token}");
    let good = ("authorization", good.as_str());
    let marked = format!("{MARKER}-of-a-client");
    let cookie = format!("session={marked}");
    let mut answers = vec![
        server.ask("POST /publish/a", &[json, good, ("cookie", &cookie)], "1"),
        server.ask("POST /publish/a", &[json, good, ("x-api-key", &marked)], "2"),
    ];
    for answer in &answers {
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }
    for scheme in ["Bearer", "Basic", "Bearer prom_0123456789abcdef", "Bearer a.b"] {
        let wrong = format!("{scheme} {marked}");
        let refused = server.ask("GET /lag", &[("authorization", &wrong)], "");
        assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
        answers.push(refused);
    }
    answers.push(server.ask(&format!("GET /lag?access_token={marked}"), &[], ""));
    for path in ["/metrics", "/events/a", "/readyz?verbose"] {
        answers.push(server.ask(&format!("GET {path}"), &[good], ""));
    }
    let offered = format!("prom.v1, ticket.{marked}");
    let refused = upgrade(server, &offered);
    assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
    answers.push(refused);
    answers
}

/// Asks for a WebSocket; what is answered until the connection is closed.
fn upgrade(server: &Heard, offered: &str) -> String {
    let headers = [
        ("upgrade", "websocket"),
        ("connection", "upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", offered),
    ];
    server.ask("GET /ws", &headers, "")
}

#[test]
fn lines_name_requests_and_nothing_is_given_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (data, secret) = (path("data"), path("secret"));
    std::fs::write(&secret, format!("{MARKER}-0123456789abcdef0123456789abcdef")).unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let token = minted(&data, &path("ops.token"));
    let jwt = ["--jwt-issuer", "https://issuer", "--jwt-audience", "bus", "--jwt-secret-file"];
    let serve = ["serve", "--data", &data, "--listen", "127.0.0.1:0", "--log-level", "debug"];
    let server = Heard::start(&[&serve[..], &jwt[..], &[secret.as_str()]].concat());
    let mut answers = asked(&server, &token);
    let bearer = format!("Bearer {token}");
    let given = server.ask("POST /tickets", &[("authorization", &bearer)], "");
    let given: Value = serde_json::from_str(given.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let ticket = given["ticket"].as_str().unwrap().to_owned();
    // One that is told to come back with another version does not use it up, and is told nothing.
    let offered = format!("prom.v1, ticket.{ticket}");
    for version in ["8", "13"] {
        let refused = server.ask(
            "GET /ws",
            &[
                ("upgrade", "websocket"),
                ("connection", "upgrade"),
                ("sec-websocket-version", version),
                ("sec-websocket-protocol", &offered),
            ],
            "",
        );
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        answers.push(refused);
    }
    let id = header(&answers[2], "x-request-id").to_owned();
    let words = server.stop();

    let lines: Vec<Value> =
        words.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let named = lines.iter().any(|line| line["span"]["id"] == id.as_str());
    assert!(named, "no line names request {id}: {words:?}");
    let refused = lines.iter().find(|line| line["message"] == "a credential was refused").unwrap();
    assert_eq!(refused["level"], "INFO");
    assert!(refused["timestamp"].is_string() && refused["target"].is_string(), "{refused}");

    let hidden = [MARKER, ticket.as_str(), token.rsplit('_').next().unwrap()];
    for said in words.iter().chain(&answers) {
        assert!(!hidden.iter().any(|secret| said.contains(secret)), "{said}");
    }
    // Nor is anything of it kept with the events.
    for entry in std::fs::read_dir(folder.path().join("data/log")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        for secret in hidden {
            let found = bytes.windows(secret.len()).any(|piece| piece == secret.as_bytes());
            assert!(!found, "{secret} is in the log");
        }
    }
}

/// RELIABILITY 4.1: what was waived is said, not only once.
#[test]
fn what_was_waived_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Heard::start(&[
        "serve",
        "--data",
        data.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--insecure-no-auth",
        "--log-format",
        "text",
    ]);
    assert!(server.ask("GET /livez", &[], "").starts_with("HTTP/1.1 200"));
    let words = server.stop().join("\n");
    assert!(
        words.contains("WARN") && words.contains("may do anything: --insecure-no-auth"),
        "{words}"
    );
}
