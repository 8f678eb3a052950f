//! Acks that nobody waits for. Whoever comes first decides for all who come meanwhile: a decision
//! about many is hardly more work than one about few, and far less than waking a thread for it.

use std::sync::{Arc, PoisonError};

use promethean_delivery::{Ack, Input, MemberId, RequestId};

use super::active::ActiveGroup;

/// Nobody asks under this number.
const NOBODY: RequestId = RequestId::new(0);

#[derive(Debug, Default)]
pub(super) struct Mail {
    acks: Vec<(MemberId, Vec<Ack>)>,
    /// Somebody is deciding.
    fetched: bool,
}

impl ActiveGroup {
    /// Takes acks that nobody waits for. A member has a bounded number of events, so that what
    /// gathers here is bounded too.
    pub(crate) fn post(self: &Arc<Self>, member: MemberId, acks: Vec<Ack>) {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        match mail.acks.last_mut() {
            // Decided in one step, so that what they make room for goes out together.
            Some((last, earlier)) if *last == member => earlier.extend(acks),
            _ => mail.acks.push((member, acks)),
        }
        if std::mem::replace(&mut mail.fetched, true) {
            return;
        }
        drop(mail);
        while let Some(acks) = self.take_mail() {
            self.decide(acks);
        }
    }

    fn decide(self: &Arc<Self>, acks: Vec<(MemberId, Vec<Ack>)>) {
        for (member, items) in acks {
            self.step(Input::Ack { member, request: NOBODY, items: &items });
        }
    }

    fn take_mail(&self) -> Option<Vec<(MemberId, Vec<Ack>)>> {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        if mail.acks.is_empty() {
            mail.fetched = false;
            return None;
        }
        Some(std::mem::take(&mut mail.acks))
    }

    /// Takes care of what is there now, for those whose next word must come after it.
    pub(crate) fn empty_mail_now(self: &Arc<Self>) {
        let acks = {
            let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut mail.acks)
        };
        self.decide(acks);
    }
}
