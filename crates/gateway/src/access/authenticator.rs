use std::sync::{PoisonError, RwLock};

use super::jwt::{JwtVerifier, Refused};
use super::policy::RuleTemplate;
use super::principal::Principal;
use super::token::TokenTable;
use crate::limits::TOKEN_BYTES_MAX;

/// Why a credential was not accepted. The text is for our logs: clients all hear the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthFailure {
    /// It is no good.
    Refused(&'static str),
    /// The keys of the issuer have to be fetched; then ask again.
    NeedsKeys,
    /// The keys of the issuer cannot be had now.
    Unavailable,
}

/// Turns credentials into principals: static tokens, tokens of an issuer, and the server's own
/// rules on top of what they allow.
#[derive(Debug, Default)]
pub struct Authenticator {
    tokens: RwLock<TokenTable>,
    jwt: Option<JwtVerifier>,
    rules: Vec<RuleTemplate>,
}

impl Authenticator {
    /// Accepts these.
    pub fn new(tokens: TokenTable, jwt: Option<JwtVerifier>, rules: Vec<RuleTemplate>) -> Self {
        Self { tokens: RwLock::new(tokens), jwt, rules }
    }

    /// Takes other static tokens instead of those it had. Gives the ids of those that are new, and
    /// of those that are not there any more.
    pub fn tokens_installed(&self, tokens: TokenTable) -> (Vec<String>, Vec<String>) {
        let mut known = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        let changes = (tokens.without(&known), known.without(&tokens));
        *known = tokens;
        changes
    }

    /// What somebody who was accepted may do now: nothing, if the static token was taken back.
    /// Tokens of an issuer cannot be; they are short-lived instead.
    pub fn standing(&self, principal: &Principal) -> Option<Principal> {
        let Some(name) = principal.token() else {
            return Some(principal.clone());
        };
        let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        self.with_rules(tokens.named(name)?).ok()
    }

    /// What verifies tokens of an issuer, for whoever fetches its keys.
    pub const fn jwt(&self) -> Option<&JwtVerifier> {
        self.jwt.as_ref()
    }

    /// Whose credential it is, at `now_ms` in epoch milliseconds.
    pub fn authenticate(&self, credential: &str, now_ms: u64) -> Result<Principal, AuthFailure> {
        if credential.len() > TOKEN_BYTES_MAX {
            return Err(AuthFailure::Refused("too long"));
        }
        let principal = if TokenTable::claims(credential) {
            let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
            tokens.verify(credential).ok_or(AuthFailure::Refused("no such static token"))?
        } else {
            let jwt = self.jwt.as_ref().ok_or(AuthFailure::Refused("not a static token"))?;
            jwt.verify(credential, now_ms).map_err(|refused| match refused {
                Refused::Token(why) => AuthFailure::Refused(why),
                Refused::Refresh => AuthFailure::NeedsKeys,
                Refused::Unavailable => AuthFailure::Unavailable,
            })?
        };
        if principal.is_expired(now_ms) {
            return Err(AuthFailure::Refused("expired"));
        }
        self.with_rules(principal)
    }

    /// A rule that cannot be made for this subject refuses the subject: leaving out a deny would
    /// widen.
    fn with_rules(&self, principal: Principal) -> Result<Principal, AuthFailure> {
        if self.rules.is_empty() {
            return Ok(principal);
        }
        let refused = AuthFailure::Refused("the rules cannot be made for this subject");
        let rules = self
            .rules
            .iter()
            .map(|rule| rule.rule_for(principal.subject()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| refused)?;
        let policy = principal.policy().with(rules).map_err(|_| refused)?;
        Ok(principal.with_policy(policy))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Action, Effect, MintedToken, Resource, authorize};
    use super::*;

    #[test]
    fn nobody_is_accepted_by_default() {
        let nobody = Authenticator::default();
        for credential in ["", "a", "prom_", "a.b.c", &"x".repeat(9000)] {
            assert!(nobody.authenticate(credential, 0).is_err());
        }
    }

    #[test]
    fn static_tokens_expire_and_get_the_rules() {
        let mut minted = MintedToken::mint("ann", vec!["subscribe:**".into()]).unwrap();
        minted.stored.expires_at_ms = Some(1000);
        let rules =
            vec![RuleTemplate { effect: Effect::Deny, scope: "subscribe:user.{sub}.x".into() }];
        let table = TokenTable::new([minted.stored]).unwrap();
        let authenticator = Authenticator::new(table, None, rules);
        let ann = authenticator.authenticate(&minted.secret, 999).unwrap();
        let read = |name: &str| {
            let topic = name.parse().unwrap();
            authorize(&ann, Action::Read, Resource::Topic(&topic, None)).is_ok()
        };
        assert!(read("user.bob.x") && !read("user.ann.x"));
        assert_eq!(
            authenticator.authenticate(&minted.secret, 1000).unwrap_err(),
            AuthFailure::Refused("expired")
        );
        authenticator.tokens_installed(TokenTable::default());
        assert!(authenticator.authenticate(&minted.secret, 999).is_err(), "it was taken back");
        assert_eq!(authenticator.standing(&ann), None);
    }

    #[test]
    fn a_token_stands_as_the_newest_table_says() {
        let mut minted = MintedToken::mint("ann", vec!["subscribe:**".into()]).unwrap();
        let table = |stored: &_| TokenTable::new([Clone::clone(stored)]).unwrap();
        let authenticator = Authenticator::new(table(&minted.stored), None, Vec::new());
        let ann = authenticator.authenticate(&minted.secret, 0).unwrap();
        assert_eq!(authenticator.standing(&ann).as_ref(), Some(&ann));
        minted.stored.scopes = vec!["subscribe:a.**".into()];
        authenticator.tokens_installed(table(&minted.stored));
        let now = authenticator.standing(&ann).unwrap();
        assert!(now != ann && now.subject() == "ann");
        // The id of another secret.
        minted.stored.sha256 = "0".repeat(64);
        authenticator.tokens_installed(table(&minted.stored));
        assert_eq!(authenticator.standing(&ann), None);
    }
}
