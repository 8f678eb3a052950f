use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::SplitSink;
use futures_util::{FutureExt, SinkExt};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::WebSocket;
use crate::limits::{OUTBOX_EVENTS_BYTES, WRITE_BUFFER_BYTES};

/// What waits to be written to a WebSocket. Bounded twice: events are only put in while it is
/// nearly empty, and when answers alone fill it, the client does not read and has to go.
#[derive(Debug)]
pub(crate) struct Outbox {
    max_bytes: usize,
    waiting: Mutex<Waiting>,
    filled: Notify,
    emptied: Notify,
    flushed: Notify,
    broken: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<Message>,
    /// Of what waits and of what is being written.
    bytes: usize,
    /// Of what waits and the writer was not told of.
    unannounced: usize,
    /// Whether something was taken out that is not on its way yet.
    writing: bool,
    closing: bool,
    broken: bool,
}

impl Waiting {
    fn put(&mut self, message: Message) {
        if self.closing {
            return;
        }
        let bytes = size(&message);
        self.bytes += bytes;
        self.unannounced += bytes;
        self.messages.push_back(message);
    }

    fn is_written_out(&self) -> bool {
        self.messages.is_empty() && !self.writing
    }
}

impl Outbox {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            waiting: Mutex::default(),
            filled: Notify::new(),
            emptied: Notify::new(),
            flushed: Notify::new(),
            broken: Notify::new(),
        }
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
        self.put(Message::Text(text));
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
        self.announce_if_much(waiting);
    }

    pub(super) fn ping(&self) {
        self.put(Message::Ping(Bytes::new()));
    }

    fn put(&self, message: Message) {
        let mut waiting = self.lock();
        waiting.put(message);
        self.announce_if_much(waiting);
    }

    fn announce_if_much(&self, waiting: MutexGuard<'_, Waiting>) {
        let much = waiting.unannounced >= WRITE_BUFFER_BYTES;
        drop(waiting);
        if much {
            self.announce();
        }
    }

    /// Whether the writer was not told of something.
    pub(super) fn is_unannounced(&self) -> bool {
        self.lock().unannounced > 0
    }

    /// Lets the writer go on. Not with every frame: what is said in one go is written in one go,
    /// and a thread is woken once for it.
    pub(super) fn announce(&self) {
        self.lock().unannounced = 0;
        self.filled.notify_one();
    }

    /// Says goodbye after what waits; nothing is put in any more.
    pub(super) fn close(&self, code: u16, reason: &'static str) {
        let close = Message::Close(Some(CloseFrame {
            code: code.into(),
            reason: Utf8Bytes::from_static(reason),
        }));
        self.put(close);
        self.lock().closing = true;
        self.announce();
    }

    /// Whether events may be put in.
    pub(super) fn has_room(&self) -> bool {
        self.lock().bytes < OUTBOX_EVENTS_BYTES
    }

    pub(super) fn is_overfull(&self) -> bool {
        self.lock().bytes > self.max_bytes
    }

    /// Waits until events may be put in.
    pub(super) async fn room(&self) {
        while !self.has_room() {
            self.emptied.notified().await;
        }
    }

    /// Waits until all that was put in is on its way.
    pub(super) async fn written_out(&self) {
        while !self.lock().is_written_out() {
            self.flushed.notified().await;
        }
    }

    /// Waits until it is clear that nothing can be written any more.
    pub(super) async fn broken(&self) {
        while !self.lock().broken {
            self.broken.notified().await;
        }
    }

    /// What waits, all of it; `None` after the last.
    async fn take(&self) -> Option<VecDeque<Message>> {
        loop {
            {
                let mut waiting = self.lock();
                if !waiting.messages.is_empty() {
                    waiting.unannounced = 0;
                    waiting.writing = true;
                    return Some(std::mem::take(&mut waiting.messages));
                }
                waiting.writing = false;
                self.flushed.notify_one();
                if waiting.closing {
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    fn written(&self, bytes: usize) {
        self.lock().bytes -= bytes;
        self.emptied.notify_one();
    }

    fn break_off(&self) {
        self.lock().broken = true;
        self.broken.notify_one();
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

/// Writes what is put in until the last, or until the client takes nothing for too long.
pub(super) async fn write(
    mut sink: SplitSink<WebSocket, Message>,
    outbox: std::sync::Arc<Outbox>,
    stalled: Duration,
) {
    while let Some(messages) = outbox.take().await {
        let mut written = 0;
        for message in messages {
            // Most of the time there is room, and neither a timer nor whoever waits for room is
            // needed.
            let ready = match poll_fn(|context| sink.poll_ready_unpin(context)).now_or_never() {
                Some(ready) => ready.is_ok(),
                None => {
                    outbox.written(mem::take(&mut written));
                    let room = poll_fn(|context| sink.poll_ready_unpin(context));
                    matches!(timeout(stalled, room).await, Ok(Ok(())))
                }
            };
            written += size(&message);
            if !ready || sink.start_send_unpin(message).is_err() {
                return outbox.break_off();
            }
        }
        outbox.written(written);
        if !matches!(timeout(stalled, sink.flush()).await, Ok(Ok(()))) {
            return outbox.break_off();
        }
    }
}
