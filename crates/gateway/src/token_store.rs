//! Tokens that a store keeps, for all hubs that use it: made and taken back at any of them.

use std::sync::Arc;

use promethean::store::{Put, ReadError, SaveError, Store};
use promethean_event::{Key, Payload};

use crate::access::StoredToken;

/// Where tokens are kept.
const SPACE: &str = "tokens";
/// Where it is kept that the first one was made.
const FIRST_SPACE: &str = "edge";
const FIRST_KEY: &str = "first-token";

/// Why tokens could not be read or kept.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TokenStoreError {
    /// One is not as it is written.
    #[error("token {0} cannot be read: {1}")]
    Malformed(String, String),
    /// There is one of that id.
    #[error("there is a token {0} already")]
    Taken(String),
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store could not keep it.
    #[error(transparent)]
    Save(SaveError),
}

/// The tokens of a store. A cheap handle.
#[derive(Debug, Clone)]
pub struct TokenStore(Arc<dyn Store>);

impl TokenStore {
    /// The tokens of a store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self(store)
    }

    /// All of them, by id.
    pub async fn list(&self) -> Result<Vec<StoredToken>, TokenStoreError> {
        let entries = self.0.entries(SPACE).await?;
        let read = |entry: promethean::store::Entry| {
            serde_json::from_str(entry.value.as_str()).map_err(|error| {
                TokenStoreError::Malformed(entry.key.as_str().to_owned(), error.to_string())
            })
        };
        entries.into_iter().map(read).collect()
    }

    /// Keeps a new token.
    pub async fn add(&self, token: &StoredToken) -> Result<(), TokenStoreError> {
        match self.0.put(vec![put(token, Some(0))?]).await {
            Err(SaveError::Changed { .. }) => Err(TokenStoreError::Taken(token.id.clone())),
            other => other.map_err(TokenStoreError::Save),
        }
    }

    /// Keeps tokens as they are, whether they were there or not.
    pub async fn take_over(&self, tokens: &[StoredToken]) -> Result<(), TokenStoreError> {
        let puts = tokens.iter().map(|token| put(token, None)).collect::<Result<Vec<_>, _>>()?;
        self.0.put(puts).await.map_err(TokenStoreError::Save)
    }

    /// Keeps the first token of a store, for whoever is first; false for all others.
    pub async fn add_first(&self, token: &StoredToken) -> Result<bool, TokenStoreError> {
        let made = Payload::of(&token.id).map_err(|error| malformed(token, error))?;
        let key = Key::new(FIRST_KEY).map_err(|error| malformed(token, error))?;
        let first = Put { space: FIRST_SPACE, key, value: Some(made), expect: Some(0) };
        match self.0.put(vec![first, put(token, Some(0))?]).await {
            Err(SaveError::Changed { .. }) => Ok(false),
            other => other.map(|()| true).map_err(TokenStoreError::Save),
        }
    }

    /// Takes a token back; gives it, if it was there.
    pub async fn remove(&self, id: &str) -> Result<Option<StoredToken>, TokenStoreError> {
        let Some(token) = self.list().await?.into_iter().find(|token| token.id == id) else {
            return Ok(None);
        };
        let removal = Put { value: None, ..put(&token, None)? };
        self.0.put(vec![removal]).await.map_err(TokenStoreError::Save)?;
        Ok(Some(token))
    }
}

fn put(token: &StoredToken, expect: Option<u64>) -> Result<Put, TokenStoreError> {
    let key = Key::new(token.id.as_str()).map_err(|error| malformed(token, error))?;
    let value = Payload::of(token).map_err(|error| malformed(token, error))?;
    Ok(Put { space: SPACE, key, value: Some(value), expect })
}

fn malformed(token: &StoredToken, error: impl std::fmt::Display) -> TokenStoreError {
    TokenStoreError::Malformed(token.id.clone(), error.to_string())
}
