use std::collections::BTreeMap;

use promethean_event::frame::DeliveryToken;

/// One delivery of one event: ours until it is answered, its deadline passes, or the connection
/// ends.
#[derive(Debug)]
struct Lease {
    deadline_ms: u64,
    /// Renewed until then; without an end while it waits to be worked on.
    renew_until_ms: u64,
    is_renewing: bool,
}

/// What has to be done about a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaseStep {
    Renew(DeliveryToken),
    Lost(DeliveryToken),
}

/// All leases of a subscription.
#[derive(Debug)]
pub(super) struct Leases {
    held: BTreeMap<DeliveryToken, Lease>,
    lease_ms: u64,
    /// Nothing has to be done before. Never too late; too early at times.
    due_ms: u64,
}

impl Leases {
    pub(super) fn new(lease_ms: u32) -> Self {
        Self { held: BTreeMap::new(), lease_ms: lease_ms.into(), due_ms: u64::MAX }
    }

    pub(super) const fn due_ms(&self) -> u64 {
        self.due_ms
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn add(&mut self, token: DeliveryToken, deadline_ms: u64) {
        let lease = Lease { deadline_ms, renew_until_ms: u64::MAX, is_renewing: false };
        self.due_ms = self.due_ms.min(self.due_of(&lease));
        self.held.insert(token, lease);
    }

    pub(super) fn remove(&mut self, token: DeliveryToken) -> bool {
        self.held.remove(&token).is_some()
    }

    pub(super) fn clear(&mut self) {
        self.held.clear();
        self.due_ms = u64::MAX;
    }

    /// Work on it begins: it is renewed until then, and no longer.
    pub(super) fn begin(&mut self, token: DeliveryToken, renew_until_ms: u64) {
        if let Some(lease) = self.held.get_mut(&token) {
            lease.renew_until_ms = renew_until_ms;
        }
    }

    pub(super) fn renewed(&mut self, token: DeliveryToken, deadline_ms: u64) {
        if let Some(lease) = self.held.get_mut(&token) {
            lease.is_renewing = false;
            lease.deadline_ms = lease.deadline_ms.max(deadline_ms);
            let due = renew_at(lease, self.lease_ms);
            self.due_ms = self.due_ms.min(due);
        }
    }

    /// It has its greatest length: it ends when it ends.
    pub(super) fn at_maximum(&mut self, token: DeliveryToken) {
        if let Some(lease) = self.held.get_mut(&token) {
            lease.renew_until_ms = 0;
            lease.is_renewing = false;
            self.due_ms = self.due_ms.min(lease.deadline_ms);
        }
    }

    pub(super) fn tick(&mut self, now: u64) -> Vec<LeaseStep> {
        let mut steps = Vec::new();
        if now < self.due_ms {
            return steps;
        }
        let lease_ms = self.lease_ms;
        self.held.retain(|&token, lease| {
            if lease.deadline_ms <= now {
                steps.push(LeaseStep::Lost(token));
                return false;
            }
            let renew_at = renew_at(lease, lease_ms);
            if renew_at <= now && now < lease.renew_until_ms && !lease.is_renewing {
                lease.is_renewing = true;
                steps.push(LeaseStep::Renew(token));
            }
            true
        });
        self.due_ms = self.held.values().map(|lease| self.due_of(lease)).min().unwrap_or(u64::MAX);
        steps
    }

    fn due_of(&self, lease: &Lease) -> u64 {
        let renew_at = renew_at(lease, self.lease_ms);
        if lease.is_renewing || renew_at >= lease.renew_until_ms {
            return lease.deadline_ms;
        }
        renew_at
    }
}

/// A third of a lease has gone by.
const fn renew_at(lease: &Lease, lease_ms: u64) -> u64 {
    lease.deadline_ms.saturating_sub(lease_ms * 2 / 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(offset: u64) -> DeliveryToken {
        format!("1-2-0-{offset:x}-0-1-0").parse().unwrap()
    }

    #[test]
    fn a_lease_is_renewed_after_a_third_until_work_has_had_its_time() {
        let mut leases = Leases::new(30_000);
        leases.add(token(1), 30_000);
        assert_eq!(leases.due_ms(), 10_000);
        assert_eq!(leases.tick(9_999), []);
        assert_eq!(leases.tick(10_000), [LeaseStep::Renew(token(1))]);
        assert_eq!(leases.tick(10_001), [], "once");
        leases.renewed(token(1), 40_000);
        leases.begin(token(1), 25_000);
        assert_eq!(leases.tick(20_000), [LeaseStep::Renew(token(1))]);
        leases.renewed(token(1), 50_000);
        // It has had its time: it runs out.
        assert_eq!(leases.tick(30_000), []);
        assert_eq!(leases.due_ms(), 50_000);
        assert_eq!(leases.tick(50_000), [LeaseStep::Lost(token(1))]);
        assert!(leases.is_empty());
    }

    #[test]
    fn one_that_cannot_be_renewed_ends_when_it_ends() {
        let mut leases = Leases::new(300);
        leases.add(token(1), 300);
        leases.add(token(2), 400);
        assert_eq!(leases.tick(150), [LeaseStep::Renew(token(1))]);
        leases.at_maximum(token(1));
        assert_eq!(leases.tick(200), [LeaseStep::Renew(token(2))]);
        assert!(leases.remove(token(2)));
        assert_eq!(leases.tick(300), [LeaseStep::Lost(token(1))]);
    }
}
