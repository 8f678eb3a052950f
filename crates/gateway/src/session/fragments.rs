use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::farewell::Farewell;
use crate::limits::FRAGMENTS_MAX;

/// A stream of WebSocket frames, looked at before they are put together. Messages have a bounded
/// number of pieces: their size is bounded elsewhere, but pieces may be empty, and without this one
/// could go on for ever. And a Close is kept back for as long as the [`Farewell`] says.
#[derive(Debug)]
pub(crate) struct Fragments<S> {
    inner: S,
    count: Count,
    farewell: Arc<Farewell>,
    /// A Close that came, with what came behind it in the same read.
    close: Option<Vec<u8>>,
}

/// Said by a read when a message has too many pieces.
#[derive(Debug, thiserror::Error)]
#[error("a message in more than {FRAGMENTS_MAX} pieces")]
pub(crate) struct TooManyFragments;

impl<S> Fragments<S> {
    pub(crate) const fn new(inner: S, farewell: Arc<Farewell>) -> Self {
        Self { inner, count: Count::new(), farewell, close: None }
    }
}

/// What bytes hold.
#[derive(Debug, PartialEq, Eq)]
enum Taken {
    /// Frames within the bound.
    Frames,
    /// A message in too many pieces.
    TooMany,
    /// A Close, which begins at this byte. What is behind it was not looked at.
    Close(usize),
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

    /// Looks at the bytes that come next.
    fn take(&mut self, bytes: &[u8]) -> Taken {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.payload > 0 {
                let left = bytes.len() - at;
                let passed = usize::try_from(self.payload).unwrap_or(usize::MAX).min(left);
                self.payload -= passed as u64;
                at += passed;
                continue;
            }
            // Its first byte says what a frame is.
            if self.seen == 0 && byte & 0x0f == CLOSE {
                return Taken::Close(at);
            }
            if !self.take_head(byte) {
                return Taken::TooMany;
            }
            at += 1;
        }
        Taken::Frames
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

/// The kind of a frame that says goodbye.
const CLOSE: u8 = 8;

impl<S: AsyncRead + Unpin> AsyncRead for Fragments<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.close.is_none() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
            let read = buffer.filled().get(before..).unwrap_or_default();
            match this.count.take(read) {
                Taken::Frames => return Poll::Ready(Ok(())),
                Taken::TooMany => return Poll::Ready(Err(io::Error::other(TooManyFragments))),
                Taken::Close(at) => {
                    this.close = Some(read.get(at..).unwrap_or_default().to_vec());
                    buffer.set_filled(before + at);
                    if at > 0 {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
        // More is wanted, so that all before the Close has been heard.
        ready!(this.farewell.poll_reached(context));
        match &mut this.close {
            Some(close) if !close.is_empty() => {
                let given = close.len().min(buffer.remaining());
                buffer.put_slice(close.drain(..given).as_slice());
                Poll::Ready(Ok(()))
            }
            // Its rest. No message can come behind it, so that there is nothing to be counted.
            _ => Pin::new(&mut this.inner).poll_read(context, buffer),
        }
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
                bytes.chunks(size).all(|piece| count.take(piece) == Taken::Frames)
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
    /// In pieces of every size, all before a Close is given; the rest when it is let through.
    #[tokio::test]
    async fn a_close_is_kept_back_until_it_is_let_through() {
        use tokio::io::AsyncReadExt;
        // An 8 in a payload, in a length and in a mask is no Close.
        let mut before = frame(0x81, 300);
        before.extend(frame(0x01, 8));
        before.extend(frame(0x89, 8));
        before.extend(frame(0x80, 0x0808));
        before.extend([0x81, 0x88, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8]);
        for size in [1, 2, 3, 7, 64, 4096] {
            for behind in [0, 5] {
                let mut close = frame(0x88, 2);
                close.extend(vec![0; behind]);
                let whole = [before.clone(), close.clone()].concat();
                let farewell = Arc::new(Farewell::default());
                let source = Pieces { bytes: whole.clone(), size };
                let mut stream = Fragments::new(source, Arc::clone(&farewell));
                let mut heard = vec![0; before.len()];
                stream.read_exact(&mut heard).await.unwrap();
                assert_eq!(heard, before, "pieces of {size}");
                assert!(!farewell.has_come(), "nobody has asked for more");
                let mut rest = [0; 64];
                let more = futures_util::FutureExt::now_or_never(stream.read(&mut rest));
                assert!(more.is_none() && farewell.has_come(), "pieces of {size}");
                farewell.let_through();
                let mut heard = Vec::new();
                stream.read_to_end(&mut heard).await.unwrap();
                assert_eq!(heard, close, "pieces of {size}");
            }
        }
    }

    /// Bytes that come a few at a time.
    struct Pieces {
        bytes: Vec<u8>,
        size: usize,
    }

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let given = self.size.min(self.bytes.len()).min(buffer.remaining());
            buffer.put_slice(self.bytes.drain(..given).as_slice());
            Poll::Ready(Ok(()))
        }
    }
}
