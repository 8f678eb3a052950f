//! `prom serve`: a server for others. Closed unless told otherwise: without any credential set up
//! it makes one, and addresses that others can reach need TLS.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use promethean::embedded::{EmbeddedOptions, EmbeddedStore};
use promethean::{Bus, BusOptions};
use promethean_gateway::access::{
    Authenticator, JwtSettings, JwtVerifier, MintedToken, SigningAlgorithm, StoredToken,
    TokenTable, VerifyKeys,
};
use promethean_gateway::{
    Access, Rates, Server, ServerHandle, Settings, StartError, TlsFiles, Waived,
};

use super::Status;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where everything is kept.
    #[arg(long, value_name = "DIR", default_value = "data", env = "PROM_DATA_DIR")]
    data: PathBuf,
    /// Address and port to listen on; may be given several times [default: port 7766 of this
    /// machine only].
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<SocketAddr>,
    /// Static tokens, as JSON [default: tokens.json in the data directory, made with one token
    /// for an administrator if it is not there].
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Issuer of the JSON Web Tokens that are accepted.
    #[arg(long, value_name = "ISS", requires = "jwt_audience")]
    jwt_issuer: Option<String>,
    /// Audience that they must be for.
    #[arg(long, value_name = "AUD", requires = "jwt_issuer")]
    jwt_audience: Option<String>,
    /// Secret for HS256, 32 bytes at least.
    #[arg(long, value_name = "FILE", conflicts_with = "jwks")]
    jwt_secret_file: Option<PathBuf>,
    /// Key set of the issuer, for RS256 and ES256; read again on SIGHUP.
    #[arg(long, value_name = "FILE")]
    jwks: Option<PathBuf>,
    /// How the issuer signs with its key set.
    #[arg(long, value_name = "ALG", value_parser = ["RS256", "ES256"], default_value = "RS256")]
    jwt_algorithm: String,
    /// Certificate chain, as PEM; read again on SIGHUP.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Its private key, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let in whoever can reach the port, with every right.
    #[arg(long)]
    insecure_no_auth: bool,
    /// Speak plain text also where others can listen.
    #[arg(long)]
    insecure_no_tls: bool,
    /// Web origin that may connect, such as `https://app.example`; may be given several times.
    #[arg(long, value_name = "ORIGIN")]
    origin: Vec<String>,
    /// Name that the server goes by; may be given several times.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Do not limit how often clients publish.
    #[arg(long)]
    no_rate_limits: bool,
}

pub(crate) fn run(serve: &Serve, output: &Output) -> anyhow::Result<Status> {
    private_directory(&serve.data)?;
    let settings = settings(serve, output)?;
    if serve.insecure_no_auth {
        output.progress("warning: whoever can reach this server may do anything");
    }
    let store = open(&serve.data, output)?;
    let bus = move || Bus::with_store(store, BusOptions::default());
    start(output, settings, bus, serve.jwks.clone())
}

/// Opens the store of a data directory.
pub(super) fn open(data: &Path, output: &Output) -> anyhow::Result<Arc<EmbeddedStore>> {
    let (store, report) = EmbeddedStore::open(data, EmbeddedOptions::default())
        .with_context(|| format!("cannot open {}", data.display()))?;
    output.progress(&format!("{}: {} groups", data.display(), report.groups));
    Ok(Arc::new(store))
}

/// Serves until a signal comes. The bus is made inside of the runtime that drives it.
pub(super) fn start(
    output: &Output,
    settings: Settings,
    bus: impl FnOnce() -> Bus,
    jwks: Option<PathBuf>,
) -> anyhow::Result<Status> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let bus = bus();
        let server = match Server::bind(bus.clone(), settings).await {
            Ok(server) => server,
            Err(error @ StartError::Settings(_)) => {
                output.failure(&error.into());
                return Ok(Status::Misconfigured);
            }
            Err(error) => return Err(error.into()),
        };
        for address in server.addresses() {
            output.progress(&format!("listening on {address}"));
        }
        let handle = server.handle();
        let signals = tokio::spawn(signals(handle, jwks));
        server.run().await;
        signals.abort();
        bus.close().await;
        output.progress("stopped");
        Ok(Status::Done)
    })
}

/// SIGTERM and SIGINT stop the server, SIGHUP reads certificates and keys again.
async fn signals(handle: ServerHandle, jwks: Option<PathBuf>) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => handle.stop(),
            _ = interrupt.recv() => handle.stop(),
            _ = hangup.recv() => {
                if let Err(error) = handle.reload() {
                    let _ = writeln!(std::io::stderr(), "warning: the old certificate stays: {error}");
                }
                if let Some(Err(error)) = jwks.as_ref().map(|file| install(&handle, file)) {
                    let _ = writeln!(std::io::stderr(), "warning: the old key set stays: {error:#}");
                }
            }
        }
    }
}

fn install(handle: &ServerHandle, file: &Path) -> anyhow::Result<()> {
    Ok(handle.install_keys(&fs::read(file)?)?)
}

fn settings(serve: &Serve, output: &Output) -> anyhow::Result<Settings> {
    let access = if serve.insecure_no_auth {
        Access::Anonymous
    } else {
        Access::Required(Box::new(authenticator(serve, output)?))
    };
    let mut settings = Settings::local(access);
    if !serve.listen.is_empty() {
        settings.listen.clone_from(&serve.listen);
    }
    settings.tls = serve
        .tls_cert
        .clone()
        .zip(serve.tls_key.clone())
        .map(|(certificate, key)| TlsFiles { certificate, key });
    settings.waived = Waived { auth: serve.insecure_no_auth, tls: serve.insecure_no_tls };
    settings.origins.clone_from(&serve.origin);
    settings.hosts.clone_from(&serve.host);
    settings.rates = if serve.no_rate_limits { Rates::default() } else { Rates::cautious() };
    Ok(settings)
}

fn authenticator(serve: &Serve, output: &Output) -> anyhow::Result<Authenticator> {
    let file = serve.tokens.clone().unwrap_or_else(|| serve.data.join("tokens.json"));
    if serve.tokens.is_none() && serve.jwt_issuer.is_none() && !file.exists() {
        first_token(&serve.data, &file, output)?;
    }
    let stored: Vec<StoredToken> = if file.exists() {
        serde_json::from_slice(&secret_file(&file)?)
            .with_context(|| format!("{} is not a list of tokens", file.display()))?
    } else {
        Vec::new()
    };
    Ok(Authenticator::new(TokenTable::new(stored)?, jwt(serve)?, Vec::new()))
}

fn jwt(serve: &Serve) -> anyhow::Result<Option<JwtVerifier>> {
    let (Some(issuer), Some(audience)) = (serve.jwt_issuer.clone(), serve.jwt_audience.clone())
    else {
        return Ok(None);
    };
    let (keys, set) = match (&serve.jwt_secret_file, &serve.jwks) {
        (Some(file), _) => (VerifyKeys::Secret(secret_file(file)?.trim_ascii().to_vec()), None),
        (None, Some(file)) => {
            let algorithm = match serve.jwt_algorithm.as_str() {
                "ES256" => SigningAlgorithm::Es256,
                _ => SigningAlgorithm::Rs256,
            };
            (VerifyKeys::Set(algorithm), Some(fs::read(file)?))
        }
        (None, None) => bail!("--jwt-issuer needs --jwt-secret-file or --jwks"),
    };
    let verifier = JwtVerifier::new(JwtSettings { issuer, audience, keys })?;
    if let Some(document) = set {
        verifier.keys_installed(&document)?;
    }
    Ok(Some(verifier))
}

/// A server that nobody could use would be no safer: the first start leaves one token, in a file
/// that only its user can read.
fn first_token(data: &Path, file: &Path, output: &Output) -> anyhow::Result<()> {
    let scopes = ["admin:**", "publish:**", "subscribe:**"].map(str::to_owned).to_vec();
    let minted = MintedToken::mint("admin", scopes)?;
    write_private(file, &serde_json::to_vec_pretty(&[&minted.stored])?)?;
    let secret = data.join("admin.token");
    write_private(&secret, minted.secret.as_bytes())?;
    output.progress(&format!("the token of the administrator is in {}", secret.display()));
    Ok(())
}

/// Reads a file with secrets; one that others can read is refused.
fn secret_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    use std::os::unix::fs::PermissionsExt;
    let of = || format!("cannot read {}", path.display());
    let mode = fs::metadata(path).with_context(of)?.permissions().mode();
    if mode & 0o007 != 0 {
        bail!("{} can be read by others; chmod 600 it", path.display());
    }
    fs::read(path).with_context(of)
}

fn write_private(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    Ok(file.sync_all()?)
}

/// Makes a directory that is for this user only.
pub(super) fn private_directory(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if path.exists() {
        return Ok(());
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot make {}", path.display()))
}
