//! Where the bus is: a server, or a data directory that this process opens itself. Commands ask
//! both the same questions, over the same resources.

mod ask;

mod remote;

mod here;

mod context;

mod stream;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use promethean_gateway::PORT;
use serde::de::DeserializeOwned;

use ask::Asked;
pub(crate) use ask::{Answer, Ask, segment};
pub(crate) use context::{Context, Contexts};
pub(crate) use here::{Here, announce, taken};
use remote::{Remote, Way};
pub(crate) use stream::{EventStream, Streamed, TextLines};

use crate::failure::Failure;
use crate::times;

/// Where the bus is.
#[derive(Debug, Clone, Args)]
pub(crate) struct At {
    /// Server to talk to [default: that of the context, or this machine's port 7766] [env: PROM_URL].
    #[arg(long, value_name = "URL", conflicts_with = "data", help_heading = "Where the bus is")]
    url: Option<String>,
    /// Where its administration is, if it has an address of its own [default: that of the context]
    /// [env: PROM_ADMIN_URL].
    #[arg(long, value_name = "URL", conflicts_with = "data", help_heading = "Where the bus is")]
    admin_url: Option<String>,
    /// Data directory to use directly, while no server runs on it.
    #[arg(long, value_name = "DIR", help_heading = "Where the bus is")]
    data: Option<PathBuf>,
    /// File with the token to show [env: PROM_TOKEN_FILE, or the token itself in PROM_TOKEN].
    #[arg(long, value_name = "FILE", help_heading = "Where the bus is")]
    token_file: Option<PathBuf>,
    /// Context to take server and token from; see `prom ctx` [env: PROM_CONTEXT].
    #[arg(long, value_name = "NAME", help_heading = "Where the bus is")]
    context: Option<String>,
    /// How long a server may take to answer.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = times::duration,
        help_heading = "Where the bus is")]
    timeout: Duration,
}

/// What to do if the data directory is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Make,
    Refuse,
}

/// A bus that can be asked.
#[derive(Debug)]
pub(crate) enum Reach {
    Here(Box<Here>),
    There(Box<Remote>),
}

impl At {
    /// A server by its address, with the token that the environment names.
    pub(crate) fn of_url(url: &str) -> Self {
        let timeout = Duration::from_secs(30);
        let url = Some(url.to_owned());
        Self { url, admin_url: None, data: None, token_file: None, context: None, timeout }
    }

    /// The same with another token.
    pub(crate) fn with_token_file(self, token_file: Option<PathBuf>) -> Self {
        Self { token_file, ..self }
    }

    pub(crate) async fn open(&self, missing: Missing) -> anyhow::Result<Reach> {
        if let Some(data) = &self.data {
            return Ok(Reach::Here(Box::new(Here::open(data, missing).await?)));
        }
        let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let contexts = Contexts::read()?;
        let named = self.context.clone().or_else(|| env("PROM_CONTEXT"));
        // The environment's two addresses belong together: a token is not shown to one server
        // because another was named.
        let from_env = || env("PROM_URL").filter(|_| named.is_none());
        let (url, admin) = match self.url.clone() {
            Some(url) => (Some(url), None),
            None => (from_env(), from_env().and_then(|_| env("PROM_ADMIN_URL"))),
        };
        let context = match url {
            Some(_) => None,
            None => contexts.chosen(named.as_deref())?,
        };
        let token_file = self
            .token_file
            .clone()
            .or_else(|| env("PROM_TOKEN_FILE").map(PathBuf::from))
            .or_else(|| context.and_then(|context| context.token_file.clone()));
        let token = match token_file {
            Some(file) => Some(remote::read_token(&file)?),
            None => env("PROM_TOKEN"),
        };
        let admin = self.admin_url.clone().or(admin);
        let admin = admin.or_else(|| context.and_then(|context| context.admin_url.clone()));
        let url = url.or_else(|| context.map(|context| context.url.clone()));
        let url = url.unwrap_or_else(|| format!("http://127.0.0.1:{PORT}"));
        let is_protected = context.is_some_and(|context| context.protected);
        let way = Way { said: self.said(), is_protected };
        let remote = Remote::new(&url, token, self.timeout, way)?.with_admin(admin.as_deref())?;
        Ok(Reach::There(Box::new(remote)))
    }

    /// What was said of the server, as flags: another `prom` has to be told the same. What the
    /// environment and the current context say, they say to that one, too.
    fn said(&self) -> String {
        let file = self.token_file.as_ref().map(|file| file.display().to_string());
        let said = [
            ("--url", &self.url),
            ("--admin-url", &self.admin_url),
            ("--context", &self.context),
            ("--token-file", &file),
        ];
        said.into_iter()
            .filter_map(|(name, value)| Some(format!(" {name} {}", value.as_ref()?)))
            .collect()
    }
}

impl At {
    /// The same with views, causes and jobs, which a data directory opens only if they are wanted.
    pub(crate) async fn open_workshop(&self) -> anyhow::Result<Reach> {
        match &self.data {
            Some(data) => Ok(Reach::Here(Box::new(Here::open_workshop(data).await?))),
            None => self.open(Missing::Refuse).await,
        }
    }
}

/// Whether a text can be the address of a server.
pub(crate) fn check_url(url: &str) -> Result<(), Failure> {
    Remote::new(url, None, Duration::ZERO, Way::default()).map(drop)
}

impl Reach {
    /// A bus that this process has already; `name` is what to call it.
    pub(crate) async fn over(bus: promethean::Bus, name: &std::path::Path) -> Self {
        Self::Here(Box::new(Here::over(bus, name).await))
    }

    /// Asks, and gives the answer whatever it is.
    async fn answer(&self, ask: Ask) -> anyhow::Result<Answer> {
        match self {
            Self::Here(here) => here.ask(ask).await,
            Self::There(remote) => remote.ask(ask).await,
        }
    }

    fn refusal(asked: Option<Asked>, status: u16, body: &[u8]) -> Failure {
        match asked {
            Some(asked) => ask::refusal_of(asked, status, body),
            None => ask::refusal(status, body),
        }
    }

    /// Of what kind a question to a server is.
    fn asked(&self, ask: &Ask) -> Option<Asked> {
        match self {
            Self::Here(_) => None,
            Self::There(remote) => Some(remote.asked(ask)),
        }
    }

    /// Asks for something that is there whole; a refusal is a failure.
    pub(crate) async fn json<T: DeserializeOwned>(&self, ask: Ask) -> anyhow::Result<T> {
        let asked = self.asked(&ask);
        let answer = self.answer(ask).await?;
        let status = answer.status;
        let (body, connection) = answer.whole().await?;
        if let (Self::There(remote), Some(asked), Some(connection)) = (self, asked, connection) {
            remote.keep(asked, connection).await;
        }
        if status >= 400 {
            return Err(Self::refusal(asked, status, &body).into());
        }
        serde_json::from_slice(&body).map_err(|error| {
            let what = format!("{} does not answer as Promethean does: {error}", self.place());
            Failure::new(crate::command::Status::Unreachable, what).into()
        })
    }

    /// Asks for something that comes in pieces.
    pub(crate) async fn stream(&self, ask: Ask) -> anyhow::Result<Answer> {
        let asked = self.asked(&ask);
        let answer = self.answer(ask).await?;
        if answer.status < 400 {
            return Ok(answer);
        }
        let status = answer.status;
        let (body, _) = answer.whole().await?;
        Err(Self::refusal(asked, status, &body).into())
    }

    /// What to call it.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Here(here) => here.directory().display().to_string(),
            Self::There(remote) => remote.url().to_owned(),
        }
    }

    /// How to name it to another `prom`.
    pub(crate) fn flag(&self) -> String {
        match self {
            Self::Here(here) => format!(" --data {}", here.directory().display()),
            Self::There(remote) => remote.way().said.clone(),
        }
    }

    /// Whether its context says to ask twice.
    pub(crate) fn is_protected(&self) -> bool {
        matches!(self, Self::There(remote) if remote.way().is_protected)
    }

    /// Lets go of it; what was decided is durable.
    pub(crate) async fn close(self) {
        if let Self::Here(here) = self {
            here.close().await;
        }
    }
}
