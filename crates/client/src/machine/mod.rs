//! What a client knows, and what follows from what happens: frames, answers and deadlines in,
//! effects out. No socket, no clock, no task; `link.rs` does what this decides.
//!
//! One connection at a time. While there is none, publishes and subscriptions wait; on a new one
//! subscriptions are asked for again, and publishes that were not answered are sent again with the
//! ids they have. Leases end with their connection.

mod backoff;

mod leases;

mod publishes;

mod subscriptions;

mod wire;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use promethean_event::frame::DeliveryToken;

use self::backoff::Backoff;
use self::publishes::Publishes;
use self::subscriptions::Sub;
use self::wire::{Answer, Heard, Said};
use crate::code::Code;
use crate::error::{AckError, ConnectError, GroupError, PublishError, Refusal};
use crate::limits::{CLOSE_MS, FRAME_BYTES_MAX, HANDSHAKE_MS, QUIET_MS, STEADY_MS};

pub(crate) use self::publishes::PublishWish;
pub(crate) use self::subscriptions::{DeliveryReply, Reply, SubscribeWish};
pub use self::wire::Gap;
pub(crate) use self::wire::{Item, Place, events_of};

/// A subscription, over all connections.
pub(crate) type SubKey = u64;
/// Somebody who waits for an answer.
pub(crate) type Ticket = u64;

/// Whether events come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Running,
    Paused,
}

/// How a connection is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It is being made.
    Connecting,
    /// It is there.
    Connected,
    /// It was lost, or could not be had, and will be tried again.
    Waiting {
        /// What happened.
        error: ConnectError,
        /// When.
        retry_in: Duration,
    },
    /// There is none, and there will be none.
    Closed {
        /// Why; [`ConnectError::Closed`] if it was closed here.
        error: ConnectError,
    },
}

/// What happens.
#[derive(Debug)]
pub(crate) enum Input {
    /// Nothing but time.
    Tick,
    /// The socket is open.
    Opened,
    /// A frame, or any other sign of life.
    Frame(String),
    Heard,
    /// There is no socket, or not any more.
    Lost(ConnectError),
    /// The credential that was asked for; none if there is none.
    Token(Result<Option<String>, ConnectError>),
    Publish(Ticket, PublishWish),
    Subscribe(SubKey, SubscribeWish),
    Reply(DeliveryReply),
    Taken(SubKey),
    Flow(SubKey, Flow),
    Leave(SubKey),
    /// Nothing more comes for now.
    Flush,
    Close,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Open a socket.
    Connect,
    /// Have a credential.
    GetToken,
    Send(String),
    /// Close the socket; `Lost` is not told of it.
    HangUp,
    State(State),
    Published(Ticket, Result<Vec<Place>, PublishError>),
    Replied(Ticket, Result<(), AckError>),
    /// A subscription is there for the first time.
    Joined(SubKey),
    /// A tail goes on; whether nothing is missing.
    Resumed(SubKey, bool),
    /// Events, and the connection they came over.
    Events(SubKey, u64, Vec<Item>),
    Missing(SubKey, Gap),
    LeaseLost(SubKey, DeliveryToken),
    AllLost(SubKey),
    Ended(SubKey, GroupError),
    Left(SubKey),
}

/// What a request was about.
#[derive(Debug)]
enum Asked {
    Auth,
    Publish(Ticket),
    Subscribe(SubKey),
    Reply { key: SubKey, ticket: Option<Ticket>, extends: bool },
    Renewal { key: SubKey, token: DeliveryToken, asked_ms: u64 },
    Leave(SubKey),
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// To be tried again then.
    Waiting(u64),
    /// Being opened, greeted, made known; given up then.
    Opening(u64),
    Up,
    Ended,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Machine {
    seed: u64,
    /// Whether a credential that is refused stays refused.
    is_credential_fixed: bool,
    url: String,
    phase: Phase,
    has_been_up: bool,
    /// Connections so far.
    generation: u64,
    epoch: Option<String>,
    frame_bytes_max: usize,
    corr: u64,
    asked: HashMap<u64, Asked>,
    publishes: Publishes,
    subs: BTreeMap<SubKey, Sub>,
    by_number: HashMap<u32, SubKey>,
    backoff: Backoff,
    opened_ms: u64,
    heard_ms: u64,
    /// The server stops: this connection is left then, or when nothing is under way.
    drain_ms: Option<u64>,
    /// The credential should be renewed then.
    renew_ms: Option<u64>,
    /// Closed here: the connection is left then, or when nothing is under way.
    close_ms: Option<u64>,
}

impl Machine {
    pub(crate) fn new(url: &str, is_credential_fixed: bool, seed: u64) -> Self {
        Self {
            seed,
            is_credential_fixed,
            url: url.to_owned(),
            phase: Phase::Waiting(0),
            has_been_up: false,
            generation: 0,
            epoch: None,
            frame_bytes_max: FRAME_BYTES_MAX,
            corr: 0,
            asked: HashMap::new(),
            publishes: Publishes::default(),
            subs: BTreeMap::new(),
            by_number: HashMap::new(),
            backoff: Backoff::new(seed),
            opened_ms: 0,
            heard_ms: 0,
            drain_ms: None,
            renew_ms: None,
            close_ms: None,
        }
    }

    /// When time alone changes something.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        let phase = match self.phase {
            Phase::Waiting(at) | Phase::Opening(at) => at,
            Phase::Up => self.heard_ms + QUIET_MS,
            Phase::Ended => return None,
        };
        let subs = self.subs.values().map(Sub::due_ms).min();
        let others = [self.drain_ms, self.renew_ms, self.close_ms, self.publishes.due_ms(), subs];
        Some(others.into_iter().flatten().min().map_or(phase, |due| due.min(phase)))
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Whether there is a connection.
    fn is_up(&self) -> bool {
        self.phase == Phase::Up
    }

    /// Whether there is a connection that takes new requests.
    fn is_ready(&self) -> bool {
        self.is_up() && self.drain_ms.is_none()
    }

    fn next_corr(&mut self) -> u64 {
        self.corr += 1;
        self.corr
    }

    /// Decides.
    pub(crate) fn step(&mut self, now: u64, input: Input, out: &mut Vec<Effect>) {
        if self.is_ended() {
            return refuse(input, out);
        }
        match input {
            Input::Tick => {}
            Input::Opened => self.heard_ms = now,
            Input::Heard => self.heard_ms = now,
            Input::Frame(text) => {
                self.heard_ms = now;
                self.hear(now, &text, out);
            }
            Input::Lost(error) => self.lost(now, error, out),
            Input::Token(token) => self.credential(now, token, out),
            Input::Publish(ticket, wish) => self.publish(ticket, wish, out),
            Input::Subscribe(key, wish) => self.subscribe(key, wish, out),
            Input::Reply(reply) => self.reply(now, reply, out),
            Input::Taken(key) => self.taken(key, out),
            Input::Flow(key, flow) => self.set_flow(key, flow, out),
            Input::Leave(key) => self.leave(key, out),
            Input::Flush => self.flush_acks(out),
            Input::Close => {
                self.flush_acks(out);
                self.close_ms.get_or_insert(now + CLOSE_MS);
            }
        }
        self.tick(now, out);
    }

    fn tick(&mut self, now: u64, out: &mut Vec<Effect>) {
        match self.phase {
            Phase::Waiting(at) if at <= now => {
                self.phase = Phase::Opening(now + HANDSHAKE_MS);
                self.generation += 1;
                self.opened_ms = now;
                out.push(Effect::State(State::Connecting));
                out.push(Effect::Connect);
            }
            Phase::Opening(by) if by <= now => {
                out.push(Effect::HangUp);
                self.lost(now, self.unreachable("no greeting in time"), out);
            }
            Phase::Up if self.heard_ms + QUIET_MS <= now => {
                out.push(Effect::HangUp);
                self.lost(now, self.unreachable("the server is silent"), out);
            }
            _ => {}
        }
        if self.renew_ms.is_some_and(|at| at <= now) && self.is_up() {
            self.renew_ms = None;
            out.push(Effect::GetToken);
        }
        self.tick_publishes(now, out);
        if self.is_up() {
            self.tick_subs(now, out);
        }
        self.leave_in_time(now, out);
    }

    /// Leaves a connection that is to be left, once nothing is under way, or when it is time.
    fn leave_in_time(&mut self, now: u64, out: &mut Vec<Effect>) {
        if let Some(at) = self.close_ms {
            let is_done = self.publishes.is_empty() && self.asked.is_empty();
            if at <= now || is_done || !self.is_up() {
                self.end(ConnectError::Closed, out);
            }
            return;
        }
        if let Some(at) = self.drain_ms {
            let is_idle = self.asked.is_empty() && self.subs.values().all(Sub::is_idle);
            if at <= now || is_idle {
                out.push(Effect::HangUp);
                self.lost(now, self.unreachable("the server stops"), out);
            }
        }
    }

    fn unreachable(&self, why: &str) -> ConnectError {
        ConnectError::Unreachable { url: self.url.clone(), why: why.to_owned() }
    }

    fn hear(&mut self, now: u64, text: &str, out: &mut Vec<Effect>) {
        let heard = match Heard::parse(text) {
            Ok(heard) => heard,
            Err(error) => {
                out.push(Effect::HangUp);
                let why = format!("the server sent what is not a frame: {error}");
                return self.lost(now, self.unreachable(&why), out);
            }
        };
        match heard {
            Heard::Hello(hello) => {
                self.epoch = Some(hello.epoch);
                self.frame_bytes_max = hello.limits.frame_bytes;
                out.push(Effect::GetToken);
            }
            Heard::Answer(answer) => self.answered(now, answer, out),
            Heard::Refused { sub: Some(sub), refusal, .. } => {
                self.sub_ended((now, sub), refusal, out);
            }
            Heard::Refused { corr, refusal, .. } => self.refused(now, corr, refusal, out),
            Heard::Events { sub, events } => self.deliver((now, sub), events, out),
            Heard::Gap { sub, gap } => self.gap(sub, gap, out),
            Heard::Drain { deadline_ms } => {
                // A little before the server would close it.
                self.drain_ms = Some(now + deadline_ms * 4 / 5);
            }
            Heard::Other => {}
        }
    }

    fn credential(
        &mut self,
        now: u64,
        token: Result<Option<String>, ConnectError>,
        out: &mut Vec<Effect>,
    ) {
        match token {
            Ok(Some(token)) => {
                let corr = self.next_corr();
                self.asked.insert(corr, Asked::Auth);
                out.push(Effect::Send(Said::Auth { corr, token: &token }.text()));
            }
            Ok(None) => self.known(out),
            Err(error) => {
                out.push(Effect::HangUp);
                self.lost(now, error, out);
            }
        }
    }

    /// The server knows who this is: everything that waits is asked for.
    fn known(&mut self, out: &mut Vec<Effect>) {
        if self.phase == Phase::Up {
            return;
        }
        self.phase = Phase::Up;
        self.has_been_up = true;
        self.drain_ms = None;
        out.push(Effect::State(State::Connected));
        self.rejoin(out);
        self.republish(out);
    }

    fn answered(&mut self, now: u64, answer: Answer, out: &mut Vec<Effect>) {
        for refused in &answer.refused {
            // Nobody waits for it: the event comes again, or was done before.
            tracing::debug!(token = %refused.token, code = refused.code, "an ack changed nothing");
        }
        let asked = answer.corr.and_then(|corr| self.asked.remove(&corr));
        match asked {
            Some(Asked::Auth) => {
                if let Some(ends) = answer.expires_at.filter(|_| !self.is_credential_fixed) {
                    // Well before it ends, also if the clocks are not quite together.
                    let left = ends.saturating_sub(now);
                    self.renew_ms = Some(now + (left * 4 / 5).max(1_000));
                }
                self.known(out);
            }
            Some(Asked::Publish(ticket)) => self.published(ticket, answer, out),
            Some(Asked::Subscribe(key)) => self.joined(key, answer, out),
            Some(Asked::Reply { ticket, .. }) => {
                out.extend(ticket.map(|ticket| Effect::Replied(ticket, Ok(()))));
            }
            Some(Asked::Renewal { key, token, asked_ms }) => self.renewed(key, token, asked_ms),
            Some(Asked::Leave(key)) => out.push(Effect::Left(key)),
            Some(Asked::Nothing) | None => {}
        }
    }

    fn refused(&mut self, now: u64, corr: Option<u64>, refusal: Refusal, out: &mut Vec<Effect>) {
        match corr.and_then(|corr| self.asked.remove(&corr)) {
            Some(Asked::Auth) => {
                out.push(Effect::HangUp);
                self.lost(now, ConnectError::Refused(refusal), out);
            }
            Some(Asked::Publish(ticket)) => self.publish_refused((now, ticket), refusal, out),
            Some(Asked::Subscribe(key)) => self.join_refused((now, key), refusal, out),
            Some(Asked::Reply { key, ticket, extends }) => {
                let error = AckError::of(refusal, extends);
                tracing::debug!(key, %error, "an answer changed nothing");
                out.extend(ticket.map(|ticket| Effect::Replied(ticket, Err(error))));
            }
            Some(Asked::Renewal { key, token, .. }) => {
                self.renewal_refused((key, token), refusal, out);
            }
            Some(Asked::Leave(key)) => out.push(Effect::Left(key)),
            // The credential has ended: a new connection asks for everything again.
            None if ends_connection(&refusal.code) => {
                out.push(Effect::HangUp);
                self.lost(now, ConnectError::Refused(refusal), out);
            }
            Some(Asked::Nothing) | None => {
                tracing::debug!(%refusal, "the server refused what nobody waits for");
            }
        }
    }

    fn lost(&mut self, now: u64, error: ConnectError, out: &mut Vec<Effect>) {
        let was_up = self.is_up();
        self.drain_ms = None;
        self.renew_ms = None;
        let mut asked: Vec<(u64, Asked)> = std::mem::take(&mut self.asked).into_iter().collect();
        asked.sort_by_key(|(corr, _)| *corr);
        for (_, asked) in asked {
            match asked {
                Asked::Reply { ticket: Some(ticket), .. } => {
                    out.push(Effect::Replied(ticket, Err(AckError::Indeterminate)));
                }
                Asked::Leave(key) => out.push(Effect::Left(key)),
                // Publishes and subscriptions are asked for again.
                _ => {}
            }
        }
        self.lose_leases(out);
        let is_final = match &error {
            ConnectError::Refused(refusal) => refusal.code.is_final() && self.is_credential_fixed,
            // Certificates are exchanged, also wrongly; who was connected waits for the right one.
            ConnectError::Address { .. } | ConnectError::Tls(_) => !self.has_been_up,
            _ => false,
        };
        // Who was let in before may be let in again, but not without a credential.
        let is_unknown = matches!(&error, ConnectError::Refused(r) if r.code == Code::Unauthorized);
        let is_final = is_final && (!was_up || is_unknown);
        if self.close_ms.is_some() || is_final {
            return self.end(error, out);
        }
        if was_up && now.saturating_sub(self.opened_ms) > STEADY_MS {
            self.backoff.reset();
        }
        let asked = match &error {
            ConnectError::Refused(Refusal { retry_after: Some(wait), .. }) => {
                wait.as_millis() as u64
            }
            _ => 0,
        };
        let wait = self.backoff.next_ms().max(asked);
        self.phase = Phase::Waiting(now + wait);
        let retry_in = Duration::from_millis(wait);
        out.push(Effect::State(State::Waiting { error, retry_in }));
    }

    fn end(&mut self, error: ConnectError, out: &mut Vec<Effect>) {
        self.phase = Phase::Ended;
        out.push(Effect::HangUp);
        self.asked.clear();
        self.lose_leases(out);
        self.fail_publishes(&error, out);
        self.end_subs(&error, out);
        out.push(Effect::State(State::Closed { error }));
    }
}

/// Nothing happens any more.
fn refuse(input: Input, out: &mut Vec<Effect>) {
    match input {
        Input::Publish(ticket, _) => {
            out.push(Effect::Published(ticket, Err(ConnectError::Closed.into())));
        }
        Input::Subscribe(key, _) => {
            out.push(Effect::Ended(key, ConnectError::Closed.into()));
        }
        Input::Reply(reply) => {
            let told = |ticket| Effect::Replied(ticket, Err(AckError::LeaseLost));
            out.extend(reply.ticket.map(told));
        }
        Input::Leave(key) => out.push(Effect::Left(key)),
        _ => {}
    }
}

const fn ends_connection(code: &Code) -> bool {
    matches!(code, Code::TokenExpired | Code::Unauthorized)
}
