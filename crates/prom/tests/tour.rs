//! `docs/tour.md`: what a new user does, with what he sees. This test does it, and compares;
//! `PROM_UPDATE_DOCS=1 cargo test -p prom tour` writes the page anew.

use std::path::Path;
use std::process::Command;

use super::server::Server;

/// What the tour is made of.
enum Part {
    Prose(&'static str),
    /// A command with what it prints. `{letter}` is the end of the id of the first dead letter,
    /// `{beat}` that of the heartbeat.
    Run(&'static str),
    /// A command that only waits for something; it is not shown.
    Wait(&'static str),
}

use Part::{Prose, Run, Wait};

const BEAT: &str =
    r#"prom pub heartbeat.received '{"pid":1,"name":"stt","host":"dev","cpu_pct":3,"mem_mb":90}'"#;

const TOUR: &[Part] = &[
    Prose(
        "Another shell. The demo publishes a heartbeat of every watched process each second, and a\n\
         projector tells from them who is alive. What it says can be followed:",
    ),
    Run("prom tail 'process.**' --since 1m -c 3"),
    Prose(
        "In a pipe the same is one JSON object on each line, payloads exactly as they were published:",
    ),
    Run("prom tail process.state --since 1m -c 1 | cat"),
    Prose("Anybody can send a heartbeat. The answer comes when it is on disk (here: in memory):"),
    Run(BEAT),
    Prose("The projector has heard of it, and names the heartbeat as the cause of what it says:"),
    Run("prom tail process.state --key dev:stt:1 --since 1m -c 1"),
    Prose(
        "A view keeps the newest state of each process, and knows what it was at any time before:",
    ),
    Wait("prom view warm processes"),
    Run("prom at now processes dev:stt:1"),
    Prose("Since which event it is what it is, and what the heartbeat has led to:"),
    Run("prom why processes dev:stt:1 /status"),
    Run("prom trace {beat}"),
    Prose("What is there, and who reads it, with the lag in events and in time:"),
    Run("prom topic ls"),
    Run("prom group ls"),
    Prose("Now something that the projector cannot read:"),
    Run(r#"prom pub heartbeat.received '{"oops": true}'"#),
    Wait("prom tail dlq.heartbeat.received --since 1m -c 1"),
    Prose(
        "It gave up on that one event, and went on with the others. Dead letters are listed by the kind of\ntheir error:",
    ),
    Run("prom dlq ls"),
    Run("prom dlq show {letter}"),
    Prose(
        "Replaying says first what it would do. It goes to the group that failed, and to no other:",
    ),
    Run("prom dlq replay {letter} --dry-run"),
    Prose("As it is, it would come back. It can be mended; without `--with` an editor opens:"),
    Run(
        r#"echo '{"payload": {"pid":2,"name":"tts","host":"dev","cpu_pct":1,"mem_mb":50}}' > mended.json"#,
    ),
    Run("prom dlq edit {letter} --with mended.json --yes"),
    Wait("prom tail process.state --key dev:tts:2 --since 1m -c 1"),
    Run("prom tail process.state --key dev:tts:2 --since 1m -c 1"),
    Run("prom dlq ls"),
    Prose(
        "A group can be moved, also while its members run. Times are as people write them, and what was\nunderstood is said:",
    ),
    Run("prom group seek process-projector --to '1h ago' --dry-run"),
    Prose("Topics have rules. What would remove events has to be confirmed by name:"),
    Run("prom topic add orders.placed --partitions 2 --retention 7d"),
    Run("prom topic set orders.placed --retention 1d"),
    Prose(
        "Everything can be taken out and put in again, here into a directory without any server:",
    ),
    Run("prom export 'process.**' -o states.ndjson"),
    Run("prom import states.ndjson --data ./copy"),
    Run("prom topic ls --data ./copy"),
    Prose("Ctrl-C in the first shell ends the server."),
];

#[test]
fn the_tour_is_what_happens() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["dev", "--demo", "--port", "0"]);
    let banner = format!("{}\n", server.banner.trim_end());
    let mut page = String::from(
        "# A tour\n\n<!-- Made by crates/prom/tests/tour.rs; changes here are lost. -->\n\n\
         What a new user sees, in order. With a Rust toolchain, from a clone:\n\n\
         ```sh skip\ncargo install --path crates/prom\n```\n\n```text\n$ prom dev --demo\n",
    );
    page.push_str(&banner);
    page.push_str("```\n");
    for part in TOUR {
        match part {
            Prose(text) => page.push_str(&format!("\n{text}\n")),
            Wait(command) => drop(shell(&server, folder.path(), command)),
            Run(command) => {
                let command = command.replace("{letter}", &letter(&server, folder.path(), command));
                let command = command.replace("{beat}", &beat(&server, folder.path(), &command));
                let seen = shell(&server, folder.path(), &command);
                let seen = if seen.is_empty() { seen } else { format!("{}\n", seen.trim_end()) };
                page.push_str(&format!("\n```text\n$ {command}\n{seen}```\n"));
            }
        }
    }
    let port = server.at.rsplit(':').next().unwrap().to_owned();
    assert_eq!(server.stop(), Some(0));
    let page = page.replace(&format!(" --url http://127.0.0.1:{port}"), "");
    // With as much room behind it: the columns of the banner stay where they are.
    let usual = format!("127.0.0.1:{:<width$}", 7766, width = port.len());
    let page = page.replace(&format!("127.0.0.1:{port}  "), &format!("{usual}  "));
    let page = page.replace(&format!("127.0.0.1:{port}"), "127.0.0.1:7766");
    // The name of whoever's machine this ran on is nobody's business.
    let host = Command::new("uname").arg("-n").output().unwrap();
    let host = String::from_utf8(host.stdout).unwrap();
    let page = page.replace(&format!("{}:", host.trim()), "laptop:");
    let page = page.replace(&format!("\"host\":\"{}\"", host.trim()), "\"host\":\"laptop\"");
    hold(&aligned(&with_usual_names(&page)));
}

/// Other names are shorter or longer: the column that they stand in is set anew, block by block.
fn aligned(page: &str) -> String {
    let parts = |line: &str| {
        let (left, right) =
            line.split_once("  …").map(|(left, right)| (left, format!("…{right}")))?;
        Some((left.trim_end().to_owned(), right))
    };
    let mut out: Vec<String> = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let heading = line.strip_prefix("TIME").and_then(|_| line.split_once("  ID"));
        let Some((left, right)) = heading else {
            out.push(line.to_owned());
            continue;
        };
        let mut rows = vec![(left.trim_end().to_owned(), format!("ID{right}"))];
        while let Some(row) = lines.peek().and_then(|line| parts(line)) {
            rows.push(row);
            lines.next();
        }
        let width = rows.iter().map(|(left, _)| left.chars().count()).max().unwrap_or(0);
        out.extend(rows.iter().map(|(left, right)| format!("{left:<width$}  {right}")));
    }
    out.join("\n") + "\n"
}

/// What else ran on that machine is nobody's business, either: other processes get usual names.
fn with_usual_names(page: &str) -> String {
    const USUAL: [&str; 3] = ["browser", "editor", "player"];
    let mut met: Vec<&str> = Vec::new();
    let mut out = String::new();
    for line in page.lines() {
        let state = line.split_once("\"processId\":\"laptop:");
        let name = state.and_then(|(_, rest)| rest.split_once("\"name\":\"")?.1.split('"').next());
        match name.filter(|name| *name != "prom") {
            Some(name) => {
                let at = met.iter().position(|known| *known == name).unwrap_or_else(|| {
                    met.push(name);
                    met.len() - 1
                });
                let usual = USUAL[at % USUAL.len()];
                let line = line.replace(&format!("laptop:{name}:"), &format!("laptop:{usual}:"));
                let line =
                    line.replace(&format!("\"name\":\"{name}\""), &format!("\"name\":\"{usual}\""));
                out.push_str(&line);
            }
            None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// Runs a line as a shell does, with both channels as a terminal mixes them.
fn shell(server: &Server, folder: &Path, command: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_prom")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    // Text as on a terminal, except where the command itself has a pipe.
    let text = if command.contains('|') { command.to_owned() } else { format!("{command} --text") };
    let text = if command.starts_with("prom") { text } else { command.to_owned() };
    let output = Command::new("sh")
        .args(["-c", &format!("{{ {text} ; }} 2>&1")])
        .current_dir(folder)
        .env("PATH", path)
        .env("PROM_URL", server.url())
        .env("TZ", "UTC")
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn letter(server: &Server, folder: &Path, command: &str) -> String {
    if !command.contains("{letter}") {
        return String::new();
    }
    let listed = shell(server, folder, "prom dlq ls --each --json | cat");
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let id = listed["dead_letters"][0]["id"].as_str().unwrap().to_owned();
    id[id.len() - 6..].to_owned()
}

fn beat(server: &Server, folder: &Path, command: &str) -> String {
    if !command.contains("{beat}") {
        return String::new();
    }
    let wanted =
        r#"prom tail heartbeat.received --no-follow --where 'payload.name == "stt"' | cat"#;
    let found = shell(server, folder, wanted);
    let found: serde_json::Value = serde_json::from_str(found.trim()).unwrap();
    let id = found["id"].as_str().unwrap();
    id[id.len() - 6..].to_owned()
}

/// What is the same on every machine at every time: numbers, ids and spans of time are not, and
/// which processes there are is not either.
fn normal(page: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in page.lines() {
        let line = if line.contains("\"processId\"") && !line.contains("dev:") {
            "(a state)".to_owned()
        } else {
            words(&without_ids(line))
        };
        if line != "(a state)" || lines.last() != Some(&line) {
            lines.push(line);
        }
    }
    lines
}

/// A line with its ids blanked, wherever they stand.
fn without_ids(line: &str) -> String {
    let is_id = |text: &str| {
        let hyphens = [8, 13, 18, 23];
        text.bytes()
            .enumerate()
            .all(|(at, c)| if hyphens.contains(&at) { c == b'-' } else { c.is_ascii_hexdigit() })
    };
    let mut out = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let length = if rest.get(..36).is_some_and(is_id) { 36 } else { first.len_utf8() };
        out.push(if length == 36 { '#' } else { first });
        rest = &rest[length..];
    }
    out
}

fn words(line: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric();
    let mut out: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let volatile = |part: &str| {
            part.bytes().all(|c| c.is_ascii_digit() || matches!(c, b'T' | b'Z'))
                || part.len() >= 6 && part.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
        };
        let mut text = String::new();
        let mut part = String::new();
        for c in word.chars().chain([' ']) {
            if is_part(c) {
                part.push(c);
                continue;
            }
            text.push_str(if !part.is_empty() && volatile(&part) { "#" } else { &part });
            text.push(c);
            part.clear();
        }
        let text = text.trim().replace("#.#", "#");
        let last = out.last().map(String::as_str);
        match (last, text.as_str()) {
            (Some("#"), "ms" | "s" | "min") => {}
            (_, "-") => out.push("#".into()),
            _ => out.push(text),
        }
    }
    out.join(" ")
}

fn hold(page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tour.md");
    if std::env::var_os("PROM_UPDATE_DOCS").is_some() {
        std::fs::write(&path, page).unwrap();
        return;
    }
    let there = normal(&std::fs::read_to_string(&path).unwrap_or_default());
    let now = normal(page);
    let differing = there.iter().zip(&now).find(|(old, new)| old != new);
    assert!(
        there == now,
        "docs/tour.md is not what happens: {differing:?}, {} and {} lines; \
         PROM_UPDATE_DOCS=1 cargo test -p prom tour",
        there.len(),
        now.len()
    );
}
