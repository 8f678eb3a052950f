//! Tickets: what a web page shows instead of its token when it opens a WebSocket, for which a
//! browser lets it set no header. A ticket stands for whoever asked for it, once, and soon.
//!
//! What holds: a ticket is 256 random bits, and kept as their hash only; it is found by that hash,
//! so that nothing is compared byte by byte; whoever takes it removes it; after its time it is not
//! there. There are never more than two limits say, of a subject and in all. What it allows is
//! what its principal may do at the moment at which it is taken: the caller asks again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};

use crate::access::{Principal, hex};
use crate::limits::{TICKET_LIFE_MS, TICKETS_MAX, TICKETS_PER_SUBJECT_MAX};
use crate::rejection::{Code, Rejection};

const SECRET_BYTES: usize = 32;

type Hash = [u8; 32];

/// The tickets of a server that were not used yet.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    waiting: HashMap<Hash, Principal>,
    /// In the order of their ends, which is that of their making. Used ones stay until then.
    ends: VecDeque<(Duration, Hash, Arc<str>)>,
    /// How many each subject has made that are not over.
    of_subject: HashMap<Arc<str>, usize>,
}

impl Tickets {
    /// A ticket for somebody. `now` is the time since the server started.
    pub(crate) fn give(&self, principal: &Principal, now: Duration) -> Result<String, Rejection> {
        let mut random = [0; SECRET_BYTES];
        SystemRandom::new().fill(&mut random).map_err(|_| Rejection::plain(Code::Internal))?;
        let ticket = hex(&random);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.forget_until(now);
        let subject: Arc<str> = principal.subject().into();
        let has = kept.of_subject.get(&subject).copied().unwrap_or_default();
        if has >= TICKETS_PER_SUBJECT_MAX {
            let mut own = kept.ends.iter().filter(|(_, _, other)| *other == subject);
            let room = own.next().map_or(now, |(end, ..)| *end);
            let detail = format!("{TICKETS_PER_SUBJECT_MAX} tickets of one subject at a time");
            return Err(Rejection::new(Code::Limit, detail).after_ms(until(room, now)));
        }
        if kept.ends.len() >= TICKETS_MAX {
            let room = kept.ends.front().map_or(now, |(end, ..)| *end);
            let detail = "too many tickets are waiting to be used";
            return Err(Rejection::new(Code::NotReady, detail).after_ms(until(room, now)));
        }
        let hash = hashed(&ticket);
        kept.waiting.insert(hash, principal.clone());
        kept.ends.push_back((now + LIFE, hash, Arc::clone(&subject)));
        *kept.of_subject.entry(subject).or_default() += 1;
        Ok(ticket)
    }

    /// Who asked for it, if it was neither used nor is over. It is used by this.
    pub(crate) fn take(&self, ticket: &str, now: Duration) -> Option<Principal> {
        let hash = hashed(ticket);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.forget_until(now);
        kept.waiting.remove(&hash)
    }
}

impl Kept {
    fn forget_until(&mut self, now: Duration) {
        while self.ends.front().is_some_and(|(end, ..)| *end <= now) {
            let Some((_, hash, subject)) = self.ends.pop_front() else { return };
            self.waiting.remove(&hash);
            if let Some(has) = self.of_subject.get_mut(&subject) {
                *has -= 1;
                if *has == 0 {
                    self.of_subject.remove(&subject);
                }
            }
        }
    }
}

const LIFE: Duration = Duration::from_millis(TICKET_LIFE_MS);

fn until(end: Duration, now: Duration) -> u64 {
    u64::try_from(end.saturating_sub(now).as_millis()).unwrap_or(u64::MAX).max(1)
}

fn hashed(ticket: &str) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, ticket.as_bytes()).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Policy;

    const START: Duration = Duration::from_secs(7);

    fn known(subject: &str) -> Principal {
        Principal::new(subject, Policy::everything(), Some(5))
    }

    #[test]
    fn a_ticket_is_used_once_and_by_nobody_else() {
        let tickets = Tickets::default();
        let ticket = tickets.give(&known("ann"), START).unwrap();
        let other = tickets.give(&known("ann"), START).unwrap();
        assert_ne!(ticket, other);
        let upper = ticket.to_uppercase();
        for wrong in ["", "0", &upper, &ticket[1..], &format!("{ticket}0"), &"0".repeat(64)] {
            assert_eq!(tickets.take(wrong, START), None, "{wrong}");
        }
        assert_eq!(tickets.take(&ticket, START), Some(known("ann")));
        assert_eq!(tickets.take(&ticket, START), None);
    }

    #[test]
    fn a_ticket_ends() {
        let tickets = Tickets::default();
        let (one, two) =
            (tickets.give(&known("a"), START).unwrap(), tickets.give(&known("a"), START).unwrap());
        let last = START + LIFE - Duration::from_nanos(1);
        assert!(tickets.take(&one, last).is_some());
        assert_eq!(tickets.take(&two, START + LIFE), None);
        let kept = tickets.0.lock().unwrap();
        assert!(kept.waiting.is_empty() && kept.ends.is_empty() && kept.of_subject.is_empty());
    }

    /// Used ones count until their time is over: otherwise the bound would be none on how many are
    /// made.
    #[test]
    fn a_subject_has_only_so_many() {
        let tickets = Tickets::default();
        for _ in 0..TICKETS_PER_SUBJECT_MAX {
            let ticket = tickets.give(&known("ann"), START).unwrap();
            assert!(tickets.take(&ticket, START).is_some());
        }
        let later = START + Duration::from_secs(10);
        let refused = tickets.give(&known("ann"), later).unwrap_err();
        assert_eq!((refused.code, refused.retry_ms), (Code::Limit, Some(TICKET_LIFE_MS - 10_000)));
        assert!(tickets.give(&known("bob"), later).is_ok());
        assert!(tickets.give(&known("ann"), START + LIFE).is_ok());
    }

    #[test]
    fn there_are_only_so_many() {
        let tickets = Tickets::default();
        for number in 0..TICKETS_MAX {
            let subject = format!("user-{}", number / TICKETS_PER_SUBJECT_MAX);
            tickets.give(&known(&subject), START).unwrap();
        }
        let refused = tickets.give(&known("ann"), START).unwrap_err();
        assert_eq!((refused.code, refused.retry_ms), (Code::NotReady, Some(TICKET_LIFE_MS)));
        assert!(tickets.give(&known("ann"), START + LIFE).is_ok());
    }

    #[test]
    fn the_secret_is_not_kept() {
        let tickets = Tickets::default();
        let ticket = tickets.give(&known("ann"), START).unwrap();
        let kept = format!("{tickets:?}");
        let bytes: Vec<u8> = (0..32)
            .map(|at| u8::from_str_radix(&ticket[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        assert!(!kept.contains(&ticket) && !kept.contains(&format!("{bytes:?}")));
    }
}
