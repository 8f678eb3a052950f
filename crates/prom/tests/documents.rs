//! Every shell snippet of the documents is run, and does well: a broken one fails the build. A block
//! that cannot run here says so: ```sh skip.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::server::Server;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The blocks of a document that are to be run, in order.
fn blocks(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        match (&mut block, line.trim_end()) {
            (None, "```sh") => block = Some(String::new()),
            (Some(_), "```") => found.extend(block.take()),
            (Some(block), line) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, _) => {}
        }
    }
    found
}

/// Runs a document from top to bottom, in one directory, against one server.
fn run(name: &str) -> usize {
    let text = std::fs::read_to_string(root().join(name)).unwrap();
    let blocks = blocks(&text);
    if blocks.is_empty() {
        return 0;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["dev", "--demo", "--port", "0"]);
    let binary = Path::new(env!("CARGO_BIN_EXE_prom")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let home = folder.path().join("home");
    let port = server.at.rsplit(':').next().unwrap();
    for block in &blocks {
        // A document names the usual port.
        let script = block.replace("localhost:7766", &format!("localhost:{port}"));
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &script])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("PROM_URL", server.url())
            .env("HOME", &home)
            .env_remove("XDG_CONFIG_HOME")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{name}: {:?}\n{block}\n{}{}",
            output.status.code(),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    assert_eq!(server.stop(), Some(0));
    blocks.len()
}

#[test]
fn the_readme_runs() {
    assert!(run("README.md") > 0);
}

#[test]
fn the_quickstart_runs() {
    assert!(run("docs/quickstart.md") > 0);
}

#[test]
fn the_how_tos_run() {
    let folder = root().join("docs/how-to");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let ran = run(&name);
        assert!(ran > 0, "{name} has nothing to run");
        count += ran;
    }
    assert!(count > 10);
}

/// The TypeScript of the README is run by the tests of the SDK: it stands there, too.
#[test]
fn the_typescript_of_the_readme_is_that_of_the_sdk() {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let Ok(sdk) = std::fs::read_to_string(root().join("sdk/typescript/README.md")) else {
        return;
    };
    let block = readme.split("```ts\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(sdk.contains(block), "sdk/typescript/README.md does not have it:\n{block}");
}
