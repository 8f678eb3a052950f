use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::bus::Bus;
use crate::error::ConnectError;
use crate::limits::{CONNECT_MS, PUBLISH_MS};

/// How to reach a server. Ends with [`connect`](Self::connect).
#[derive(Debug, Clone)]
#[must_use = "nothing is connected unless this ends with `connect`"]
pub struct Connect {
    pub(crate) url: String,
    pub(crate) credential: Credential,
    pub(crate) trusted: Vec<PathBuf>,
    pub(crate) patience: Duration,
    pub(crate) publish_timeout: Duration,
}

type Give = Arc<dyn Fn() -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// Who the client is.
#[derive(Clone)]
pub(crate) enum Credential {
    None,
    Token(String),
    /// Read anew for each connection, so that it can be exchanged.
    File(PathBuf),
    Given(Give),
}

impl Connect {
    /// A server by its address, such as `ws://127.0.0.1:7766` or `https://bus.example`.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            credential: Credential::None,
            trusted: Vec::new(),
            patience: Duration::from_millis(CONNECT_MS),
            publish_timeout: Duration::from_millis(PUBLISH_MS),
        }
    }

    /// The server that `PROM_URL` names, or the usual one on this machine, with the token in
    /// `PROM_TOKEN_FILE` or `PROM_TOKEN`, trusting also whom `PROM_CA_FILE` names.
    pub fn from_env() -> Self {
        let named = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let url = named("PROM_URL");
        let mut connect = Self::new(url.as_deref().unwrap_or("ws://127.0.0.1:7766"));
        if let Some(token) = named("PROM_TOKEN") {
            connect = connect.token(token);
        }
        if let Some(file) = named("PROM_TOKEN_FILE") {
            connect = connect.token_file(file);
        }
        if let Some(file) = named("PROM_CA_FILE") {
            connect = connect.trust(file);
        }
        connect
    }

    /// With a token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.credential = Credential::Token(token.into());
        self
    }

    /// With the token in a file, which is read anew for each connection.
    pub fn token_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.credential = Credential::File(file.into());
        self
    }

    /// With tokens from somebody who gives them: asked for each connection, and again before one
    /// ends.
    pub fn token_from<F, Fut>(mut self, give: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.credential = Credential::Given(Arc::new(move || Box::pin(give())));
        self
    }

    /// Trusts, besides whom this machine trusts, the certificates in a PEM file.
    pub fn trust(mut self, file: impl Into<PathBuf>) -> Self {
        self.trusted.push(file.into());
        self
    }

    /// How long the first connection may take. Default: 10 s. Later ones are tried for ever.
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long a publish may take, with everything that is tried for it. Default: 30 s.
    pub const fn publish_timeout(mut self, timeout: Duration) -> Self {
        self.publish_timeout = timeout;
        self
    }

    /// Connects, and stays so until the last handle is gone, or it is closed.
    pub async fn connect(self) -> Result<Bus, ConnectError> {
        Bus::connected(self).await
    }
}

impl Credential {
    /// Whether the next one will be the same.
    pub(crate) const fn is_fixed(&self) -> bool {
        matches!(self, Self::None | Self::Token(_))
    }

    pub(crate) const fn is_there(&self) -> bool {
        !matches!(self, Self::None)
    }

    pub(crate) async fn get(&self) -> Result<Option<String>, ConnectError> {
        match self {
            Self::None => Ok(None),
            Self::Token(token) => Ok(Some(token.clone())),
            Self::File(path) => {
                // Small, and read seldom.
                let text = std::fs::read_to_string(path)
                    .map_err(|error| ConnectError::Token(format!("{}: {error}", path.display())))?;
                Ok(Some(text.trim().to_owned()))
            }
            Self::Given(give) => give().await.map(Some).map_err(ConnectError::Token),
        }
    }
}

/// Never shown.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_there() { "Credential(…)" } else { "None" })
    }
}
