use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::framing::Framing;
use crate::http::raw;
use crate::rejection::{Code, Rejection};

/// A connection whose requests have one beginning and one end each, and that must take what is written to it: one that takes nothing for too long is broken
/// off. Without this, whoever asks for much and reads nothing keeps a connection, and what is ready
/// for it, for ever.
#[derive(Debug)]
pub(crate) struct Progress<S: AsyncWrite + Unpin> {
    inner: S,
    patience: Duration,
    /// Runs while nothing is taken.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Whether something was read since something was written: the beginning of a request.
    is_heard: bool,
    late: Late,
    framing: Framing,
}

/// Says, of a connection that ends, that the head of its request did not come in time. hyper knows
/// when, but goes without a word.
#[derive(Debug, Clone, Default)]
pub(crate) struct Late(Arc<Lateness>);

#[derive(Debug, Default)]
struct Lateness {
    is_late: AtomicBool,
    is_told: AtomicBool,
}

impl Late {
    pub(crate) fn set(&self) {
        self.0.is_late.store(true, Ordering::Relaxed);
    }

    /// Whether the client was told so.
    pub(crate) fn is_told(&self) -> bool {
        self.0.is_told.load(Ordering::Relaxed)
    }
}

impl<S: AsyncWrite + Unpin> Drop for Progress<S> {
    fn drop(&mut self) {
        if self.is_heard && self.late.0.is_late.load(Ordering::Relaxed) {
            // Nothing waits to be written: it fits, or the client does not listen anyway.
            let mut context = Context::from_waker(Waker::noop());
            let answer = raw(&Rejection::plain(Code::SlowRequest));
            let _ = Pin::new(&mut self.inner).poll_write(&mut context, &answer);
            let _ = Pin::new(&mut self.inner).poll_flush(&mut context);
            self.late.0.is_told.store(true, Ordering::Relaxed);
        }
    }
}

impl<S: AsyncWrite + Unpin> Progress<S> {
    pub(crate) fn new(inner: S, patience: Duration, late: Late) -> Self {
        let framing = Framing::default();
        Self { inner, patience, stalled: None, is_heard: false, late, framing }
    }

    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            self.is_heard = false;
            return written;
        }
        let patience = self.patience;
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Progress<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.is_heard |= buffer.filled().len() > before;
        self.framing.look(buffer.filled_mut().get_mut(before..).unwrap_or_default());
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Progress<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Flushing is no answer: hyper does it also where there is nothing to say.
        let is_heard = self.is_heard;
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        let flushed = self.judge(context, flushed);
        self.is_heard = is_heard;
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(context);
        self.judge(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test(start_paused = true)]
    async fn only_who_takes_nothing_is_broken_off() {
        const PATIENCE: Duration = Duration::from_secs(30);
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut ours = Progress::new(ours, PATIENCE, Late::default());
        let slow = tokio::spawn(async move {
            let mut piece = [0; 4];
            for _ in 0..10 {
                sleep(PATIENCE - Duration::from_secs(1)).await;
                theirs.read_exact(&mut piece).await.unwrap();
            }
            theirs
        });
        // A little at a time, for as long as it likes.
        ours.write_all(&[7; 40]).await.unwrap();
        let _theirs = slow.await.unwrap();
        ours.write_all(&[7; 4]).await.unwrap();
        let refused = ours.write_all(&[7; 4]).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    }
}
