use std::sync::Arc;
use std::time::Duration;

use promethean_delivery::{Input, LaneDelta, LaneId, Save};
use tokio::time::Instant;

use super::active::{ActiveGroup, Inner};
use crate::limits::{
    SAVE_REST_MS, SAVE_REST_MS_MAX, SAVE_REST_TIMES, SAVE_RETRY_MS, SAVE_RETRY_MS_MAX,
};
use crate::store::{AppendError, GroupSave, Lane, SaveError};

/// A save on its way.
struct Step {
    number: u64,
    save: GroupSave,
    /// The lanes of the dead letters, in their order.
    letters: Vec<Lane>,
}

impl Step {
    fn new(
        group: &ActiveGroup,
        inner: &Inner,
        number: u64,
        lanes: Vec<(LaneId, LaneDelta)>,
    ) -> Self {
        let epoch = |(id, _): &(LaneId, _)| Some((Lane::of(*id), *inner.claims.get(id)?));
        let save = GroupSave {
            group: group.name.clone(),
            settings: None,
            claims: lanes.iter().filter_map(epoch).collect(),
            lanes: lanes.into_iter().map(|(id, delta)| (Lane::of(id), delta)).collect(),
            dead_letters: Vec::new(),
        };
        Self { number, save, letters: Vec::new() }
    }

    /// Leaves out what is of lanes that others have. False if nothing is left.
    fn leave_out(&mut self, lost: &[Lane]) -> bool {
        self.save.lanes.retain(|(lane, _)| !lost.contains(lane));
        self.save.claims.retain(|(lane, _)| !lost.contains(lane));
        let kept = self.letters.iter().map(|lane| !lost.contains(lane)).collect::<Vec<_>>();
        let mut keeps = kept.iter();
        self.save.dead_letters.retain(|_| keeps.next().is_none_or(|keep| *keep));
        self.letters.retain(|lane| !lost.contains(lane));
        !self.save.lanes.is_empty() || !self.save.dead_letters.is_empty()
    }
}

impl ActiveGroup {
    /// Hands a save to the store. There is only one under way, so that one that fails can be made
    /// again before any other.
    pub(super) fn begin_save(self: &Arc<Self>, inner: &mut Inner, save: Save) {
        inner.saving += 1;
        self.site.meters.given_up(&save.dead_letters);
        let group = Arc::clone(self);
        if self.site.hub.is_some() {
            let lanes = save.lanes.iter().map(|(id, _)| *id).collect();
            inner.under_way.push((save.number, lanes));
        }
        let mut step = Step::new(self, inner, save.number, save.lanes);
        if save.dead_letters.is_empty() {
            // When nobody waits for it, a save that follows another closely lets it rest: what
            // changes meanwhile shares the next one. The longer saves take, the longer: they are in
            // the way of publishers.
            let now = self.site.clock.instant();
            let rests_until = inner.saved_at + inner.save_rest;
            let rests = !self.is_awaited() && rests_until > now;
            inner.saved_at = now.max(rests_until);
            let first = (!rests).then(|| self.site.store.save(step.save.clone()));
            self.site.runtime.spawn(async move {
                let (begun, saving) = match first {
                    Some(first) => (now, first),
                    None => {
                        group.rest(rests_until).await;
                        let begun = group.site.clock.instant();
                        (begun, group.site.store.save(step.save.clone()))
                    }
                };
                let result = saving.await;
                group.note_saved(begun);
                group.end_save(step, result).await;
            });
        } else {
            self.site.runtime.spawn(async move {
                let letters = group.write_dead_letters(&save.dead_letters).await;
                (step.letters, step.save.dead_letters) = letters;
                let result = group.site.store.save(step.save.clone()).await;
                group.end_save(step, result).await;
            });
        }
    }

    /// A save that began then has ended.
    fn note_saved(&self, begun: Instant) {
        let took = self.site.clock.instant().saturating_duration_since(begun);
        let least = Duration::from_millis(SAVE_REST_MS);
        let rest = (took * SAVE_REST_TIMES).clamp(least, Duration::from_millis(SAVE_REST_MS_MAX));
        self.lock().save_rest = rest;
    }

    /// Waits, unless somebody comes who waits for an answer.
    async fn rest(&self, until: Instant) {
        let hurry = self.hurry.notified();
        tokio::pin!(hurry);
        hurry.as_mut().enable();
        if !self.is_awaited() {
            // Either way it is time.
            drop(tokio::time::timeout_at(until, hurry).await);
        }
    }

    async fn end_save(self: Arc<Self>, mut step: Step, mut result: Result<(), SaveError>) {
        let mut delay = SAVE_RETRY_MS;
        loop {
            match result {
                Ok(()) => {
                    self.step(Input::Saved { number: step.number });
                    return self.one_saved(step.number);
                }
                // What is left of it is as good as before.
                Err(SaveError::Fenced(lost)) => {
                    self.lose(&lost);
                    result = match step.leave_out(&lost) {
                        true => self.site.store.save(step.save.clone()).await,
                        false => Ok(()),
                    };
                }
                // Nobody waits for it any more, and it would hold the store for as long as it fails.
                Err(_) if self.failure().is_some() => return,
                Err(error) if is_passing(&error) => {
                    tracing::warn!(group = %self.name, %error, "saving failed, trying again");
                    tokio::time::sleep(Duration::from_millis(delay)).await;
                    delay = (delay * 2).min(SAVE_RETRY_MS_MAX);
                    // The same again: deltas are numbered and dead letters have ids of their own,
                    // so that one that did arrive is not there twice.
                    self.define_dead_letter_topics(&step.save.dead_letters).await;
                    result = self.site.store.save(step.save.clone()).await;
                }
                Err(error) => return self.fail(&error.to_string()),
            }
        }
    }
}

impl ActiveGroup {
    /// After the step that it led to, which may have begun another one.
    fn one_saved(&self, number: u64) {
        let mut inner = self.lock();
        inner.saving = inner.saving.saturating_sub(1);
        inner.under_way.retain(|(under_way, _)| *under_way != number);
        if inner.saving == 0 || self.site.hub.is_some() {
            self.stepped.notify_waiters();
        }
    }
}

const fn is_passing(error: &SaveError) -> bool {
    matches!(
        error,
        SaveError::Append(
            AppendError::NoSpace
                | AppendError::Busy(_)
                // One for dead letters, which could not be made a moment ago.
                | AppendError::UnknownTopic(_)
                | AppendError::Unavailable(_)
                | AppendError::Indeterminate(_)
        )
    )
}
