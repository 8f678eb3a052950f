//! History that is gone, and how a feed goes on as somebody has ordered.

use promethean::changefeed::{ClusterTime, Gap, Phase, Recovery};
use promethean_event::{EventId, NewEvent, Payload, Timestamp, Topic};
use serde_json::json;

use super::hold::{Hold, Pause, Source, place};
use super::stream;

/// Where it is told that changes are missing from a topic: an event with the feed's name as its key,
/// and `feed`, `collection`, `topic`, `from`, `to` and `recovery`.
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

    pub(super) async fn recover(
        &mut self,
        source: &Source,
        recovery: Recovery,
    ) -> Result<(), Pause> {
        match (self.status.phase.clone(), recovery) {
            (Phase::Lost { gap, run }, _) => self.leave(source, (gap, run), recovery).await,
            (phase, Recovery::Resnapshot) => self.begin_again(source, &phase).await,
            // It was carried out, and whoever did it had not the time to say so.
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
            return self.save().await;
        }
        let has_gap = gap.from.is_none_or(|from| from < to);
        self.status.gap = has_gap.then_some(Gap { to: Some(to), ..gap });
        self.tell_gap(source, recovery, now).await?;
        self.status.phase = phase;
        self.status.alarm = None;
        self.save().await
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
            self.tell_gap(source, Recovery::Resnapshot, now).await?;
            now
        } else {
            // The changes of one transaction are of one moment: some of them may be unread.
            place.before()
        };
        self.status.phase = self.next_snapshot(since);
        self.status.alarm = None;
        self.save().await
    }

    fn next_snapshot(&mut self, since: ClusterTime) -> Phase {
        let run = self.status.snapshots;
        self.status.snapshots += 1;
        Phase::Snapshot { since, after: None, run }
    }

    /// Tells those who read the topic, if there is a gap.
    async fn tell_gap(
        &mut self,
        source: &Source,
        recovery: Recovery,
        now: ClusterTime,
    ) -> Result<(), Pause> {
        let Some(gap) = self.status.gap.clone() else { return Ok(()) };
        let told = gap_event(&self.feed.name, (source, &gap, recovery), now);
        let told = match told {
            Ok(event) => self.publish(vec![event]).await,
            Err(reason) => Err(Pause::Stop(reason)),
        };
        match told {
            // The gap is in the record, too; who reads has no use of a feed that stands.
            Err(Pause::Stop(reason)) => {
                tracing::warn!(feed = self.feed.name, reason, "a gap is not told in {GAP_TOPIC}");
                Ok(())
            }
            other => other,
        }
    }
}

fn gap_event(
    name: &str,
    (source, gap, recovery): (&Source, &Gap, Recovery),
    now: ClusterTime,
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
    let ts = Timestamp::from_millis(now.millis());
    Ok(NewEvent::new(id, ts, topic, payload).with_key(key))
}
