//! A server whose administration has an address of its own, and commands that find their way.

use super::server::Server;
use super::{json_lines, prom, stderr};

fn administration(server: &Server) -> String {
    let mut lines = server.banner.lines();
    let at = lines.find_map(|line| line.strip_prefix("administration on "));
    format!("http://{}", at.unwrap_or_else(|| panic!("{}", server.banner)))
}

#[test]
fn commands_find_both_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    let server = Server::start(&["dev", "--port", "0", "--admin-port", "0", "--data", &data]);
    let (url, admin) = (server.url(), administration(&server));
    assert_ne!(url, admin);
    let both = ["--url", &url, "--admin-url", &admin];
    let run = |arguments: &[&str], at: &[&str]| prom(&[arguments, at].concat());
    assert!(run(&["pub", "a.b", "1"], &both).status.success());
    assert_eq!(json_lines(&[&["topic", "ls"], &both[..]].concat())[0]["topic"], "a.b");

    // With one address, what is at the other is not there, and the command says where to look.
    let missing = run(&["topic", "ls"], &["--url", &url]);
    assert_eq!(missing.status.code(), Some(4), "{}", stderr(&missing));
    assert!(stderr(&missing).contains("--admin-url"), "{}", stderr(&missing));
    assert!(run(&["topic", "ls"], &["--url", &admin]).status.success());
    let wrong = run(&["pub", "a.b", "1"], &["--url", &admin]);
    assert!(stderr(&wrong).contains("address for administration only"), "{}", stderr(&wrong));

    // Who wants the directory is told of both.
    let taken = run(&["topic", "ls"], &["--data", &data]);
    let hint = format!("reach it with --url {url} --admin-url {admin}");
    assert!(stderr(&taken).contains(&hint), "{}", stderr(&taken));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn the_manifest_has_it_apart_and_flags_win() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("prom.toml");
    let said = "version = 1\n[server]\nlisten = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n";
    std::fs::write(&manifest, said).unwrap();
    let data = folder.path().join("data");
    let (manifest, data) = (manifest.to_str().unwrap(), data.to_str().unwrap());
    let server = Server::start(&["serve", "-f", manifest, "--data", data]);
    let token = folder.path().join("data/admin.token").to_str().unwrap().to_owned();
    let (url, admin) = (server.url(), administration(&server));
    // A context has both, too.
    let home = folder.path().to_str().unwrap();
    let prom = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_prom"));
        command.args(arguments).env("XDG_CONFIG_HOME", home).output().unwrap()
    };
    let add = ["ctx", "add", "here", "--url", &url, "--admin-url", &admin, "--token-file", &token];
    assert!(prom(&add).status.success());
    let listed = prom(&["topic", "ls"]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    // A token is not shown to a server because another one was named.
    let named = prom(&["topic", "ls", "--url", &url, "--token-file", &token]);
    assert!(stderr(&named).contains("--admin-url"), "{}", stderr(&named));
    assert_eq!(server.stop(), Some(0));

    let open = ["serve", "-f", manifest, "--data", data, "--admin-listen", "0.0.0.0:0"];
    let refused = prom(&open);
    assert_eq!(refused.status.code(), Some(78), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("--insecure-no-tls"), "{}", stderr(&refused));
}
