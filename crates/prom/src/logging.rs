//! What a server writes about itself while it runs: lines on standard error, JSON unless a terminal
//! is there. Nobody waits for whoever reads them: what does not fit is left out, and counted.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use clap::{Args, ValueEnum};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;

/// What is written, and how.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct LogFlags {
    /// How much to write about what happens [default: info for `prom serve`, warn for `prom dev`].
    #[arg(long, value_enum, value_name = "LEVEL", env = "PROM_LOG_LEVEL")]
    log_level: Option<Level>,
    /// How to write it [default: text on a terminal, otherwise JSON].
    #[arg(long, value_enum, value_name = "FORM", env = "PROM_LOG_FORMAT")]
    log_format: Option<Shape>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shape {
    Text,
    Json,
}

impl Level {
    const fn filter(self) -> LevelFilter {
        match self {
            Self::Off => LevelFilter::OFF,
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}

/// Lines that may wait to be written.
const WAITING_LINES_MAX: usize = 1_024;
/// How long a server that ends waits for the last of them.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Lines are written as long as this is kept; then the last of them.
#[derive(Debug)]
pub(crate) struct Logging {
    lines: Lines,
}

#[derive(Debug)]
enum Piece {
    Line(Vec<u8>),
    /// The last one; somebody waits for it.
    End(SyncSender<()>),
}

#[derive(Debug, Clone)]
struct Lines {
    sender: SyncSender<Piece>,
    lost: Arc<AtomicU64>,
}

/// Begins to write. Once for a process; what others have begun stays.
pub(crate) fn start(flags: LogFlags, usual: Level) -> Logging {
    let (sender, receiver) = sync_channel(WAITING_LINES_MAX);
    let lines = Lines { sender, lost: Arc::default() };
    let lost = Arc::clone(&lines.lost);
    // Ends with the process, or when it is told to.
    std::thread::spawn(move || write_all(&receiver, &lost, &mut io::stderr()));
    // Libraries of others say little, and what they say in detail is not for logs.
    let level = flags.log_level.unwrap_or(usual).filter();
    let theirs = level.min(LevelFilter::WARN);
    let targets = Targets::new()
        .with_default(theirs)
        .with_target("prom", level)
        .with_target("promethean", level);
    let shape = flags
        .log_format
        .unwrap_or_else(|| if io::stderr().is_terminal() { Shape::Text } else { Shape::Json });
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .log_internal_errors(false)
        .with_writer(lines.clone());
    let registry = tracing_subscriber::registry().with(targets);
    let _ = match shape {
        Shape::Text => tracing::subscriber::set_global_default(registry.with(layer)),
        Shape::Json => tracing::subscriber::set_global_default(
            registry.with(layer.json().flatten_event(true).with_span_list(false)),
        ),
    };
    Logging { lines }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let (told, ended) = sync_channel(1);
        if self.lines.sender.try_send(Piece::End(told)).is_ok() {
            let _ = ended.recv_timeout(LAST_LINES);
        }
    }
}

/// Writes what comes. A server goes on when nobody reads any more what it says.
fn write_all(pieces: &Receiver<Piece>, lost: &AtomicU64, to: &mut impl Write) {
    while let Ok(piece) = pieces.recv() {
        match piece {
            Piece::Line(line) => {
                let _ = to.write_all(&line);
            }
            Piece::End(told) => {
                let _ = to.flush();
                let _ = told.try_send(());
                return;
            }
        }
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(
                to,
                "{{\"level\":\"WARN\",\"message\":\"lines were left out\",\"lost\":{lost}}}"
            );
        }
    }
}

/// One line on its way.
#[derive(Debug)]
struct Line {
    lines: Lines,
    bytes: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { lines: self.clone(), bytes: Vec::new() }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let line = Piece::Line(std::mem::take(&mut self.bytes));
        if let Err(TrySendError::Full(_)) = self.lines.sender.try_send(line) {
            self.lines.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody reads: the one who writes goes on all the same.
    #[test]
    fn what_does_not_fit_is_counted() {
        let (sender, receiver) = sync_channel(2);
        let lines = Lines { sender, lost: Arc::default() };
        for _ in 0..5 {
            let mut line = lines.make_writer();
            line.write_all(b"a line\n").unwrap();
        }
        assert_eq!(lines.lost.load(Ordering::Relaxed), 3);
        let lost = Arc::clone(&lines.lost);
        drop(lines);
        let mut written = Vec::new();
        write_all(&receiver, &lost, &mut written);
        let written = String::from_utf8(written).unwrap();
        assert_eq!(written.matches("a line\n").count(), 2);
        assert_eq!(written.matches("\"lost\":3").count(), 1, "{written}");
    }
}
