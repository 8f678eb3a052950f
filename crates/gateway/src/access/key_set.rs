//! Public keys of an issuer (JWKS), and when to fetch them again. Decides only; who fetches is
//! told by [`Lookup::Refresh`] and reports back.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;

use crate::limits::{
    JWKS_BYTES_MAX, JWKS_FRESH_MS, JWKS_KEYS_MAX, JWKS_RETRY_MS, JWKS_STALE_MS, KID_BYTES_MAX,
    RSA_BITS_MIN,
};

/// How an issuer signs. One algorithm per issuer, from the configuration, never from a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigningAlgorithm {
    /// RSA with PKCS #1 v1.5 and SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
}

impl SigningAlgorithm {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }
}

/// Why a key set is refused. The last good one stays in use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeySetError {
    /// Not a JWKS, or too large.
    #[error("not a key set of at most {JWKS_KEYS_MAX} keys and {JWKS_BYTES_MAX} bytes")]
    Syntax,
    /// Nothing in it can be used.
    #[error("the key set has no key for {0}")]
    Empty(&'static str),
    /// A key that is too short to trust.
    #[error("key {0:?} is shorter than {RSA_BITS_MIN} bits")]
    Weak(String),
}

/// A public key.
#[derive(Debug)]
pub(super) enum PublicKey {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Box<[u8; 65]>),
}

impl PublicKey {
    pub(super) fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa { n, e } => RsaPublicKeyComponents { n, e }
                .verify(&RSA_PKCS1_2048_8192_SHA256, text, signature)
                .is_ok(),
            Self::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &point[..])
                .verify(text, signature)
                .is_ok(),
        }
    }
}

/// The answer for a key id.
#[derive(Debug)]
pub(super) enum Lookup {
    Key(Arc<PublicKey>),
    /// Fetch the set, report, and ask again.
    Refresh,
    /// No such key, and the set was fetched lately.
    Unknown,
    /// There is no set that can be trusted, and it was tried lately.
    Unavailable,
}

/// The keys of an issuer, and how old they are.
#[derive(Debug)]
pub struct KeySet {
    algorithm: SigningAlgorithm,
    keys: HashMap<String, Arc<PublicKey>>,
    fetched_at_ms: Option<u64>,
    tried_at_ms: Option<u64>,
    /// From a file: never to be fetched.
    fixed: bool,
}

impl KeySet {
    /// No keys yet.
    pub fn new(algorithm: SigningAlgorithm) -> Self {
        Self {
            algorithm,
            keys: HashMap::new(),
            fetched_at_ms: None,
            tried_at_ms: None,
            fixed: false,
        }
    }

    pub(super) const fn algorithm(&self) -> SigningAlgorithm {
        self.algorithm
    }

    /// Takes what was fetched; the old keys stay if it is no good.
    pub fn fetched(&mut self, document: &[u8], now_ms: u64) -> Result<(), KeySetError> {
        self.tried_at_ms = Some(now_ms);
        self.keys = read(document, self.algorithm)?;
        self.fetched_at_ms = Some(now_ms);
        Ok(())
    }

    /// Takes a set that is kept up to date by hand.
    pub fn installed(&mut self, document: &[u8]) -> Result<(), KeySetError> {
        self.keys = read(document, self.algorithm)?;
        self.fixed = true;
        Ok(())
    }

    /// Remembers that fetching failed, so that it is not tried at once again.
    pub fn failed(&mut self, now_ms: u64) {
        self.tried_at_ms = Some(now_ms);
    }

    /// Whether the set should be fetched again although nobody waits for it.
    pub fn is_old(&self, now_ms: u64) -> bool {
        !self.fixed
            && self.age(now_ms).is_none_or(|age| age >= JWKS_FRESH_MS)
            && self.may_try(now_ms)
    }

    pub(super) fn find(&self, kid: &str, now_ms: u64) -> Lookup {
        if self.fixed {
            let key = self.keys.get(kid).map(Arc::clone);
            return key.map_or(Lookup::Unknown, Lookup::Key);
        }
        if self.age(now_ms).is_none_or(|age| age >= JWKS_STALE_MS) {
            return if self.may_try(now_ms) { Lookup::Refresh } else { Lookup::Unavailable };
        }
        match self.keys.get(kid) {
            Some(key) => Lookup::Key(Arc::clone(key)),
            None if self.may_try(now_ms) => Lookup::Refresh,
            None => Lookup::Unknown,
        }
    }

    fn age(&self, now_ms: u64) -> Option<u64> {
        self.fetched_at_ms.map(|at| now_ms.saturating_sub(at))
    }

    fn may_try(&self, now_ms: u64) -> bool {
        self.tried_at_ms.is_none_or(|at| now_ms.saturating_sub(at) >= JWKS_RETRY_MS)
    }
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

fn read(
    document: &[u8],
    algorithm: SigningAlgorithm,
) -> Result<HashMap<String, Arc<PublicKey>>, KeySetError> {
    if document.len() > JWKS_BYTES_MAX {
        return Err(KeySetError::Syntax);
    }
    let document: Document = serde_json::from_slice(document).map_err(|_| KeySetError::Syntax)?;
    if document.keys.len() > JWKS_KEYS_MAX {
        return Err(KeySetError::Syntax);
    }
    let mut keys = HashMap::new();
    for jwk in &document.keys {
        let Some(kid) = jwk.kid.as_deref().filter(|kid| is_kid(kid)) else {
            continue;
        };
        if let Some(key) = usable(jwk, algorithm, kid)? {
            keys.insert(kid.to_owned(), Arc::new(key));
        }
    }
    if keys.is_empty() {
        return Err(KeySetError::Empty(algorithm.name()));
    }
    Ok(keys)
}

/// The key, if it is one to check signatures of this algorithm with. Others are passed over.
fn usable(
    jwk: &Jwk,
    algorithm: SigningAlgorithm,
    kid: &str,
) -> Result<Option<PublicKey>, KeySetError> {
    let signs = jwk.usage.as_deref().is_none_or(|usage| usage == "sig")
        && jwk.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"))
        && jwk.alg.as_deref().is_none_or(|alg| alg == algorithm.name());
    if !signs {
        return Ok(None);
    }
    match algorithm {
        SigningAlgorithm::Rs256 if jwk.kty == "RSA" => {
            let (Some(n), Some(e)) = (bytes(jwk.n.as_deref()), bytes(jwk.e.as_deref())) else {
                return Ok(None);
            };
            if modulus_bits(&n) < RSA_BITS_MIN {
                return Err(KeySetError::Weak(kid.to_owned()));
            }
            Ok(Some(PublicKey::Rsa { n, e }))
        }
        SigningAlgorithm::Es256 if jwk.kty == "EC" && jwk.crv.as_deref() == Some("P-256") => {
            Ok(point(jwk).map(|point| PublicKey::P256(Box::new(point))))
        }
        _ => Ok(None),
    }
}

fn modulus_bits(n: &[u8]) -> usize {
    let significant = n.iter().skip_while(|byte| **byte == 0);
    let first = significant.clone().next().map_or(0, |byte| byte.leading_zeros() as usize);
    (significant.count() * 8).saturating_sub(first)
}

/// The uncompressed form: 4, x, y.
fn point(jwk: &Jwk) -> Option<[u8; 65]> {
    let (x, y) = (bytes(jwk.x.as_deref())?, bytes(jwk.y.as_deref())?);
    if x.len() != 32 || y.len() != 32 {
        return None;
    }
    [vec![4], x, y].concat().try_into().ok()
}

fn bytes(text: Option<&str>) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text?).ok()
}

/// A key id is a name, not a path or a query.
pub(super) fn is_kid(kid: &str) -> bool {
    let good = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.' | b'=' | b'+');
    (1..=KID_BYTES_MAX).contains(&kid.len()) && kid.bytes().all(good) && !kid.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rsa(kid: &str, bytes: usize, more: &str) -> String {
        let n = BASE64_URL_SAFE_NO_PAD.encode(vec![0xff; bytes]);
        format!(r#"{{"kty":"RSA","kid":"{kid}","n":"{n}","e":"AQAB"{more}}}"#)
    }

    fn set(keys: &[String]) -> String {
        format!(r#"{{"keys":[{}]}}"#, keys.join(","))
    }

    #[test]
    fn only_keys_of_the_algorithm_are_taken() {
        let document = set(&[
            rsa("good", 256, ""),
            rsa("enc", 256, r#","use":"enc""#),
            rsa("other", 256, r#","alg":"RS512""#),
            rsa("sign", 256, r#","key_ops":["sign"]"#),
            r#"{"kty":"oct","kid":"oct","k":"AAAA"}"#.to_owned(),
            r#"{"kty":"EC","crv":"P-256","kid":"ec","x":"AA","y":"AA"}"#.to_owned(),
            rsa("../etc", 256, ""),
        ]);
        let keys = read(document.as_bytes(), SigningAlgorithm::Rs256).unwrap();
        assert_eq!(keys.keys().collect::<Vec<_>>(), ["good"]);
        assert_eq!(
            read(document.as_bytes(), SigningAlgorithm::Es256).unwrap_err(),
            KeySetError::Empty("ES256")
        );
    }

    #[test]
    fn short_keys_and_nonsense_are_refused() {
        let weak = set(&[rsa("weak", 255, "")]);
        assert_eq!(
            read(weak.as_bytes(), SigningAlgorithm::Rs256).unwrap_err(),
            KeySetError::Weak("weak".into())
        );
        let many = set(&vec![rsa("k", 256, ""); JWKS_KEYS_MAX + 1]);
        for text in ["", "[]", "{}", r#"{"keys":7}"#, &many, &" ".repeat(JWKS_BYTES_MAX + 1)] {
            let error = read(text.as_bytes(), SigningAlgorithm::Rs256).unwrap_err();
            assert_eq!(error, KeySetError::Syntax);
        }
    }

    #[test]
    fn when_to_fetch() {
        let mut keys = KeySet::new(SigningAlgorithm::Rs256);
        let document = set(&[rsa("k", 256, "")]);
        assert!(matches!(keys.find("k", 0), Lookup::Refresh));
        keys.failed(0);
        assert!(matches!(keys.find("k", 1), Lookup::Unavailable));
        assert!(matches!(keys.find("k", JWKS_RETRY_MS), Lookup::Refresh));

        let start = JWKS_RETRY_MS;
        keys.fetched(document.as_bytes(), start).unwrap();
        assert!(matches!(keys.find("k", start), Lookup::Key(_)));
        assert!(matches!(keys.find("x", start + 1), Lookup::Unknown));
        assert!(matches!(keys.find("x", start + JWKS_RETRY_MS), Lookup::Refresh));
        assert!(!keys.is_old(start + JWKS_FRESH_MS - 1));
        assert!(keys.is_old(start + JWKS_FRESH_MS));

        // An outage: old keys work for a day, and then nothing does.
        keys.failed(start + JWKS_STALE_MS - 1);
        assert!(matches!(keys.find("k", start + JWKS_STALE_MS - 1), Lookup::Key(_)));
        assert!(matches!(keys.find("k", start + JWKS_STALE_MS), Lookup::Unavailable));
        let mut by_hand = KeySet::new(SigningAlgorithm::Rs256);
        by_hand.installed(document.as_bytes()).unwrap();
        assert!(matches!(by_hand.find("k", u64::MAX), Lookup::Key(_)));
        assert!(matches!(by_hand.find("x", u64::MAX), Lookup::Unknown));
        assert!(!by_hand.is_old(u64::MAX));
        // A set that is no good does not replace one that is.
        assert!(keys.fetched(b"{}", start + 5).is_err());
        assert!(matches!(keys.find("k", start + 6), Lookup::Key(_)));
    }
}
