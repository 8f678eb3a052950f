//! The JSON inside a token, read without mercy: each member once, each of its own type.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::limits::{CLOCK_SKEW_MAX_S, SUBJECT_BYTES_MAX, TOKEN_LIFE_MAX_S};

/// A JSON object in which no member is there twice: two readers could see two tokens.
#[derive(Debug)]
pub(super) struct Members(BTreeMap<String, Value>);

impl Members {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub(super) fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.0.contains_key(*name))
    }

    /// A text member. `Ok(None)` if it is not there, an error if it is something else.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, ()> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(()),
        }
    }

    /// Whole seconds. A text or a fraction is an error, never "not there" (CVE-2026-25537).
    fn seconds(&self, name: &str) -> Result<Option<u64>, ()> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or(()),
        }
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Once;
        impl<'de> Visitor<'de> for Once {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = BTreeMap::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if members.insert(name, value).is_some() {
                        return Err(serde::de::Error::custom("a member is there twice"));
                    }
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Once)
    }
}

/// What a token says, checked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claims {
    pub(super) subject: String,
    pub(super) scopes: Vec<String>,
    pub(super) expires_at_s: u64,
}

/// Checks the claims of a token whose signature is good. The error is for our logs.
pub(super) fn check(
    claims: &Members,
    issuer: &str,
    audience: &str,
    now_s: u64,
) -> Result<Claims, &'static str> {
    if claims.text("iss") != Ok(Some(issuer)) {
        return Err("iss is not ours");
    }
    if !is_for(claims.get("aud"), audience) {
        return Err("aud is not ours");
    }
    let expires_at_s = match claims.seconds("exp") {
        Ok(Some(exp)) if exp <= now_s => return Err("exp has passed"),
        Ok(Some(exp)) if exp > now_s.saturating_add(TOKEN_LIFE_MAX_S) => {
            return Err("exp is too far ahead");
        }
        Ok(Some(exp)) => exp,
        Ok(None) => return Err("exp is missing"),
        Err(()) => return Err("exp is not a whole number"),
    };
    match claims.seconds("nbf") {
        Ok(Some(nbf)) if nbf > now_s => return Err("nbf has not come"),
        Ok(_) => {}
        Err(()) => return Err("nbf is not a whole number"),
    }
    match claims.seconds("iat") {
        Ok(Some(iat)) if iat > now_s.saturating_add(CLOCK_SKEW_MAX_S) => {
            return Err("iat lies ahead");
        }
        Ok(_) => {}
        Err(()) => return Err("iat is not a whole number"),
    }
    let subject = match claims.text("sub") {
        Ok(Some(sub)) if (1..=SUBJECT_BYTES_MAX).contains(&sub.len()) => sub.to_owned(),
        _ => return Err("sub is missing or not a short text"),
    };
    Ok(Claims { subject, scopes: scopes(claims)?, expires_at_s })
}

/// Ours alone, or ours among others; anything but texts in the list is refused.
fn is_for(aud: Option<&Value>, audience: &str) -> bool {
    match aud {
        Some(Value::String(one)) => one == audience,
        Some(Value::Array(list)) => {
            list.iter().all(Value::is_string) && list.iter().any(|one| one == audience)
        }
        _ => false,
    }
}

/// `scope`, a text of words (RFC 8693), or `scopes`, a list. None at all allows nothing.
fn scopes(claims: &Members) -> Result<Vec<String>, &'static str> {
    match (claims.get("scope"), claims.get("scopes")) {
        (None, None) => Ok(Vec::new()),
        (Some(Value::String(words)), None) => {
            Ok(words.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect())
        }
        (None, Some(Value::Array(list))) => list
            .iter()
            .map(|one| one.as_str().map(str::to_owned).ok_or("a scope is not a text"))
            .collect(),
        (Some(_), Some(_)) => Err("scope and scopes are both there"),
        _ => Err("scopes are not texts"),
    }
}
