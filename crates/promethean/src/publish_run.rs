//! Publishes that came together, each for itself: what a connection has sent in one go.

use futures_core::future::BoxFuture;

use crate::bus::Bus;
use crate::clock::Stopwatch;
use crate::error::PublishError;
use crate::publish::{Marks, PublishOptions, admit};
use crate::store::{Append, Appended, Run};
use crate::{snapshot, spans};

/// What became of each part of a run, in their order.
pub type RunOutcome = Vec<Result<Appended, PublishError>>;

impl Bus {
    /// Publishes what came together. Each part is all or none and answered for itself, as by
    /// [`Bus::publish_with`]; they stand in this order, if their topics are there. Handed to the
    /// store by the first poll at the latest.
    pub fn publish_run(&self, mut run: Run) -> BoxFuture<'static, RunOutcome> {
        let begun = Stopwatch::start();
        if !self.is_only_to_store(&run) || admit(run.events_mut(), Marks::TakenOff).is_err() {
            let each = run.into_appends().map(|append| {
                let bus = self.clone();
                async move { bus.publish_of_run(begun, append).await }
            });
            return Box::pin(futures_util::future::join_all(each));
        }
        let (bus, appending) = (self.clone(), self.inner.store.append_run(run));
        Box::pin(async move {
            let appended = appending.await.into_iter();
            let outcomes: RunOutcome = appended.map(|one| one.map_err(Into::into)).collect();
            bus.count(outcomes.iter().flatten());
            bus.measure(begun, &outcomes);
            outcomes
        })
    }

    async fn publish_of_run(
        &self,
        begun: Stopwatch,
        append: Append,
    ) -> Result<Appended, PublishError> {
        let Append { events, durability, expect } = append;
        let own = events.len();
        let options = PublishOptions { durability, expect };
        let mut appended = self.place_since(begun, events, options, Marks::TakenOff).await?;
        // Copies that dual writes made are nobody's here.
        appended.receipts.truncate(own);
        Ok(appended)
    }

    /// Whether nothing has to be done about any of the events but to store them.
    fn is_only_to_store(&self, run: &Run) -> bool {
        let topics = self.inner.store.topics();
        let events = run.events();
        let mut topic = None;
        self.inner.groups.site().schemas.is_idle()
            && !spans::are_made()
            && events.iter().all(|event| {
                // Most are of the topic of the one before.
                topic == Some(&event.topic) || {
                    topic = Some(&event.topic);
                    topics.get(&event.topic).is_some() && !snapshot::is_snapshot_name(&event.topic)
                }
            })
    }

    /// Counts what was stored.
    pub(crate) fn count<'a>(&self, appended: impl Iterator<Item = &'a Appended>) {
        let meters = &self.inner.groups.site().meters;
        if meters.is_on() {
            let receipts = appended.flat_map(|appended| &appended.receipts);
            meters.publish.count(receipts, || self.inner.store.topics());
        }
    }

    fn measure(&self, begun: Stopwatch, outcomes: &RunOutcome) {
        let meters = &self.inner.groups.site().meters;
        if meters.is_on() {
            meters.publish.all_ended(outcomes, begun.nanos());
        }
    }
}
