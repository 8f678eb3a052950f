//! Very many sockets that want nothing good: heads that never end (slowloris), and connections
//! that say nothing at all.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use promethean_harness::stopwatch::Stopwatch;

use super::server::Server;

/// Of the 10,000 that a server lets in, a few are for others. `PROM_SIM_SHARE=10` opens as many
/// as there can be; each takes a file here and one there.
fn sockets() -> usize {
    let share: usize =
        std::env::var("PROM_SIM_SHARE").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    (990 * share).min(9_900)
}

fn rss_mib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// The slower half of some publishes.
fn publish_time(server: &Server) -> Duration {
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let begun = Stopwatch::start();
            let answer = server.post("/publish/a", "none", "1");
            assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
            begun.elapsed()
        })
        .collect();
    times.sort();
    times[10]
}

#[test]
fn half_open_sockets_harm_nobody_and_are_closed_soon() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&[
        "serve",
        "--insecure-no-auth",
        "--no-rate-limits",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data.to_str().unwrap(),
    ]);
    let alone = publish_time(&server);
    let before = rss_mib(&server);
    let begun = Stopwatch::start();
    let mut crowd: Vec<TcpStream> = (0..sockets())
        .map(|number| {
            let mut stream = TcpStream::connect(&server.at).unwrap();
            match number % 3 {
                0 => {}
                1 => stream.write_all(b"GET /livez HTTP/1.1\r\nhost: lo").unwrap(),
                _ => stream.write_all(b"POST /publish/a HTTP/1.1\r\nx-a: b\r\n").unwrap(),
            }
            stream
        })
        .collect();
    // Somebody who means well is served all the while.
    let crowded = publish_time(&server);
    let grown = rss_mib(&server).saturating_sub(before);
    assert!(grown < 1_000 * sockets() as u64 / 10_000 + 20, "{grown} MiB more");
    assert!(crowded < alone * 20 + Duration::from_millis(200), "{alone:?}, now {crowded:?}");
    // Each of them is closed by the server, whatever it says before.
    for stream in &mut crowd {
        stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).expect("it was not closed");
    }
    let lasted = begun.elapsed();
    // Five seconds for a head; the rest is what a busy machine takes to open and close them.
    assert!(lasted < Duration::from_secs(20), "{lasted:?}");
    assert!(server.post("/publish/a", "none", "1").starts_with("HTTP/1.1 201"));
    assert_eq!(server.stop(), Some(0));
}
