use std::sync::Arc;

use super::action::{Action, Resource};
use super::policy::Policy;
use crate::rejection::{Code, Rejection};

/// Somebody whose credential was accepted. Belongs to one connection or request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    subject: Arc<str>,
    policy: Arc<Policy>,
    expires_at_ms: Option<u64>,
    /// The static token, if it was one: it can be taken back.
    token: Option<Arc<str>>,
}

impl Principal {
    /// A principal whose credential ends at `expires_at_ms`, epoch milliseconds, if it does.
    pub fn new(subject: &str, policy: Policy, expires_at_ms: Option<u64>) -> Self {
        Self { subject: subject.into(), policy: Arc::new(policy), expires_at_ms, token: None }
    }

    /// Whoever asks, on a server that asks nobody.
    pub fn anonymous() -> Self {
        Self::new("anonymous", Policy::everything(), None)
    }

    /// The same by the static token of this name.
    #[must_use]
    pub(super) fn by_token(self, token: &str) -> Self {
        Self { token: Some(token.into()), ..self }
    }

    /// The name of its static token, if it has one.
    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The same with other rights.
    #[must_use]
    pub(super) fn with_policy(self, policy: Policy) -> Self {
        Self { policy: Arc::new(policy), ..self }
    }

    /// Who it is.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// What it may do.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// When the credential ends, in epoch milliseconds.
    pub const fn expires_at_ms(&self) -> Option<u64> {
        self.expires_at_ms
    }

    /// Whether the credential has run out at `now_ms`.
    pub fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|end| end <= now_ms)
    }
}

/// The one question. The refusal does not say which rule it was.
pub fn authorize(
    principal: &Principal,
    action: Action,
    resource: Resource<'_>,
) -> Result<(), Rejection> {
    if principal.policy.allows(action, resource) {
        return Ok(());
    }
    Err(Rejection::plain(Code::Forbidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_do_not_echo_the_policy() {
        let policy = Policy::of_scopes(["publish:secret.name"]).unwrap();
        let principal = Principal::new("ann", policy, Some(10));
        let refused = authorize(&principal, Action::OpsAdmin, Resource::Server).unwrap_err();
        assert_eq!(refused, Rejection::plain(Code::Forbidden));
        assert!(principal.is_expired(10) && !principal.is_expired(9));
    }

    #[test]
    fn rights_belong_to_one_principal() {
        // Pitfall 65: the last login's rights applied to all sockets.
        let ann = Principal::new("ann", Policy::of_scopes(["admin:ops"]).unwrap(), None);
        let bob = Principal::new("bob", Policy::default(), None);
        assert!(authorize(&ann, Action::OpsRead, Resource::Server).is_ok());
        assert!(authorize(&bob, Action::OpsRead, Resource::Server).is_err());
        assert!(authorize(&Principal::anonymous(), Action::OpsRead, Resource::Server).is_ok());
    }
}
