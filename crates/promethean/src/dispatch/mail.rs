//! Acks that nobody waits for. They are taken care of beside a busy consumer, which works on while
//! its group decides what comes next.

use std::sync::{Arc, PoisonError};

use promethean_delivery::{Ack, Input, MemberId, RequestId};

use super::active::ActiveGroup;

/// Nobody asks under this number.
const NOBODY: RequestId = RequestId::new(0);

#[derive(Debug, Default)]
pub(super) struct Mail {
    acks: Vec<(MemberId, Vec<Ack>)>,
    /// Somebody is on the way.
    fetched: bool,
}

/// Whether the consumer that posts acks works on or waits for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    /// It has more to do: the acks are taken care of beside it.
    Busy,
    /// It waits for what the acks make room for.
    Idle,
}

impl ActiveGroup {
    /// Takes acks that nobody waits for. A member has a bounded number of events, so that what
    /// gathers here is bounded too.
    pub(crate) fn post(self: &Arc<Self>, member: MemberId, acks: Vec<Ack>, sender: Sender) {
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
        let group = Arc::clone(self);
        match sender {
            // A task that a busy one spawns waits until that one waits; a thread does not.
            Sender::Busy => {
                self.site.runtime.spawn_blocking(move || group.empty_mail());
            }
            Sender::Idle => {
                self.site.runtime.spawn(async move { group.empty_mail() });
            }
        }
    }

    fn empty_mail(self: Arc<Self>) {
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
