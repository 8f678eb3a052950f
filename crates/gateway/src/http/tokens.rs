//! Tokens that the store keeps for all hubs: made and taken back at any of them.

use axum::response::Response;
use futures_util::FutureExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use crate::access::{Action, MintedToken, Policy, StoredToken};
use crate::audit::About;
use crate::limits::BODY_BYTES_MAX;
use crate::rejection::{Code, Rejection};
use crate::token_store::{TokenStore, TokenStoreError};

pub(super) const ENDPOINTS: [Endpoint; 3] = [
    Endpoint {
        method: Verb::Get,
        path: "/tokens",
        guard: Guard::Server(Action::OpsRead),
        summary: "The tokens that the store keeps for all hubs, without their secrets.",
        query: &[],
        act: |call| list(call).boxed(),
    },
    Endpoint {
        method: Verb::Post,
        path: "/tokens",
        guard: Guard::Server(Action::OpsAdmin),
        summary: "Makes a token that allows no more than the caller may do; its secret is in the \
                  answer, and kept nowhere.",
        query: &[],
        act: |call| mint(call).boxed(),
    },
    Endpoint {
        method: Verb::Delete,
        path: "/tokens/{token}",
        guard: Guard::Server(Action::OpsAdmin),
        summary: "Takes a token back; every hub forgets it within seconds.",
        query: &[],
        act: |call| revoke(call).boxed(),
    },
];

/// A token to make.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    subject: String,
    scopes: Vec<String>,
    #[serde(default)]
    ttl_ms: Option<u64>,
}

/// Where hubs share one store, it keeps the tokens. A server alone has them in a file.
fn tokens(call: &Call) -> Result<TokenStore, Rejection> {
    let store = call.edge.bus.store();
    if store.claims().is_none() {
        let detail = "the tokens of this server are in a file: use prom token on its machine";
        return Err(Rejection::new(Code::BadRequest, detail));
    }
    Ok(TokenStore::new(std::sync::Arc::clone(store)))
}

fn shown(token: &StoredToken, now_ms: u64) -> Value {
    let StoredToken { id, subject, scopes, expires_at_ms, .. } = token;
    json!({
        "id": id, "subject": subject, "scopes": scopes, "expires_at_ms": expires_at_ms,
        "expired": expires_at_ms.is_some_and(|end| end <= now_ms),
    })
}

async fn list(call: Call) -> Result<Response, Rejection> {
    let now = call.edge.clock.now_ms();
    let found = tokens(&call)?.list().await?;
    let found: Vec<Value> = found.iter().map(|token| shown(token, now)).collect();
    answer::json(200, &json!({ "tokens": found }))
}

async fn mint(mut call: Call) -> Result<Response, Rejection> {
    let tokens = tokens(&call)?;
    let body = call.body(BODY_BYTES_MAX).await?;
    let bad = |detail: String| Rejection::new(Code::BadRequest, detail);
    let wish: Wish = serde_json::from_slice(&body).map_err(|error| bad(error.to_string()))?;
    let policy = Policy::of_scopes(wish.scopes.iter().map(String::as_str));
    let policy = policy.map_err(|error| bad(error.to_string()))?;
    if policy.is_empty() {
        return Err(bad("these scopes allow nothing".to_owned()));
    }
    if !call.principal.policy().includes(&policy) {
        let detail = "a token cannot allow more than the one that makes it";
        return Err(Rejection::new(Code::Forbidden, detail));
    }
    let now = call.edge.clock.now_ms();
    let minted = MintedToken::mint(&wish.subject, wish.scopes);
    let mut minted = minted.map_err(|error| bad(error.to_string()))?;
    minted.stored.expires_at_ms = wish.ttl_ms.map(|ttl| now.saturating_add(ttl));
    tokens.add(&minted.stored).await?;
    let mut answered = shown(&minted.stored, now);
    let about = About(answered.clone());
    if let Some(fields) = answered.as_object_mut() {
        fields.insert("secret".to_owned(), minted.secret.into());
    }
    let mut response = answer::json(201, &answered)?;
    response.extensions_mut().insert(about);
    Ok(response)
}

async fn revoke(call: Call) -> Result<Response, Rejection> {
    let id: String = call.param("token")?;
    match tokens(&call)?.remove(&id).await? {
        Some(token) => {
            let shown = shown(&token, call.edge.clock.now_ms());
            let mut response = answer::json(200, &shown)?;
            response.extensions_mut().insert(About(shown));
            Ok(response)
        }
        None => Err(Rejection::new(Code::NotFound, format!("there is no token {id}"))),
    }
}

impl From<TokenStoreError> for Rejection {
    fn from(error: TokenStoreError) -> Self {
        match error {
            TokenStoreError::Read(error) => error.into(),
            TokenStoreError::Save(error) => error.into(),
            other => Self::new(Code::Internal, other.to_string()),
        }
    }
}
