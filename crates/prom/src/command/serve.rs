//! `prom serve`: a server for others. Closed unless told otherwise: without any credential set up
//! it makes one, and addresses that others can reach need TLS.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use promethean_gateway::access::{
    Authenticator, JwtSettings, JwtVerifier, MintedToken, RuleTemplate, SigningAlgorithm,
    VerifyKeys,
};
use promethean_gateway::{Access, KeySource, Rates, Settings, TlsFiles, Waived};

use super::Status;
use super::credentials::EVERYTHING;
use super::place::{self, StoreFlags};
use super::server::{self, Hosting, OnStorageError, Reload, Time};
use crate::failure::Failure;
use crate::logging::{self, LogFlags};
use crate::manifest::{AuthMode, Document, Manifest, StoreKind};
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The manifest; flags win over it [default: prom.toml of this directory, if it is there].
    #[arg(long, short = 'f', value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where everything is kept [default: data].
    #[arg(long, value_name = "DIR", env = "PROM_DATA_DIR")]
    data: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlags,
    /// Address and port to listen on; may be given several times [default: port 7766 of this
    /// machine only].
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<SocketAddr>,
    /// Address and port for administration, metrics and details of health, which are then not
    /// where clients are; may be given several times [default: with everything else].
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Vec<SocketAddr>,
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
    #[arg(long, value_name = "FILE", conflicts_with_all = ["jwks", "jwks_url"])]
    jwt_secret_file: Option<PathBuf>,
    /// File with the key set of the issuer, for RS256 and ES256; read again on SIGHUP.
    #[arg(long, value_name = "FILE", conflicts_with = "jwks_url")]
    jwks: Option<PathBuf>,
    /// Address that the key set is fetched from, `https` only.
    #[arg(long, value_name = "URL")]
    jwks_url: Option<String>,
    /// Certificates to trust there, as PEM [default: those of this machine].
    #[arg(long, value_name = "FILE", requires = "jwks_url")]
    jwks_ca: Option<PathBuf>,
    /// Fetch the key set also from an address inside of a network.
    #[arg(long, requires = "jwks_url")]
    jwks_inside: bool,
    /// How the issuer signs with its key set [default: RS256].
    #[arg(long, value_name = "ALG", value_parser = ["RS256", "ES256"])]
    jwt_algorithm: Option<String>,
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
    /// What to do when a write to the disk has failed.
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    on_storage_error: OnStorageError,
    #[command(flatten)]
    log: LogFlags,
    /// The manifest lets everybody in, which is for this machine only.
    #[arg(skip)]
    is_open: bool,
    /// Scopes of everybody, which only the manifest says.
    #[arg(skip)]
    rules: Vec<String>,
}

pub(crate) fn run(mut serve: Serve, output: &Output) -> anyhow::Result<Status> {
    let _logging = logging::start(serve.log, logging::Level::Info);
    let manifest = super::server::manifest(serve.config.as_deref())?;
    if let Some(manifest) = &manifest {
        serve.complete(manifest);
    }
    let mongodb = place::mongodb(&serve.store, manifest.as_ref())?;
    let data = serve.data.clone().unwrap_or_else(|| PathBuf::from("data"));
    super::private_directory(&data)?;
    let tokens = serve.tokens.clone().unwrap_or_else(|| data.join("tokens.json"));
    // Tokens of hubs that share a store are in it; those of a server alone are in its file.
    let is_shared = mongodb.is_some();
    let is_open = serve.insecure_no_auth || serve.is_open;
    let has_others = serve.tokens.is_some() || serve.jwt_issuer.is_some();
    let makes_first = is_shared && !is_open && !has_others;
    let mut settings = settings(&serve, (&data, &tokens, is_shared), output)?;
    if let Some(manifest) = &manifest {
        super::server::complete(&mut settings, manifest);
    }
    if is_shared {
        settings.audit.chain = Some(super::audit::chain(&data)?);
    }
    if serve.insecure_no_auth {
        output.progress("warning: whoever can reach this server may do anything");
    }
    let declared = manifest.as_ref().is_some_and(|found| !found.document.topic.is_empty());
    let kind = manifest.as_ref().and_then(|found| found.document.store.kind);
    let in_memory = kind == Some(StoreKind::Memory);
    let hosting = Hosting {
        settings,
        // What is kept in memory leaves nothing behind but who may come in.
        data: Some(data).filter(|_| !in_memory || mongodb.is_some()),
        mongodb,
        reload: Reload { jwks: serve.jwks.clone(), tokens: Some(tokens), makes_first },
        demo: false,
        options: super::server::options(manifest.as_ref(), declared),
        banner: Box::new(|_, _| concat!("Promethean ", env!("CARGO_PKG_VERSION")).to_owned()),
        manifest,
        watch: false,
        on_storage_error: serve.on_storage_error,
        time: Time::Real,
    };
    server::start(output, hosting)
}

impl Serve {
    /// Fills in from a manifest what was not said on the command line.
    fn complete(&mut self, manifest: &Manifest) {
        let Document { server, store, auth, .. } = &manifest.document;
        let file = |given: &mut Option<PathBuf>, said: &Option<PathBuf>| {
            if given.is_none() {
                *given = said.as_ref().map(|path| manifest.resolve(path));
            }
        };
        file(&mut self.data, &store.path);
        file(&mut self.tokens, &auth.tokens);
        file(&mut self.tls_cert, &server.tls_cert);
        file(&mut self.tls_key, &server.tls_key);
        if self.listen.is_empty() {
            let said = server.listen.iter().flat_map(|listen| listen.all());
            self.listen = said.filter_map(|address| address.parse().ok()).collect();
        }
        if self.admin_listen.is_empty() {
            let said = server.admin.iter().flat_map(|admin| admin.all());
            self.admin_listen = said.filter_map(|address| address.parse().ok()).collect();
        }
        if self.origin.is_empty() {
            self.origin.clone_from(&server.origins);
        }
        if self.host.is_empty() {
            self.host.clone_from(&server.hosts);
        }
        self.insecure_no_tls |= server.insecure_no_tls;
        self.no_rate_limits |= server.rate_limits == Some(false);
        self.is_open = auth.mode == Some(AuthMode::Off);
        self.rules.clone_from(&auth.rules);
        if let (Some(AuthMode::Jwt), Some(jwt), None) = (auth.mode, &auth.jwt, &self.jwt_issuer) {
            self.jwt_issuer = Some(jwt.issuer.clone());
            self.jwt_audience = Some(jwt.audience.clone());
            file(&mut self.jwt_secret_file, &jwt.secret_file);
            file(&mut self.jwks, &jwt.jwks);
            file(&mut self.jwks_ca, &jwt.jwks_ca);
            self.jwks_url = self.jwks_url.take().or_else(|| jwt.jwks_url.clone());
            self.jwks_inside |= jwt.jwks_inside;
            self.jwt_algorithm = self.jwt_algorithm.take().or_else(|| jwt.algorithm.clone());
        }
    }
}

fn settings(
    serve: &Serve,
    (data, tokens, is_shared): (&Path, &Path, bool),
    output: &Output,
) -> anyhow::Result<Settings> {
    let access = if serve.insecure_no_auth || serve.is_open {
        Access::Anonymous
    } else {
        Access::Required(Box::new(authenticator(serve, (data, tokens, is_shared), output)?))
    };
    let mut settings = Settings::local(access);
    if !serve.listen.is_empty() {
        settings.listen.clone_from(&serve.listen);
    }
    settings.admin.clone_from(&serve.admin_listen);
    settings.tls = serve
        .tls_cert
        .clone()
        .zip(serve.tls_key.clone())
        .map(|(certificate, key)| TlsFiles { certificate, key });
    if let (Some(address), Some(_)) = (&serve.jwks_url, &serve.jwt_issuer) {
        let source = KeySource::new(address, serve.jwks_ca.as_deref())
            .map_err(|error| Failure::new(Status::Misconfigured, error.to_string()))?;
        settings.key_source = Some(source.inside(serve.jwks_inside));
    }
    settings.waived = Waived { auth: serve.insecure_no_auth, tls: serve.insecure_no_tls };
    settings.origins.clone_from(&serve.origin);
    settings.hosts.clone_from(&serve.host);
    settings.rates = if serve.no_rate_limits { Rates::default() } else { Rates::cautious() };
    Ok(settings)
}

fn authenticator(
    serve: &Serve,
    (data, file, is_shared): (&Path, &Path, bool),
    output: &Output,
) -> anyhow::Result<Authenticator> {
    if !is_shared && serve.tokens.is_none() && serve.jwt_issuer.is_none() && !file.exists() {
        first_token(data, file, output)?;
    }
    Ok(Authenticator::new(server::read_tokens(file)?, jwt(serve)?, rules(&serve.rules)?))
}

/// What everybody may or may not, besides what a token says.
fn rules(scopes: &[String]) -> anyhow::Result<Vec<RuleTemplate>> {
    let read = scopes.iter().map(|scope| RuleTemplate::read(scope));
    let rules = read.collect::<Result<_, _>>();
    rules
        .map_err(|error| Failure::new(Status::Misconfigured, format!("auth.rules: {error}")).into())
}

/// Static tokens only, with a first one if there is none.
pub(super) fn own_tokens(
    (data, file): (&Path, &Path),
    scopes: &[String],
    output: &Output,
) -> anyhow::Result<Access> {
    if !file.exists() {
        first_token(data, file, output)?;
    }
    let tokens = server::read_tokens(file)?;
    Ok(Access::Required(Box::new(Authenticator::new(tokens, None, rules(scopes)?))))
}

fn jwt(serve: &Serve) -> anyhow::Result<Option<JwtVerifier>> {
    let (Some(issuer), Some(audience)) = (serve.jwt_issuer.clone(), serve.jwt_audience.clone())
    else {
        return Ok(None);
    };
    let algorithm = match serve.jwt_algorithm.as_deref() {
        Some("ES256") => SigningAlgorithm::Es256,
        _ => SigningAlgorithm::Rs256,
    };
    let (keys, set) = match (&serve.jwt_secret_file, &serve.jwks, &serve.jwks_url) {
        (Some(file), None, None) => {
            (VerifyKeys::Secret(super::secret_file(file)?.trim_ascii().to_vec()), None)
        }
        (None, Some(file), None) => (VerifyKeys::Set(algorithm), Some(fs::read(file)?)),
        (None, None, Some(_)) => (VerifyKeys::Set(algorithm), None),
        _ => {
            let what = "--jwt-issuer needs one of --jwt-secret-file, --jwks and --jwks-url";
            return Err(Failure::new(Status::Misconfigured, what).into());
        }
    };
    let verifier = JwtVerifier::new(JwtSettings { issuer, audience, keys })
        .map_err(|error| Failure::new(Status::Misconfigured, error.to_string()))?;
    if let Some(document) = set {
        verifier.keys_installed(&document)?;
    }
    Ok(Some(verifier))
}

/// A server that nobody could use would be no safer: the first start leaves one token, in a file
/// that only its user can read.
fn first_token(data: &Path, file: &Path, output: &Output) -> anyhow::Result<()> {
    let scopes = EVERYTHING.map(str::to_owned).to_vec();
    let minted = MintedToken::mint("admin", scopes)?;
    super::write_private(file, &serde_json::to_vec_pretty(&[&minted.stored])?)?;
    let secret = data.join("admin.token");
    super::write_private(&secret, minted.secret.as_bytes())?;
    output.progress(&format!("the token of the administrator is in {}", secret.display()));
    Ok(())
}
