//! One file for each frame: what it needs, and what is done about it.

mod auth;

mod publish;

mod subscribe;

mod unsubscribe;

mod acknowledge;

mod flow;

use promethean_event::JsonError;
use promethean_event::frame::{ClientFrame, Corr, FrameError};

use crate::access::Action;
use crate::rejection::{Code, Rejection};
use crate::session::Session;
pub(crate) use publish::{Gathered, Stored, answer, hand_over};

/// What a frame does. There is no frame without an answer here: the compiler asks for it.
pub(crate) const fn action(frame: &ClientFrame) -> Option<Action> {
    match frame {
        ClientFrame::Auth { .. } => None,
        ClientFrame::Publish { .. } => Some(Action::Publish),
        ClientFrame::Subscribe(_) | ClientFrame::Reconnect(_) => Some(Action::Subscribe),
        // About subscriptions of this connection, which were asked for when they were made.
        ClientFrame::Pause(_) | ClientFrame::Resume(_) | ClientFrame::Credit { .. } => {
            Some(Action::Subscribe)
        }
        // The same, but it only answers or gives back what the client has had.
        ClientFrame::Unsubscribe(_)
        | ClientFrame::Ack(_)
        | ClientFrame::Acks(_)
        | ClientFrame::Nack(_)
        | ClientFrame::Modack { .. } => Some(Action::Ack),
    }
}

/// Acts on a frame. An error ends the connection; what only this request gets is said to it.
pub(crate) async fn run(
    session: &mut Session,
    corr: Option<Corr>,
    frame: ClientFrame,
) -> Result<(), Rejection> {
    // What was published before stands before whatever this does.
    if !matches!(frame, ClientFrame::Publish { .. }) {
        hand_over(session);
    }
    if let ClientFrame::Auth { token } = &frame {
        return auth::run(session, corr, token).await;
    }
    let Some(principal) = session.principal.clone() else {
        let refusal = Rejection::plain(Code::Unauthorized);
        session.refuse(corr.as_ref(), &refusal);
        return Err(refusal);
    };
    if session.is_expired() && action(&frame) != Some(Action::Ack) {
        session.refuse(corr.as_ref(), &Rejection::plain(Code::TokenExpired));
        return Ok(());
    }
    let outcome = match frame {
        ClientFrame::Auth { .. } => Ok(()),
        ClientFrame::Publish { events, batch } => {
            publish::run(session, &principal, corr.as_ref(), events, batch)
        }
        ClientFrame::Subscribe(wish) => {
            subscribe::run(session, &principal, corr.as_ref(), wish, subscribe::Kind::New).await
        }
        ClientFrame::Reconnect(wish) => {
            subscribe::run(session, &principal, corr.as_ref(), wish, subscribe::Kind::Again).await
        }
        ClientFrame::Unsubscribe(target) => unsubscribe::run(session, corr.as_ref(), &target),
        ClientFrame::Ack(target) => acknowledge::ack(session, corr.clone(), &target),
        ClientFrame::Acks(acks) => acknowledge::acks(session, corr.as_ref(), &acks),
        ClientFrame::Nack(nack) => acknowledge::nack(session, corr.clone(), &nack),
        ClientFrame::Modack { target, extend_ms } => {
            acknowledge::extend(session, corr.clone(), &target, extend_ms)
        }
        ClientFrame::Pause(target) => flow::pause(session, corr.as_ref(), &target),
        ClientFrame::Resume(target) => flow::resume(session, corr.as_ref(), &target),
        ClientFrame::Credit { target, events } => {
            flow::credit(session, corr.as_ref(), &target, events)
        }
    };
    if let Err(refusal) = outcome {
        session.refuse(corr.as_ref(), &refusal);
        let (since, now) = (session.abused, session.edge.clock.elapsed());
        let abused = since.map(|since| now.saturating_sub(since));
        if abused.is_some_and(|abused| abused >= session.edge.settings.bounds.abuse) {
            return Err(Rejection::plain(Code::RateLimited));
        }
    }
    Ok(())
}

/// A frame that was not understood, as a refusal.
pub(crate) fn refused_frame(error: &FrameError) -> Rejection {
    let code = match error {
        FrameError::Op(_) => Code::UnknownOp,
        FrameError::Payload(JsonError::TooDeep | JsonError::TooManyMembers) => Code::TooComplex,
        FrameError::Payload(JsonError::TooLarge(_)) | FrameError::Count { .. } => Code::TooLarge,
        _ => Code::BadRequest,
    };
    Rejection::new(code, error.to_string())
}
