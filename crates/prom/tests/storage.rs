//! The real server on a disk that takes no more. A limit of the size of files stands in for it: a
//! write beyond it fails, as one to a broken disk does. The codes of all kinds of failures are
//! tested over a simulated disk, in the gateway.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// Starts `prom` under a limit, by a shell: an ignored signal stays so in what it becomes.
fn limited(data: &str, kib: u32, more: &str) -> (Child, String) {
    let script = format!(
        "trap '' XFSZ; ulimit -f {kib}; exec \"$0\" serve --insecure-no-auth --no-rate-limits \
         --listen 127.0.0.1:0 --data \"$1\" {more}"
    );
    let mut child = Command::new("bash")
        .args(["-c", &script, env!("CARGO_BIN_EXE_prom"), data])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("listening on ") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it did not start");
    }
    let at = line.trim().trim_start_matches("listening on ").to_owned();
    child.stderr = Some(said.into_inner());
    (child, at)
}

/// An answer, and whether there was one.
fn ask(at: &str, head: &str, body: &str) -> Option<String> {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(at).ok()?;
    let length = body.len();
    write!(
        stream,
        "{head} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer).filter(|answer| !answer.is_empty())
}

/// Publishes until it is refused; how many were stored.
fn publish_until_refused(at: &str) -> (usize, String) {
    let body = format!("\"{}\"", "x".repeat(100_000));
    for stored in 0..2_000 {
        let answer = ask(at, "POST /publish/a", &body).unwrap();
        if !answer.starts_with("HTTP/1.1 201") {
            return (stored, answer);
        }
    }
    panic!("it was never refused");
}

/// P4: that publish fails, and the process ends by itself so that somebody looks.
#[test]
fn a_failed_write_ends_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (mut child, at) = limited(data.to_str().unwrap(), LIMIT_KIB, "");
    let (stored, refused) = publish_until_refused(&at);
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("storage_failed"), "{refused}");
    let begun = promethean_harness::stopwatch::Stopwatch::start();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(1));
    assert!(begun.elapsed() < std::time::Duration::from_secs(5));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("nothing can be stored any more"), "{said}");

    // With room again, everything that was answered is there, and it goes on.
    let data = data.to_str().unwrap();
    let server = super::server::Server::start(&[
        "serve",
        "--insecure-no-auth",
        "--no-rate-limits",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data,
    ]);
    let answer = server.post("/publish/a", "none", "1");
    assert!(answer.contains(&format!("\"offset\":{stored}")), "{stored}: {answer}");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn or_it_goes_on_for_those_who_read() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let more = "--on-storage-error readonly";
    let (mut child, at) = limited(data.to_str().unwrap(), LIMIT_KIB, more);
    let (_, refused) = publish_until_refused(&at);
    assert!(refused.contains("storage_failed"), "{refused}");
    assert!(ask(&at, "GET /readyz", "").unwrap().starts_with("HTTP/1.1 503"));
    let page = ask(&at, "GET /events/a?limit=1", "").unwrap();
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("\"offset\":0"), "{page}");
    assert!(child.try_wait().unwrap().is_none(), "it is still there");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// P8: bytes that are not what was written are named by the log, by health and by a figure; a reader is
/// told what it will not get, and all else is served.
#[test]
fn damage_is_told_in_every_way_that_there_is() {
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let arguments = [
        "serve",
        "--insecure-no-auth",
        "--no-rate-limits",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data.to_str().unwrap(),
    ];
    let server = super::server::Server::start(&arguments);
    let body = format!("\"{}\"", "x".repeat(100_000));
    for _ in 0..60 {
        assert!(server.post("/publish/a", "none", &body).starts_with("HTTP/1.1 201"));
    }
    assert_eq!(server.stop(), Some(0));
    let name = "0000000000000000-00000000.seg";
    let file = std::fs::OpenOptions::new().write(true).open(data.join("log").join(name)).unwrap();
    file.write_all_at(b"!", 1_500_000).unwrap();

    // Without its side file it is read through; with it, it would be when it is scrubbed.
    std::fs::remove_file(data.join("log").join(name.replace(".seg", ".idx"))).unwrap();
    let server = super::server::Server::start(&arguments);
    let said = server.banner.lines().find(|line| line.contains(name));
    assert!(said.is_some_and(|said| said.contains("ERROR")), "{}", server.banner);
    let page = ask(&server.at, "GET /events/a?limit=1000", "").unwrap();
    assert!(page.contains("\"reason\":\"corrupt\""), "{} bytes", page.len());
    assert_eq!(page.matches("\"offset\"").count(), 59, "all but one");
    let ready = ask(&server.at, "GET /readyz?verbose", "").unwrap();
    assert!(ready.starts_with("HTTP/1.1 200") && ready.contains(name), "{ready}");
    let figures = ask(&server.at, "GET /metrics", "").unwrap();
    assert!(figures.contains("\nstore_damaged_ranges 1\n"), "{figures}");
    assert_eq!(server.stop(), Some(0));
}

/// More than the first files take, less than the later ones do.
const LIMIT_KIB: u32 = 12 * 1024;
