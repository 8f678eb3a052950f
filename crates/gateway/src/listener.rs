//! Accepts connections and serves each in a task of its own. Every wait has an end: the handshake,
//! the head of a request, its body; hyper's own timer for heads is off unless it is given one.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use promethean::Bus;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::Service;

use crate::access::{KeySetError, TokenTable};
use crate::edge::{Edge, stopped};
use crate::http::{self, Entrance, Peer};
use crate::limits::{ACCEPT_PAUSE_MS, HEAD_BYTES_MAX, HEADERS_MAX};
use crate::progress::{Late, Patient, Progress};
use crate::rejection::{Code, Rejection};
use crate::seldom::Seldom;
use crate::settings::{Access, Settings, SettingsError, Waived};
use crate::tls::{Tls, TlsError};

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The settings are refused.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Certificate or key are refused.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An address cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// A server that has its addresses and serves when it is [run](Server::run).
#[derive(Debug)]
pub struct Server {
    edge: Arc<Edge>,
    listeners: Vec<TcpListener>,
    /// Those of administration, if it has its own.
    admin: Vec<TcpListener>,
    tls: Option<Arc<Tls>>,
}

/// What can be done to a running server.
#[derive(Debug, Clone)]
pub struct ServerHandle {
    edge: Arc<Edge>,
    tls: Option<Arc<Tls>>,
}

impl ServerHandle {
    /// Stops: no new connections, DRAIN to the old ones, what is under way is answered.
    pub fn stop(&self) {
        self.edge.draining.send_replace(true);
    }

    /// Takes a key set that the operator has changed by hand.
    pub fn install_keys(&self, document: &[u8]) -> Result<(), KeySetError> {
        match &self.edge.settings.access {
            Access::Required(authenticator) => {
                authenticator.jwt().map_or(Ok(()), |jwt| jwt.keys_installed(document))
            }
            Access::Anonymous => Ok(()),
        }
    }

    /// Takes static tokens that the operator has changed. Who is connected by one that is not
    /// there any more is told so, may answer what is out, and is closed; one whose rights are
    /// others keeps what it may still have.
    pub fn install_tokens(&self, tokens: TokenTable) {
        if let Access::Required(authenticator) = &self.edge.settings.access {
            let (added, removed) = authenticator.tokens_installed(tokens);
            // Those that it begins with are no change.
            if *self.edge.rights.borrow() > 0 {
                self.edge.audit.refusals.tokens(added, removed);
            }
            self.edge.rights.send_modify(|changes| *changes += 1);
        }
    }

    /// Reads certificate and key again.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.tls.as_ref().map_or(Ok(()), |tls| tls.reload())
    }
}

impl Server {
    /// Checks the settings and takes the addresses.
    pub async fn bind(bus: Bus, settings: Settings) -> Result<Self, StartError> {
        settings.check()?;
        let tls = settings.tls.clone().map(Tls::load).transpose()?.map(Arc::new);
        let listeners = listen(&settings.listen).await?;
        let admin = listen(&settings.admin).await?;
        let edge = Arc::new(Edge::new(bus, settings).await);
        Ok(Self { edge, listeners, admin, tls })
    }

    /// The addresses, with the ports that the system chose.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        addresses(&self.listeners)
    }

    /// Those of administration, if it has its own.
    pub fn admin_addresses(&self) -> Vec<SocketAddr> {
        addresses(&self.admin)
    }

    /// What stops it, and reloads its certificate.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle { edge: Arc::clone(&self.edge), tls: self.tls.clone() }
    }

    /// Serves until it is stopped, then lets connections finish within the drain time.
    pub async fn run(self) {
        let Self { edge, listeners, admin, tls } = self;
        warn_of_waived(&edge.settings);
        let mut accepting = JoinSet::new();
        let mut draining = edge.draining.subscribe();
        let entrance = if admin.is_empty() { Entrance::Whole } else { Entrance::Data };
        // Connections are counted for each: clients that take all there may be do not keep
        // operators out.
        let mut serve = |listeners: Vec<TcpListener>, entrance: Entrance| {
            let serve = Serve {
                edge: Arc::clone(&edge),
                router: http::router(&edge, entrance),
                tls: tls.clone(),
                doors: Arc::new(Doors::default()),
            };
            for listener in listeners {
                accepting.spawn(serve.clone().accept(listener));
            }
            serve.doors
        };
        let doors = serve(listeners, entrance);
        let admin_doors = serve(admin, Entrance::Administration);
        tokio::select! {
            () = stopped(&mut draining) => {}
            never = edge.keep_keys() => match never {},
            never = remind(&edge.settings) => match never {},
            never = edge.keep_audit() => match never {},
        }
        // Requests end with their tasks, WebSockets with their doors.
        let finish = async {
            while accepting.join_next().await.is_some() {}
            doors.empty().await;
            admin_doors.empty().await;
        };
        let _ = timeout(edge.settings.bounds.drain, finish).await;
        accepting.shutdown().await;
        edge.sum_up().await;
    }
}

async fn listen(addresses: &[SocketAddr]) -> Result<Vec<TcpListener>, StartError> {
    let mut listeners = Vec::new();
    for &address in addresses {
        let bound = TcpListener::bind(address).await;
        listeners.push(bound.map_err(|source| StartError::Listen { address, source })?);
    }
    Ok(listeners)
}

fn addresses(listeners: &[TcpListener]) -> Vec<SocketAddr> {
    listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
}

/// Connections that are open, by address.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    open: Mutex<(usize, HashMap<IpAddr, usize>)>,
    left: Notify,
}

/// One open connection; closes the door when it goes.
#[derive(Debug)]
pub(crate) struct Door {
    doors: Arc<Doors>,
    edge: Arc<Edge>,
    ip: IpAddr,
}

/// Why there is no room.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Full {
    All,
    Address,
}

impl Doors {
    /// Waits until all have left.
    async fn empty(&self) {
        while self.open.lock().unwrap_or_else(PoisonError::into_inner).0 > 0 {
            self.left.notified().await;
        }
    }

    pub(crate) fn enter(self: &Arc<Self>, edge: &Arc<Edge>, ip: IpAddr) -> Result<Door, Full> {
        let bounds = &edge.settings.bounds;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.0 >= bounds.connections {
            return Err(Full::All);
        }
        let of_ip = open.1.entry(ip).or_default();
        if !ip.is_loopback() && *of_ip >= bounds.connections_per_ip {
            return Err(Full::Address);
        }
        *of_ip += 1;
        open.0 += 1;
        edge.metrics.connections.fetch_add(1, Ordering::Relaxed);
        Ok(Door { doors: Arc::clone(self), edge: Arc::clone(edge), ip })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let mut open = self.doors.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.0 -= 1;
        if let Some(of_ip) = open.1.get_mut(&self.ip) {
            *of_ip -= 1;
            if *of_ip == 0 {
                open.1.remove(&self.ip);
            }
        }
        drop(open);
        self.doors.left.notify_one();
        self.edge.metrics.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
struct Serve {
    edge: Arc<Edge>,
    router: Router,
    tls: Option<Arc<Tls>>,
    doors: Arc<Doors>,
}

impl Serve {
    async fn accept(self, listener: TcpListener) {
        let mut draining = self.edge.draining.subscribe();
        let mut connections = JoinSet::new();
        let refused = Seldom::every(Duration::from_secs(1));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stopped(&mut draining) => break,
                // Taken out as they end, so that the set does not grow.
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let _ = stream.set_nodelay(true);
                    connections.spawn(self.clone().serve(stream, peer));
                }
                // Out of file descriptors: one of those that are open has to end first.
                Err(error) => {
                    if let Some(before) = refused.is_due(self.edge.clock.elapsed()) {
                        tracing::warn!(%error, before, "a connection could not be accepted");
                    }
                    pause(&mut connections).await;
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    async fn serve(self, stream: TcpStream, peer: SocketAddr) {
        let door = match self.doors.enter(&self.edge, peer.ip()) {
            Ok(door) => Peer::new(peer, door),
            Err(full) => return self.turn_away(stream, full).await,
        };
        let (edge, late) = (Arc::clone(&self.edge), Late::default());
        let stream = Patient::new(stream, edge.settings.bounds.stalled);
        match self.tls.clone() {
            None => self.http(stream, door, late.clone()).await,
            Some(tls) => {
                let handshake = TlsAcceptor::from(tls.config()).accept(stream);
                if let Ok(Ok(stream)) = timeout(edge.settings.bounds.handshake, handshake).await {
                    self.http(stream, door, late.clone()).await;
                }
            }
        }
        if late.is_told() {
            edge.count_refusal(Code::SlowRequest);
        }
    }

    /// Says why, without reading anything. Where TLS is spoken nothing can be said before the handshake,
    /// which is not worth its cost for this.
    async fn turn_away(&self, mut stream: TcpStream, full: Full) {
        let refusal = match full {
            Full::All => Rejection::new(Code::NotReady, "there are as many connections as may be"),
            Full::Address => Rejection::new(Code::Limit, "this address has too many connections"),
        };
        let refusal = refusal.after_ms(1_000);
        self.edge.count_refusal(refusal.code);
        if self.tls.is_none() {
            let _ = stream.write_all(&http::raw(&refusal)).await;
        }
    }

    async fn http(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: Peer,
        late: Late,
    ) {
        let address = peer.address;
        let router = self.router;
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(axum::body::Body::new);
            request.extensions_mut().insert(peer.clone());
            router.clone().call(request)
        });
        let stream = Progress::new(stream, late.clone());
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.edge.settings.bounds.head)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .half_close(false)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        tokio::pin!(connection);
        let mut draining = self.edge.draining.subscribe();
        tokio::select! {
            ended = connection.as_mut() => {
                if ended.as_ref().is_err_and(hyper::Error::is_timeout) {
                    late.set();
                }
                return log_end(address, ended);
            }
            () = stopped(&mut draining) => connection.as_mut().graceful_shutdown(),
        }
        log_end(address, connection.await);
    }
}

/// Waits until a connection ends, and not for long: those that have become WebSockets end unseen, and
/// there may be none at all.
async fn pause(connections: &mut JoinSet<()>) {
    let one_ends = async {
        if connections.join_next().await.is_none() {
            std::future::pending::<()>().await;
        }
    };
    let _ = timeout(Duration::from_millis(ACCEPT_PAUSE_MS), one_ends).await;
}

/// What an operator has waived is said again and again: it is not to be forgotten.
async fn remind(settings: &Settings) -> Infallible {
    loop {
        tokio::time::sleep(REMIND).await;
        warn_of_waived(settings);
    }
}

fn warn_of_waived(settings: &Settings) {
    let Waived { auth, tls } = settings.waived;
    let is_reachable = settings.addresses().any(|address| !address.ip().is_loopback());
    if auth {
        tracing::warn!("whoever can reach this server may do anything: --insecure-no-auth");
    }
    if tls && settings.tls.is_none() && is_reachable {
        tracing::warn!("whoever is on the way can read and change all: --insecure-no-tls");
    }
}

/// So often.
const REMIND: Duration = Duration::from_secs(60);

fn log_end(peer: SocketAddr, ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without a connection whose end could be waited for, accepting went round and round, with a
    /// line in the log each time, for as long as there were no file descriptors.
    #[tokio::test(start_paused = true)]
    async fn a_failed_accept_is_followed_by_a_pause() {
        let mut connections = JoinSet::new();
        let clock = crate::clock::Clock::start();
        for _ in 0..10 {
            pause(&mut connections).await;
        }
        assert_eq!(clock.elapsed(), Duration::from_millis(10 * ACCEPT_PAUSE_MS));
        connections.spawn(std::future::pending());
        pause(&mut connections).await;
        assert_eq!(clock.elapsed(), Duration::from_millis(11 * ACCEPT_PAUSE_MS));
        connections.spawn(std::future::ready(()));
        pause(&mut connections).await;
        assert_eq!(clock.elapsed(), Duration::from_millis(11 * ACCEPT_PAUSE_MS), "one has ended");
    }
}
