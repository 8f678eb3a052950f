//! JSON Web Tokens, verified as RFC 8725 asks: the algorithm comes from the configuration, the key
//! from the configuration or the issuer's key set, and nothing else in a token says how to verify
//! it. Signatures are checked by aws-lc directly; the rest of a JWT is base64 and strict JSON,
//! which a general library would read more kindly, by its own clock.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use super::claims::{self, Claims, Members};
use super::key_set::{KeySet, KeySetError, Lookup, SigningAlgorithm, is_kid};
use super::policy::Policy;
use super::principal::Principal;
use crate::limits::{HS256_SECRET_BYTES_MIN, TOKEN_BYTES_MAX};

/// Members of a header that name a key or an extension: whoever sends one wants us to trust it.
const FOREIGN_KEYS: &[&str] =
    &["crit", "jwk", "jku", "x5u", "x5c", "x5t", "x5t#S256", "b64", "enc", "zip", "epk"];

/// What tokens are checked with.
pub enum VerifyKeys {
    /// HS256 with a secret that issuer and server share.
    Secret(Vec<u8>),
    /// RS256 or ES256 with the keys of the issuer.
    Set(SigningAlgorithm),
}

impl fmt::Debug for VerifyKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(_) => f.write_str("Secret(***)"),
            Self::Set(algorithm) => f.debug_tuple("Set").field(algorithm).finish(),
        }
    }
}

/// Whose tokens are accepted.
#[derive(Debug)]
pub struct JwtSettings {
    /// What `iss` must say.
    pub issuer: String,
    /// What `aud` must say.
    pub audience: String,
    /// How they are signed.
    pub keys: VerifyKeys,
}

/// Why tokens cannot be verified at all: the server does not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JwtError {
    /// A secret that could be guessed.
    #[error("the HS256 secret has {0} bytes; {HS256_SECRET_BYTES_MIN} at least")]
    ShortSecret(usize),
    /// No issuer or no audience.
    #[error("issuer and audience must be set: a token for somebody else would be accepted")]
    Unpinned,
}

/// Why a token is not accepted. The text is for our logs; the client learns nothing from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The token is no good.
    Token(&'static str),
    /// The key set has to be fetched first.
    Refresh,
    /// The key set cannot be had.
    Unavailable,
}

/// Verifies tokens of one issuer.
pub struct JwtVerifier {
    issuer: String,
    audience: String,
    keys: Keys,
}

enum Keys {
    Secret(Box<hmac::Key>),
    Set(Mutex<KeySet>),
}

impl fmt::Debug for JwtVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwtVerifier")
            .field("issuer", &self.issuer)
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

impl JwtVerifier {
    /// Checks the settings.
    pub fn new(settings: JwtSettings) -> Result<Self, JwtError> {
        let JwtSettings { issuer, audience, keys } = settings;
        if issuer.is_empty() || audience.is_empty() {
            return Err(JwtError::Unpinned);
        }
        let keys = match keys {
            VerifyKeys::Secret(secret) if secret.len() < HS256_SECRET_BYTES_MIN => {
                return Err(JwtError::ShortSecret(secret.len()));
            }
            VerifyKeys::Secret(secret) => {
                Keys::Secret(Box::new(hmac::Key::new(hmac::HMAC_SHA256, &secret)))
            }
            VerifyKeys::Set(algorithm) => Keys::Set(Mutex::new(KeySet::new(algorithm))),
        };
        Ok(Self { issuer, audience, keys })
    }

    /// Hands in a key set that was fetched.
    pub fn keys_fetched(&self, document: &[u8], now_ms: u64) -> Result<(), KeySetError> {
        self.with_set(|set| set.fetched(document, now_ms)).unwrap_or(Ok(()))
    }

    /// Hands in a key set that the operator keeps up to date by hand: it does not age.
    pub fn keys_installed(&self, document: &[u8]) -> Result<(), KeySetError> {
        self.with_set(|set| set.installed(document)).unwrap_or(Ok(()))
    }

    /// Says that fetching the key set failed.
    pub fn keys_failed(&self, now_ms: u64) {
        self.with_set(|set| set.failed(now_ms));
    }

    /// Whether the key set should be fetched again.
    pub fn keys_are_old(&self, now_ms: u64) -> bool {
        self.with_set(|set| set.is_old(now_ms)).unwrap_or(false)
    }

    fn with_set<T>(&self, act: impl FnOnce(&mut KeySet) -> T) -> Option<T> {
        match &self.keys {
            Keys::Secret(_) => None,
            Keys::Set(set) => Some(act(&mut set.lock().unwrap_or_else(PoisonError::into_inner))),
        }
    }

    /// Whose token it is.
    pub(super) fn verify(&self, token: &str, now_ms: u64) -> Result<Principal, Refused> {
        let Claims { subject, scopes, expires_at_s } = self.claims(token, now_ms)?;
        let policy = Policy::of_scopes(scopes.iter().map(String::as_str))
            .map_err(|_| Refused::Token("scopes are malformed"))?;
        Ok(Principal::new(&subject, policy, Some(expires_at_s.saturating_mul(1000))))
    }

    fn claims(&self, token: &str, now_ms: u64) -> Result<Claims, Refused> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Refused::Token("too long"));
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(Refused::Token("not a JWT"))?;
        let (header, claims) = signed.split_once('.').ok_or(Refused::Token("not a JWT"))?;
        // A third dot would be in `claims`, where base64 refuses it.
        let header = members(header)?;
        let signature = decode(signature)?;
        self.check_header(&header)?;
        self.check_signature(&header, signed.as_bytes(), &signature, now_ms)?;
        claims::check(&members(claims)?, &self.issuer, &self.audience, now_ms / 1000)
            .map_err(Refused::Token)
    }

    fn check_header(&self, header: &Members) -> Result<(), Refused> {
        let pinned = match &self.keys {
            Keys::Secret(_) => "HS256",
            Keys::Set(set) => set.lock().unwrap_or_else(PoisonError::into_inner).algorithm().name(),
        };
        if header.text("alg") != Ok(Some(pinned)) {
            return Err(Refused::Token("alg is not the pinned one"));
        }
        let typ = header.text("typ").map_err(|()| Refused::Token("typ is not a text"))?;
        if !typ.is_none_or(|typ| ["jwt", "at+jwt"].contains(&&*typ.to_ascii_lowercase())) {
            return Err(Refused::Token("typ is not JWT"));
        }
        if header.has_any(FOREIGN_KEYS) {
            return Err(Refused::Token("the header brings its own key or extension"));
        }
        Ok(())
    }

    fn check_signature(
        &self,
        header: &Members,
        signed: &[u8],
        signature: &[u8],
        now_ms: u64,
    ) -> Result<(), Refused> {
        let kid = header.text("kid").map_err(|()| Refused::Token("kid is not a text"))?;
        if !kid.is_none_or(is_kid) {
            return Err(Refused::Token("kid is not a name"));
        }
        let good = match &self.keys {
            Keys::Secret(secret) => hmac::verify(secret, signed, signature).is_ok(),
            Keys::Set(set) => {
                let kid = kid.ok_or(Refused::Token("kid is missing"))?;
                let found = set.lock().unwrap_or_else(PoisonError::into_inner).find(kid, now_ms);
                match found {
                    Lookup::Key(key) => key.verifies(signed, signature),
                    Lookup::Refresh => return Err(Refused::Refresh),
                    Lookup::Unknown => return Err(Refused::Token("kid is unknown")),
                    Lookup::Unavailable => return Err(Refused::Unavailable),
                }
            }
        };
        if good { Ok(()) } else { Err(Refused::Token("the signature is wrong")) }
    }
}

fn decode(part: &str) -> Result<Vec<u8>, Refused> {
    BASE64_URL_SAFE_NO_PAD.decode(part).map_err(|_| Refused::Token("not base64url"))
}

fn members(part: &str) -> Result<Members, Refused> {
    Members::read(&decode(part)?).ok_or(Refused::Token("not an object with each member once"))
}

#[cfg(test)]
#[path = "jwt_tests.rs"]
mod tests;
