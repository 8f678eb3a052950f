use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use promethean::member::MemberOptions;
use promethean::memory::MemoryStore;
use promethean::projection::Views;
use promethean::store::{Lane, ReadError, Store};
use promethean::{Bus, BusOptions, GroupError, GroupLag, Start};
use promethean_event::{Cursor, GroupName, Offset};
use tokio::time::timeout;

use crate::faults::Knobs;
use crate::unsettled::Unsettled;

/// How far the clock may go before something that does not end is taken for that.
const SETTLE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How far the clock goes between two looks at what lies behind a cursor.
const BEHIND: Duration = Duration::from_millis(50);
/// How many events may come for a group while it is waited for; more are taken for something
/// without an end, such as a consumer that feeds itself.
const EVENTS_MAX: u64 = 10_000;

/// A bus in memory, on a clock that jumps.
#[derive(Debug)]
pub struct Harness {
    bus: Bus,
    store: Arc<dyn Store>,
    knobs: Arc<Knobs>,
    views: Mutex<Vec<Views>>,
}

impl Harness {
    /// A bus with nothing in it. Stops the clock of this runtime, which must have one thread, as
    /// that of `#[tokio::test]` has.
    #[must_use]
    pub fn start() -> Self {
        Self::with(BusOptions::default())
    }

    /// The same, with options.
    #[must_use]
    pub fn with(options: BusOptions) -> Self {
        tokio::time::pause();
        Self::over(Arc::new(MemoryStore::with_runtime_clock()), options)
    }

    /// The same, over another store, which may have something in it.
    #[must_use]
    pub fn over(store: Arc<dyn Store>, options: BusOptions) -> Self {
        let knobs = Arc::new(Knobs::default());
        let options = options.faults(Arc::clone(&knobs) as _);
        let bus = Bus::with_store(Arc::clone(&store), options);
        Self { bus, store, knobs, views: Mutex::default() }
    }

    /// The bus.
    pub const fn bus(&self) -> &Bus {
        &self.bus
    }

    /// What it is kept in.
    pub const fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// From now on, [`settled`](Self::settled) waits for these views, too.
    pub fn attend(&self, views: &Views) {
        self.views.lock().unwrap_or_else(PoisonError::into_inner).push(views.clone());
    }

    /// Lets time go by: leases and delays that end meanwhile end.
    pub async fn advance(&self, time: Duration) {
        // Not by `advance`: what becomes due is to happen in its turn, and at its own time.
        tokio::time::sleep(time).await;
    }

    /// Waits until nothing is under way: every group has finished what is there, what it has given
    /// up is a dead letter, and nobody holds anything; the views that were
    /// [named](Self::attend) have all of it. The clock jumps over delays and leases.
    ///
    /// What never ends is named: a group by [`Unsettled::Restless`], a projection by
    /// [`Unsettled::View`].
    pub async fn settled(&self) -> Result<(), Unsettled> {
        let mut begun: HashMap<GroupName, u64> = HashMap::new();
        let mut before = None;
        loop {
            let lags = self.lags().await?;
            for lag in &lags {
                let end: u64 = lag.partitions.iter().map(|part| part.end.get()).sum();
                let first = *begun.entry(lag.group.clone()).or_insert(end);
                if end.saturating_sub(first) > EVENTS_MAX {
                    return Err(Unsettled::restless(lag));
                }
                if lag.events() > 0 {
                    self.wait_for(lag).await?;
                }
            }
            self.views_have_all().await?;
            // They are looked at one after the other: only if nothing was stored between two
            // looks were they all done at once.
            let ends = (self.ends().await?, lags.iter().map(ends_of).collect::<Vec<_>>());
            if lags.iter().all(|lag| lag.events() == 0) && Some(&ends) == before.as_ref() {
                return Ok(());
            }
            before = Some(ends);
        }
    }

    async fn views_have_all(&self) -> Result<(), Unsettled> {
        let views = self.views.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for projection in views.iter().flat_map(Views::running) {
            timeout(SETTLE_MAX, projection.caught_up())
                .await
                .map_err(|_| Unsettled::Behind(projection.name().to_owned()))??;
        }
        Ok(())
    }

    /// Where every partition ends.
    async fn ends(&self) -> Result<Vec<(Lane, Offset)>, ReadError> {
        let mut ends = Vec::new();
        for entry in self.bus.topics().users() {
            for lane in entry.lanes() {
                ends.push((lane, self.store.bounds(lane).await?.next));
            }
        }
        Ok(ends)
    }

    async fn lags(&self) -> Result<Vec<GroupLag>, GroupError> {
        let mut lags = Vec::new();
        for group in self.bus.groups().await? {
            lags.push(self.bus.lag(&group).await?);
        }
        Ok(lags)
    }

    async fn wait_for(&self, lag: &GroupLag) -> Result<(), Unsettled> {
        if lag.members == 0 {
            let (group, events) = (lag.group.clone(), lag.events());
            return Err(Unsettled::NoMember { group, events });
        }
        if lag.partitions.iter().all(|part| part.cursor >= part.end) {
            // Given back from the dead letters: it lies behind the cursor, and comes in its time.
            tokio::time::sleep(BEHIND).await;
            return Ok(());
        }
        match timeout(SETTLE_MAX, self.bus.caught_up(&lag.group)).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(Unsettled::restless(&self.bus.lag(&lag.group).await?)),
        }
    }

    /// The next deliveries to a group fail before a consumer sees them.
    pub fn fail(&self, group: &str, times: u32) {
        self.knobs.fail(group, times);
    }

    /// The next acks of a group get lost: what was handled is delivered again.
    pub fn duplicate(&self, group: &str, times: u32) {
        self.knobs.lose_acks(group, times);
    }

    /// Every delivery that is out is void, as if its connection were lost: it comes again, and an
    /// ack of it changes nothing.
    pub async fn drop_connections(&self) -> Result<(), GroupError> {
        for group in self.bus.groups().await? {
            for lag in self.bus.lag(&group).await?.partitions.iter().filter(|lag| lag.out > 0) {
                let (topic, partition) = (lag.topic.clone(), lag.partition);
                let next = Offset::new(lag.cursor.get());
                self.bus.set_cursor(&group, &Cursor { topic, partition, next }).await?;
            }
        }
        Ok(())
    }

    /// Another member joins a group and leaves again, so that its partitions are dealt out anew.
    pub async fn rebalance(&self, group: &str) -> Result<(), GroupError> {
        let group = GroupName::new(group)?;
        let settings = self.bus.group_settings(&group).await?;
        let drain = Duration::from_millis(settings.drain_ms.into());
        // It takes its share of the partitions, but no event.
        let options = MemberOptions { credits: Some(0), ..MemberOptions::default() };
        let member = self.bus.join(&group, settings, Start::Latest, options).await?;
        // Who has a partition that it loses may finish what it has of it.
        self.advance(drain).await;
        drop(member);
        Ok(())
    }
}

fn ends_of(lag: &GroupLag) -> (GroupName, Vec<(Offset, Offset)>) {
    let ends = lag.partitions.iter().map(|part| (part.cursor, part.end)).collect();
    (lag.group.clone(), ends)
}
