//! Where tokens are kept: in a file of one server, in a store that hubs share, or behind a server that
//! is asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use promethean::store::Store;
use promethean_gateway::TokenStore;
use promethean_gateway::access::{MintedToken, StoredToken, TokenTable};
use serde::Deserialize;
use serde_json::json;

use super::moved;
use super::place::{self, StoreFlags};
use crate::reach::{Ask, At, Missing, Reach, segment};

/// Where tokens are kept.
#[derive(Debug, Args)]
pub(super) struct Kept {
    /// Data directory of the server.
    #[arg(long, value_name = "DIR", default_value = "data", env = "PROM_DATA_DIR")]
    data: PathBuf,
    /// File of the tokens [default: tokens.json in the data directory].
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlags,
}

/// The same, or a server that knows.
#[derive(Debug, Args)]
pub(super) struct KeptAnywhere {
    #[command(flatten)]
    kept: Kept,
    /// Server to ask, any of those that share a MongoDB: tokens are kept there, for all of them.
    #[arg(long, value_name = "URL", conflicts_with = "tokens")]
    url: Option<String>,
    /// File with the token to show to that server [env: PROM_TOKEN_FILE, or the token itself in
    /// PROM_TOKEN].
    #[arg(long, value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
}

/// The same, ready to be asked.
pub(super) enum Keeping {
    File(PathBuf),
    Store(TokenStore, Arc<dyn Store>),
    Server(Reach),
}

/// A token as a server shows it.
#[derive(Debug, Deserialize)]
struct Listed {
    tokens: Vec<Told>,
}

/// A token without its hash.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Told {
    pub(super) id: String,
    pub(super) subject: String,
    pub(super) scopes: Vec<String>,
    pub(super) expires_at_ms: Option<u64>,
    #[serde(default)]
    pub(super) secret: Option<String>,
}

impl From<StoredToken> for Told {
    fn from(token: StoredToken) -> Self {
        let StoredToken { id, subject, scopes, expires_at_ms, .. } = token;
        Self { id, subject, scopes, expires_at_ms, secret: None }
    }
}

impl Kept {
    /// The file, where tokens are in one.
    pub(super) fn path(&self) -> PathBuf {
        self.tokens.clone().unwrap_or_else(|| self.data.join("tokens.json"))
    }

    async fn open(&self) -> anyhow::Result<Keeping> {
        match place::mongodb(&self.store, None)? {
            Some(url) if self.tokens.is_none() => {
                let store: Arc<dyn Store> = place::open(&url).await?;
                if let Err(moved) = moved::refuse(&*store).await {
                    store.close().await;
                    return Err(moved);
                }
                Ok(Keeping::Store(TokenStore::new(Arc::clone(&store)), store))
            }
            _ => Ok(Keeping::File(self.path())),
        }
    }

    /// All of them, with the hashes of their secrets.
    pub(super) async fn read(&self) -> anyhow::Result<Vec<StoredToken>> {
        let keeping = self.open().await?;
        let tokens = match &keeping {
            Keeping::Store(tokens, _) => tokens.list().await?,
            _ => of_file(&self.path())?,
        };
        keeping.close().await;
        Ok(tokens)
    }
}

impl KeptAnywhere {
    pub(super) async fn open(&self) -> anyhow::Result<Keeping> {
        let Some(url) = &self.url else { return self.kept.open().await };
        let at = At::of_url(url).with_token_file(self.token_file.clone());
        Ok(Keeping::Server(at.open(Missing::Refuse).await?))
    }
}

impl Keeping {
    pub(super) async fn list(&self) -> anyhow::Result<Vec<Told>> {
        Ok(match self {
            Self::File(path) => of_file(path)?.into_iter().map(Into::into).collect(),
            Self::Store(tokens, _) => tokens.list().await?.into_iter().map(Into::into).collect(),
            Self::Server(server) => server.json::<Listed>(Ask::get("/tokens")).await?.tokens,
        })
    }

    /// Keeps a new token. A server makes one of its own, and tells its secret.
    pub(super) async fn mint(
        &self,
        minted: MintedToken,
        ttl_ms: Option<u64>,
    ) -> anyhow::Result<Told> {
        let secret = Some(minted.secret.clone());
        match self {
            Self::File(path) => {
                let mut tokens = of_file(path)?;
                tokens.push(minted.stored.clone());
                write_file(path, &tokens)?;
            }
            Self::Store(tokens, _) => tokens.add(&minted.stored).await?,
            Self::Server(server) => {
                let StoredToken { subject, scopes, .. } = minted.stored;
                let wish = json!({ "subject": subject, "scopes": scopes, "ttl_ms": ttl_ms });
                return server.json(Ask::post("/tokens").json(&wish)).await;
            }
        }
        Ok(Told { secret, ..minted.stored.into() })
    }

    pub(super) async fn revoke(&self, id: &str) -> anyhow::Result<()> {
        match self {
            Self::File(path) => {
                let mut tokens = of_file(path)?;
                tokens.retain(|token| token.id != id);
                write_file(path, &tokens)?;
            }
            Self::Store(tokens, _) => drop(tokens.remove(id).await?),
            Self::Server(server) => {
                let ask = Ask::delete(format!("/tokens/{}", segment(id)));
                drop(server.json::<serde_json::Value>(ask).await?);
            }
        }
        Ok(())
    }

    /// Until when those who look have heard of a change.
    pub(super) const fn heard(&self) -> &'static str {
        match self {
            Self::File(_) => "a running server",
            Self::Store(..) | Self::Server(_) => "every hub",
        }
    }

    pub(super) async fn close(self) {
        match self {
            Self::Store(_, store) => store.close().await,
            Self::Server(server) => server.close().await,
            Self::File(_) => {}
        }
    }
}

/// The tokens of a file; none if it is not there.
pub(super) fn of_file(path: &Path) -> anyhow::Result<Vec<StoredToken>> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = super::secret_file(path)?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{} is not a list of tokens", path.display()))
}

/// Written beside and moved, so that a server never reads half of it.
pub(super) fn write_file(path: &Path, tokens: &[StoredToken]) -> anyhow::Result<()> {
    TokenTable::new(tokens.iter().cloned())?;
    let folder = path.parent().unwrap_or(Path::new(""));
    super::private_directory(folder)?;
    let beside = path.with_extension("new");
    if beside.exists() {
        fs::remove_file(&beside)?;
    }
    super::write_private(&beside, &serde_json::to_vec_pretty(tokens)?)?;
    fs::rename(&beside, path).with_context(|| format!("cannot write {}", path.display()))
}
