use promethean_event::frame::{Corr, Target};

use super::flow;
use crate::rejection::Rejection;
use crate::session::Session;

/// Ends a subscription. What is out goes to others at once.
pub(super) fn run(
    session: &mut Session,
    corr: Option<&Corr>,
    target: &Target,
) -> Result<(), Rejection> {
    let number = flow::find(session, target)?;
    session.subscriptions.remove(&number);
    flow::done(session, corr);
    Ok(())
}
