//! Serving until a signal comes: what `prom dev` and `prom serve` have in common.

use std::convert::Infallible;
use std::fs;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use promethean::embedded::{EmbeddedOptions, EmbeddedStore, OpenError};
use promethean::jobs::{JOB_LEASE, Jobs};
use promethean::memory::MemoryStore;
use promethean::projection::view_store::ViewStore;
use promethean::{Bus, BusOptions, UnknownTopics};
use promethean_event::Topic;
use promethean_gateway::access::{StoredToken, TokenTable};
use promethean_gateway::audit::Retention;
use promethean_gateway::quota::Rate;
use promethean_gateway::{Rates, Server, ServerHandle, Settings, StartError, TokenStore};
use tokio::task::JoinHandle;

use super::credentials::Credentials;
use super::{Status, apply};
use crate::demo::Demo;
use crate::failure::Failure;
use crate::feeding::Feeding;
use crate::manifest::{Document, Manifest, Plan, RatesTable, Severity, modified};
use crate::output::Output;
use crate::reach::{Reach, announce, taken};
use crate::shelf::{self, Workshop};
use crate::told_time;

/// What to tell a person once the server listens.
/// Its addresses, and those of administration if it has its own.
pub(super) type Banner = Box<dyn FnOnce(&[SocketAddr], &[SocketAddr]) -> String>;

/// What is to be served.
pub(super) struct Hosting {
    pub(super) settings: Settings,
    /// Where everything is kept; nowhere if it is not said.
    pub(super) data: Option<PathBuf>,
    /// The MongoDB that hubs share, if that is where.
    pub(super) mongodb: Option<String>,
    pub(super) reload: Reload,
    pub(super) demo: bool,
    pub(super) options: BusOptions,
    /// What to tell a person once it listens.
    pub(super) banner: Banner,
    /// Topics and groups that are to be there.
    pub(super) manifest: Option<Manifest>,
    /// Whether the manifest is read again when it changes.
    pub(super) watch: bool,
    pub(super) on_storage_error: OnStorageError,
    pub(super) time: Time,
}

/// By which clock it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Time {
    /// That of the machine.
    Real,
    /// One that a test moves.
    Told,
}

/// What a server does when a write or a sync has failed. Nothing is written any more in any case:
/// what the disk has then is only known after it was read anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OnStorageError {
    /// Ends with a failure, so that whoever looks after it starts it again.
    #[default]
    Exit,
    /// Goes on answering those who read.
    Readonly,
}

/// What is read again on SIGHUP, besides the certificate; tokens also when they have changed.
#[derive(Debug, Default)]
pub(super) struct Reload {
    /// Key set of the issuer.
    pub(super) jwks: Option<PathBuf>,
    /// Static tokens.
    pub(super) tokens: Option<PathBuf>,
    /// Whether the store that hubs share is to have a first one.
    pub(super) makes_first: bool,
}

/// The manifest that was named, or that of this directory; one with errors is refused.
pub(super) fn manifest(named: Option<&Path>) -> anyhow::Result<Option<Manifest>> {
    let Some(manifest) = Manifest::find(named).map_err(Failure::from)? else {
        return Ok(None);
    };
    let errors = manifest.check().into_iter().find(|found| found.severity == Severity::Error);
    match errors {
        None => Ok(Some(manifest)),
        Some(found) => {
            let what = format!("{}: {}: {}", manifest.path.display(), found.at, found.problem);
            let hint = "see everything with: prom check config";
            Err(Failure::new(Status::Misconfigured, what).hint(hint).into())
        }
    }
}

/// What a manifest says about any server.
pub(super) fn complete(settings: &mut Settings, manifest: &Manifest) {
    let document = &manifest.document;
    if let Some(time) = document.server.drain_timeout {
        settings.bounds.drain = Duration::from_millis(time.0);
    }
    if let Some(time) = document.server.audit_retention {
        settings.audit.retention = Retention::Millis(time.0);
    }
    if let Some(max) = document.server.connections_per_subject {
        settings.bounds.connections_per_subject = max;
        // Who says it means those behind a proxy on this machine, too.
        settings.bounds.connections_per_local_subject = Some(max);
    }
    if let Some(count) = document.server.auth_failures_per_minute {
        // None of zero: everybody is refused after the first one.
        settings.rates.auth_failures = Rate::per_minute(count.max(1)).ok();
    }
    set_rates(&mut settings.rates, &document.server.rates);
    for (name, table) in &document.topic {
        let wanted = table.durability.or(document.defaults.topic.durability);
        if let (Ok(topic), Some(wanted)) = (Topic::new(name), wanted) {
            settings.durabilities.insert(topic, wanted.into());
        }
    }
}

/// The rates that a manifest says; the others stay.
fn set_rates(rates: &mut Rates, said: &RatesTable) {
    // None of zero: those are refused when the manifest is checked.
    for (rate, said) in [
        (&mut rates.connection, said.publish_per_connection),
        (&mut rates.principal, said.publish_per_subject),
        (&mut rates.topic, said.publish_per_topic),
    ] {
        *rate = said.and_then(|count| Rate::of_publishing(count).ok()).or(*rate);
    }
    for (rate, said) in [
        (&mut rates.delivery.connection, said.deliver_per_connection),
        (&mut rates.delivery.principal, said.deliver_per_subject),
        (&mut rates.delivery.topic, said.deliver_per_topic),
    ] {
        *rate = said.and_then(|count| Rate::per_second(count).ok()).or(*rate);
    }
}

/// Topics and groups that clients may make, unless told otherwise: each costs memory for ever.
const NAMES_MAX: usize = 1_000;

/// How the bus works, as a manifest says.
pub(super) fn options(manifest: Option<&Manifest>, refuse: bool) -> BusOptions {
    let said = manifest.and_then(|manifest| manifest.document.server.unknown_topics);
    let refuse = said.map_or(refuse, |said| said == crate::manifest::UnknownTopics::Refuse);
    let said = manifest.map(|manifest| &manifest.document.server);
    let most = |said: Option<usize>| said.unwrap_or(NAMES_MAX);
    let mut options = BusOptions::default()
        .topics_max(most(said.and_then(|server| server.topics_max)))
        .groups_max(most(said.and_then(|server| server.groups_max)));
    if let Some(lease) = manifest.and_then(|manifest| manifest.document.store.hub_lease) {
        options = options.hub_lease(Duration::from_millis(lease.0));
    }
    if refuse { options.unknown_topics(UnknownTopics::Refuse) } else { options }
}

/// Static tokens of a file; none if it is not there.
pub(super) fn read_tokens(file: &Path) -> anyhow::Result<TokenTable> {
    if !file.exists() {
        return Ok(TokenTable::default());
    }
    let stored: Vec<StoredToken> = serde_json::from_slice(&super::secret_file(file)?)
        .with_context(|| format!("{} is not a list of tokens", file.display()))?;
    Ok(TokenTable::new(stored)?)
}

/// Serves until a signal comes. The bus is made inside of the runtime that drives it.
pub(super) fn start(output: &Output, hosting: Hosting) -> anyhow::Result<Status> {
    raise_file_limit();
    // What is made from here on, by libraries too, is for nobody else, whatever folder it is in.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let store = match &hosting.data {
        Some(data) if hosting.mongodb.is_none() => {
            super::private_directory(data)?;
            Some(open(data)?)
        }
        _ => None,
    };
    let time = hosting.time;
    let work = async move {
        let mut views = None;
        let bus = match (store, &hosting.mongodb, time) {
            (_, Some(url), _) => {
                let store = super::place::open(url).await?;
                views = Some(super::place::views(&store).await? as Arc<dyn ViewStore>);
                Bus::with_store(store, hosting.options.clone())
            }
            (Some(store), None, _) => Bus::with_store(store, hosting.options.clone()),
            (None, None, Time::Real) => {
                Bus::with_store(Arc::new(MemoryStore::new()), hosting.options.clone())
            }
            (None, None, Time::Told) => Bus::with_store(
                Arc::new(MemoryStore::with_runtime_clock()),
                hosting.options.clone(),
            ),
        };
        let served = match super::moved::refuse(&**bus.store()).await {
            Ok(()) => match workshop(&hosting, &bus, views).await {
                Ok(workshop) => Box::pin(serve(output, hosting, &bus, workshop)).await,
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        bus.close().await;
        served
    };
    match time {
        Time::Real => super::block_on(work),
        Time::Told => told_time::block_on(work),
    }
}

/// Views, causes and jobs, as the manifest and the demo have them.
async fn workshop(
    hosting: &Hosting,
    bus: &Bus,
    views: Option<Arc<dyn ViewStore>>,
) -> anyhow::Result<Workshop> {
    let mut workshop = Workshop::open(bus, hosting.data.as_deref(), views).await?;
    match &hosting.manifest {
        Some(manifest) => workshop.follow(&manifest.document).await?,
        None => workshop.follow(&Document::default()).await?,
    }
    if hosting.demo {
        workshop.start_demo().await?;
    }
    // Where there are several hubs, another one may be at them: silent ones are taken over.
    if bus.store().claims().is_none() {
        workshop.resume_jobs().await?;
    }
    Ok(workshop)
}

async fn serve(
    output: &Output,
    mut hosting: Hosting,
    bus: &Bus,
    workshop: Workshop,
) -> anyhow::Result<Status> {
    let is_secure = hosting.settings.tls.is_some();
    hosting.settings.shelf = workshop.shelf();
    let shelf_jobs = hosting.settings.shelf.jobs.clone();
    let said = hosting.manifest.as_ref().and_then(|found| found.document.store.hub_lease);
    let job_lease = said.map_or(JOB_LEASE, |lease| Duration::from_millis(lease.0) * 3);
    let workshop: shelf::Shared = Arc::new(tokio::sync::Mutex::new(workshop));
    let server = match Server::bind(bus.clone(), hosting.settings).await {
        Ok(server) => server,
        Err(error @ StartError::Settings(_)) => {
            return Err(Failure::new(Status::Misconfigured, error.to_string()).into());
        }
        Err(StartError::Listen { address, source }) => {
            let what = format!("cannot listen on {address}: {source}");
            let hint = "is another server running? choose another port, or 0 for any that is free";
            return Err(Failure::new(Status::Failed, what).hint(hint).into());
        }
        Err(error) => return Err(error.into()),
    };
    let (addresses, admin) = (server.addresses(), server.admin_addresses());
    let reload = (&mut hosting.reload, hosting.data.as_deref());
    let tokens = follow_tokens(output, reload, bus, server.handle()).await?;
    let (credentials, following) = tokens.unzip();
    let note = match (&hosting.data, addresses.first()) {
        (Some(data), Some(address)) => {
            Some(announce(data, (*address, admin.first().copied()), is_secure)?)
        }
        _ => None,
    };
    if let Some(manifest) = &hosting.manifest {
        follow_manifest(output, manifest, bus).await?;
    }
    let feeding = Feeding::start(bus);
    let demo = if hosting.demo { Some(Demo::start(bus).await?) } else { None };
    output.progress(&(hosting.banner)(&addresses, &admin));
    if !std::io::stderr().is_terminal() {
        // What programs that start a server wait for.
        for address in &admin {
            output.progress(&format!("administration on {address}"));
        }
        for address in &addresses {
            output.progress(&format!("listening on {address}"));
        }
    }
    let reload = (hosting.reload, credentials);
    let signals = tokio::spawn(signals(server.handle(), reload, hosting.time));
    let watched = hosting.manifest.as_ref().filter(|_| hosting.watch);
    let ended = tokio::select! {
        () = server.run() => Ok(Status::Done),
        never = watch(output, watched, bus, &workshop) => match never {},
        failure = failed(bus), if hosting.on_storage_error == OnStorageError::Exit => Err(failure),
        moved = super::moved::wait(bus) => Err(moved),
        never = attend_jobs(shelf_jobs.as_ref(), job_lease) => match never {},
    };
    signals.abort();
    if let Some(following) = following {
        following.abort();
    }
    feeding.stop().await;
    if let Some(demo) = demo {
        demo.stop().await;
    }
    if let Some(workshop) = Arc::into_inner(workshop) {
        workshop.into_inner().stop().await;
    }
    drop(note);
    output.progress("stopped");
    ended
}

/// Lets the server have its static tokens, now and whenever they have changed.
async fn follow_tokens(
    output: &Output,
    reload: (&mut Reload, Option<&Path>),
    bus: &Bus,
    handle: ServerHandle,
) -> anyhow::Result<Option<(Credentials, JoinHandle<()>)>> {
    let (reload, data) = reload;
    let Some(file) = reload.tokens.take() else { return Ok(None) };
    let shared = bus.store().claims().is_some().then(|| TokenStore::new(Arc::clone(bus.store())));
    let credentials = Credentials::new(file, shared);
    if let (Some(data), true) = (data, reload.makes_first) {
        credentials.begin(data, output).await?;
    }
    let following = credentials.clone().start(handle).await?;
    Ok(Some((credentials, following)))
}

/// Goes on with jobs of hubs that are gone.
async fn attend_jobs(jobs: Option<&Jobs>, lease: Duration) -> Infallible {
    match jobs {
        Some(jobs) => jobs.attend(lease).await,
        None => std::future::pending().await,
    }
}

/// Waits until nothing can be written any more, and a little longer: those who wrote hear of it.
async fn failed(bus: &Bus) -> anyhow::Error {
    let mut ticks = tokio::time::interval(STORE_LOOK);
    let reason = loop {
        ticks.tick().await;
        if let Some(reason) = bus.store().failure() {
            break reason;
        }
    };
    ticks.tick().await;
    let hint = "look at the disk, then start the server again: what was answered is there";
    Failure::new(Status::Failed, format!("nothing can be stored any more: {reason}"))
        .hint(hint)
        .into()
}

/// The store is looked at so often.
const STORE_LOOK: Duration = Duration::from_millis(500);

/// As many connections as there may be need more files than a process usually may open. If it may
/// not have more, it serves fewer.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// A manifest is looked at so often.
const LOOK: Duration = Duration::from_secs(1);

/// Follows a manifest whenever its file has changed. A broken one changes nothing.
async fn watch(
    output: &Output,
    manifest: Option<&Manifest>,
    bus: &Bus,
    workshop: &shelf::Shared,
) -> Infallible {
    let Some(manifest) = manifest else {
        return std::future::pending().await;
    };
    let mut seen = manifest.modified;
    let mut ticks = tokio::time::interval(LOOK);
    loop {
        ticks.tick().await;
        let now = modified(&manifest.path);
        if now == seen || now.is_none() {
            continue;
        }
        seen = now;
        let followed = match self::manifest(Some(&manifest.path)) {
            Ok(Some(manifest)) => match follow_manifest(output, &manifest, bus).await {
                Ok(()) => workshop.lock().await.follow(&manifest.document).await,
                Err(error) => Err(error),
            },
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        match followed {
            Ok(()) => output.progress(&format!("{} was read again", manifest.path.display())),
            Err(error) => output.failure(&error),
        }
    }
}

/// Makes what the manifest names and is not there, and changes what loses nothing by it. What
/// would delete is said and left to `prom apply`.
async fn follow_manifest(output: &Output, manifest: &Manifest, bus: &Bus) -> anyhow::Result<()> {
    crate::feeding::declare(bus, &manifest.document).await?;
    let reach = Reach::over(bus.clone(), &manifest.path).await;
    let plan = apply::steps(manifest, &reach, false).await?;
    if !plan.steps.is_empty() {
        output.progress(&apply::described(&plan, "this server", output.aside()));
    }
    let mut left = Plan::default();
    for step in plan.steps {
        if step.destroys() || step.obstacle().is_some() {
            left.steps.push(step);
        } else {
            apply::perform(&reach, &step).await?;
        }
    }
    if !left.steps.is_empty() {
        output.progress("warning: of these, some are not done by themselves; run: prom apply");
        output.progress(&apply::described(&left, "this server", output.aside()));
    }
    Ok(())
}

/// Opens the store of a data directory.
fn open(data: &Path) -> anyhow::Result<Arc<EmbeddedStore>> {
    match EmbeddedStore::open(data, EmbeddedOptions::default()) {
        Ok((store, _)) => Ok(Arc::new(store)),
        Err(OpenError::Log(promethean_log::OpenError::Locked { holder, .. })) => {
            Err(taken(data, &holder).into())
        }
        Err(error) => Err(error).with_context(|| format!("cannot open {}", data.display())),
    }
}

/// SIGTERM and SIGINT stop the server, SIGHUP reads certificates, keys and tokens again.
async fn signals(
    handle: ServerHandle,
    (reload, credentials): (Reload, Option<Credentials>),
    time: Time,
) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => stop(&handle, time),
            _ = interrupt.recv() => stop(&handle, time),
            _ = hangup.recv() => {
                if let Err(error) = handle.reload() {
                    kept("certificates", &error.into());
                }
                if let Some(Err(error)) = reload.jwks.as_ref().map(|file| install(&handle, file)) {
                    kept("keys", &error);
                }
                if let Some(credentials) = &credentials {
                    credentials.ring();
                }
            }
        }
    }
}

pub(super) fn kept(what: &str, error: &anyhow::Error) {
    // There is nowhere else to say it.
    let _ = writeln!(std::io::stderr(), "warning: the old {what} stay: {error:#}");
}

fn stop(handle: &ServerHandle, time: Time) {
    if time == Time::Told {
        told_time::end();
    }
    handle.stop();
}

fn install(handle: &ServerHandle, file: &Path) -> anyhow::Result<()> {
    Ok(handle.install_keys(&fs::read(file)?)?)
}

#[cfg(test)]
mod tests {
    use promethean_gateway::quota::Bucket;

    use super::*;

    /// A manifest with a low rate had every larger batch refused for good.
    #[test]
    fn rates_of_a_manifest_let_a_whole_batch_through() {
        let mut rates = Rates::default();
        let said = RatesTable {
            publish_per_connection: Some(10),
            publish_per_subject: Some(10),
            publish_per_topic: Some(10),
            ..RatesTable::default()
        };
        set_rates(&mut rates, &said);
        for rate in [rates.connection, rates.principal, rates.topic] {
            let mut bucket = Bucket::default();
            assert_eq!(bucket.take(rate.unwrap(), Duration::ZERO, 1_000), Ok(()));
            assert!(bucket.take(rate.unwrap(), Duration::from_secs(1), 11).is_err());
        }
    }
}
