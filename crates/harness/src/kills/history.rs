use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

/// What happened in the process that is killed, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// A process began; the cursor of the group as it found it.
    Begun {
        /// The lowest offset that is not finished.
        cursor: u64,
    },
    /// A publisher is about to publish.
    Publishing {
        /// Which publisher.
        publisher: u32,
        /// Its count.
        number: u64,
        /// The key.
        key: u32,
    },
    /// It was told that the event is durable.
    Published {
        /// Which publisher.
        publisher: u32,
        /// Its count.
        number: u64,
        /// Where the event stands.
        offset: u64,
    },
    /// A consumer got an event.
    Delivered {
        /// Which publisher made it.
        publisher: u32,
        /// Its count.
        number: u64,
        /// The key.
        key: u32,
        /// Where it stands.
        offset: u64,
        /// Which delivery it says it is.
        attempt: u16,
    },
    /// A consumer is done with an event and says so.
    Done {
        /// The event.
        offset: u64,
    },
    /// The consumer was told that its ack is durable.
    Acked {
        /// The event.
        offset: u64,
    },
    /// The group has finished everything.
    CaughtUp {
        /// The end of the topic.
        end: u64,
    },
    /// What is stored, read at the very end.
    Stored {
        /// Which publisher made it.
        publisher: u32,
        /// Its count.
        number: u64,
        /// The key.
        key: u32,
        /// Where it stands.
        offset: u64,
    },
}

/// A history that is being written. Each line is one write to a file opened for appending.
#[derive(Debug)]
pub(crate) struct Writer(Mutex<File>);

impl Writer {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(Mutex::new(OpenOptions::new().create(true).append(true).open(path)?)))
    }

    pub(crate) fn write(&self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.write_all(&text)
    }
}

/// Reads a history. A last line without an end was cut off by a kill.
pub fn read(path: &Path) -> io::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for line in BufReader::new(File::open(path)?).lines() {
        // Cut off, and the next process went on behind it: what it said is not known.
        if let Ok(line) = serde_json::from_str(&line?) {
            lines.push(line);
        }
    }
    Ok(lines)
}
