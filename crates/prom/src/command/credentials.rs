//! The static tokens that a server lets in: those of its file, and those of the store that it shares
//! with other hubs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use promethean_gateway::access::{MintedToken, StoredToken, TokenTable};
use promethean_gateway::{ServerHandle, TokenStore};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::kept_tokens::of_file;
use crate::output::Output;

/// Tokens are looked at so often: nobody has to say that one was made or revoked.
const LOOK: Duration = Duration::from_secs(1);

/// What an administrator may do.
pub(super) const EVERYTHING: [&str; 3] = ["admin:**", "publish:**", "subscribe:**"];

/// Where the tokens of a server are.
#[derive(Debug, Clone)]
pub(super) struct Credentials {
    file: PathBuf,
    store: Option<TokenStore>,
    /// Somebody wants them read now.
    wanted: Arc<Notify>,
}

impl Credentials {
    pub(super) fn new(file: PathBuf, store: Option<TokenStore>) -> Self {
        Self { file, store, wanted: Arc::default() }
    }

    /// Has them read at once.
    pub(super) fn ring(&self) {
        self.wanted.notify_one();
    }

    /// All of them. One that is in the file and in the store is that of the store.
    async fn all(&self) -> anyhow::Result<Vec<StoredToken>> {
        let mut all = match &self.store {
            Some(store) => store.list().await?,
            None => Vec::new(),
        };
        for token in of_file(&self.file)? {
            if !all.iter().any(|known| known.id == token.id) {
                all.push(token);
            }
        }
        Ok(all)
    }

    /// Where hubs share a store that has no tokens yet, the first of them leaves one there, and its
    /// secret in its own directory: a server that nobody could use would be no safer.
    pub(super) async fn begin(&self, data: &Path, output: &Output) -> anyhow::Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        if !self.all().await?.is_empty() {
            return Ok(());
        }
        let minted = MintedToken::mint("admin", EVERYTHING.map(str::to_owned).to_vec())?;
        let secret = data.join("admin.token");
        // First of all: a token whose secret nobody got would be of no use.
        super::write_private(&secret, minted.secret.as_bytes())?;
        if store.add_first(&minted.stored).await? {
            output.progress(&format!("the token of the administrator is in {}", secret.display()));
        } else {
            std::fs::remove_file(&secret)?;
            output.progress("another hub has made the token of the administrator");
        }
        Ok(())
    }

    /// Lets a server have them, unless they are those that it has.
    async fn install(
        &self,
        handle: &ServerHandle,
        seen: Option<Vec<StoredToken>>,
    ) -> anyhow::Result<Vec<StoredToken>> {
        let all = self.all().await?;
        if seen.as_ref() != Some(&all) {
            handle.install_tokens(TokenTable::new(all.clone())?);
        }
        Ok(all)
    }

    /// Lets a server have them now, and whenever they have changed from then on.
    pub(super) async fn start(self, handle: ServerHandle) -> anyhow::Result<JoinHandle<()>> {
        let seen = self.install(&handle, None).await?;
        Ok(tokio::spawn(self.follow(handle, Some(seen))))
    }

    /// Those that the server has stay while others cannot be read.
    async fn follow(self, handle: ServerHandle, mut seen: Option<Vec<StoredToken>>) {
        let mut ticks = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.wanted.notified() => {}
            }
            match self.install(&handle, seen.clone()).await {
                Ok(all) => seen = Some(all),
                Err(error) => super::server::kept("tokens", &error),
            }
        }
    }
}
