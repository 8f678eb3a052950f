use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use promethean_delivery::limits::RELEASES_MAX;
use promethean_delivery::{DeadLetterRef, Refusal};
use promethean_event::{
    DeadLetter, DeadLetterQuery, DeadLetterState, EventId, GroupName, HeaderError, Headers,
    NewEvent, ReplayTo,
};

use super::letter::{DeadLetterEntry, REPLAY_FOR, REPLAY_ROUND};
use super::listing::DeadLetterError;
use crate::bus::Bus;
use crate::dispatch::Order;
use crate::error::GroupError;
use crate::store::Lane;
use crate::store::key_hash;

/// Changes an event before it is replayed; `None` leaves the dead letter where it is.
pub(super) type Transform = Arc<dyn Fn(NewEvent) -> Option<NewEvent> + Send + Sync>;

/// How dead letters are to be replayed.
#[derive(Clone)]
#[non_exhaustive]
pub struct ReplayDeadLetters {
    /// Which.
    pub query: DeadLetterQuery,
    /// To whom.
    pub to: ReplayTo,
    /// Only say what would happen.
    pub dry_run: bool,
    /// So many in a second at most.
    pub per_second: Option<u32>,
    /// Dead letters that have gone round so often are left alone. Default: 10.
    pub rounds_max: u16,
    transform: Option<Transform>,
}

impl ReplayDeadLetters {
    /// Gives what waits back to the groups that gave it up.
    pub fn new(query: DeadLetterQuery) -> Self {
        Self {
            query,
            to: ReplayTo::FailingGroup,
            dry_run: false,
            per_second: None,
            rounds_max: 10,
            transform: None,
        }
    }

    /// To everybody instead.
    #[must_use]
    pub const fn to(mut self, to: ReplayTo) -> Self {
        self.to = to;
        self
    }

    /// Only say what would happen.
    #[must_use]
    pub const fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// So many in a second at most.
    #[must_use]
    pub const fn per_second(mut self, events: u32) -> Self {
        self.per_second = Some(events);
        self
    }

    /// With a change. The changed event is a new one, published to the topic of the original for
    /// the failing group only (or for all), linked by `caused_by`; the original is finished.
    #[must_use]
    pub fn transform(
        mut self,
        change: impl Fn(NewEvent) -> Option<NewEvent> + Send + Sync + 'static,
    ) -> Self {
        self.transform = Some(Arc::new(change));
        self
    }
}

/// What a replay has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayReport {
    /// Dead letters that were replayed (or would be), by id.
    pub replayed: Vec<EventId>,
    /// Those that were not, with reasons.
    pub left: Vec<(EventId, Unreplayed)>,
}

/// Why a dead letter was left where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreplayed {
    /// It has gone round too often: something is wrong with it, or with its consumer.
    TooManyRounds,
    /// The original could not be copied when it was given up, and nothing can be published.
    NoOriginal,
    /// The change did not want it.
    Unchanged,
    /// The group, or its topic, is gone.
    NoGroup,
    /// The group was moved back before it: it comes again by itself.
    ComesAgain,
    /// Its headers leave no room for those of a replay.
    NoRoom,
}

impl Bus {
    /// Replays dead letters. Each one is settled as soon as it is replayed, so that a replay that
    /// was broken off goes on where it was.
    pub async fn replay_dead_letters(
        &self,
        replay: &ReplayDeadLetters,
    ) -> Result<ReplayReport, DeadLetterError> {
        let mut query = replay.query.clone();
        query.state = Some(DeadLetterState::Waiting);
        let mut report = ReplayReport::default();
        for entry in self.dead_letters(&query).await? {
            match self.replay_one(replay, &entry).await? {
                Some(why) => report.left.push((entry.id, why)),
                None => {
                    report.replayed.push(entry.id);
                    self.rest_after_replay(replay).await;
                }
            }
        }
        Ok(report)
    }

    async fn rest_after_replay(&self, replay: &ReplayDeadLetters) {
        if let Some(rate) = replay.per_second.filter(|_| !replay.dry_run) {
            tokio::time::sleep(Duration::from_secs(1) / rate.max(1)).await;
        }
    }

    async fn replay_one(
        &self,
        replay: &ReplayDeadLetters,
        entry: &DeadLetterEntry,
    ) -> Result<Option<Unreplayed>, DeadLetterError> {
        let letter = &entry.letter;
        let round = letter.round.saturating_add(1);
        // It may have gone round as one event, and as several that were published.
        let rounds = round.saturating_add(published_rounds(letter));
        if rounds > replay.rounds_max.min(RELEASES_MAX) {
            return Ok(Some(Unreplayed::TooManyRounds));
        }
        let publishes = replay.transform.is_some() || replay.to == ReplayTo::AllGroups;
        if !publishes {
            match self.group(&letter.group).await {
                Ok(_) if self.topics().get(&letter.topic).is_some() => {}
                // One that is gone does not keep the others from being replayed.
                Ok(_) | Err(GroupError::Unknown(_)) => return Ok(Some(Unreplayed::NoGroup)),
                Err(error) => return Err(error.into()),
            }
            if !replay.dry_run {
                if let Some(why) = self.release(entry, round).await? {
                    return Ok(Some(why));
                }
                self.settle_letter(entry.id, DeadLetterState::Replayed).await?;
            }
            return Ok(None);
        }
        let Some(mut event) = again(entry, round) else {
            return Ok(Some(Unreplayed::NoOriginal));
        };
        self.inner.groups.site().schemas.label(&mut event);
        let event = match &replay.transform {
            Some(change) => change(event),
            None => Some(event),
        };
        let Some(mut event) = event else {
            return Ok(Some(Unreplayed::Unchanged));
        };
        let group = (replay.to == ReplayTo::FailingGroup).then_some(&letter.group);
        // Without its mark it would go to groups that it is not for.
        match marked(&event.headers, group, rounds) {
            Ok(headers) => event.headers = headers,
            Err(_) => return Ok(Some(Unreplayed::NoRoom)),
        }
        if !replay.dry_run {
            self.publish_marked(vec![event]).await?;
            self.finish_parked(letter, round).await;
            self.settle_letter(entry.id, DeadLetterState::Replayed).await?;
        }
        Ok(None)
    }

    /// Gives a dead letter back to its group, or says why not.
    async fn release(
        &self,
        entry: &DeadLetterEntry,
        round: u16,
    ) -> Result<Option<Unreplayed>, DeadLetterError> {
        let letter = &entry.letter;
        let group = self.group(&letter.group).await?;
        let Some(lane) = self.lane_of(letter) else {
            return Err(DeadLetterError::Unknown(entry.id));
        };
        let event = reference(letter, round);
        match group.order(lane, Order::Release(event.into())).await {
            // It was given back before, by one who did not get to say so.
            Ok(_) | Err(GroupError::Refused(Refusal::AlreadyDone)) => Ok(None),
            Err(GroupError::Refused(Refusal::ReleasedTooOften)) => {
                Ok(Some(Unreplayed::TooManyRounds))
            }
            Err(GroupError::Refused(Refusal::Unknown)) => Ok(Some(Unreplayed::ComesAgain)),
            Err(error) => Err(error.into()),
        }
    }

    /// A replacement is on its way: the key that waits behind the original goes on.
    async fn finish_parked(&self, letter: &DeadLetter, round: u16) {
        let (Ok(group), Some(lane)) = (self.group(&letter.group).await, self.lane_of(letter))
        else {
            return;
        };
        let event = reference(letter, round);
        if let Err(error) = group.order(lane, Order::Discard(event.into())).await {
            tracing::debug!(group = %letter.group, %error, "nothing was parked behind it");
        }
    }

    fn lane_of(&self, letter: &DeadLetter) -> Option<Lane> {
        let topics = self.topics();
        Some(Lane { topic: topics.get(&letter.topic)?.id, partition: letter.partition })
    }

    /// Gives a dead letter up for good. A key that waits behind it goes on.
    pub async fn discard_dead_letter(&self, id: EventId) -> Result<(), DeadLetterError> {
        let entry = self.waiting_letter(id).await?;
        self.finish_parked(&entry.letter, entry.letter.round.saturating_add(1)).await;
        Ok(self.settle_letter(id, DeadLetterState::Discarded).await?)
    }
}

fn reference(letter: &DeadLetter, round: u16) -> DeadLetterRef {
    let key = letter.original.as_ref().and_then(|event| event.key.as_ref());
    DeadLetterRef {
        offset: letter.offset.get(),
        key: key.map(|key| key_hash(key.as_str().as_bytes())),
        round,
    }
}

/// How often it was published anew before it was given up.
fn published_rounds(letter: &DeadLetter) -> u16 {
    let said = letter.original.as_ref().and_then(|event| event.headers.get(REPLAY_ROUND));
    said.and_then(|round| round.parse().ok()).unwrap_or(0)
}

/// Headers with the marks of this replay instead of those of an earlier one.
fn marked(
    headers: &Headers,
    group: Option<&GroupName>,
    rounds: u16,
) -> Result<Headers, HeaderError> {
    let mut marked = Headers::new();
    for (name, value) in
        headers.iter().filter(|(name, _)| ![REPLAY_FOR, REPLAY_ROUND].contains(name))
    {
        marked.insert(name, value)?;
    }
    marked.insert(REPLAY_ROUND, &rounds.to_string())?;
    if let Some(group) = group {
        marked.insert(REPLAY_FOR, group.as_str())?;
    }
    Ok(marked)
}

/// The original, to be published anew: the same but for its id, which is made of the dead letter's
/// so that doing it twice adds nothing.
fn again(entry: &DeadLetterEntry, round: u16) -> Option<NewEvent> {
    let event = entry.letter.original.clone()?;
    let mut name = entry.id.as_bytes().to_vec();
    name.extend_from_slice(&round.to_be_bytes());
    let id = EventId::derived("promethean replay", &name);
    let mut caused_by = event.caused_by;
    caused_by.truncate(promethean_event::limits::CAUSED_BY_COUNT_MAX - 1);
    caused_by.push(event.id);
    Some(NewEvent {
        id,
        sid: event.sid,
        ts: event.ts,
        topic: event.topic,
        key: event.key,
        headers: event.headers,
        payload: event.payload,
        caused_by,
        tags: event.tags,
    })
}

impl fmt::Debug for ReplayDeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayDeadLetters")
            .field("query", &self.query)
            .field("to", &self.to)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}
