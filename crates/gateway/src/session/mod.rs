//! One WebSocket. Its task reads frames, lets the bus act on them, and puts what is to be said into
//! an [`Outbox`](outbox::Outbox), which its [`Pen`] writes when nothing else is to be done, or when it is much: a
//! client may send for a while without reading.
//!
//! Publishes are handed to the bus in the order in which they came, and many may be under way at
//! once; their answers go out in the same order. Everything has a bound: what is read, what waits
//! to be written, how many publishes are under way, how long each step may take. When the session
//! ends, its members leave their groups, and what was out to them goes to others at once.
//!
//! A client's Close is read when all that it said before has been answered ([`Farewell`]), or when
//! that takes too long.

mod farewell;

mod fragments;

mod outbox;

mod pen;

mod pipeline;

mod subscription;

mod deadlines;

mod frames;

mod state;

use std::future::{poll_fn, ready};
use std::io;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::FusedFuture;
use futures_util::{FutureExt, Sink, Stream, StreamExt};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::access::Principal;
use crate::attendance::Presence;
use crate::command;
use crate::edge::{Edge, stopped};
use crate::http::Peer;
use crate::limits::{BAD_FRAMES_MAX, FRAGMENTS_MAX, LOOKS_AROUND, MESSAGES_AT_ONCE};
use crate::rejection::{Code, Rejection};
pub(crate) use farewell::Farewell;
pub(crate) use fragments::Fragments;
use fragments::TooManyFragments;
use pen::{Broken, Pen};
pub(crate) use state::{Done, Session, Success};
pub(crate) use subscription::{Feed, Subscription};

/// The protocol beyond that of plain clients, as it is negotiated.
pub(crate) const PROTOCOL: &str = "prom.v1";

/// What a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Nothing was negotiated: acks by id, one event per frame.
    Plain,
    /// `prom.v1`: HELLO, tokens, credits, batches, resume.
    V1,
}

/// A connection after its upgrade, and the Close that ends it.
#[derive(Debug)]
pub(crate) struct Upgraded {
    pub(crate) socket: WebSocket,
    pub(crate) farewell: Arc<Farewell>,
}

pub(crate) type WebSocket = WebSocketStream<Fragments<TokioIo<hyper::upgrade::Upgraded>>>;

/// Who is at the other end, and that it is there.
pub(crate) type Known = (Principal, Option<Presence>);

/// What comes by a WebSocket.
trait Messages: Stream<Item = Result<Message, tungstenite::Error>> {}

impl<S: Stream<Item = Result<Message, tungstenite::Error>>> Messages for S {}

/// Serves a WebSocket to its end.
pub(crate) async fn run(
    edge: Arc<Edge>,
    upgraded: Upgraded,
    peer: Peer,
    dialect: Dialect,
    known: Option<Known>,
) {
    edge.metrics.sessions.fetch_add(1, Ordering::Relaxed);
    let Upgraded { socket, farewell } = upgraded;
    let (sink, mut stream) = socket.split();
    let mut session = Session::new(Arc::clone(&edge), peer, dialect, known);
    let mut pen = Pen::new(sink, Arc::clone(&session.outbox));
    session.greet();
    let end = serve(&mut session, &mut stream, &mut pen, &farewell).await;
    // Leases go back before anything else: nobody works on them any more.
    session.leave();
    if let Some(refusal) = end {
        tracing::debug!(
            session = %session.id,
            code = refusal.code.as_str(),
            "a WebSocket is closed"
        );
        if !session.is_told {
            edge.count_refusal(refusal.code);
        }
        session.outbox.close(refusal.code.close(), refusal.code.as_str());
    } else {
        session.outbox.close(1000, "");
    }
    let drain_over = session.drain_over();
    tokio::select! {
        () = finish(&mut stream, &mut pen, &farewell) => {}
        () = drain_over => {}
    }
    edge.metrics.sessions.fetch_sub(1, Ordering::Relaxed);
}

/// Writes what there is to say, for as long as the client takes some of it. The other side must have
/// seen why it ends before the socket goes: until then, what comes is read and forgotten, also because a
/// client may not read before it has written.
async fn finish(
    stream: &mut (impl Messages + Unpin),
    pen: &mut Pen<impl Sink<Message> + Unpin>,
    farewell: &Farewell,
) {
    const PATIENCE: Duration = Duration::from_secs(2);
    let mut rest = pin!(async { while let Some(Ok(_)) = stream.next().await {} }.fuse());
    {
        let mut written = pin!(pen.write_out());
        loop {
            tokio::select! {
                biased;
                // Behind a Close of the client nothing can be written; it is answered by reading on.
                _ = &mut written => break,
                () = &mut rest => {}
            }
        }
    }
    // Once the client's Close is read, nothing can be written any more.
    farewell.let_through();
    if !rest.is_terminated() {
        let _ = timeout(PATIENCE, rest).await;
    }
}

/// Until the client leaves (`None`) or has to go.
async fn serve(
    session: &mut Session,
    stream: &mut (impl Messages + Unpin),
    pen: &mut Pen<impl Sink<Message> + Unpin>,
    farewell: &Farewell,
) -> Option<Rejection> {
    let mut draining = session.edge.draining.subscribe();
    let mut rights = session.edge.rights.subscribe();
    let mut sleep = pin!(tokio::time::sleep_until(session.deadlines.next()));
    let mut steps = 0;
    loop {
        // What is always ready stands before others below: now and then all of them have their turn.
        steps = (steps + 1) % LOOKS_AROUND;
        let all_turn = steps == 0;
        let writes_now = session.outbox.is_urgent() || all_turn && pen.is_wanted();
        if writes_now && pen.write_some().await == Err(Broken) {
            return Some(Rejection::plain(Code::SlowConsumer));
        }
        if all_turn && let Some(end) = session.due(farewell) {
            return Some(end);
        }
        let writes = pen.is_wanted();
        if !writes && session.has_answered_all() {
            farewell.let_through();
        }
        let next = session.deadlines.next();
        let due = session.publishes.until().map_or(next, |until| next.min(until));
        // Most of the time it only gets later: then it is looked at when the timer wakes.
        if due < sleep.deadline() || sleep.is_elapsed() {
            sleep.as_mut().reset(due);
        }
        let room = session.outbox.has_room();
        let Session { publishes, answers, subscriptions, drain, leaving, .. } = session;
        tokio::select! {
            biased;
            () = stopped(&mut draining), if !*drain => session.drain(),
            // The sender lives as long as the edge.
            Ok(()) = rights.changed() => {
                if let Err(refusal) = session.recheck() {
                    return Some(refusal);
                }
            }
            done = publishes.next(), if !publishes.is_empty() => {
                command::answer(session, done);
                while let Some(done) = session.publishes.ready() {
                    command::answer(session, done);
                }
            }
            Some(done) = answers.next(), if !answers.is_empty() => session.answer(done),
            (number, told) = subscription::next(subscriptions), if room && !all_turn => {
                session.deliver(number, told);
            }
            message = stream.next(), if publishes.has_room() => {
                if let ControlFlow::Break(end) = hear(session, stream, pen, message).await {
                    return end;
                }
            }
            () = farewell.reached(), if !*leaving => session.wind_up(),
            // Nothing else is to be done at the moment: what was said goes out, all in one go.
            written = poll_fn(|context| pen.poll_write(context)), if writes => {
                if written == Err(Broken) {
                    return Some(Rejection::plain(Code::SlowConsumer));
                }
            }
            () = sleep.as_mut() => {
                if let Some(end) = session.due(farewell) {
                    return Some(end);
                }
            }
            () = ready(()), if all_turn => {}
        }
        if session.is_drained() {
            return Some(Rejection::plain(Code::GoingAway));
        }
        if session.outbox.is_overfull() {
            return Some(Rejection::plain(Code::SlowConsumer));
        }
    }
}

/// A message, and those that have come with it: what was sent together is handed over together,
/// without a look at everything else in between. Ends as [`serve`] does.
async fn hear(
    session: &mut Session,
    stream: &mut (impl Messages + Unpin),
    pen: &mut Pen<impl Sink<Message> + Unpin>,
    first: Option<Result<Message, tungstenite::Error>>,
) -> ControlFlow<Option<Rejection>> {
    session.heard();
    let heard = hear_all(session, stream, pen, first).await;
    // Also if it ends here: what came before that was meant.
    command::hand_over(session);
    heard
}

async fn hear_all(
    session: &mut Session,
    stream: &mut (impl Messages + Unpin),
    pen: &mut Pen<impl Sink<Message> + Unpin>,
    first: Option<Result<Message, tungstenite::Error>>,
) -> ControlFlow<Option<Rejection>> {
    let mut message = first;
    for heard in 1.. {
        let waited = match message {
            None | Some(Ok(Message::Close(_))) => return ControlFlow::Break(None),
            Some(Err(error)) => return ControlFlow::Break(Some(protocol_fault(&error))),
            Some(Ok(message)) => match pen.beside(receive(session, message)).await {
                (Ok(()), waited) => waited,
                (Err(refusal), _) => return ControlFlow::Break(Some(refusal)),
            },
        };
        // Others have waited, too.
        if waited || heard == MESSAGES_AT_ONCE || !session.publishes.has_room() {
            break;
        }
        // Only what is also heard may be taken.
        match stream.next().now_or_never() {
            Some(next) => message = next,
            None => break,
        }
    }
    ControlFlow::Continue(())
}

/// One message. An error ends the connection.
async fn receive(session: &mut Session, message: Message) -> Result<(), Rejection> {
    let text = match message {
        Message::Text(text) => text,
        Message::Binary(_) => return Err(Rejection::plain(Code::BinaryFrame)),
        Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => {
            return Ok(());
        }
    };
    let frame = bytes::Bytes::from(text);
    session.frame_bytes = frame.len();
    let (corr, parsed) = promethean_event::frame::ClientFrame::parse(&frame);
    match parsed {
        Ok(frame) => {
            let outcome = command::run(session, corr, frame).await;
            session.is_told = outcome.is_err();
            outcome
        }
        Err(error) => {
            session.bad_frames += 1;
            session.refuse(corr.as_ref(), &command::refused_frame(&error));
            if session.principal.is_none() {
                session.is_told = true;
                return Err(Rejection::plain(Code::Unauthorized));
            }
            if session.bad_frames >= BAD_FRAMES_MAX {
                session.is_told = true;
                return Err(Rejection::new(
                    Code::BadRequest,
                    "too many frames were not understood",
                ));
            }
            Ok(())
        }
    }
}

/// What the client did wrong on the level of WebSockets.
fn protocol_fault(error: &tungstenite::Error) -> Rejection {
    use tungstenite::Error as E;
    let code = match error {
        E::Capacity(_) => Code::TooLarge,
        E::Utf8(_) => Code::InvalidUtf8,
        E::Protocol(_) => Code::ProtocolError,
        E::Io(error) if error.get_ref().is_some_and(|error| error.is::<TooManyFragments>()) => {
            let detail = format!("a message has {FRAGMENTS_MAX} pieces at most");
            return Rejection::new(Code::BadRequest, detail);
        }
        // It has taken nothing of what is written for too long.
        E::Io(error) if error.kind() == io::ErrorKind::TimedOut => Code::SlowConsumer,
        _ => Code::Idle,
    };
    Rejection::plain(code)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::pin::Pin;
    use std::sync::Mutex;
    use std::task::{Context, Poll};

    use futures_util::stream;
    use promethean::Bus;
    use tokio::sync::mpsc;
    use tokio::time::{Sleep, sleep};

    use super::*;
    use crate::listener::Doors;
    use crate::settings::{Access, Settings};

    /// A socket that takes one message in a while.
    #[derive(Default)]
    struct Slow {
        taken: Arc<Mutex<Vec<Message>>>,
        busy: Option<Pin<Box<Sleep>>>,
    }

    impl Sink<Message> for Slow {
        type Error = ();

        fn poll_ready(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), ()>> {
            match self.busy.as_mut().map(|busy| busy.as_mut().poll(context)) {
                Some(Poll::Pending) => Poll::Pending,
                _ => Poll::Ready(Ok(())),
            }
        }

        fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), ()> {
            self.taken.lock().unwrap().push(message);
            self.busy = Some(Box::pin(sleep(Duration::from_secs(20))));
            Ok(())
        }

        fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), ()>> {
            self.poll_ready(context)
        }

        fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), ()>> {
            self.poll_ready(context)
        }
    }

    async fn session(change: impl FnOnce(&mut Settings)) -> Session {
        let mut settings = Settings::local(Access::Required(Box::default()));
        change(&mut settings);
        let edge = Arc::new(Edge::new(Bus::memory(), settings).await);
        let address: std::net::SocketAddr = "127.0.0.1:1".parse().unwrap();
        let door = Arc::new(Doors::default()).enter(&edge, address.ip()).unwrap();
        Session::new(edge, Peer::new(address, door), Dialect::V1, None)
    }

    type Heard = Result<Message, tungstenite::Error>;

    fn pong() -> Heard {
        Ok(Message::Pong(bytes::Bytes::new()))
    }

    /// What a client that reads slowly had not taken two seconds after its connection had ended was lost,
    /// and one that wrote before it read took nothing at all.
    #[tokio::test(start_paused = true)]
    async fn what_is_said_last_is_taken_slowly() {
        let session = session(|_| {}).await;
        (0..10).for_each(|n| session.outbox.push(n.to_string().into_bytes()));
        session.outbox.close(1000, "");
        let slow = Slow::default();
        let taken = Arc::clone(&slow.taken);
        let mut pen = Pen::new(slow, Arc::clone(&session.outbox));
        let farewell = Farewell::default();
        let mut read = 0;
        let mut stream = stream::iter((0..1_000).map(|_| pong())).inspect(|_| read += 1);
        finish(&mut stream, &mut pen, &farewell).await;
        let taken = taken.lock().unwrap();
        assert_eq!(taken.len(), 11);
        assert!(matches!(taken.last(), Some(Message::Close(_))));
        assert_eq!(read, 1_000, "what it writes is taken from it");
    }

    /// One that never ends holds up a server that stops for as long as that may take, and not longer.
    #[tokio::test(start_paused = true)]
    async fn a_drain_has_an_end() {
        let mut session = session(|settings| settings.bounds.drain = Duration::from_secs(10)).await;
        let clock = session.edge.clock;
        let begun = clock.elapsed();
        let before = session.drain_over();
        session.edge.draining.send_replace(true);
        before.await;
        assert_eq!(clock.elapsed() - begun, Duration::from_secs(10));
        session.drain();
        sleep(Duration::from_secs(6)).await;
        let begun = clock.elapsed();
        session.drain_over().await;
        let left = clock.elapsed() - begun;
        assert!((3_990..=4_010).contains(&left.as_millis()), "{left:?}");
    }

    /// A client that never stopped sending was never told that its time was up.
    #[tokio::test]
    async fn what_is_due_has_its_turn() {
        let mut session = session(|settings| settings.bounds.auth = Duration::ZERO).await;
        let mut pen = Pen::new(Slow::default(), Arc::clone(&session.outbox));
        let mut stream = stream::iter((0..1_000_000).map(|_| pong()));
        let farewell = Farewell::default();
        let end = serve(&mut session, &mut stream, &mut pen, &farewell).await;
        assert_eq!(end.map(|end| end.code), Some(Code::Unauthorized));
        assert!(stream.next().await.is_some(), "only at the end");
    }

    /// What a client said was not heard for as long as there was something for it.
    #[tokio::test]
    async fn who_gets_much_is_heard() {
        let mut session = session(|_| {}).await;
        let (sender, pages) = mpsc::channel(10_000);
        while sender.try_send(Ok(Vec::new())).is_ok() {}
        let follower = tokio::spawn(std::future::pending::<()>());
        let subscription = Subscription {
            group: None,
            topics: Vec::new(),
            feed: Feed::Tail(pages, follower.abort_handle()),
            batch: None,
            auto_ack: false,
            max_attempts: 1,
            ack_timeout_ms: 1,
            paused: false,
            hushed: false,
            paced: None,
            credit: None,
            out: HashMap::new(),
            counters: HashMap::new(),
        };
        session.subscriptions.insert(1, subscription);
        let mut pen = Pen::new(Slow::default(), Arc::clone(&session.outbox));
        let mut stream = stream::iter([Ok(Message::Close(None))]);
        let farewell = Farewell::default();
        assert!(serve(&mut session, &mut stream, &mut pen, &farewell).await.is_none());
        assert!(sender.capacity() < 1_000, "{} pages came before it", sender.capacity());
    }
}
