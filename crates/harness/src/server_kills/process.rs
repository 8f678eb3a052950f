use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Failure, Place};

/// The server, as a process. Killed when it goes.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    /// Begins to start one, on any free port.
    pub(super) fn spawn(binary: &Path, data: &Path) -> io::Result<Self> {
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", "127.0.0.1:0", "--no-rate-limits", "--data"]).arg(data);
        Ok(Self(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?))
    }

    /// Waits until it listens; `None` if it ended before.
    pub(super) fn listening(&mut self, data: &Path) -> Result<Option<Place>, Failure> {
        let pipe = self.0.stderr.take().ok_or("standard error was taken before")?;
        let mut said = BufReader::new(pipe);
        let mut line = String::new();
        loop {
            line.clear();
            if said.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            if let Some(at) = line.trim().strip_prefix("listening on ") {
                let token = std::fs::read_to_string(data.join("admin.token"))?;
                let place = Place { at: at.to_owned(), token: token.trim().to_owned() };
                // Whatever else it says must not end it by a closed pipe.
                std::thread::spawn(move || io::copy(&mut said, &mut io::sink()));
                return Ok(Some(place));
            }
        }
    }

    /// SIGKILL.
    pub(super) fn kill(mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }

    /// SIGTERM, and how it ended.
    pub(super) fn stop(mut self) -> io::Result<Option<i32>> {
        Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status()?;
        Ok(self.0.wait()?.code())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
