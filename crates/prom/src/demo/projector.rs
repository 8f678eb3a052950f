//! Heartbeats in, process states out.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use promethean::{Bus, Consumer, Delivered, Failure, PublishError, Start};
use promethean_event::{Event, GroupName, NewEvent, Payload, Timestamp, Topic};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::table::{Change, Heartbeat, ProcessState, ProcessTable};
use super::{GROUP, HEARTBEATS, STATES};
use crate::clock;

/// Silence is looked for so often.
const LOOK: Duration = Duration::from_secs(1);
/// States that are read at once at the start.
const PAGE: usize = 500;

impl Heartbeat {
    /// A beat of this moment.
    pub(super) fn event(&self) -> Result<NewEvent, PublishError> {
        let topic = Topic::new(HEARTBEATS)?;
        let id = promethean_event::EventId::generate();
        let event = NewEvent::new(id, clock::timestamp(), topic, Payload::of(self)?);
        Ok(event.with_key(self.key()?))
    }
}

impl Change {
    fn event(&self, now: Timestamp) -> Result<NewEvent, PublishError> {
        let payload = Payload::of(&self.state)?;
        let mut event = NewEvent::new(self.id(), now, Topic::new(STATES)?, payload);
        event.caused_by = self.cause.into_iter().collect();
        Ok(event.with_key(self.key.clone()))
    }
}

#[derive(Debug)]
pub(super) struct Projector {
    consumer: Consumer,
    tasks: JoinSet<()>,
}

/// What the handler and the one timer share. Held while a change is published: it counts only
/// afterwards, and nobody decides on what is not known to be true yet.
type Shared = Arc<Mutex<ProcessTable>>;

impl Projector {
    pub(super) async fn start(bus: &Bus) -> anyhow::Result<Self> {
        let table: Shared = Arc::new(Mutex::new(recovered(bus).await?));
        let (handler_bus, handler_table) = (bus.clone(), Arc::clone(&table));
        let consumer = bus
            .subscribe_to([HEARTBEATS], GROUP)
            .from(Start::Earliest)
            .handle(move |delivered: Delivered<Event>| {
                let (bus, table) = (handler_bus.clone(), Arc::clone(&handler_table));
                async move { beat(&bus, &table, delivered.event()).await }
            })
            .await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(silences(bus.clone(), table));
        Ok(Self { consumer, tasks })
    }

    pub(super) async fn stop(mut self) {
        self.tasks.shutdown().await;
        // The group says itself why it stopped, if it did.
        let _ = self.consumer.stop().await;
    }
}

/// What was known when the demo last ran.
async fn recovered(bus: &Bus) -> anyhow::Result<ProcessTable> {
    let topic = Topic::new(STATES)?;
    let mut table = ProcessTable::default();
    let mut after = None;
    loop {
        let page = bus.keys(&topic, "", after, PAGE).await.context("reading process.state")?;
        after = page.events.last().and_then(|stored| stored.event.key.clone());
        for stored in page.events {
            let event = stored.event;
            let state = event.payload.decode::<ProcessState>().ok();
            if let (Some(key), Some(state)) = (event.key, state) {
                let cause = event.caused_by.first().copied();
                table.keep(Change { key, state: Some(state), cause });
            }
        }
        if !page.more || after.is_none() {
            return Ok(table);
        }
    }
}

async fn beat(bus: &Bus, table: &Shared, event: &Event) -> Result<(), Failure> {
    // Trying again would not make another payload of it.
    let beat: Heartbeat = event
        .payload
        .decode()
        .map_err(|error| Failure::park(format!("not a heartbeat: {error}")))?;
    let key = beat.key().map_err(Failure::park)?;
    let mut table = table.lock().await;
    if let Some(change) = table.beat(&key, &beat, event.ts, event.id) {
        bus.publish(change.event(clock::timestamp())?).await?;
        table.keep(change);
    }
    Ok(())
}

/// Tells who has gone silent. Beats that are there already are heard first.
async fn silences(bus: Bus, table: Shared) {
    let Ok(group) = GroupName::new(GROUP) else { return };
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        if bus.caught_up(&group).await.is_err() {
            return;
        }
        ticks.tick().await;
        let mut table = table.lock().await;
        let now = clock::timestamp();
        for change in table.silence(now) {
            let Ok(event) = change.event(now) else { continue };
            // What cannot be published now is found again at the next look.
            if bus.publish(event).await.is_ok() {
                table.keep(change);
            }
        }
    }
}
