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

/// A connection that must take what is written to it: one that takes nothing for too long is broken off.
/// Without this, whoever asks for much and reads nothing keeps a connection, and what is ready for it, for
/// ever. It is below TLS, which keeps some of what is written, and takes it whether the client does or not.
#[derive(Debug)]
pub(crate) struct Patient<S> {
    inner: S,
    patience: Duration,
    /// Runs while nothing is taken.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(crate) const fn new(inner: S, patience: Duration) -> Self {
        Self { inner, patience, stalled: None }
    }

    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
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

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
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
        // A socket has nothing to flush: this says nothing about what is taken.
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(context);
        self.judge(context, shut)
    }
}

/// A connection whose requests have one beginning and one end each.
#[derive(Debug)]
pub(crate) struct Progress<S: AsyncWrite + Unpin> {
    inner: S,
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
    pub(crate) fn new(inner: S, late: Late) -> Self {
        Self { inner, is_heard: false, late, framing: Framing::default() }
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
        self.is_heard &= written.is_pending();
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.is_heard &= written.is_pending();
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // No answer: hyper does it also where there is nothing to say.
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(context);
        self.is_heard &= shut.is_pending();
        shut
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_who_takes_nothing_is_broken_off() {
        const PATIENCE: Duration = Duration::from_secs(30);
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut ours = Patient::new(ours, PATIENCE);
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

    /// TLS takes what is written whether the client does or not: a ping now and then, and a client that
    /// took nothing stayed for ever.
    #[tokio::test(start_paused = true)]
    async fn what_is_kept_on_the_way_is_not_taken() {
        const PATIENCE: Duration = Duration::from_secs(30);
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.into())
            .unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (ours, theirs) = tokio::io::duplex(4_096);
        let ours = Patient::new(ours, PATIENCE);
        let accepting = TlsAcceptor::from(Arc::new(server)).accept(ours);
        let name = "localhost".try_into().unwrap();
        let connecting = TlsConnector::from(Arc::new(client)).connect(name, theirs);
        let (ours, theirs) = tokio::join!(accepting, connecting);
        let (mut ours, mut theirs) =
            (Progress::new(ours.unwrap(), Late::default()), theirs.unwrap());
        ours.write_all(b"hello").await.unwrap();
        ours.flush().await.unwrap();
        theirs.read_exact(&mut [0; 5]).await.unwrap();
        // More than is kept between them, so that nothing of what follows leaves.
        ours.write_all(&[7; 8_192]).await.unwrap();
        for seconds in (0..).step_by(10) {
            assert!(seconds <= 40, "it was never noticed");
            let written = async {
                ours.write_all(b"ping").await?;
                ours.flush().await
            };
            match timeout(Duration::from_secs(10), written).await {
                Err(_) => {}
                Ok(Err(error)) => {
                    assert_eq!((error.kind(), seconds), (io::ErrorKind::TimedOut, 20));
                    break;
                }
                Ok(Ok(())) => panic!("nobody has taken it"),
            }
        }
        drop(theirs);
    }
}
