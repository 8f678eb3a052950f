use std::io;

use bytes::{Buf, BytesMut};
use promethean_event::Event;

use super::ask::Answer;

/// The lines of an answer, as they come.
#[derive(Debug)]
pub(crate) struct TextLines {
    answer: Answer,
    waiting: BytesMut,
    /// So much of what waits has no end of line.
    looked: usize,
}

impl TextLines {
    pub(crate) fn of(answer: Answer) -> Self {
        Self { answer, waiting: BytesMut::new(), looked: 0 }
    }

    /// The next line without its end; none at the end of the answer.
    pub(crate) async fn next(&mut self) -> io::Result<Option<String>> {
        loop {
            let rest = self.waiting.get(self.looked..).unwrap_or_default();
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let line = self.waiting.split_to(self.looked + at);
                self.waiting.advance(1);
                self.looked = 0;
                return String::from_utf8(line.to_vec()).map(Some).map_err(io::Error::other);
            }
            self.looked = self.waiting.len();
            match self.answer.piece().await? {
                Some(piece) => self.waiting.extend_from_slice(&piece),
                // What has no end of line was cut off.
                None => return Ok(None),
            }
        }
    }
}

/// What an event stream says.
#[derive(Debug)]
pub(crate) enum Streamed {
    Event(Box<Event>),
    /// What is not there any more, as the server put it.
    Gap(serde_json::Value),
    /// Where it begins, or that it is still there.
    Nothing,
}

/// Server-sent events.
#[derive(Debug)]
pub(crate) struct EventStream {
    lines: TextLines,
    /// Where to go on after a break.
    pub(crate) last_id: Option<String>,
}

impl EventStream {
    pub(crate) fn of(answer: Answer) -> Self {
        Self { lines: TextLines::of(answer), last_id: None }
    }

    /// The next message; none at the end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Streamed>> {
        let mut kind = String::new();
        let mut text = String::new();
        loop {
            let Some(line) = self.lines.next().await? else {
                return Ok(None);
            };
            match line.split_once(": ") {
                Some(("event", value)) => kind = value.to_owned(),
                Some(("data", value)) => text.push_str(value),
                Some(("id", value)) => self.last_id = Some(value.to_owned()),
                _ if line.is_empty() => break,
                _ => {}
            }
        }
        let message = match kind.as_str() {
            "event" => Streamed::Event(serde_json::from_str(&text).map_err(io::Error::other)?),
            "gap" => Streamed::Gap(serde_json::from_str(&text).map_err(io::Error::other)?),
            _ => Streamed::Nothing,
        };
        Ok(Some(message))
    }
}
