use std::collections::HashMap;
use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::policy::{Policy, PolicyError};
use super::principal::Principal;

const PREFIX: &str = "prom_";
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;

/// A static token as it is kept: its secret only as a hash. The secret is 256 random bits, so one
/// round of SHA-256 is enough; there is nothing to guess.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredToken {
    /// What names it, in lists and logs: hexadecimal.
    pub id: String,
    /// The SHA-256 of the secret: hexadecimal.
    pub sha256: String,
    /// Who it stands for.
    pub subject: String,
    /// What it allows.
    pub scopes: Vec<String>,
    /// When it ends, in epoch milliseconds. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at_ms: Option<u64>,
}

/// A token at the one moment at which its secret is known.
pub struct MintedToken {
    /// What the client presents. Not to be logged.
    pub secret: String,
    /// What the server keeps.
    pub stored: StoredToken,
}

impl fmt::Debug for MintedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MintedToken").field("stored", &self.stored).finish_non_exhaustive()
    }
}

/// Why static tokens are refused as configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenTableError {
    /// An id or hash that is not hexadecimal of its length.
    #[error("token {0:?}: id needs 16 and sha256 needs 64 hexadecimal digits")]
    Hex(String),
    /// The same id twice.
    #[error("token {0:?} is there twice")]
    Repeated(String),
    /// Scopes that are malformed.
    #[error("token {id:?}: {source}")]
    Policy {
        /// The token.
        id: String,
        /// What is wrong.
        source: PolicyError,
    },
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

impl MintedToken {
    /// A new token.
    pub fn mint(subject: &str, scopes: Vec<String>) -> Result<Self, TokenTableError> {
        let mut random = [0; ID_BYTES + SECRET_BYTES];
        SystemRandom::new().fill(&mut random).map_err(|_| TokenTableError::Random)?;
        let (id, secret) = random.split_at(ID_BYTES);
        let (id, secret) = (hex(id), hex(secret));
        let stored = StoredToken {
            sha256: hex(digest(&SHA256, secret.as_bytes()).as_ref()),
            subject: subject.to_owned(),
            scopes,
            expires_at_ms: None,
            id: id.clone(),
        };
        Ok(Self { secret: format!("{PREFIX}{id}_{secret}"), stored })
    }
}

/// Static tokens, ready to be compared.
#[derive(Debug, Default)]
pub struct TokenTable {
    tokens: HashMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    sha256: [u8; 32],
    principal: Principal,
}

impl TokenTable {
    /// Checks and takes tokens.
    pub fn new(tokens: impl IntoIterator<Item = StoredToken>) -> Result<Self, TokenTableError> {
        let mut table = HashMap::new();
        for token in tokens {
            let hash = unhex::<32>(&token.sha256);
            let (Some(sha256), Some(_)) = (hash, unhex::<ID_BYTES>(&token.id)) else {
                return Err(TokenTableError::Hex(token.id));
            };
            let policy = Policy::of_scopes(token.scopes.iter().map(String::as_str))
                .map_err(|source| TokenTableError::Policy { id: token.id.clone(), source })?;
            let principal = Principal::new(&token.subject, policy, token.expires_at_ms);
            // Another secret is another token, whatever its id.
            let name = format!("{}:{}", token.id, token.sha256);
            let principal = principal.by_token(&name);
            if table.insert(token.id.clone(), Entry { sha256, principal }).is_some() {
                return Err(TokenTableError::Repeated(token.id));
            }
        }
        Ok(Self { tokens: table })
    }

    /// The ids of tokens that are not in another table, in any order.
    pub(super) fn without(&self, other: &Self) -> Vec<String> {
        self.tokens.keys().filter(|id| !other.tokens.contains_key(*id)).cloned().collect()
    }

    /// Who has the token of this name, if it was not taken back.
    pub(super) fn named(&self, name: &str) -> Option<Principal> {
        let (id, _) = name.split_once(':')?;
        let principal = &self.tokens.get(id)?.principal;
        (principal.token() == Some(name)).then(|| principal.clone())
    }

    /// Whether a credential looks like one of ours, so that it is not tried as anything else.
    pub fn claims(credential: &str) -> bool {
        credential.starts_with(PREFIX)
    }

    /// Whose it is. An unknown id costs the same work as a known one.
    pub fn verify(&self, credential: &str) -> Option<Principal> {
        let rest = credential.strip_prefix(PREFIX)?;
        let (id, secret) = rest.split_once('_').unwrap_or((rest, ""));
        let entry = self.tokens.get(id);
        let given = digest(&SHA256, secret.as_bytes());
        let kept = entry.map_or([0; 32], |entry| entry.sha256);
        let equal = verify_slices_are_equal(given.as_ref(), &kept).is_ok();
        entry.filter(|_| equal).map(|entry| entry.principal.clone())
    }
}

/// Bytes as people read and compare them.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        text
    })
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_accepted() {
        let minted = MintedToken::mint("ann", vec!["publish:a".into()]).unwrap();
        let table = TokenTable::new([minted.stored.clone()]).unwrap();
        assert_eq!(table.verify(&minted.secret).unwrap().subject(), "ann");
        let mut last = minted.secret.clone();
        let end = last.pop().unwrap();
        assert!(table.verify(&last).is_none());
        last.push(if end == '0' { '1' } else { '0' });
        assert!(table.verify(&last).is_none());
        let upper = minted.secret.to_uppercase();
        for wrong in ["", "prom_", "prom__", &minted.stored.id, &upper, &minted.stored.sha256] {
            assert!(table.verify(wrong).is_none(), "{wrong}");
        }
        let hash = format!("prom_{}_{}", minted.stored.id, minted.stored.sha256);
        assert!(table.verify(&hash).is_none());
    }

    /// An id that is not there is compared with zeroes, which must not be a password.
    #[test]
    fn unknown_ids_have_no_secret() {
        let table = TokenTable::default();
        assert!(table.verify(&format!("prom_{}_{}", "0".repeat(16), "0".repeat(64))).is_none());
    }

    #[test]
    fn secrets_are_not_printed() {
        let minted = MintedToken::mint("ann", vec![]).unwrap();
        let secret = minted.secret.rsplit('_').next().unwrap();
        assert!(!format!("{minted:?}").contains(secret));
        assert!(!serde_json::to_string(&minted.stored).unwrap().contains(secret));
    }

    #[test]
    fn bad_tables_are_refused() {
        let good = MintedToken::mint("ann", vec![]).unwrap().stored;
        let bad = |change: fn(&mut StoredToken)| {
            let mut token = good.clone();
            change(&mut token);
            TokenTable::new([token])
        };
        assert!(matches!(bad(|t| t.sha256.truncate(10)), Err(TokenTableError::Hex(_))));
        assert!(matches!(bad(|t| t.id = "ann".into()), Err(TokenTableError::Hex(_))));
        assert!(matches!(
            bad(|t| t.scopes = vec!["publish".into()]),
            Err(TokenTableError::Policy { .. })
        ));
        assert!(matches!(
            TokenTable::new([good.clone(), good.clone()]),
            Err(TokenTableError::Repeated(_))
        ));
    }
}
