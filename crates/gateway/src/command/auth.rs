use promethean_event::frame::Corr;

use crate::access::{Action, Resource};
use crate::rejection::{Code, Rejection};
use crate::session::{Done, Session, Subscription};

/// Who the client is, or still is: a second AUTH must be for the same subject.
pub(super) fn run(session: &mut Session, corr: Option<Corr>, token: &str) -> Result<(), Rejection> {
    let principal = match session.edge.authenticate(token, session.peer.address.ip()) {
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
    let lost: Vec<u32> = session
        .subscriptions
        .iter()
        .filter(|(_, one)| !still_allowed(&principal, one))
        .map(|(number, _)| *number)
        .collect();
    for number in lost {
        session.subscriptions.remove(&number);
        let refusal = Rejection::new(Code::Forbidden, format!("subscription {number} has ended"));
        session.refuse(None, &refusal);
    }
    let success = crate::session::Success {
        expires_at: principal.expires_at_ms(),
        ..crate::session::Success::default()
    };
    session.know(principal);
    if was_expired {
        super::flow::resume_all(session);
    }
    session.answer(Done { corr, reply: true, result: Ok(success) });
    Ok(())
}

fn still_allowed(principal: &crate::access::Principal, subscription: &Subscription) -> bool {
    let group = subscription.group.as_ref();
    subscription.topics.iter().all(|pattern| match group {
        Some(_) => principal.policy().allows(Action::Subscribe, Resource::Pattern(pattern, group)),
        // A tail was opened with the rights of then.
        None => principal.policy().allows(Action::Read, Resource::Pattern(pattern, None)),
    })
}
