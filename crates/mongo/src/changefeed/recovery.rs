//! History that is gone, and how a feed goes on as somebody has ordered.

use promethean::changefeed::{ClusterTime, Gap, Phase, Recovery};
use promethean_event::{EventId, NewEvent, Payload, Timestamp, Topic};
use serde_json::{Value, json};

use super::hold::{Hold, Pause, Source, place};
use super::runner::first_phase;
use super::stream;

/// Where it is told that changes are missing from a topic: an event with the feed's name as its key,
/// and `feed`, `collection`, `topic`, `from`, `to` and `recovery`: the order by which it goes on after the
/// gap, or `another-mongodb` if it has begun anew in another one.
pub const GAP_TOPIC: &str = "feed.gap";

impl Hold<'_> {
    /// The history is gone: the record says so, and what is missing.
    pub(super) async fn lose(&mut self, source: &Source) -> Result<(), Pause> {
        let (Phase::Stream { run, since, .. } | Phase::Snapshot { run, since, .. }) =
            self.status.phase
        else {
            return Ok(());
        };
        let to = stream::history(&source.cluster).await.map(|history| history.oldest);
        let gap = Gap { from: Some(self.status.reached.unwrap_or(since)), to };
        tracing::error!(
            feed = self.feed.name,
            ?gap,
            "MongoDB has forgotten changes that were not read yet; say how to go on: \
             prom changefeed resume --recover"
        );
        self.status.phase = Phase::Lost { gap, run };
        self.save().await
    }

    /// Carries out an order. What it comes to is saved together with its end, by whoever calls.
    pub(super) async fn recover(
        &mut self,
        source: &Source,
        recovery: Recovery,
    ) -> Result<(), Pause> {
        match (self.status.phase.clone(), recovery) {
            (Phase::Lost { gap, run }, _) => self.leave(source, (gap, run), recovery).await,
            (phase, Recovery::Resnapshot) => self.begin_again(source, &phase).await,
            // It is not lost any more: it has begun anew meanwhile.
            _ => Ok(()),
        }
    }

    /// Leaves a gap behind. It ends where the feed goes on: what MongoDB still has of the time before
    /// that is not read either.
    async fn leave(
        &mut self,
        source: &Source,
        (gap, run): (Gap, u64),
        recovery: Recovery,
    ) -> Result<(), Pause> {
        let now = stream::now(&source.cluster).await?;
        let history = stream::history(&source.cluster).await;
        let (to, phase) = match recovery {
            Recovery::Resnapshot => (now, self.next_snapshot(now)),
            Recovery::AcceptGap => (now, Phase::Stream { since: now.next(), token: None, run }),
            Recovery::FromTime(seconds) => {
                let since = ClusterTime { seconds, increment: 1 };
                (since, Phase::Stream { since, token: None, run })
            }
            Recovery::Skip => return Ok(()),
        };
        if let Some(history) = history.filter(|history| to < history.oldest) {
            // It would be lost again at once, and the gap would have been told as another one.
            let alarm = format!(
                "it cannot go on from {to}, as ordered: MongoDB's history begins at {}",
                history.oldest
            );
            tracing::error!(feed = self.feed.name, alarm, "a changefeed stays lost");
            self.status.alarm = Some(alarm);
            return Ok(());
        }
        let has_gap = gap.from.is_none_or(|from| from < to);
        self.status.gap = has_gap.then_some(Gap { to: Some(to), ..gap });
        self.status.untold = has_gap.then(|| json!(recovery));
        self.status.phase = phase;
        self.status.alarm = None;
        Ok(())
    }

    /// Publishes what is there, and goes on with the changes since where the feed stood: they may
    /// come once more, and nothing is missing.
    async fn begin_again(&mut self, source: &Source, phase: &Phase) -> Result<(), Pause> {
        let Some(place) = place(phase) else { return Ok(()) };
        let history = stream::history(&source.cluster).await;
        let since = if history.is_some_and(|history| place < history.oldest) {
            let now = stream::now(&source.cluster).await?;
            let from = Some(self.status.reached.unwrap_or(place));
            self.status.gap = Some(Gap { from, to: Some(now) });
            self.status.untold = Some(json!(Recovery::Resnapshot));
            now
        } else {
            // The changes of one transaction are of one moment: some of them may be unread.
            place.before()
        };
        self.status.phase = self.next_snapshot(since);
        self.status.alarm = None;
        Ok(())
    }

    /// Begins anew: its place is one in another collection, or another MongoDB. What has changed in the
    /// same collection since that place is missing, if this is a copy of it.
    pub(super) async fn begin_elsewhere(&mut self, source: &Source) -> Result<(), Pause> {
        let now = stream::now(&source.cluster).await?;
        let anew = self.status.begun_anew();
        let before = std::mem::replace(&mut self.status, anew);
        let run = self.status.snapshots;
        self.status.snapshots += 1;
        self.status.phase = first_phase(source.feed.snapshot, now, run);
        self.status.read_from = Some(source.origin.clone());
        let is_copy = before.read_from.is_some_and(|of| of.collection == source.origin.collection);
        let from = before.reached.or(place(&before.phase)).filter(|_| is_copy);
        if let Some(from) = from {
            let alarm = format!(
                "it has begun anew, because this is another MongoDB than the one that it has read \
                 before: what has changed between {from} there and {now} here is missing"
            );
            tracing::error!(feed = self.feed.name, alarm, "a changefeed begins anew");
            self.status.alarm = Some(alarm);
            self.status.gap = Some(Gap { from: Some(from), to: Some(now) });
            self.status.untold = Some(json!("another-mongodb"));
        }
        self.save().await
    }

    fn next_snapshot(&mut self, since: ClusterTime) -> Phase {
        let run = self.status.snapshots;
        self.status.snapshots += 1;
        Phase::Snapshot { since, after: None, run }
    }

    /// Tells those who read the topic of a gap. It is in the record before it is told, so that whoever
    /// has to tell it once more tells the same.
    pub(super) async fn tell_gap(&mut self, source: &Source) -> Result<(), Pause> {
        let Some(recovery) = self.status.untold.take() else { return Ok(()) };
        let told = match self.status.gap.clone() {
            Some(gap) => match gap_event(&self.feed.name, (source, &gap), &recovery) {
                Ok(event) => self.publish(vec![event]).await,
                Err(reason) => Err(Pause::Stop(reason)),
            },
            None => Ok(()),
        };
        match told {
            // The gap is in the record, too; who reads has no use of a feed that stands.
            Err(Pause::Stop(reason)) => {
                tracing::warn!(feed = self.feed.name, reason, "a gap is not told in {GAP_TOPIC}");
            }
            other => other?,
        }
        self.save().await
    }
}

fn gap_event(
    name: &str,
    (source, gap): (&Source, &Gap),
    recovery: &Value,
) -> Result<NewEvent, String> {
    let feed = &source.feed;
    let payload = json!({
        "feed": name,
        "collection": format!("{}.{}", feed.database, feed.collection),
        "topic": feed.topic.as_str(),
        "from": gap.from,
        "to": gap.to,
        "recovery": recovery,
    });
    let seed = payload.to_string();
    let payload = Payload::of(&payload).map_err(|error| error.to_string())?;
    let topic = Topic::new(GAP_TOPIC).map_err(|error| error.to_string())?;
    let key = promethean_event::Key::new(name).map_err(|error| error.to_string())?;
    let id = EventId::derived("mongo changefeed gap", seed.as_bytes());
    let ts = Timestamp::from_millis(gap.to.map_or(0, ClusterTime::millis));
    Ok(NewEvent::new(id, ts, topic, payload).with_key(key))
}
