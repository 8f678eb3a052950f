//! What a bus does by itself: retention and compaction, and a look at what nobody reads, from time to
//! time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use promethean_event::Offset;

use crate::bus::BusInner;
use crate::clock::Clock;
use crate::limits::SCHEMA_REFRESH_MS;
use crate::store::Lane;

pub(crate) fn start(bus: &Arc<BusInner>) {
    let period = bus.options.clean_every;
    bus.runtime.spawn(run(Arc::downgrade(bus), period));
    bus.runtime.spawn(scrub(Arc::downgrade(bus), bus.options.scrub_every));
    bus.runtime.spawn(follow_schemas(Arc::downgrade(bus)));
}

/// The share of its time after which scrubbing begins.
const SCRUB_BEGINS: u32 = 10_000;
/// Parts of a store are looked at this much apart at least.
const SCRUB_REST: Duration = Duration::from_millis(100);

/// Looks at one part of the store after the other, so that all have been looked at in a period.
/// Which is next, the time says: a bus that is restarted goes on where it would have been.
async fn scrub(bus: Weak<BusInner>, period: Duration) {
    let clock = Clock::start();
    let mut rest = (period / SCRUB_BEGINS).max(SCRUB_REST);
    loop {
        tokio::time::sleep(rest).await;
        let Some(bus) = bus.upgrade() else {
            return;
        };
        let place = clock.now_ms() / rest.as_millis() as u64;
        match bus.store.scrub(place).await {
            Ok(parts) => {
                let parts = u32::try_from(parts.max(1)).unwrap_or(u32::MAX);
                rest = (period / parts).max(SCRUB_REST);
            }
            Err(error) => tracing::warn!(%error, "a part of the store could not be read"),
        }
    }
}

/// Looks for what others have registered in the same store: when they say so, and now and then.
async fn follow_schemas(bus: Weak<BusInner>) {
    let schemas = || bus.upgrade().map(|bus| Arc::clone(&bus.groups.site().schemas));
    // Not the schemas themselves: who waits must not keep the store open.
    let Some(news) = schemas().map(|schemas| Arc::clone(schemas.news())) else { return };
    loop {
        let period = Duration::from_millis(SCHEMA_REFRESH_MS);
        // Whether it was rung or the time is over makes no difference.
        drop(tokio::time::timeout(period, news.notified()).await);
        let Some(schemas) = schemas() else { return };
        // Whoever needs them first reads them.
        if schemas.seen().is_some()
            && let Err(error) = schemas.refresh().await
        {
            tracing::warn!(%error, "the schemas could not be read, trying again later");
        }
    }
}

async fn run(bus: Weak<BusInner>, period: std::time::Duration) {
    loop {
        tokio::time::sleep(period).await;
        let Some(bus) = bus.upgrade() else {
            return;
        };
        if let Err(error) = bus.clean().await {
            tracing::warn!(%error, "cleaning failed, trying again later");
        }
    }
}

impl BusInner {
    /// Removes what retention and compaction let go, except what groups hold.
    pub(crate) async fn clean(&self) -> Result<(), crate::error::GroupError> {
        let holds = self.holds().await?;
        self.store.clean(holds).await?;
        Ok(())
    }

    /// What projections have not read, and what groups with `hold` have not finished, whether they are being driven or not.
    async fn holds(&self) -> Result<Vec<(Lane, Offset)>, crate::error::GroupError> {
        let mut holds = self.holds.list();
        for name in self.store.groups().await? {
            let Some(record) = self.store.group(name).await? else {
                continue;
            };
            let settings = record.settings.decode::<crate::settings::GroupSettings>();
            // Settings that cannot be read hold everything: nothing goes by mistake.
            if settings.is_ok_and(|settings| !settings.hold) {
                continue;
            }
            holds
                .extend(record.lanes.iter().map(|(lane, state)| (*lane, Offset::new(state.floor))));
        }
        Ok(holds)
    }
}
