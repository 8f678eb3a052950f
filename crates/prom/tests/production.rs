//! `docs/production.md`, as a new user goes through it: a replica set of three by `scripts/mongod`, then
//! every command of the document, in order. Servers stay until the end.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::server::Server;

/// A replica set for as long as it is there.
struct Set {
    child: Child,
    url: String,
}

impl Set {
    fn start(script: &Path) -> Self {
        let mut command = Command::new(script);
        command.args(["--members", "3", "--in-memory"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("mongodb://"), "no replica set: {url}");
        Self { child, url: url.trim().to_owned() }
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        // The end of its input ends it, with its members.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The commands of the document, a line each; those that go on over lines are joined.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_shell = false;
    let mut begun = String::new();
    for line in text.lines() {
        match line.trim_end() {
            "```sh" => is_shell = true,
            "```" => is_shell = false,
            line if is_shell && !line.is_empty() => {
                begun.push_str(line.trim_end_matches('\\'));
                if !line.ends_with('\\') {
                    found.push(std::mem::take(&mut begun));
                }
            }
            _ => {}
        }
    }
    found
}

#[test]
fn the_way_to_three_hubs_can_be_gone() {
    let text = std::fs::read_to_string(root().join("docs/production.md")).unwrap();
    let commands = commands(&text);
    let set = Set::start(&root().join("scripts/mongod"));
    let folder = tempfile::tempdir().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_prom")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let store = set.url.replacen("/?", "/prom?", 1);
    // The document names ports; here they are those that are free.
    let mut servers: BTreeMap<&str, Server> = BTreeMap::new();
    let mut ran = 0;
    for command in &commands {
        if command.starts_with("scripts/mongod") {
            continue;
        }
        let mut line = command.replace("$STORE", &store);
        for (port, server) in &servers {
            line = line.replace(&format!("http://127.0.0.1:{port}"), &server.url());
        }
        if let Some(rest) = line.strip_prefix("prom serve ") {
            let port =
                ["7766", "7767", "7768"].into_iter().find(|port| rest.contains(port)).unwrap();
            let rest = rest.replace(port, "0").replace('"', "");
            let arguments: Vec<String> = rest
                .split_whitespace()
                .map(|word| match word.strip_prefix("hub-") {
                    Some(_) => folder.path().join(word).to_str().unwrap().to_owned(),
                    None => word.to_owned(),
                })
                .collect();
            let mut all = vec!["serve"];
            all.extend(arguments.iter().map(String::as_str));
            servers.insert(port, Server::start(&all));
        } else {
            let output = Command::new("bash")
                .args(["-euo", "pipefail", "-c", &line])
                .current_dir(folder.path())
                .env("PATH", &path)
                .env("HOME", folder.path())
                .env_remove("XDG_CONFIG_HOME")
                .output()
                .unwrap();
            // The doctor finds what is so on every single machine: no users, no TLS.
            let expected = if line.starts_with("prom doctor") { 100 } else { 0 };
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(expected), "{line}\n{said}");
        }
        ran += 1;
    }
    assert!(ran >= 7 && servers.len() == 3, "{ran} commands, {} hubs", servers.len());
    for (_, server) in servers {
        assert_eq!(server.stop(), Some(0));
    }
}
