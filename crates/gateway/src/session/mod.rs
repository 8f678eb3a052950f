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

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream::SplitStream;
use futures_util::{FutureExt, StreamExt};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::access::Principal;
use crate::attendance::Presence;
use crate::command;
use crate::edge::{Edge, stopped};
use crate::http::Peer;
use crate::limits::{BAD_FRAMES_MAX, FRAGMENTS_MAX, MESSAGES_AT_ONCE};
use crate::rejection::{Code, Rejection};
use deadlines::Due;
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
    let mut pen = Pen::new(sink, edge.clock, edge.settings.bounds.stalled);
    let mut session = Session::new(Arc::clone(&edge), peer, dialect, known);
    session.greet();
    let end = serve(&mut session, &mut stream, &mut pen, &farewell).await;
    farewell.let_through();
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
    // The other side must have seen why before the socket goes: until then, read and forget.
    let patience = edge.clock.instant() + std::time::Duration::from_secs(2);
    let _ = timeout_at(patience, pen.write_out(&session.outbox)).await;
    let _ = timeout_at(patience, async { while let Some(Ok(_)) = stream.next().await {} }).await;
    edge.metrics.sessions.fetch_sub(1, Ordering::Relaxed);
}

/// Until the client leaves (`None`) or has to go.
async fn serve(
    session: &mut Session,
    stream: &mut SplitStream<WebSocket>,
    pen: &mut Pen,
    farewell: &Farewell,
) -> Option<Rejection> {
    let mut draining = session.edge.draining.subscribe();
    let mut rights = session.edge.rights.subscribe();
    let mut sleep = pin!(tokio::time::sleep_until(session.deadlines.next()));
    loop {
        if session.outbox.is_urgent() && pen.write_some(&session.outbox).await == Err(Broken) {
            return Some(Rejection::plain(Code::SlowConsumer));
        }
        let writes = pen.is_wanted(&session.outbox);
        if !writes && session.has_answered_all() {
            farewell.let_through();
        }
        let others = [session.publishes.until(), pen.until()].into_iter().flatten();
        let due = others.fold(session.deadlines.next(), Instant::min);
        // Most of the time it only gets later: then it is looked at when the timer wakes.
        if due < sleep.deadline() || sleep.is_elapsed() {
            sleep.as_mut().reset(due);
        }
        let room = session.outbox.has_room();
        let Session { publishes, answers, subscriptions, outbox, drain, leaving, .. } = session;
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
            (number, told) = subscription::next(subscriptions), if room => {
                session.deliver(number, told);
            }
            message = stream.next(), if publishes.has_room() => {
                if let ControlFlow::Break(end) = hear(session, stream, message).await {
                    return end;
                }
            }
            () = farewell.reached(), if !*leaving => session.wind_up(),
            // Nothing else is to be done at the moment: what was said goes out, all in one go.
            written = poll_fn(|context| pen.poll_write(outbox, context)), if writes => {
                if written == Err(Broken) {
                    return Some(Rejection::plain(Code::SlowConsumer));
                }
            }
            () = sleep.as_mut() => {
                if pen.is_stalled() {
                    return Some(Rejection::plain(Code::SlowConsumer));
                }
                match session.due() {
                    Due::Nothing => {}
                    Due::Farewell => farewell.let_through(),
                    Due::Close(code) => return Some(Rejection::plain(code)),
                }
            }
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
    stream: &mut SplitStream<WebSocket>,
    first: Option<Result<Message, tungstenite::Error>>,
) -> ControlFlow<Option<Rejection>> {
    session.heard();
    let heard = hear_all(session, stream, first).await;
    // Also if it ends here: what came before that was meant.
    command::hand_over(session);
    heard
}

async fn hear_all(
    session: &mut Session,
    stream: &mut SplitStream<WebSocket>,
    first: Option<Result<Message, tungstenite::Error>>,
) -> ControlFlow<Option<Rejection>> {
    let mut message = first;
    for heard in 1.. {
        match message {
            None | Some(Ok(Message::Close(_))) => return ControlFlow::Break(None),
            Some(Err(error)) => return ControlFlow::Break(Some(protocol_fault(&error))),
            Some(Ok(message)) => {
                if let Err(refusal) = receive(session, message).await {
                    return ControlFlow::Break(Some(refusal));
                }
            }
        }
        if heard == MESSAGES_AT_ONCE || !session.publishes.has_room() {
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
        _ => Code::Idle,
    };
    Rejection::plain(code)
}
