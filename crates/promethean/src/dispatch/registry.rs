use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use promethean_delivery::{Group, LaneState};
use promethean_event::{EventId, GroupName, Offset, Payload, Start};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::active::ActiveGroup;
use super::fetch::SharedPages;
use super::hub::{self, Hub};
use super::lanes::first_delta;
use super::router::{self, Router};
use crate::clock::{Clock, Stopwatch};
use crate::decode::Want;
use crate::error::GroupError;
use crate::faults::Faults;
use crate::metrics::Meters;
use crate::options::BusOptions;
use crate::registry::Registry;
use crate::settings::{Filter, GroupSettings};
use crate::start::offset_in;
use crate::store::{GroupRecord, GroupSave, Lane, Store, TopicTable};

/// What all groups of a bus have in common.
pub(crate) struct Site {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runtime: Handle,
    pub(crate) clock: Clock,
    pub(crate) router: Router,
    pub(super) pages: SharedPages,
    pub(crate) meters: Meters,
    /// Takes out of an error text what must not be kept.
    pub(super) redact: Redact,
    /// The schemas of the topics.
    pub(crate) schemas: Arc<Registry>,
    /// How many groups there may be.
    groups_max: usize,
    /// This hub, where several use the store.
    pub(crate) hub: Option<Hub>,
    /// What is to go wrong on purpose.
    pub(crate) faults: Option<Arc<dyn Faults>>,
}

/// Takes out of an error text what must not be kept.
pub(crate) type Redact = Arc<dyn Fn(String) -> String + Send + Sync>;

impl Site {
    /// Begins to measure, if times are taken.
    pub(crate) fn watch(&self) -> Option<Stopwatch> {
        self.meters.is_on().then(Stopwatch::start)
    }

    /// Spawns what should not wait until its spawner does. The runtime keeps the last task that a
    /// task has spawned for the thread of that one, where no other thread takes it from; so it is
    /// not the last.
    pub(super) fn spawn_apart(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
        self.runtime.spawn(std::future::ready(()));
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("store", &self.store).finish_non_exhaustive()
    }
}

/// The groups that are being driven by this process.
#[derive(Debug)]
pub(crate) struct Groups {
    site: Arc<Site>,
    by_name: Mutex<HashMap<GroupName, Slot>>,
    /// The same without waiting for one that is being taken up or let go, for those who watch.
    live: Mutex<HashMap<GroupName, Weak<ActiveGroup>>>,
    /// What wakes groups when the store grows, and what deals with other hubs. They hold the store
    /// while they wait.
    tasks: OnceLock<Vec<AbortHandle>>,
}

/// The bus is gone: who waits for deliveries is told, and the store is let go.
impl Drop for Groups {
    fn drop(&mut self) {
        self.end_tasks();
        let slots = self.by_name.get_mut().unwrap_or_else(PoisonError::into_inner);
        for slot in slots.values() {
            // One that is being made at this moment has no members yet.
            if let Ok(slot) = slot.try_lock()
                && let Some(group) = &*slot
            {
                group.close();
            }
        }
    }
}

/// Filled once, by whoever comes first; the others wait.
type Slot = Arc<tokio::sync::Mutex<Option<Arc<ActiveGroup>>>>;

/// A wish to have a group as it is described.
#[derive(Debug, Clone)]
pub(crate) struct GroupWish {
    pub(crate) settings: GroupSettings,
    pub(crate) filter: Option<Filter>,
    pub(crate) from: Start,
    /// The version of the type that the member takes events as.
    pub(crate) version: Option<u32>,
}

impl Groups {
    pub(crate) fn start(
        store: Arc<dyn Store>,
        runtime: &Handle,
        options: &BusOptions,
    ) -> Arc<Self> {
        let clock = Clock::start();
        let schemas = Arc::new(Registry::new(Arc::clone(&store), clock));
        let site = Site {
            store: Arc::clone(&store),
            runtime: runtime.clone(),
            clock,
            schemas,
            router: Router::default(),
            pages: SharedPages::default(),
            meters: Meters::new(options.metering),
            groups_max: options.groups_max,
            hub: store.claims().map(|_| Hub::new(options.hub_lease)),
            redact: options.redactor(),
            faults: options.wanted_faults(),
        };
        let (by_name, live) = (Mutex::default(), Mutex::default());
        let groups = Arc::new(Self { site: Arc::new(site), by_name, live, tasks: OnceLock::new() });
        // Only now: a store that holds events has grown already, and a router that found no groups
        // to tell would take it that the bus is gone.
        let run = router::run(store, Arc::downgrade(&groups));
        let mut tasks = vec![runtime.spawn(run).abort_handle()];
        if groups.site.hub.is_some() {
            let (weak, site) = (Arc::downgrade(&groups), &groups.site);
            tasks.push(runtime.spawn(hub::attend(weak.clone(), Arc::clone(site))).abort_handle());
            tasks.push(runtime.spawn(hub::balance(weak, Arc::clone(site))).abort_handle());
        }
        groups.tasks.get_or_init(|| tasks);
        groups
    }

    pub(super) fn end_tasks(&self) {
        self.tasks.get().into_iter().flatten().for_each(AbortHandle::abort);
    }

    pub(crate) const fn site(&self) -> &Arc<Site> {
        &self.site
    }

    fn slot(&self, name: &GroupName) -> Slot {
        let mut slots = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(slots.entry(name.clone()).or_default())
    }

    /// The groups that are being driven. Waits for those that are being made or changed: one that
    /// was left out would never hear of a topic that is made at this moment.
    pub(crate) async fn active(&self) -> Vec<Arc<ActiveGroup>> {
        let slots: Vec<Slot> = {
            let slots = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
            slots.values().cloned().collect()
        };
        let mut groups = Vec::new();
        for slot in slots {
            groups.extend(slot.lock().await.clone());
        }
        groups
    }

    /// The same, with those that are being taken up or let go.
    pub(crate) fn live(&self) -> Vec<Arc<ActiveGroup>> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|_, group| group.strong_count() > 0);
        live.values().filter_map(Weak::upgrade).collect()
    }

    fn set_live(&self, name: &GroupName, group: Option<&Arc<ActiveGroup>>) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        match group {
            Some(group) => live.insert(name.clone(), Arc::downgrade(group)),
            None => live.remove(name),
        };
    }

    /// The group of this name, if there is one.
    pub(crate) async fn get(&self, name: &GroupName) -> Result<Arc<ActiveGroup>, GroupError> {
        let slot = self.slot(name);
        let mut slot = slot.lock().await;
        self.see_if_current(&mut slot).await?;
        if let Some(group) = &*slot {
            return Ok(Arc::clone(group));
        }
        self.site.schemas.catalog().await?;
        let record = self.site.store.group(name.clone()).await?;
        let record = record.ok_or_else(|| GroupError::Unknown(name.clone()))?;
        let settings = settings_of(name, &record)?;
        let group = self.take_up(name, settings, record).await?;
        *slot = Some(Arc::clone(&group));
        Ok(group)
    }

    /// The group as it is wished for: made if it is not there, changed if nobody uses it.
    pub(crate) async fn get_or_make(
        &self,
        name: &GroupName,
        wish: GroupWish,
    ) -> Result<Arc<ActiveGroup>, GroupError> {
        wish.settings.check()?;
        self.check_versions(name, &wish).await?;
        let slot = self.slot(name);
        let mut slot = slot.lock().await;
        self.see_if_current(&mut slot).await?;
        if let Some(group) = &*slot {
            if group.settings() == wish.settings || group.member_count() > 0 {
                return agree(group, wish);
            }
            // Nobody is there to be surprised: the group is let go and taken up as it is wished.
            self.let_go(&mut slot).await;
        }
        let record = match self.site.store.group(name.clone()).await? {
            Some(record) => self.change(name, &wish, record).await?,
            None => self.make(name, &wish).await?,
        };
        let group = self.take_up(name, wish.settings.clone(), record).await?;
        group.lock().filter = wish.filter;
        *slot = Some(Arc::clone(&group));
        Ok(group)
    }

    /// Lets go of a group that was removed or changed at another hub, if nobody uses it here.
    async fn see_if_current(&self, slot: &mut Option<Arc<ActiveGroup>>) -> Result<(), GroupError> {
        let Some(group) = slot.as_ref().filter(|_| self.site.hub.is_some()) else {
            return Ok(());
        };
        if group.failure().is_none() {
            if group.member_count() > 0 {
                return Ok(());
            }
            let record = self.site.store.group(group.name.clone()).await?;
            let settings = record.map(|record| settings_of(&group.name, &record)).transpose()?;
            if settings.is_some_and(|settings| settings == group.settings()) {
                return Ok(());
            }
            group.fail("it was changed or removed at another hub");
        }
        self.let_go(slot).await;
        Ok(())
    }

    /// Takes a group out of its place, once what it decided is durable.
    async fn let_go(&self, slot: &mut Option<Arc<ActiveGroup>>) {
        let Some(group) = slot.take() else { return };
        self.site.router.remove(&group);
        let _one_at_a_time = group.sharing.lock().await;
        if self.site.hub.is_some()
            && let Err(error) = group.give_back_all().await
        {
            tracing::warn!(group = %group.name, %error, "lanes could not be given back");
        }
        group.retire().await;
    }

    /// How many other hubs have members of a group, if any.
    fn elsewhere(&self, name: &GroupName) -> Option<usize> {
        let hubs = self.site.hub.as_ref()?.elsewhere(name);
        (hubs > 0).then_some(hubs)
    }

    /// What a group reads must be there: otherwise all its events would be dead letters.
    async fn check_versions(&self, name: &GroupName, wish: &GroupWish) -> Result<(), GroupError> {
        let catalog = self.site.schemas.catalog().await?;
        for entry in self.site.store.topics().users() {
            let topic = &entry.definition.topic;
            let want = wish.settings.reads_as.of(topic, wish.version);
            let (Want::Version(version), true) = (want, wish.settings.reads(topic)) else {
                continue;
            };
            let found = catalog.find(topic).ok().flatten();
            if found.is_some_and(|found| !found.subject.versions.contains_key(&version)) {
                let (group, topic) = (name.clone(), topic.clone());
                return Err(GroupError::UnknownVersion { group, topic, version });
            }
        }
        Ok(())
    }

    /// Makes a group: its settings and where it begins in every lane become durable together, so
    /// that it misses nothing from the moment its first member is there.
    async fn make(&self, name: &GroupName, wish: &GroupWish) -> Result<GroupRecord, GroupError> {
        let max = self.site.groups_max;
        if max < usize::MAX && self.site.store.groups().await?.len() >= max {
            return Err(GroupError::TooMany(max));
        }
        let settings = encode(&wish.settings);
        let topics = self.site.store.topics();
        let lanes = self.starts(&topics, wish, |_| true).await?;
        self.save_start(name, settings, lanes, Vec::new()).await
    }

    /// Brings a group to other settings. Topics that it did not read before begin as wished.
    async fn change(
        &self,
        name: &GroupName,
        wish: &GroupWish,
        record: GroupRecord,
    ) -> Result<GroupRecord, GroupError> {
        let before = settings_of(name, &record)?;
        if before == wish.settings {
            return Ok(record);
        }
        if self.elsewhere(name).is_some() {
            let differences = differences(&before, &wish.settings);
            return Err(GroupError::OtherSettings { group: name.clone(), differences });
        }
        let topics = self.site.store.topics();
        let is_new = |lane: Lane| {
            let known = record.lanes.iter().any(|(have, _)| *have == lane);
            let read = topics.by_id(lane.topic).is_some_and(|e| before.reads(&e.definition.topic));
            !known && !read
        };
        let lanes = self.starts(&topics, wish, is_new).await?;
        self.save_start(name, encode(&wish.settings), lanes, record.lanes).await
    }

    async fn starts(
        &self,
        topics: &TopicTable,
        wish: &GroupWish,
        is_new: impl Fn(Lane) -> bool,
    ) -> Result<Vec<(Lane, Offset)>, GroupError> {
        let mut starts = Vec::new();
        for entry in topics.users().filter(|entry| wish.settings.reads(&entry.definition.topic)) {
            for lane in entry.lanes().filter(|&lane| is_new(lane)) {
                starts.push((lane, offset_in(wish.from, &*self.site.store, lane).await?));
            }
        }
        Ok(starts)
    }

    async fn save_start(
        &self,
        name: &GroupName,
        settings: Payload,
        starts: Vec<(Lane, Offset)>,
        mut lanes: Vec<(Lane, LaneState)>,
    ) -> Result<GroupRecord, GroupError> {
        let deltas: Vec<_> =
            starts.into_iter().map(|(lane, offset)| (lane, first_delta(offset))).collect();
        let save = GroupSave {
            group: name.clone(),
            settings: Some(settings.clone()),
            lanes: deltas.clone(),
            dead_letters: Vec::new(),
            claims: Vec::new(),
        };
        self.site.store.save(save).await?;
        for (lane, delta) in deltas {
            let mut state = LaneState::default();
            // The first delta always follows nothing.
            if state.apply(&delta).is_ok() {
                lanes.push((lane, state));
            }
        }
        Ok(GroupRecord { settings, lanes })
    }

    async fn take_up(
        &self,
        name: &GroupName,
        settings: GroupSettings,
        record: GroupRecord,
    ) -> Result<Arc<ActiveGroup>, GroupError> {
        let seed = u64::from_le_bytes(seed_bytes(name));
        let engine = Group::new(settings.for_delivery(), seed)
            .map_err(crate::settings::SettingsError::from)?;
        let site = Arc::clone(&self.site);
        let group = Arc::new(ActiveGroup::new(name.clone(), site, settings.clone(), engine));
        self.set_live(name, Some(&group));
        if self.site.hub.is_some() {
            // Which lanes are this hub's is settled with the others, once it has a member.
            return Ok(group);
        }
        let mut states: HashMap<Lane, LaneState> = record.lanes.into_iter().collect();
        let topics = self.site.store.topics();
        for entry in topics.users().filter(|entry| settings.reads(&entry.definition.topic)) {
            group.add_topic(entry, |lane| states.remove(&lane)).await?;
        }
        Ok(group)
    }

    pub(super) async fn follow_topics(&self) {
        for group in self.active().await {
            if let Err(error) = group.follow_topics().await {
                tracing::warn!(group = %group.name, %error, "a new topic could not be taken up");
            }
        }
    }

    /// Forgets a group that has no members.
    pub(crate) async fn remove(&self, name: &GroupName) -> Result<(), GroupError> {
        let slot = self.slot(name);
        let mut slot = slot.lock().await;
        if let Some(group) = &*slot {
            let members = group.member_count();
            if members > 0 {
                return Err(GroupError::InUse { group: name.clone(), members });
            }
            self.let_go(&mut slot).await;
            self.set_live(name, None);
        }
        if let Some(hubs) = self.elsewhere(name) {
            return Err(GroupError::InUseElsewhere { group: name.clone(), hubs });
        }
        if self.site.store.group(name.clone()).await?.is_none() {
            return Err(GroupError::Unknown(name.clone()));
        }
        self.site.store.remove_group(name.clone()).await?;
        Ok(())
    }
}

/// Members of one group want the same.
fn agree(group: &Arc<ActiveGroup>, wish: GroupWish) -> Result<Arc<ActiveGroup>, GroupError> {
    let settings = group.settings();
    if settings != wish.settings {
        let differences = differences(&settings, &wish.settings);
        return Err(GroupError::OtherSettings { group: group.name.clone(), differences });
    }
    let mut inner = group.lock();
    if inner.filter.is_none() {
        inner.filter = wish.filter;
    }
    drop(inner);
    Ok(Arc::clone(group))
}

fn differences(have: &GroupSettings, want: &GroupSettings) -> String {
    let fields = |settings| match serde_json::to_value(settings) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let (have, want) = (fields(have), fields(want));
    let other = have.iter().filter(|(name, value)| want.get(*name) != Some(value));
    let texts = other.map(|(name, value)| {
        let wanted = want.get(name).map(ToString::to_string).unwrap_or_default();
        format!("{name} is {value}, not {wanted}")
    });
    texts.collect::<Vec<_>>().join("; ")
}

fn encode(settings: &GroupSettings) -> Payload {
    // Plain fields always have a JSON form.
    Payload::of(settings).unwrap_or_else(|_| Payload::null())
}

pub(super) fn settings_of(
    name: &GroupName,
    record: &GroupRecord,
) -> Result<GroupSettings, GroupError> {
    record
        .settings
        .decode()
        .map_err(|error| GroupError::Unreadable { group: name.clone(), reason: error.to_string() })
}

fn seed_bytes(name: &GroupName) -> [u8; 8] {
    let id = EventId::derived("promethean group", name.as_str().as_bytes());
    id.as_bytes().first_chunk().copied().unwrap_or_default()
}
