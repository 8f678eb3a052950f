//! The one who writes. What waits while a transaction is under way goes into the next one, so that
//! publishers and groups share commits; everything in the order in which it was asked for.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use mongodb::bson::doc;
use mongodb::options::ReadConcern;
use promethean::store::{
    Append, AppendError, Appended, Clock, GroupSave, Lane, LaneBounds, Put, SaveError, Stored,
    TopicDefinition, TopicId,
};
use promethean_event::{EventId, GroupName};
use tokio::sync::{mpsc, oneshot};

use crate::carry_out::CarryOut;
use crate::clock::Deadline;
use crate::cluster::Cluster;
use crate::document::{Content, signed, size, unsigned};
use crate::fault::{Fault, too_late};
use crate::groups::{self, RemoveGroup};
use crate::growth::Growing;
use crate::limits::{
    COMMIT_BYTES_MAX, COMMIT_EVENTS_MAX, GROUPS_KNOWN_MAX, LANES_KNOWN_MAX, RETRY_MIN,
};
use crate::news::Teller;
use crate::plan::{Answer, Head, KnownGroup, Plan, View, Wish, lane_of};
use crate::table::Table;
use crate::transaction::transact;
use crate::{entries, lookup, topics};

pub(crate) type Reply<T, E> = oneshot::Sender<Result<T, E>>;

/// What is asked of the writer.
#[derive(Debug)]
pub(crate) enum Request {
    Append(Append, Reply<Appended, AppendError>),
    Save(GroupSave, Reply<(), SaveError>),
    Define(TopicDefinition, Reply<TopicId, SaveError>),
    Remove(TopicId, Reply<(), SaveError>),
    RemoveGroup(GroupName, Reply<(), SaveError>),
    Put(Vec<Put>, Reply<(), SaveError>),
    Restore(Vec<(Lane, Stored)>, Reply<(), AppendError>),
    Place(Vec<(Lane, LaneBounds)>, Reply<(), AppendError>),
    /// Nothing comes after it.
    Close(oneshot::Sender<()>),
}

impl Request {
    /// Answers without having done anything. Closing cannot be refused.
    fn refuse(self, fault: &Fault) {
        // Whoever has gone away does not want to know.
        match self {
            Self::Append(_, reply) => drop(reply.send(Err(fault.clone().into()))),
            Self::Restore(_, reply) => drop(reply.send(Err(fault.clone().into()))),
            Self::Place(_, reply) => drop(reply.send(Err(fault.clone().into()))),
            Self::Define(_, reply) => drop(reply.send(Err(fault.clone().into()))),
            Self::Save(_, reply) => drop(reply.send(Err(fault.clone().into()))),
            Self::Remove(_, reply) => drop(reply.send(Err(fault.clone().into()))),
            Self::RemoveGroup(_, reply) => drop(reply.send(Err(fault.clone().into()))),
            Self::Put(_, reply) => drop(reply.send(Err(fault.clone().into()))),
            Self::Close(_) => {}
        }
    }
}

/// A request, and when it has to be answered: what waits for long has less time left to be done.
/// Requests are done in order and each ends by its time, so that none waits beyond its own.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) deadline: Deadline,
}

/// Who waits for the answer to a wish.
#[derive(Debug)]
enum Waiting {
    Appender(Reply<Appended, AppendError>),
    Saver(Reply<(), SaveError>),
}

impl Waiting {
    fn refuse(self, fault: &Fault) {
        match self {
            Self::Appender(reply) => drop(reply.send(Err(fault.clone().into()))),
            Self::Saver(reply) => drop(reply.send(Err(fault.clone().into()))),
        }
    }
}

/// Wishes that go into one transaction, in the order of their deadlines.
#[derive(Debug, Default)]
struct Batch {
    wishes: Vec<Wish>,
    waiting: Vec<(Waiting, Deadline)>,
    events: usize,
    bytes: usize,
}

impl Batch {
    fn add(&mut self, wish: Wish, waiting: Waiting, deadline: Deadline) {
        self.events += wish.events().len();
        self.bytes += wish.events().iter().map(size).sum::<usize>();
        self.wishes.push(wish);
        self.waiting.push((waiting, deadline));
    }

    /// The earliest of all; none if there is nothing to do.
    fn deadline(&self) -> Option<Deadline> {
        self.waiting.iter().map(|(_, deadline)| *deadline).min()
    }

    /// Refuses what has no time left; the rest stays.
    fn refuse_late(&mut self, fault: &Fault) {
        let (wishes, waiting) =
            (std::mem::take(&mut self.wishes), std::mem::take(&mut self.waiting));
        for (wish, (waiting, deadline)) in wishes.into_iter().zip(waiting) {
            if deadline.has_passed() {
                waiting.refuse(fault);
            } else {
                self.wishes.push(wish);
                self.waiting.push((waiting, deadline));
            }
        }
    }

    const fn is_full(&self) -> bool {
        self.events >= COMMIT_EVENTS_MAX || self.bytes >= COMMIT_BYTES_MAX
    }

    fn answer(self, answers: Vec<Answer>) {
        for ((waiting, _), answer) in self.waiting.into_iter().zip(answers) {
            // Whoever has gone away does not want to know.
            match (waiting, answer) {
                (Waiting::Appender(reply), Answer::Appended(answer)) => drop(reply.send(answer)),
                (Waiting::Saver(reply), Answer::Saved(answer)) => drop(reply.send(answer)),
                _ => {}
            }
        }
    }

    fn refuse(self, fault: &Fault) {
        for (waiting, _) in self.waiting {
            waiting.refuse(fault);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) cluster: Cluster,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) table: Arc<Table>,
    pub(crate) growing: Arc<Growing>,
    pub(crate) teller: Arc<Teller>,
    pub(crate) known: Known,
}

/// What is known of lanes and groups. Conditions find out where it is wrong.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) heads: HashMap<Lane, Head>,
    groups: HashMap<GroupName, Option<KnownGroup>>,
}

impl Writer {
    pub(crate) async fn run(mut self, mut requests: mpsc::Receiver<Asked>) {
        let mut next = requests.recv().await;
        while let Some(asked) = next.take() {
            let mut batch = Batch::default();
            let mut other = sort(&mut batch, asked);
            while other.is_none()
                && !batch.is_full()
                && let Ok(asked) = requests.try_recv()
            {
                other = sort(&mut batch, asked);
            }
            self.write(batch).await;
            if let Some(asked) = other
                && !self.obey(asked).await
            {
                return;
            }
            next = requests.recv().await;
        }
    }

    /// Does what goes by itself; false if nothing comes after it.
    async fn obey(&mut self, Asked { request, deadline }: Asked) -> bool {
        if deadline.has_passed() && !matches!(request, Request::Close(_)) {
            request.refuse(&waited_in_vain());
            return true;
        }
        let cluster = self.cluster.until(deadline);
        match request {
            Request::Define(definition, reply) => {
                let defined = topics::define(&cluster, definition).await;
                let answer = defined.map(|entry| {
                    let id = entry.id;
                    if self.table.insert(&entry) {
                        self.growing.note_topics(|_| false);
                    }
                    id
                });
                drop(reply.send(answer));
            }
            Request::Remove(topic, reply) => {
                let removed = topics::remove(&cluster, topic).await;
                if removed.is_ok() {
                    self.known.heads.retain(|lane, _| lane.topic != topic);
                    if self.table.remove(topic) {
                        self.growing.note_topics(|lane| lane.topic == topic);
                    }
                    self.sweep();
                }
                drop(reply.send(removed));
            }
            Request::RemoveGroup(group, reply) => {
                self.known.groups.remove(&group);
                let attempt = RemoveGroup { cluster: cluster.clone(), group };
                let removed = transact(&cluster, deadline, attempt).await;
                drop(reply.send(removed.map_err(Into::into)));
            }
            // As many transactions as it needs, each with a time of its own: nobody publishes here
            // meanwhile.
            Request::Restore(events, reply) => {
                let restored = self.restore(events).await;
                drop(reply.send(restored.map_err(Into::into)));
            }
            Request::Place(lanes, reply) => {
                let placed = self.place(&lanes).await;
                drop(reply.send(placed.map_err(Into::into)));
            }
            Request::Put(puts, reply) => drop(reply.send(entries::put(&cluster, puts).await)),
            Request::Close(reply) => {
                // Whoever closed it may have gone.
                reply.send(()).ok();
                return false;
            }
            Request::Append(..) | Request::Save(..) => {}
        }
        true
    }

    /// Deletes the events of removed topics meanwhile; cleaning ends what this does not.
    fn sweep(&self) {
        let cluster = self.cluster.clone();
        tokio::spawn(async move {
            if let Err(fault) = topics::sweep(&cluster).await {
                tracing::warn!(%fault, "events of a removed topic are still there; cleaning will go on");
            }
        });
    }

    /// Writes a batch within the earliest of its deadlines. Nothing is written when that has passed,
    /// unless nobody knows; so the others, which have time left, are tried again.
    async fn write(&mut self, mut batch: Batch) {
        batch.refuse_late(&waited_in_vain());
        while let Some(deadline) = batch.deadline() {
            match self.carry_out(&batch.wishes, deadline).await {
                Ok(answers) => return batch.answer(answers),
                Err(fault) => {
                    self.forget();
                    if matches!(fault, Fault::Unknown(_)) || !deadline.has_passed() {
                        return batch.refuse(&fault);
                    }
                    batch.refuse_late(&fault);
                }
            }
        }
    }

    /// Plans and writes until it is through.
    async fn carry_out(
        &mut self,
        wishes: &[Wish],
        deadline: Deadline,
    ) -> Result<Vec<Answer>, Fault> {
        let bounded = self.cluster.until(deadline);
        let mut found = HashMap::new();
        let mut is_fresh = false;
        let content =
            |wish: &Wish| wish.events().iter().map(|event| Arc::new(Content::of(event))).collect();
        let contents: Vec<Vec<Arc<Content>>> = wishes.iter().map(content).collect();
        loop {
            self.load(&bounded, wishes).await?;
            let table = self.table.get();
            let plan = Plan::make(
                wishes,
                &View {
                    table: &table,
                    heads: &self.known.heads,
                    groups: &self.known.groups,
                    found: &found,
                    contents: &contents,
                    now: self.clock.now(),
                },
            );
            if plan.may_be_mistaken() && !is_fresh {
                is_fresh = true;
                self.look_again(&bounded).await?;
                continue;
            }
            if plan.is_empty() {
                return Ok(plan.answers);
            }
            let plan = Arc::new(plan);
            let (cluster, growing) = (self.cluster.clone(), Arc::clone(&self.growing));
            let attempt = CarryOut { cluster, plan: Arc::clone(&plan), growing };
            match transact(&self.cluster, deadline, attempt).await {
                Ok(()) => return Ok(self.remember(plan)),
                Err(fault @ (Fault::Duplicate(_) | Fault::Stale)) if deadline.has_passed() => {
                    return Err(Fault::Refused(fault.to_string()));
                }
                // Another hub was faster. Where its lanes end by now was heard of, mostly.
                Err(Fault::Stale) if self.growing.is_beyond(&plan.begins()) => {
                    self.known.heads.retain(|lane, _| !plan.lanes.contains_key(lane));
                }
                Err(Fault::Stale) => self.look_again(&bounded).await?,
                Err(Fault::Duplicate(_)) => {
                    let before = found.len();
                    self.find_all(&bounded, &plan.ids, &mut found).await?;
                    self.look_again(&bounded).await?;
                    if found.len() == before {
                        // Written by another hub, but not for sure yet.
                        deadline.pause(RETRY_MIN).await;
                    }
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    fn forget(&mut self) {
        self.known = Known::default();
        self.growing.forget_heads();
    }

    /// Forgets what may be wrong, and reads the topics again.
    async fn look_again(&mut self, cluster: &Cluster) -> Result<(), Fault> {
        self.forget();
        // Whoever else reads them may take longer than there is time.
        let refreshed = cluster.deadline().hold(self.table.refresh(cluster)).await;
        if refreshed.ok_or_else(too_late)?? {
            let table = self.table.get();
            self.growing.note_topics(|lane| table.by_id(lane.topic).is_none());
        }
        Ok(())
    }

    async fn find_all(
        &self,
        cluster: &Cluster,
        ids: &[(TopicId, EventId)],
        found: &mut HashMap<(TopicId, EventId), Stored>,
    ) -> Result<(), Fault> {
        let table = self.table.get();
        let mut by_topic: HashMap<TopicId, Vec<EventId>> = HashMap::new();
        for (topic, id) in ids {
            by_topic.entry(*topic).or_default().push(*id);
        }
        for (topic, ids) in by_topic {
            let Some(entry) = table.by_id(topic) else { continue };
            let there = lookup::find_all(cluster, entry, &ids).await?;
            found.extend(there.into_iter().map(|stored| ((topic, stored.event.id), stored)));
        }
        Ok(())
    }

    /// Reads what planning needs and is not known.
    async fn load(&mut self, cluster: &Cluster, wishes: &[Wish]) -> Result<(), Fault> {
        if self.known.heads.len() > LANES_KNOWN_MAX {
            self.known.heads.clear();
        }
        if self.known.groups.len() > GROUPS_KNOWN_MAX {
            self.known.groups.clear();
        }
        let table = self.table.get();
        let events = wishes.iter().flat_map(Wish::events);
        let mut lanes: BTreeSet<Lane> =
            events.filter_map(|event| lane_of(&table, event).ok()).map(|(_, lane)| lane).collect();
        for wish in wishes {
            match wish {
                Wish::Append(append) => lanes.extend(append.expect.iter().map(|e| e.lane)),
                Wish::Save(save) if !self.known.groups.contains_key(&save.group) => {
                    let known = groups::known(cluster, &save.group).await?;
                    self.known.groups.insert(save.group.clone(), known);
                }
                Wish::Save(_) => {}
            }
        }
        lanes.retain(|lane| !self.is_known(*lane));
        if lanes.is_empty() {
            return Ok(());
        }
        let read = heads(cluster, &lanes).await?;
        for lane in lanes {
            self.known.heads.insert(lane, read.get(&lane).copied().unwrap_or_default());
        }
        Ok(())
    }

    /// Whether it is known where a lane ends; the newest there is then is.
    fn is_known(&mut self, lane: Lane) -> bool {
        let known = self.known.heads.get(&lane).copied();
        let heard = self.growing.head(lane).filter(|head| {
            // What was only said of its end is newer, and not enough.
            self.growing.end(lane).is_none_or(|end| end <= head.next)
                && known.is_none_or(|known| known.next < head.next)
        });
        let Some(head) = heard.or(known) else { return false };
        self.known.heads.insert(lane, head);
        true
    }

    /// Takes over what a transaction has written.
    pub(crate) fn remember(&mut self, plan: Arc<Plan>) -> Vec<Answer> {
        for (lane, change) in &plan.lanes {
            self.known.heads.insert(*lane, Head { exists: true, ..change.after });
        }
        for (name, change) in &plan.groups {
            let known = self.known.groups.entry(name.clone()).or_default();
            known.get_or_insert_default().incarnation.clone_from(&change.incarnation);
        }
        for ((name, lane), change) in &plan.cursors {
            if let Some(Some(known)) = self.known.groups.get_mut(name) {
                known.lanes.entry(*lane).or_default().state = Some(change.after.clone());
            }
        }
        if !plan.tells_within() {
            self.teller.tell(plan.grown());
        }
        self.growing.note_ends(plan.lanes.iter().map(|(lane, change)| (*lane, change.after.next)));
        Arc::try_unwrap(plan).map_or_else(|plan| plan.answers.clone(), |plan| plan.answers)
    }
}

/// Puts a wish into the batch; gives back what goes by itself.
fn sort(batch: &mut Batch, Asked { request, deadline }: Asked) -> Option<Asked> {
    match request {
        Request::Append(append, reply) => {
            batch.add(Wish::Append(append), Waiting::Appender(reply), deadline);
            None
        }
        Request::Save(save, reply) => {
            batch.add(Wish::Save(save), Waiting::Saver(reply), deadline);
            None
        }
        request => Some(Asked { request, deadline }),
    }
}

/// Nothing was begun.
fn waited_in_vain() -> Fault {
    Fault::Refused("MongoDB did not do in time what was asked for before".to_owned())
}

/// Where lanes end: the newest there is, whoever may still take it back. A condition on it holds
/// only if what it was is there too.
pub(crate) async fn heads(
    cluster: &Cluster,
    lanes: &BTreeSet<Lane>,
) -> Result<HashMap<Lane, Head>, Fault> {
    let ids: Vec<i64> = lanes.iter().map(|lane| signed(lane.id().get())).collect();
    let reading = async {
        let by_id = cluster.lanes.find(doc! { "_id": { "$in": ids } });
        let mut cursor = by_id.read_concern(ReadConcern::local()).await?;
        let mut found = HashMap::new();
        while cursor.advance().await? {
            let document = cursor.deserialize_current()?;
            let number = |name: &str| document.get_i64(name).map_or(0, unsigned);
            let time =
                document.get_datetime("appendedAt").map_or(0, |time| time.timestamp_millis());
            let head = Head {
                next: number("next"),
                bytes: number("bytes"),
                appended_at: promethean_event::Timestamp::from_millis(unsigned(time)),
                exists: true,
            };
            found.insert(groups::lane(document.get_i64("_id").unwrap_or(0)), head);
        }
        Ok(found)
    };
    cluster.ask(reading).await
}
