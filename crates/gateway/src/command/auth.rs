use promethean_event::frame::Corr;

use crate::rejection::{Code, Rejection};
use crate::session::{Done, Session};

/// Who the client is, or still is: a second AUTH must be for the same subject.
pub(super) async fn run(
    session: &mut Session,
    corr: Option<Corr>,
    token: &str,
) -> Result<(), Rejection> {
    let principal = match session.edge.authenticate(token, session.peer.address.ip()).await {
        Ok(principal) => principal,
        Err(refusal) => {
            session.refuse(corr.as_ref(), &refusal);
            // Who is known already may try again until its credential ends.
            return if session.principal.is_some() { Ok(()) } else { Err(refusal) };
        }
    };
    if session.principal.as_ref().is_some_and(|known| known.subject() != principal.subject()) {
        let refusal = Rejection::new(Code::Forbidden, "a connection stays with who opened it");
        session.refuse(corr.as_ref(), &refusal);
        return Ok(());
    }
    if principal.policy().is_empty() {
        let refusal = Rejection::new(Code::Forbidden, "the token allows nothing");
        session.refuse(corr.as_ref(), &refusal);
        return Err(refusal);
    }
    let was_expired = session.is_expired();
    if session.presence.is_none() {
        match session.edge.attend(&principal, session.peer.address.ip()) {
            Ok(presence) => session.presence = presence,
            Err(refusal) => {
                session.refuse(corr.as_ref(), &refusal);
                return Err(refusal);
            }
        }
    }
    let success = crate::session::Success {
        expires_at: principal.expires_at_ms(),
        ..crate::session::Success::default()
    };
    session.adopt(principal);
    if was_expired {
        session.revive();
    }
    session.answer(Done::new(corr, Ok(success)));
    Ok(())
}
