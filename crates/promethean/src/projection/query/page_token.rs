use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::filter::Value;
use super::list::ListQuery;
use crate::projection::view::View;

/// Bytes of a token, at most.
const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Where a page ended: the next one begins after it, whatever has come or gone meanwhile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PageToken {
    /// The sort value of the last document.
    #[serde(rename = "v")]
    pub(super) value: Value,
    /// Its key.
    #[serde(rename = "k")]
    pub(super) key: String,
    /// The query that the page belongs to.
    #[serde(rename = "q")]
    pub(super) query: u64,
}

/// Why a text is not the token of a page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PageTokenError {
    /// It is not one of ours, or not all of it.
    #[error("the page token is damaged; begin with the first page")]
    Damaged,
    /// Its query is another one.
    #[error("the page token belongs to another query; keep filters and sort order, or begin anew")]
    OtherQuery,
}

impl PageToken {
    /// Where a page of a query ended: with this key, sorted by this value.
    pub fn after(query: &ListQuery, view: &View, value: Value, key: &str) -> Self {
        Self { value, key: key.to_owned(), query: query.fingerprint(view) }
    }

    /// What the last document is sorted by.
    pub const fn value(&self) -> &Value {
        &self.value
    }

    /// Its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The token as text.
    pub fn encode(&self) -> String {
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        let sum = xxhash_rust::xxh3::xxh3_64(&bytes);
        bytes.extend_from_slice(&sum.to_be_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The token of a text.
    pub fn decode(text: &str) -> Result<Self, PageTokenError> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(PageTokenError::Damaged);
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| PageTokenError::Damaged)?;
        let (bytes, sum) = bytes.split_last_chunk::<8>().ok_or(PageTokenError::Damaged)?;
        if xxhash_rust::xxh3::xxh3_64(bytes) != u64::from_be_bytes(*sum) {
            return Err(PageTokenError::Damaged);
        }
        serde_json::from_slice(bytes).map_err(|_| PageTokenError::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_whole_or_not_at_all() {
        for value in [Value::Null, Value::Integer(-3), Value::Number(0.5), Value::Text("ü".into())]
        {
            let token = PageToken { value, key: "a\"b".into(), query: u64::MAX };
            let text = token.encode();
            assert_eq!(PageToken::decode(&text).unwrap(), token);
            for cut in 0..text.len() {
                assert!(PageToken::decode(&text[..cut]).is_err());
            }
        }
        assert!(PageToken::decode("$where").is_err());
        assert!(PageToken::decode(&"A".repeat(10_000)).is_err());
    }
}
