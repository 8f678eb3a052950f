//! A server as a process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) struct Server {
    child: Child,
    pub(crate) at: String,
    /// What it said before it was there.
    pub(crate) banner: String,
}

impl Server {
    /// Starts, and waits until it says where it listens.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::of(Command::new(env!("CARGO_BIN_EXE_prom")).args(arguments))
    }

    /// The same, to be talked to: by [`pipes`](Self::pipes).
    pub(crate) fn start_told(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_prom"));
        Self::of(command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()))
    }

    /// What is said to it, and what it says.
    pub(crate) fn pipes(&mut self) -> (ChildStdin, ChildStdout) {
        (self.child.stdin.take().unwrap(), self.child.stdout.take().unwrap())
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut banner = String::new();
        for line in lines.map_while(Result::ok) {
            if let Some(at) = line.strip_prefix("listening on ") {
                return Self { child, at: at.to_owned(), banner };
            }
            banner.push_str(&line);
            banner.push('\n');
        }
        let ended = child.wait().unwrap();
        panic!("it did not start ({ended}): {banner}");
    }

    pub(crate) fn post(&self, path: &str, token: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.at).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.at,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// How to name it to `prom`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.at)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to read its files again.
    pub(crate) fn reload(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    }

    /// Asks it to stop, and waits for how it ends.
    pub(crate) fn stop(mut self) -> Option<i32> {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

/// A test that fails leaves no server behind.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
