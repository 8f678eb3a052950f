//! Acks that nobody waits for. They are taken care of by a task of their own, so that a consumer
//! works on while its group decides what comes next.

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

impl ActiveGroup {
    /// Takes acks that nobody waits for. A member has a bounded number of events, so that what
    /// gathers here is bounded too.
    pub(crate) fn post(self: &Arc<Self>, member: MemberId, acks: Vec<Ack>) {
        let mut mail = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        mail.acks.push((member, acks));
        if !std::mem::replace(&mut mail.fetched, true) {
            drop(mail);
            self.site.runtime.spawn(Arc::clone(self).empty_mail());
        }
    }

    async fn empty_mail(self: Arc<Self>) {
        while let Some(acks) = self.take_mail() {
            for (member, items) in acks {
                self.step(Input::Ack { member, request: NOBODY, items: &items });
            }
            // Others have a turn, too.
            tokio::task::yield_now().await;
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
        for (member, items) in acks {
            self.step(Input::Ack { member, request: NOBODY, items: &items });
        }
    }
}
