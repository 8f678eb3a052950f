//! `examples/heartbeat-evolution`: every command of its page, in order.

use std::path::Path;
use std::process::Command;

use crate::project::Files;
use crate::server::Server;
use crate::stdout;

/// The shell commands of a page.
fn commands(page: &str) -> Vec<String> {
    let mut blocks = page.split("```sh\n").skip(1);
    blocks.by_ref().filter_map(|rest| rest.split("```").next()).map(str::to_owned).collect()
}

fn example() -> (Files, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/heartbeat-evolution");
    let files = Files::new(&[]);
    let copy = |name: &str| {
        let text = std::fs::read_to_string(root.join(name)).unwrap();
        files.write(name, &text);
        text
    };
    copy("prom.toml");
    for file in ["v1.json", "v2.json", "v1.upcast.json", "v2.downcast.json"] {
        copy(&format!("schemas/heartbeat.received/{file}"));
    }
    let page = copy("README.md");
    (files, page)
}

#[test]
fn the_heartbeat_example_end_to_end() {
    let (files, page) = example();
    let server = Server::start(&["dev", "--port", "0"]);
    let binary = Path::new(env!("CARGO_BIN_EXE_prom")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let blocks = commands(&page);
    assert!(blocks.len() >= 9, "{}", blocks.len());
    for block in blocks {
        let done = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &block])
            .current_dir(files.path())
            .env("PATH", format!("{}:{path}", binary.display()))
            .env("PROM_URL", server.url())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{block}\n{}\n{said}", stdout(&done));
    }
    let tail = |topic: &str, reads: &str| -> Vec<serde_json::Value> {
        let url = server.url();
        let wish = ["tail", topic, "--no-follow", "--reads", reads, "--url", &url];
        let text = stdout(&files.prom(&wish));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let member = |events: &[serde_json::Value], name: &str| -> Vec<f64> {
        let number = |event: &serde_json::Value| event["payload"][name].as_f64().unwrap();
        events.iter().map(|event| (number(event) * 100.0).round() / 100.0).collect()
    };
    let new = [95.37, 190.73, 300.0, 400.0, 476.84];
    assert_eq!(member(&tail("heartbeat.received", "latest"), "mem_mib"), new);
    let old = [100.0, 200.0, 314.57, 419.43, 500.0];
    assert_eq!(member(&tail("heartbeat.received", "1"), "mem_mb"), old);
    assert_eq!(member(&tail("heartbeat.history", "written"), "mem_mib"), new[..3]);
    // Copies of the two that were published while both were written, linked to their originals.
    let originals = tail("heartbeat.received", "written");
    let copies = tail("heartbeat.received.v2", "written");
    assert_eq!(member(&copies, "mem_mib"), new[1..3]);
    for (copy, original) in copies.iter().zip(&originals[1..]) {
        assert_eq!(copy["headers"]["x-dual-of"], original["id"]);
    }
}
