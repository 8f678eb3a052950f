use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::stream::SplitSink;
use futures_util::{Sink, SinkExt};
use tokio_tungstenite::tungstenite::Message;

use super::WebSocket;
use super::outbox::Outbox;

/// Nothing can be written any more: the client is gone, or has taken nothing for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;

/// Writes what is in an [`Outbox`] to its socket, in the task that reads from it: a task of its own
/// would have to be woken for every answer, and is woken for every read by the socket that they share.
/// What it has begun is kept here, so that nobody has to wait for its end. A client that takes nothing is
/// noticed [below](crate::progress::Patient), where it is known what has left.
#[derive(Debug)]
pub(super) struct Pen<S = SplitSink<WebSocket, Message>> {
    sink: S,
    outbox: Arc<Outbox>,
    /// Something was given to the socket that may not be on its way yet.
    is_behind: bool,
}

impl<S: Sink<Message> + Unpin> Pen<S> {
    pub(super) const fn new(sink: S, outbox: Arc<Outbox>) -> Self {
        Self { sink, outbox, is_behind: false }
    }

    /// Whether something has to be written.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_behind || !self.outbox.is_empty()
    }

    /// Writes as much as the client takes. Ready when something has changed: there is more room, all
    /// is on its way, or nothing can be written any more.
    pub(super) fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        let mut taken = false;
        match self.poll_all(&mut taken, context) {
            Poll::Pending if taken => Poll::Ready(Ok(())),
            polled => polled,
        }
    }

    fn poll_all(
        &mut self,
        taken: &mut bool,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        while !self.outbox.is_empty() {
            ready!(self.sink.poll_ready_unpin(context)).map_err(|_| Broken)?;
            let Some(message) = self.outbox.take() else { break };
            (*taken, self.is_behind) = (true, true);
            self.sink.start_send_unpin(message).map_err(|_| Broken)?;
        }
        if self.is_behind {
            ready!(self.sink.poll_flush_unpin(context)).map_err(|_| Broken)?;
            self.is_behind = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what the client takes at once, and waits for nothing.
    pub(super) async fn write_some(&mut self) -> Result<(), Broken> {
        poll_fn(|context| match self.poll_write(context) {
            Poll::Ready(written) => Poll::Ready(written),
            Poll::Pending => Poll::Ready(Ok(())),
        })
        .await
    }

    /// Writes all of it.
    pub(super) async fn write_out(&mut self) -> Result<(), Broken> {
        while self.is_wanted() {
            poll_fn(|context| self.poll_write(context)).await?;
        }
        Ok(())
    }

    /// Waits for something, and writes meanwhile. Also says whether it had to be waited for: what is
    /// done at once is done, and nothing else.
    pub(super) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> (T, bool) {
        let mut work = pin!(work);
        let mut waited = false;
        let done = poll_fn(|context| {
            let polled = work.as_mut().poll(context);
            if polled.is_pending() {
                waited = true;
                // If nothing can be written any more, others notice.
                while self.is_wanted() && self.poll_write(context) == Poll::Ready(Ok(())) {}
            }
            polled
        });
        (done.await, waited)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Mutex;

    use super::*;

    /// A socket that keeps what is written to it.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<String>>>);

    impl Sink<Message> for Paper {
        type Error = ();

        fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
            Poll::Ready(Ok(()))
        }

        fn start_send(self: Pin<&mut Self>, message: Message) -> Result<(), ()> {
            self.0.lock().unwrap().push(message.into_text().unwrap().to_string());
            Ok(())
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// While a SUBSCRIBE waited for the store, nothing was written: neither answers nor events with leases.
    #[tokio::test]
    async fn what_waits_is_written_beside_what_is_waited_for() {
        let (paper, outbox) = (Paper::default(), Arc::new(Outbox::new(1_000)));
        let mut pen = Pen::new(paper.clone(), Arc::clone(&outbox));
        outbox.push(b"1".to_vec());
        assert_eq!(pen.beside(async { "at once" }).await, ("at once", false));
        assert!(paper.0.lock().unwrap().is_empty(), "what is there at once is not held up");
        let (go_on, waiting) = tokio::sync::oneshot::channel();
        let written = async {
            tokio::task::yield_now().await;
            assert_eq!(paper.0.lock().unwrap()[..], ["1"]);
            outbox.push(b"2".to_vec());
            go_on.send("later").unwrap();
        };
        let (waited, ()) = tokio::join!(pen.beside(waiting), written);
        assert_eq!(waited, (Ok("later"), true));
        pen.write_out().await.unwrap();
        assert_eq!(paper.0.lock().unwrap()[..], ["1", "2"]);
    }
}
