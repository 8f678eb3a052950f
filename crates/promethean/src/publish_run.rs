//! Publishes that came together, each for itself: what a connection has sent in one go.

use futures_core::future::BoxFuture;
use promethean_event::NewEvent;

use crate::bus::Bus;
use crate::clock::Stopwatch;
use crate::error::PublishError;
use crate::publish::{Marks, Names, PublishOptions, Published, admit, all_published, names_of};
use crate::store::{Append, AppendError, Appended};
use crate::{snapshot, spans};

/// What became of each publish of a run, in its order.
pub type RunOutcome = Vec<Result<Vec<Published>, PublishError>>;

impl Bus {
    /// Publishes batches that came together. Each is all or none and answered for itself, as by
    /// [`Bus::publish_with`]; they stand in this order, if their topics are there. Handed to the
    /// store by the first poll at the latest.
    pub fn publish_run(
        &self,
        run: Vec<(Vec<NewEvent>, PublishOptions)>,
    ) -> BoxFuture<'static, RunOutcome> {
        let begun = Stopwatch::start();
        if !self.is_only_to_store(&run) {
            let each = run.into_iter().map(|(events, options)| {
                let bus = self.clone();
                async move { bus.publish_with(events, options).await }
            });
            return Box::pin(futures_util::future::join_all(each));
        }
        let mut appends = Vec::with_capacity(run.len());
        let mut admitted: Vec<Result<Names, PublishError>> = Vec::with_capacity(run.len());
        for (mut events, options) in run {
            admitted.push(admit(&mut events, Marks::TakenOff).map(|()| {
                let names = names_of(&events);
                let PublishOptions { durability, expect } = options;
                appends.push(Append { events, durability, expect });
                names
            }));
        }
        let (bus, appending) = (self.clone(), self.inner.store.append_run(appends));
        Box::pin(async move {
            let mut appended = appending.await.into_iter();
            let outcome = |admitted: Result<Names, PublishError>| {
                let names = admitted?;
                let appended = appended.next().unwrap_or(Err(AppendError::Closed))?;
                bus.count(&appended);
                Ok(all_published(names, &appended))
            };
            let outcomes: RunOutcome = admitted.into_iter().map(outcome).collect();
            bus.measure(begun, &outcomes);
            outcomes
        })
    }

    /// Whether nothing has to be done about any of the events but to store them.
    fn is_only_to_store(&self, run: &[(Vec<NewEvent>, PublishOptions)]) -> bool {
        let topics = self.inner.store.topics();
        let mut events = run.iter().flat_map(|(events, _)| events);
        self.inner.groups.site().schemas.is_idle()
            && !spans::are_made()
            && events.all(|event| {
                topics.get(&event.topic).is_some() && !snapshot::is_snapshot_name(&event.topic)
            })
    }

    /// Counts what was stored.
    pub(crate) fn count(&self, appended: &Appended) {
        let meters = &self.inner.groups.site().meters;
        if meters.is_on() {
            meters.publish.count(&appended.receipts, || self.inner.store.topics());
        }
    }

    fn measure(&self, begun: Stopwatch, outcomes: &RunOutcome) {
        let meters = &self.inner.groups.site().meters;
        if !meters.is_on() {
            return;
        }
        let nanos = begun.nanos();
        outcomes.iter().for_each(|outcome| meters.publish.ended(outcome, nanos));
    }
}
