use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use promethean_delivery::{
    Fetch, Group, Input, LaneId, LaneStatus, MemberId, Output, Reply, RequestId,
};
use promethean_event::{GroupName, Key, Offset};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::join::MemberQueue;
use super::lanes::LaneView;
use super::mail::Mail;
use super::perform::Redelivery;
use super::registry::Site;
use super::sharing::Sharing;
use crate::decode::Reads;
use crate::limits::SAVE_REST_MS;
use crate::metrics::GroupMeters;
use crate::settings::{Filter, GroupSettings};
use crate::store::Lane;

/// Why a group works no more. Nothing that was confirmed is lost; it goes on when the bus is
/// opened again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("group {group} has stopped: {reason}")]
pub struct GroupFailure {
    /// The group.
    pub group: GroupName,
    /// What happened.
    pub reason: String,
}

/// A group that is being driven: one for all its members in this process.
pub(crate) struct ActiveGroup {
    pub(crate) name: GroupName,
    pub(crate) site: Arc<Site>,
    /// The form in which it gets events.
    pub(crate) reads_as: Reads,
    pub(crate) meters: Arc<GroupMeters>,
    inner: Mutex<Inner>,
    pub(super) mail: Mutex<Mail>,
    /// Whether somebody waits for an answer that the next save brings.
    awaited: AtomicBool,
    /// Rung when somebody does.
    pub(super) hurry: Notify,
    /// Rung when everything is durable, for those who wait for the group to get somewhere.
    pub(super) stepped: Notify,
    /// Held while lanes are taken and given back.
    pub(super) sharing: tokio::sync::Mutex<()>,
}

/// What the lock of a group guards.
pub(super) struct Inner {
    pub(super) engine: Group,
    pub(super) settings: GroupSettings,
    pub(super) filter: Option<Filter>,
    pub(super) lanes: HashMap<LaneId, LaneView>,
    pub(super) members: HashMap<MemberId, MemberQueue>,
    pub(super) replies: HashMap<RequestId, Waiting>,
    /// The last number given to a member or a question.
    pub(super) numbers: u64,
    pub(super) timer: Option<AbortHandle>,
    pub(super) failure: Option<GroupFailure>,
    /// When the last save was made, or will be.
    pub(super) saved_at: Instant,
    /// From one save to the next, if nobody waits for it.
    pub(super) save_rest: Duration,
    /// The bus was closed, which is no failure for those who wait for deliveries.
    closed: bool,
    /// Saves that are not durable yet.
    pub(super) saving: u32,
    /// Where there are several hubs: the lanes that are held, with the epochs of their claims.
    pub(super) claims: HashMap<LaneId, u64>,
    /// What the last sharing out of lanes went by, if nothing was left to do.
    pub(super) shared: Option<Sharing>,
    /// Paused, as all hubs are told.
    pub(super) paused: bool,
    /// Saves that are under way, and the lanes they are about.
    pub(super) under_way: Vec<(u64, Vec<LaneId>)>,
    /// Requests of other hubs that were carried out last.
    pub(super) served: VecDeque<Key>,
    /// What to do once the lock is let go.
    pub(super) chores: VecDeque<Chore>,
    outputs: Vec<Output>,
}

/// Somebody who waits for an answer.
pub(super) struct Waiting {
    pub(super) sender: oneshot::Sender<Reply>,
    /// The events that it is about, where there are several hubs.
    pub(super) about: Vec<(LaneId, u64)>,
}

impl Waiting {
    pub(super) fn is_about(&self, lane: LaneId) -> bool {
        self.about.iter().any(|(about, _)| *about == lane)
    }
}

/// Work that takes reading.
pub(super) enum Chore {
    Fetch(Fetch),
    Redeliver(Redelivery),
    /// A member that does not read is one no more.
    Expel(MemberId),
}

impl ActiveGroup {
    pub(super) fn new(
        name: GroupName,
        site: Arc<Site>,
        settings: GroupSettings,
        engine: Group,
    ) -> Self {
        let reads_as = settings.reads_as.clone();
        let inner = Inner {
            engine,
            settings,
            filter: None,
            lanes: HashMap::new(),
            members: HashMap::new(),
            replies: HashMap::new(),
            numbers: 0,
            timer: None,
            failure: None,
            saved_at: site.clock.instant(),
            save_rest: Duration::from_millis(SAVE_REST_MS),
            closed: false,
            saving: 0,
            claims: HashMap::new(),
            shared: None,
            paused: false,
            under_way: Vec::new(),
            served: VecDeque::new(),
            chores: VecDeque::new(),
            outputs: Vec::new(),
        };
        let meters = site.meters.group(&name);
        Self {
            name,
            site,
            reads_as,
            meters,
            inner: Mutex::new(inner),
            mail: Mutex::default(),
            awaited: AtomicBool::new(false),
            hurry: Notify::new(),
            stepped: Notify::new(),
            sharing: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the state machine something and does what it says.
    pub(crate) fn step(self: &Arc<Self>, input: Input<'_>) {
        let chores = {
            let mut inner = self.lock();
            self.step_locked(&mut inner, input);
            std::mem::take(&mut inner.chores)
        };
        self.work(chores);
    }

    pub(super) fn step_locked(self: &Arc<Self>, inner: &mut Inner, input: Input<'_>) {
        if inner.failure.is_some() {
            return;
        }
        let mut outputs = std::mem::take(&mut inner.outputs);
        let horizons = inner.engine.horizons();
        inner.engine.step(self.site.clock.now_ms(), input, &mut outputs);
        for output in outputs.drain(..) {
            self.perform(inner, output);
        }
        inner.outputs = outputs;
        if inner.engine.horizons() != horizons {
            self.hurry();
        }
        // While something is being saved there is another step to come.
        if inner.saving == 0 {
            self.stepped.notify_waiters();
        }
    }

    /// Asks something that is answered once it is durable.
    pub(crate) fn ask(
        self: &Arc<Self>,
        question: impl FnOnce(RequestId) -> Input<'static>,
    ) -> oneshot::Receiver<Reply> {
        let asked = self.ask_about(|request, step| step(question(request)));
        self.hurry();
        asked
    }

    /// The same for questions that borrow what they ask about. Whoever waits for the answer says so
    /// by [`hurry`](Self::hurry).
    pub(crate) fn ask_about(
        self: &Arc<Self>,
        question: impl FnOnce(RequestId, &mut dyn FnMut(Input<'_>)),
    ) -> oneshot::Receiver<Reply> {
        let (sender, receiver) = oneshot::channel();
        let chores = {
            let mut inner = self.lock();
            let request = inner.next_request();
            inner.expect_reply(request, sender);
            question(request, &mut |input| {
                self.note_about(&mut inner, request, &input);
                self.step_locked(&mut inner, input);
            });
            std::mem::take(&mut inner.chores)
        };
        self.work(chores);
        receiver
    }

    /// Somebody waits for an answer: the save that brings it does not wait for company.
    pub(crate) fn hurry(&self) {
        self.awaited.store(true, Ordering::Release);
        self.hurry.notify_waiters();
    }

    /// Whether somebody waits for what is saved next, since this was last asked.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited.swap(false, Ordering::AcqRel)
    }

    /// Remembers what an answer rests on: where there are several hubs, lanes may be lost before.
    fn note_about(&self, inner: &mut Inner, request: RequestId, input: &Input<'_>) {
        if self.site.hub.is_some()
            && let Some(waiting) = inner.replies.get_mut(&request)
        {
            waiting.about = input.about();
        }
    }

    /// The bus is closed: nothing is delivered or confirmed any more, and members are told.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        if inner.failure.is_none() {
            inner.closed = true;
            let reason = "the bus is closed".to_owned();
            inner.failure = Some(GroupFailure { group: self.name.clone(), reason });
        }
        inner.members.clear();
        inner.replies.clear();
        if let Some(timer) = inner.timer.take() {
            timer.abort();
        }
        drop(inner);
        self.stepped.notify_waiters();
    }

    /// Ends the group's work: nothing is confirmed any more, and members are told.
    pub(super) fn fail(&self, reason: &str) {
        let mut inner = self.lock();
        if inner.failure.is_none() {
            tracing::error!(group = %self.name, reason, "group stopped");
            let failure = GroupFailure { group: self.name.clone(), reason: reason.to_owned() };
            inner.failure = Some(failure);
        }
        // Those who wait see the closed channels and ask for the failure.
        inner.members.clear();
        inner.replies.clear();
        drop(inner);
        self.stepped.notify_waiters();
    }

    /// Lets go of all lanes and waits until the last word about them is durable.
    pub(super) async fn retire(self: &Arc<Self>) {
        {
            let mut inner = self.lock();
            inner.members.clear();
            let lanes: Vec<(LaneId, LaneView)> = inner.lanes.drain().collect();
            for (lane, view) in lanes {
                self.carry_counters(&inner, lane, &view);
                self.step_locked(&mut inner, Input::LaneRemoved { lane });
            }
            if let Some(timer) = inner.timer.take() {
                timer.abort();
            }
        }
        self.settled().await;
    }

    /// Waits until everything that was decided is durable, or cannot be.
    pub(crate) async fn settled(&self) {
        loop {
            let stepped = self.stepped.notified();
            tokio::pin!(stepped);
            stepped.as_mut().enable();
            {
                let inner = self.lock();
                if inner.saving == 0 || inner.failure.is_some() {
                    return;
                }
            }
            stepped.await;
        }
    }

    /// Waits until the cursors of lanes have come to their ends, durably.
    pub(crate) async fn passed(&self, ends: &[(Lane, Offset)]) -> Result<(), GroupFailure> {
        loop {
            let stepped = self.stepped.notified();
            tokio::pin!(stepped);
            stepped.as_mut().enable();
            {
                let inner = self.lock();
                if let Some(failure) = &inner.failure {
                    return Err(failure.clone());
                }
                let passed = |(lane, end): &(Lane, Offset)| {
                    let status = inner.engine.status(lane.id());
                    status.is_none_or(|status| status.floor >= end.get() && status.released == 0)
                };
                if inner.saving == 0 && ends.iter().all(passed) {
                    return Ok(());
                }
            }
            stepped.await;
        }
    }

    /// Moves the group in a lane. What was read for it is forgotten.
    pub(crate) fn seek(self: &Arc<Self>, lane: Lane, to: Offset) -> oneshot::Receiver<Reply> {
        let (sender, receiver) = oneshot::channel();
        let chores = {
            let mut inner = self.lock();
            let request = inner.next_request();
            inner.expect_reply(request, sender);
            Self::forget_stash(&mut inner, lane.id());
            let seek = Input::Seek { request, lane: lane.id(), to: to.get() };
            self.note_about(&mut inner, request, &seek);
            self.step_locked(&mut inner, seek);
            std::mem::take(&mut inner.chores)
        };
        self.work(chores);
        self.hurry();
        receiver
    }

    /// Why the group has stopped, if it has.
    pub(crate) fn failure(&self) -> Option<GroupFailure> {
        self.lock().failure.clone()
    }

    /// Why the group has stopped by itself, if it has.
    pub(crate) fn fault(&self) -> Option<GroupFailure> {
        let inner = self.lock();
        inner.failure.clone().filter(|_| !inner.closed)
    }

    pub(crate) fn settings(&self) -> GroupSettings {
        self.lock().settings.clone()
    }

    pub(crate) fn member_count(&self) -> usize {
        self.lock().members.len()
    }

    /// How its lanes stand.
    pub(crate) fn statuses(&self) -> Vec<(super::lanes::LaneName, LaneStatus)> {
        let inner = self.lock();
        let statuses = inner
            .lanes
            .iter()
            .filter_map(|(&id, view)| Some((view.name.clone(), inner.engine.status(id)?)));
        statuses.collect()
    }
}

impl Inner {
    fn expect_reply(&mut self, request: RequestId, sender: oneshot::Sender<Reply>) {
        if self.failure.is_none() {
            self.replies.insert(request, Waiting { sender, about: Vec::new() });
        }
    }

    pub(super) const fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) const fn next_request(&mut self) -> RequestId {
        RequestId::new(self.next_number())
    }
}

impl fmt::Debug for ActiveGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveGroup").field("name", &self.name).finish_non_exhaustive()
    }
}
