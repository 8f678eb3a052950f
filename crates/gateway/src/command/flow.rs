use promethean_event::frame::{Corr, Target};

use crate::rejection::{Code, Rejection};
use crate::session::{Done, Feed, Session, Success};

/// The subscription that is meant.
pub(super) fn find(session: &Session, target: &Target) -> Result<u32, Rejection> {
    let found = session.subscriptions.iter().find(|(number, one)| one.is(target, **number));
    found
        .map(|(number, _)| *number)
        .ok_or_else(|| Rejection::new(Code::NotFound, "there is no such subscription here"))
}

pub(super) fn done(session: &mut Session, corr: Option<&Corr>) {
    let result = Ok(Success::default());
    session.answer(Done::new(corr.cloned(), result));
}

/// Nothing new; what is out stays out.
pub(super) fn pause(
    session: &mut Session,
    corr: Option<&Corr>,
    target: &Target,
) -> Result<(), Rejection> {
    let number = find(session, target)?;
    if let Some(subscription) = session.subscriptions.get_mut(&number) {
        subscription.paused = true;
        subscription.settle();
    }
    done(session, corr);
    Ok(())
}

/// New events again, unless the server has a reason of its own against it.
pub(super) fn resume(
    session: &mut Session,
    corr: Option<&Corr>,
    target: &Target,
) -> Result<(), Rejection> {
    let number = find(session, target)?;
    if let Some(subscription) = session.subscriptions.get_mut(&number) {
        subscription.paused = false;
        subscription.settle();
    }
    done(session, corr);
    Ok(())
}

/// That many more.
pub(super) fn credit(
    session: &mut Session,
    corr: Option<&Corr>,
    target: &Target,
    events: u32,
) -> Result<(), Rejection> {
    let number = find(session, target)?;
    if let Some(subscription) = session.subscriptions.get_mut(&number) {
        match &subscription.feed {
            Feed::Member(member) => member.seat().credit(events),
            Feed::Tail(..) => {
                let credit = subscription.credit.get_or_insert(0);
                *credit = credit.saturating_add(events);
            }
        }
    }
    // Credits are given all the time: only who asks by name hears of it.
    if corr.is_some() {
        done(session, corr);
    }
    Ok(())
}
