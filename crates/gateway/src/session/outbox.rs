use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::limits::{OUTBOX_EVENTS_BYTES, WRITE_BUFFER_BYTES};

/// What waits to be written to a WebSocket by its [`Pen`](super::pen::Pen). Bounded twice: events are
/// only put in while it is nearly empty, and when answers alone fill it, the client does not read and
/// has to go.
#[derive(Debug)]
pub(crate) struct Outbox {
    max_bytes: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<Message>,
    bytes: usize,
    closing: bool,
}

impl Waiting {
    fn put(&mut self, message: Message) {
        if self.closing {
            return;
        }
        self.bytes += size(&message);
        self.messages.push_back(message);
    }
}

impl Outbox {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, waiting: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a frame of JSON text in.
    pub(crate) fn push(&self, json: Vec<u8>) {
        // Frames are made of JSON texts; what is none is a fault of ours, and not sent.
        let Ok(text) = Utf8Bytes::try_from(Bytes::from(json)) else {
            tracing::error!("a frame is not UTF-8");
            return;
        };
        self.lock().put(Message::Text(text));
    }

    /// Puts frames of JSON text in that stand in one piece of memory, up to where each of them ends.
    pub(crate) fn push_all(&self, frames: Vec<u8>, ends: &[usize]) {
        if ends.is_empty() {
            return;
        }
        let frames = Bytes::from(frames);
        let mut begin = 0;
        let mut waiting = self.lock();
        for &end in ends {
            let frame = Utf8Bytes::try_from(frames.slice(begin..end));
            begin = end;
            match frame {
                Ok(text) => waiting.put(Message::Text(text)),
                Err(_) => tracing::error!("a frame is not UTF-8"),
            }
        }
    }

    pub(super) fn ping(&self) {
        self.lock().put(Message::Ping(Bytes::new()));
    }

    /// Says goodbye after what waits; nothing is put in any more.
    pub(super) fn close(&self, code: u16, reason: &'static str) {
        let reason = Utf8Bytes::from_static(reason);
        let mut waiting = self.lock();
        waiting.put(Message::Close(Some(CloseFrame { code: code.into(), reason })));
        waiting.closing = true;
    }

    /// Takes out what is to be written next.
    pub(super) fn take(&self) -> Option<Message> {
        let mut waiting = self.lock();
        let message = waiting.messages.pop_front()?;
        waiting.bytes -= size(&message);
        Some(message)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().messages.is_empty()
    }

    /// Whether so much waits that it is to be written before anything else is done.
    pub(super) fn is_urgent(&self) -> bool {
        self.lock().bytes >= WRITE_BUFFER_BYTES
    }

    /// Whether events may be put in.
    pub(super) fn has_room(&self) -> bool {
        self.lock().bytes < OUTBOX_EVENTS_BYTES
    }

    pub(super) fn is_overfull(&self) -> bool {
        self.lock().bytes > self.max_bytes
    }
}

fn size(message: &Message) -> usize {
    const FRAME_BYTES: usize = 16;
    FRAME_BYTES
        + match message {
            Message::Text(text) => text.as_str().len(),
            Message::Binary(bytes) | Message::Ping(bytes) | Message::Pong(bytes) => bytes.len(),
            Message::Close(_) | Message::Frame(_) => 0,
        }
}
