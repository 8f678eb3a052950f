use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::limits::FRAGMENTS_MAX;

/// A stream of WebSocket frames whose messages have a bounded number of pieces. The size of a
/// message is bounded elsewhere, but pieces may be empty: without this, one could go on for ever.
#[derive(Debug)]
pub(crate) struct Fragments<S> {
    inner: S,
    count: Count,
}

/// Said by a read when a message has too many pieces.
#[derive(Debug, thiserror::Error)]
#[error("a message in more than {FRAGMENTS_MAX} pieces")]
pub(crate) struct TooManyFragments;

impl<S> Fragments<S> {
    pub(crate) const fn new(inner: S) -> Self {
        Self { inner, count: Count::new() }
    }
}

/// Follows the heads of frames through the bytes that are read.
#[derive(Debug)]
struct Count {
    head: [u8; 2],
    /// Bytes of the head that were seen: two, then the length, then the mask.
    seen: usize,
    length: u64,
    /// Bytes of the payload that are still to come.
    payload: u64,
    pieces: usize,
}

impl Count {
    const fn new() -> Self {
        Self { head: [0; 2], seen: 0, length: 0, payload: 0, pieces: 0 }
    }

    /// Whether the bytes are within the bound.
    fn take(&mut self, mut bytes: &[u8]) -> bool {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.payload > 0 {
                let passed = usize::try_from(self.payload).unwrap_or(usize::MAX).min(bytes.len());
                self.payload -= passed as u64;
                bytes = bytes.get(passed..).unwrap_or_default();
                continue;
            }
            bytes = rest;
            if !self.take_head(byte) {
                return false;
            }
        }
        true
    }

    fn take_head(&mut self, byte: u8) -> bool {
        let more = match self.head[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        match self.seen {
            0 => self.head[0] = byte,
            1 => self.head[1] = byte,
            seen if seen < 2 + more => self.length = self.length << 8 | u64::from(byte),
            _ => {}
        }
        self.seen += 1;
        let more = match self.head[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if self.head[1] & 0x80 == 0 { 0 } else { 4 };
        if self.seen < 2 || self.seen < 2 + more + mask {
            return true;
        }
        let short = u64::from(self.head[1] & 0x7f);
        self.payload = if more == 0 { short } else { self.length };
        let (is_last, kind) = (self.head[0] & 0x80 != 0, self.head[0] & 0x0f);
        // Those between the pieces of a message (close, ping, pong) are none of them.
        if kind < 8 {
            self.pieces = if is_last { 0 } else { self.pieces + 1 };
        }
        (self.head, self.seen, self.length) = ([0; 2], 0, 0);
        self.pieces < FRAGMENTS_MAX
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Fragments<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        let fine = self.count.take(read);
        Poll::Ready(if fine { Ok(()) } else { Err(io::Error::other(TooManyFragments)) })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Fragments<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A masked frame.
    fn frame(first: u8, payload: usize) -> Vec<u8> {
        let mut bytes = vec![first];
        match payload {
            0..126 => bytes.push(0x80 | payload as u8),
            126..65536 => {
                bytes.push(0x80 | 126);
                bytes.extend((payload as u16).to_be_bytes());
            }
            _ => {
                bytes.push(0x80 | 127);
                bytes.extend((payload as u64).to_be_bytes());
            }
        }
        bytes.extend([1, 2, 3, 4]);
        bytes.extend(std::iter::repeat_n(0, payload));
        bytes
    }

    /// Taken in pieces of every size, it is the same.
    fn fits(frames: &[Vec<u8>]) -> bool {
        let bytes = frames.concat();
        let verdicts: Vec<bool> = [1, 2, 3, 7, 64, bytes.len().max(1)]
            .into_iter()
            .map(|size| {
                let mut count = Count::new();
                bytes.chunks(size).all(|piece| count.take(piece))
            })
            .collect();
        assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "{verdicts:?}");
        verdicts[0]
    }

    #[test]
    fn messages_have_so_many_pieces_at_most() {
        for payload in [0, 1, 125, 126, 300, 70_000] {
            let whole = vec![frame(0x81, payload); 200];
            assert!(fits(&whole), "{payload}: messages of one piece each");
            let message = |pieces: usize| {
                let mut frames = vec![frame(0x01, payload)];
                frames.extend(vec![frame(0x00, payload); pieces - 2]);
                frames.push(frame(0x80, payload));
                frames
            };
            assert!(fits(&message(FRAGMENTS_MAX)));
            assert!(fits(&[message(FRAGMENTS_MAX), message(FRAGMENTS_MAX)].concat()));
            assert!(!fits(&message(FRAGMENTS_MAX + 1)));
        }
        let mut pings = vec![frame(0x01, 3)];
        pings.extend(vec![frame(0x89, 3); 500]);
        pings.push(frame(0x80, 3));
        assert!(fits(&pings), "pings between the pieces of a message are none");
    }
}
