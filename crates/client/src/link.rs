//! Does what the machine decides: one task, one socket at a time.

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{SinkExt, StreamExt};
use promethean_event::frame::DeliveryToken;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep_until, timeout};
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

use crate::address::Address;
use crate::clock::Clock;
use crate::error::{AckError, ConnectError, GroupError, PublishError};
use crate::inbox::Inbox;
use crate::lease::LeaseCell;
use crate::limits::HANDSHAKE_MS;
use crate::machine::{
    DeliveryReply, Effect, Flow, Input, Item, Machine, Place, PublishWish, State, SubKey,
    SubscribeWish, Ticket,
};
use crate::options::Credential;
use crate::socket::{self, Socket};
use crate::tail::Tailed;

/// What handles ask of the task.
#[derive(Debug)]
pub(crate) enum Command {
    Publish(PublishWish, oneshot::Sender<Result<Vec<Place>, PublishError>>),
    Subscribe(SubKey, SubscribeWish, Feed, oneshot::Sender<Result<(), GroupError>>),
    Reply(DeliveryReply, Option<oneshot::Sender<Result<(), AckError>>>),
    Taken(SubKey),
    Flow(SubKey, Flow),
    Leave(SubKey, Option<oneshot::Sender<()>>),
    Close,
}

/// Where the events of a subscription go.
#[derive(Debug, Clone)]
pub(crate) enum Feed {
    Group(Arc<Inbox<Leased>>),
    Tail(Arc<Inbox<Tailed>>),
}

/// An event that came, and whether it is still ours.
#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) item: Item,
    pub(crate) token: DeliveryToken,
    pub(crate) generation: u64,
    pub(crate) cell: Arc<LeaseCell>,
}

/// What sockets are made of.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) address: Address,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    pub(crate) credential: Credential,
}

type Opening = BoxFuture<'static, Result<Socket, ConnectError>>;
type Asking = BoxFuture<'static, Result<Option<String>, ConnectError>>;

enum Wire {
    None,
    Opening(Opening),
    Open(Box<Socket>),
}

struct Subscriber {
    feed: Feed,
    joining: Option<oneshot::Sender<Result<(), GroupError>>>,
    cells: HashMap<DeliveryToken, Arc<LeaseCell>>,
}

/// The task.
pub(crate) struct Link {
    machine: Machine,
    clock: Clock,
    route: Route,
    commands: mpsc::UnboundedReceiver<Command>,
    state: watch::Sender<State>,
    wire: Wire,
    asking: Option<Asking>,
    tickets: Ticket,
    publishes: HashMap<Ticket, oneshot::Sender<Result<Vec<Place>, PublishError>>>,
    replies: HashMap<Ticket, oneshot::Sender<Result<(), AckError>>>,
    subscribers: HashMap<SubKey, Subscriber>,
    leaving: HashMap<SubKey, oneshot::Sender<()>>,
}

impl Link {
    pub(crate) fn new(
        route: Route,
        clock: Clock,
        seed: u64,
        commands: mpsc::UnboundedReceiver<Command>,
        state: watch::Sender<State>,
    ) -> Self {
        let machine = Machine::new(&route.address.url, route.credential.is_fixed(), seed);
        Self {
            machine,
            clock,
            route,
            commands,
            state,
            wire: Wire::None,
            asking: None,
            tickets: 0,
            publishes: HashMap::new(),
            replies: HashMap::new(),
            subscribers: HashMap::new(),
            leaving: HashMap::new(),
        }
    }

    pub(crate) async fn run(mut self) {
        let mut input = Input::Tick;
        loop {
            let mut effects = Vec::new();
            self.machine.step(self.clock.now_ms(), input, &mut effects);
            // What else waits is taken along, so that acks and frames go together.
            while let Ok(command) = self.commands.try_recv() {
                let input = self.input(command);
                self.machine.step(self.clock.now_ms(), input, &mut effects);
            }
            self.machine.step(self.clock.now_ms(), Input::Flush, &mut effects);
            self.perform(effects).await;
            if self.machine.is_ended() {
                break;
            }
            input = self.wait().await;
        }
        self.refuse_the_rest().await;
    }

    /// Handles that are still there hear that it is over.
    async fn refuse_the_rest(&mut self) {
        while let Some(command) = self.commands.recv().await {
            let mut effects = Vec::new();
            let input = self.input(command);
            self.machine.step(self.clock.now_ms(), input, &mut effects);
            self.perform(effects).await;
        }
    }

    async fn wait(&mut self) -> Input {
        let due = self.machine.due_ms().map(|ms| self.clock.instant_of(ms));
        let time = async {
            match due {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        let asking = async {
            match &mut self.asking {
                Some(asking) => asking.await,
                None => pending().await,
            }
        };
        tokio::select! {
            command = self.commands.recv() => match command {
                Some(command) => self.input(command),
                // Nobody is left who could want anything.
                None => Input::Close,
            },
            input = hear(&mut self.wire, &self.route.address.url) => input,
            token = asking => {
                self.asking = None;
                Input::Token(token)
            }
            () = time => Input::Tick,
        }
    }

    fn input(&mut self, command: Command) -> Input {
        match command {
            Command::Publish(wish, answer) => {
                self.tickets += 1;
                self.publishes.insert(self.tickets, answer);
                Input::Publish(self.tickets, wish)
            }
            Command::Subscribe(key, wish, feed, joining) => {
                let joining = Some(joining);
                self.subscribers.insert(key, Subscriber { feed, joining, cells: HashMap::new() });
                Input::Subscribe(key, wish)
            }
            Command::Reply(mut reply, answer) => {
                if let Some(answer) = answer {
                    self.tickets += 1;
                    self.replies.insert(self.tickets, answer);
                    reply.ticket = Some(self.tickets);
                }
                if reply.ends()
                    && let Some(subscriber) = self.subscribers.get_mut(&reply.key)
                {
                    subscriber.cells.remove(&reply.token);
                }
                Input::Reply(reply)
            }
            Command::Taken(key) => Input::Taken(key),
            Command::Flow(key, flow) => Input::Flow(key, flow),
            Command::Leave(key, answer) => {
                if let Some(answer) = answer {
                    self.leaving.insert(key, answer);
                }
                self.subscribers.remove(&key);
                Input::Leave(key)
            }
            Command::Close => Input::Close,
        }
    }

    async fn perform(&mut self, effects: Vec<Effect>) {
        let mut effects = VecDeque::from(effects);
        let mut is_written = false;
        loop {
            while let Some(effect) = effects.pop_front() {
                let Effect::Send(text) = effect else {
                    self.tell(effect);
                    continue;
                };
                is_written = true;
                if let Err(error) = self.send(Message::text(text)).await {
                    // What follows was meant for this connection: the machine says it anew.
                    effects.retain(|effect| !matches!(effect, Effect::Send(_)));
                    self.lose(error, &mut effects);
                }
            }
            if !std::mem::take(&mut is_written) {
                return;
            }
            if let Err(error) = self.flush().await {
                self.lose(error, &mut effects);
            }
        }
    }

    fn lose(&mut self, error: ConnectError, effects: &mut VecDeque<Effect>) {
        self.wire = Wire::None;
        let mut more = Vec::new();
        self.machine.step(self.clock.now_ms(), Input::Lost(error), &mut more);
        effects.extend(more);
    }

    async fn send(&mut self, message: Message) -> Result<(), ConnectError> {
        let Wire::Open(socket) = &mut self.wire else {
            return Ok(());
        };
        let feeding = timeout(Duration::from_millis(HANDSHAKE_MS), socket.feed(message)).await;
        self.written(feeding.ok())
    }

    async fn flush(&mut self) -> Result<(), ConnectError> {
        let Wire::Open(socket) = &mut self.wire else {
            return Ok(());
        };
        let flushing = timeout(Duration::from_millis(HANDSHAKE_MS), socket.flush()).await;
        self.written(flushing.ok())
    }

    fn written(&self, result: Option<Result<(), SocketError>>) -> Result<(), ConnectError> {
        let why = match result {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) => error.to_string(),
            None => "the server takes nothing".to_owned(),
        };
        Err(ConnectError::Unreachable { url: self.route.address.url.clone(), why })
    }

    fn tell(&mut self, effect: Effect) {
        match effect {
            Effect::Connect => {
                let Route { address, tls, .. } = self.route.clone();
                self.wire = Wire::Opening(Box::pin(socket::open(address, tls)));
            }
            Effect::GetToken => {
                let credential = self.route.credential.clone();
                self.asking = Some(Box::pin(async move { credential.get().await }));
            }
            Effect::HangUp => self.hang_up(),
            Effect::State(state) => {
                tracing::debug!(?state, url = self.route.address.url, "the connection");
                self.state.send_replace(state);
            }
            // Whoever has asked may be gone.
            Effect::Published(ticket, result) => {
                self.publishes.remove(&ticket).map(|answer| answer.send(result));
            }
            Effect::Replied(ticket, result) => {
                self.replies.remove(&ticket).map(|answer| answer.send(result));
            }
            Effect::Left(key) => {
                self.leaving.remove(&key).map(|answer| answer.send(()));
            }
            Effect::Joined(key) => {
                let subscriber = self.subscribers.get_mut(&key);
                subscriber.and_then(|one| one.joining.take()).map(|answer| answer.send(Ok(())));
            }
            Effect::Ended(key, error) => self.ended(key, error),
            Effect::Events(key, generation, events) => self.deliver(key, generation, events),
            Effect::Missing(key, gap) => self.say(key, Tailed::Missing(gap)),
            Effect::Resumed(key, recovered) => self.say(key, Tailed::Resumed { recovered }),
            Effect::LeaseLost(key, token) => {
                let subscriber = self.subscribers.get_mut(&key);
                if let Some(cell) = subscriber.and_then(|one| one.cells.remove(&token)) {
                    cell.lose();
                }
            }
            Effect::AllLost(key) => self.lose_all(key),
            Effect::Send(_) => {}
        }
    }

    fn hang_up(&mut self) {
        self.asking = None;
        if let Wire::Open(mut socket) = std::mem::replace(&mut self.wire, Wire::None) {
            // Politely, but not for long: the server notices in any case.
            tokio::spawn(async move {
                let _ = timeout(Duration::from_secs(1), SinkExt::close(&mut *socket)).await;
            });
        }
    }

    fn ended(&mut self, key: SubKey, error: GroupError) {
        let Some(mut subscriber) = self.subscribers.remove(&key) else {
            return;
        };
        subscriber.cells.values().for_each(|cell| cell.lose());
        let closed = matches!(error, GroupError::Connection(ConnectError::Closed));
        let told = (!closed).then(|| error.clone());
        match &subscriber.feed {
            Feed::Group(inbox) => inbox.end(told),
            Feed::Tail(inbox) => inbox.end(told),
        }
        if let Some(joining) = subscriber.joining.take() {
            // Whoever has asked may be gone.
            let _ = joining.send(Err(error));
        }
    }

    fn deliver(&mut self, key: SubKey, generation: u64, events: Vec<Item>) {
        let Some(subscriber) = self.subscribers.get_mut(&key) else {
            return;
        };
        match &subscriber.feed {
            Feed::Tail(inbox) => {
                inbox.add(events.into_iter().map(|item| Tailed::Event(Box::new(item.event))));
            }
            Feed::Group(inbox) => {
                let cells = &mut subscriber.cells;
                inbox.add(events.into_iter().filter_map(|item| {
                    let token = item.ctx.token?;
                    let cell = Arc::new(LeaseCell::default());
                    cells.insert(token, Arc::clone(&cell));
                    Some(Leased { item, token, generation, cell })
                }));
            }
        }
    }

    fn say(&self, key: SubKey, said: Tailed) {
        if let Some(Subscriber { feed: Feed::Tail(inbox), .. }) = self.subscribers.get(&key) {
            inbox.add([said]);
        }
    }

    fn lose_all(&mut self, key: SubKey) {
        let Some(subscriber) = self.subscribers.get_mut(&key) else {
            return;
        };
        subscriber.cells.drain().for_each(|(_, cell)| cell.lose());
        if let Feed::Group(inbox) = &subscriber.feed {
            inbox.clear();
        }
    }
}

/// What comes over the socket, or becomes of it.
async fn hear(wire: &mut Wire, url: &str) -> Input {
    let message = match wire {
        Wire::None => return pending().await,
        Wire::Opening(opening) => {
            return match opening.await {
                Ok(socket) => {
                    *wire = Wire::Open(Box::new(socket));
                    Input::Opened
                }
                Err(error) => {
                    *wire = Wire::None;
                    Input::Lost(error)
                }
            };
        }
        Wire::Open(socket) => socket.next().await,
    };
    let error = match message {
        Some(Ok(Message::Text(text))) => return Input::Frame(text.as_str().to_owned()),
        Some(Ok(Message::Close(frame))) => socket::closed(url, frame.as_ref()),
        // Pings are answered below us; all of them are signs of life.
        Some(Ok(_)) => return Input::Heard,
        Some(Err(error)) => {
            ConnectError::Unreachable { url: url.to_owned(), why: error.to_string() }
        }
        None => socket::closed(url, None),
    };
    *wire = Wire::None;
    Input::Lost(error)
}
