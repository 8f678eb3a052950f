//! `prom dev`: a server for one's own machine, open to whoever sits at it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use promethean_gateway::{Access, Bounds, PORT, Settings};

use super::Status;
use super::server::{self, Hosting, OnStorageError, Reload, Time};
use crate::failure::Failure;
use crate::logging::{self, LogFlags};
use crate::manifest::{Manifest, StoreKind};
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// The manifest [default: prom.toml of this directory, if it is there].
    #[arg(long, short = 'f', value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where everything is kept [default: nowhere, it is gone when the server stops].
    #[arg(long, value_name = "DIR", env = "PROM_DATA_DIR")]
    data: Option<PathBuf>,
    /// Port of this machine to listen on; 0 for any that is free [default: 7766].
    #[arg(long)]
    port: Option<u16>,
    /// Port of this machine for administration, metrics and details of health, which are then not
    /// at the other one [default: with everything else].
    #[arg(long, value_name = "PORT")]
    admin_port: Option<u16>,
    /// Let this machine's processes send heartbeats, and a projector tell who is alive.
    #[arg(long)]
    demo: bool,
    /// Let in only who has a token, as `prom serve` does. The first one is made, and kept in a
    /// file that only this user can read.
    #[arg(long)]
    auth: bool,
    /// For tests: a line `advance MILLISECONDS` on standard input lets so much time go by at once,
    /// and is answered by `advanced MILLISECONDS` on standard output.
    #[arg(long, conflicts_with_all = ["demo", "data"])]
    test_clock: bool,
    /// Web origin whose pages may connect, such as `http://localhost:5173`; may be given several
    /// times [default: none but its own].
    #[arg(long, value_name = "ORIGIN")]
    origin: Vec<String>,
    #[command(flatten)]
    log: LogFlags,
}

pub(crate) fn run(dev: &Dev, output: &Output) -> anyhow::Result<Status> {
    let _logging = logging::start(dev.log, logging::Level::Warn);
    let manifest = server::manifest(dev.config.as_deref())?;
    let mut settings = Settings::local(Access::Anonymous);
    if dev.test_clock {
        settings.bounds = unhurried(settings.bounds);
    }
    settings.listen = vec![address(dev, manifest.as_ref())];
    settings.admin = admin_address(dev, manifest.as_ref()).into_iter().collect();
    settings.origins.clone_from(&dev.origin);
    let mut data = dev.data.clone();
    if let Some(manifest) = &manifest {
        if dev.origin.is_empty() {
            settings.origins.clone_from(&manifest.document.server.origins);
        }
        server::complete(&mut settings, manifest);
        let store = &manifest.document.store;
        if store.kind == Some(StoreKind::Mongodb) {
            let what = "prom dev keeps everything on this machine, and the manifest says MongoDB";
            let hint = "use: prom serve";
            return Err(Failure::new(Status::Misconfigured, what).hint(hint).into());
        }
        let kept = store.path.as_ref().filter(|_| store.kind != Some(StoreKind::Memory));
        data = data.or_else(|| kept.map(|path| manifest.resolve(path)));
    }
    let mut reload = Reload::default();
    let mut auth = ("off, this machine only".to_owned(), "turn on: prom dev --auth");
    let mut token = None;
    // What is kept nowhere has its token in a directory that goes when the server does.
    let mut scratch = None;
    if dev.auth {
        let folder = match &data {
            Some(data) => data.clone(),
            None => scratch.insert(Scratch::make()?).0.clone(),
        };
        super::private_directory(&folder)?;
        let file = folder.join("tokens.json");
        let rules = manifest.as_ref().map_or(&[][..], |found| &found.document.auth.rules);
        settings.access = super::serve::own_tokens((&folder, &file), rules, output)?;
        let secret = folder.join("admin.token");
        auth = (format!("on, with the token in {}", secret.display()), "");
        token = Some(secret);
        reload.tokens = Some(file);
    }
    let described = Described {
        storage: storage(data.as_deref()),
        auth,
        token,
        manifest: manifest.as_ref().map(Manifest::summary),
        demo: dev.demo,
    };
    let hosting = Hosting {
        settings,
        data,
        mongodb: None,
        reload,
        demo: dev.demo,
        options: server::options(manifest.as_ref(), false),
        banner: Box::new(move |addresses, admin| banner(addresses, admin, &described)),
        manifest,
        watch: true,
        on_storage_error: OnStorageError::default(),
        time: if dev.test_clock { Time::Told } else { Time::Real },
    };
    let done = server::start(output, hosting);
    drop(scratch);
    done
}

/// Where everything is kept, and how to have it otherwise.
fn storage(data: Option<&Path>) -> (String, &'static str) {
    match data {
        None => (
            "memory - everything is lost on exit".to_owned(),
            "keep it: prom dev --data ./prom-data",
        ),
        Some(data) => (data.display().to_string(), ""),
    }
}

/// Time that is told may go by in leaps: nobody is late for it. Stopping is by the real one.
const fn unhurried(bounds: Bounds) -> Bounds {
    const LONG: Duration = Duration::from_secs(400 * 24 * 60 * 60);
    Bounds {
        handshake: LONG,
        head: LONG,
        body_idle: LONG,
        body: LONG,
        auth: LONG,
        ping: LONG,
        idle: LONG,
        stalled: LONG,
        farewell: LONG,
        ..bounds
    }
}

/// A directory that is removed with this.
struct Scratch(PathBuf);

impl Scratch {
    fn make() -> anyhow::Result<Self> {
        let name = format!("prom-dev-{}", promethean_event::EventId::generate());
        let path = std::env::temp_dir().join(name);
        super::private_directory(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Port of this machine only: whoever reaches it may do anything.
fn address(dev: &Dev, manifest: Option<&Manifest>) -> SocketAddr {
    let said = manifest.and_then(|manifest| manifest.document.server.listen.as_ref());
    let said = said.and_then(|listen| listen.all().first()?.parse::<SocketAddr>().ok());
    let port = dev.port.or_else(|| said.map(|address| address.port())).unwrap_or(PORT);
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// The same for administration, if it is to have its own.
fn admin_address(dev: &Dev, manifest: Option<&Manifest>) -> Option<SocketAddr> {
    let said = manifest.and_then(|found| found.document.server.admin.as_ref());
    let said = said.and_then(|said| said.all().first()?.parse::<SocketAddr>().ok());
    let port = dev.admin_port.or_else(|| said.map(|address| address.port()))?;
    Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
}

/// What a banner says.
struct Described {
    /// What it is, and how to have it otherwise.
    storage: (String, &'static str),
    auth: (String, &'static str),
    /// File with the token that clients need.
    token: Option<PathBuf>,
    manifest: Option<String>,
    demo: bool,
}

fn banner(addresses: &[SocketAddr], admin: &[SocketAddr], described: &Described) -> String {
    let Described { storage, auth, token, manifest, demo } = described;
    let Some(address) = addresses.first() else {
        return String::new();
    };
    let mut flag = String::new();
    if address.port() != PORT {
        flag.push_str(&format!(" --url http://{address}"));
    }
    if let Some(admin) = admin.first() {
        flag.push_str(&format!(" --admin-url http://{admin}"));
    }
    if let Some(token) = token {
        flag.push_str(&format!(" --token-file {}", token.display()));
    }
    let row = |name: &str, what: &str, aside: &str| {
        let aside = if aside.is_empty() { String::new() } else { format!("({aside})") };
        format!("  {name:<13} {what:<36}  {aside}").trim_end().to_owned()
    };
    let mut lines = vec![
        format!("Promethean {}", env!("CARGO_PKG_VERSION")),
        row("HTTP API", &format!("http://{address}"), "OpenAPI: /openapi.json"),
        row("WebSocket", &format!("ws://{address}/ws"), ""),
        row("Metrics", &format!("http://{}/metrics", admin.first().unwrap_or(address)), ""),
        row("Storage", &storage.0, storage.1),
        row("Auth", &auth.0, auth.1),
    ];
    lines.extend(manifest.as_ref().map(|found| row("Manifest", found, "watching for changes")));
    if *demo {
        let path = "heartbeat.received -> process.state -> views processes, host_stats";
        lines.push(row("Demo", path, ""));
    }
    let beat = r#"'{"pid":1,"name":"stt","host":"dev","cpu_pct":3,"mem_mb":90}'"#;
    lines.extend([String::new(), "Try:".to_owned()]);
    lines.push(format!("  prom pub heartbeat.received {beat}{flag}"));
    let (watched, last) = match demo {
        true => ("'process.**'", "prom at now processes dev:stt:1"),
        false => ("'heartbeat.**' --since 1m", "prom topic ls"),
    };
    lines.push(format!("  prom tail {watched}{flag}"));
    lines.push(format!("  {last}{flag}\n"));
    lines.join("\n")
}
