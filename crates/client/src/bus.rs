use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::address::Address;
use crate::clock::Clock;
use crate::error::{ConnectError, GroupError};
use crate::http::Http;
use crate::limits::{PUBLISHES_KIB_MAX, PUBLISHES_MAX};
use crate::link::{Command, Feed, Link, Route};
use crate::machine::{State, SubKey, SubscribeWish};
use crate::options::Connect;
use crate::socket::trusting;

/// The event bus of a server. A cheap handle: clones share one connection, which ends with
/// [`Bus::close`] or with the last of them.
///
/// Made inside a tokio runtime, whose tasks drive it. A connection that is lost is made again, with
/// growing waits: subscriptions go on, and publishes that were not answered are sent again with
/// the ids they have, so that nothing is stored twice.
#[derive(Clone)]
pub struct Bus {
    pub(crate) inner: Arc<BusInner>,
}

pub(crate) struct BusInner {
    pub(crate) link: Handle,
    pub(crate) http: Http,
    pub(crate) clock: Clock,
    pub(crate) publish_timeout: Duration,
    /// Bound what waits for its answer, in publishes and in KiB.
    pub(crate) publishes: Semaphore,
    pub(crate) publish_kib: Semaphore,
    state: watch::Receiver<State>,
}

/// The way to the task that has the connection. Its queue is bounded by what may be asked at once:
/// publishes have permits, deliveries credit.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    commands: mpsc::UnboundedSender<Command>,
    keys: Arc<AtomicU64>,
}

impl Handle {
    /// Says something. A task that is gone has nothing left to say it about.
    pub(crate) fn say(&self, command: Command) {
        drop(self.commands.send(command));
    }

    pub(crate) async fn subscribe(
        &self,
        wish: SubscribeWish,
        feed: Feed,
    ) -> Result<SubKey, GroupError> {
        let key = self.keys.fetch_add(1, Ordering::Relaxed);
        let (answer, joined) = oneshot::channel();
        // Whoever does not wait to the end does not stay a member.
        let mut guard = LeaveGuard { link: self, key: Some(key) };
        self.say(Command::Subscribe(key, wish, feed, answer));
        let result = joined.await.unwrap_or(Err(ConnectError::Closed.into()));
        guard.key = None;
        result.map(|()| key)
    }
}

struct LeaveGuard<'a> {
    link: &'a Handle,
    key: Option<SubKey>,
}

impl Drop for LeaveGuard<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.link.say(Command::Leave(key, None));
        }
    }
}

impl Bus {
    /// Connects to a server, such as `ws://127.0.0.1:7766`. More can be said with [`Connect`].
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Connect::new(url).connect().await
    }

    /// Connects to the server that the environment names: see [`Connect::from_env`].
    pub async fn connect_env() -> Result<Self, ConnectError> {
        Connect::from_env().connect().await
    }

    pub(crate) async fn connected(options: Connect) -> Result<Self, ConnectError> {
        let address = Address::parse(&options.url)?;
        if options.credential.is_there() && !address.is_secure && !address.is_loopback() {
            return Err(ConnectError::PlainText(address.host));
        }
        let tls = address.is_secure.then(|| trusting(&options.trusted)).transpose()?;
        let route = Route { address, tls, credential: options.credential.clone() };
        let clock = Clock::start();
        let (commands, queue) = mpsc::unbounded_channel();
        let (told, mut state) = watch::channel(State::Connecting);
        let seed = RandomState::new().build_hasher().finish();
        tokio::spawn(Link::new(route.clone(), clock, seed, queue, told).run());
        let link = Handle { commands, keys: Arc::new(AtomicU64::new(1)) };
        let url = options.url.clone();
        match timeout(options.patience, first(&mut state)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                let why = match &*state.borrow() {
                    State::Waiting { error, .. } => return Err(error.clone()),
                    _ => format!("no connection within {:?}", options.patience),
                };
                return Err(ConnectError::Unreachable { url, why });
            }
        }
        let inner = BusInner {
            link,
            http: Http::new(route),
            clock,
            publish_timeout: options.publish_timeout,
            publishes: Semaphore::new(PUBLISHES_MAX),
            publish_kib: Semaphore::new(PUBLISHES_KIB_MAX),
            state,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// How the connection is, now and from now on.
    pub fn state(&self) -> watch::Receiver<State> {
        self.inner.state.clone()
    }

    /// Waits for answers that are under way, then closes. What consumers still hold is delivered
    /// to others.
    pub async fn close(&self) {
        self.inner.link.say(Command::Close);
        let mut state = self.inner.state.clone();
        // An error is a task that is gone, and closed as well.
        let _ = state.wait_for(|state| matches!(state, State::Closed { .. })).await;
    }
}

/// Waits for the first connection. What cannot be reached yet may be there soon.
async fn first(state: &mut watch::Receiver<State>) -> Result<(), ConnectError> {
    let told = state
        .wait_for(|state| matches!(state, State::Connected | State::Closed { .. }))
        .await
        .map_err(|_| ConnectError::Closed)?;
    match &*told {
        State::Closed { error } => Err(error.clone()),
        _ => Ok(()),
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").field("state", &*self.inner.state.borrow()).finish_non_exhaustive()
    }
}
