//! What can be asked of groups, and done to them, from outside.

use std::sync::Arc;

use promethean_delivery::{Input, Reply};
use promethean_event::{
    Cursor, GroupLag, GroupName, Move, Offset, PartitionLag, Pattern, Start, Timestamp, Topic,
};
use tokio::sync::oneshot;

use crate::bus::Bus;
use crate::dispatch::{ActiveGroup, LaneName, Order};
use crate::error::GroupError;
use crate::settings::GroupSettings;
use crate::start::offset_in;
use crate::store::{Lane, PageLimit, Read};

impl Bus {
    /// The names of all groups.
    pub async fn groups(&self) -> Result<Vec<GroupName>, GroupError> {
        Ok(self.inner.store.groups().await?)
    }

    /// How a group delivers.
    pub async fn group_settings(&self, group: &GroupName) -> Result<GroupSettings, GroupError> {
        Ok(self.group(group).await?.settings())
    }

    /// The group, reading every topic that it should read by now: it may not have heard yet of one
    /// that was made a moment ago, and must not be taken to have finished what is there.
    pub(crate) async fn group(&self, group: &GroupName) -> Result<Arc<ActiveGroup>, GroupError> {
        let active = self.inner.groups.get(group).await?;
        active.follow_topics().await?;
        Ok(active)
    }

    /// How far a group has come in a topic, by partition.
    pub async fn get_cursor(
        &self,
        topic: &Topic,
        group: &GroupName,
    ) -> Result<Vec<Cursor>, GroupError> {
        let cursors = self.cursors(group).await?;
        let of_topic: Vec<_> = cursors.into_iter().filter(|c| c.topic == *topic).collect();
        if of_topic.is_empty() {
            let (group, topic) = (group.clone(), topic.clone());
            return Err(GroupError::NotRead { group, topic });
        }
        Ok(of_topic)
    }

    /// How far a group has come, everywhere.
    pub async fn cursors(&self, group: &GroupName) -> Result<Vec<Cursor>, GroupError> {
        let group = self.group(group).await?;
        let mut cursors: Vec<Cursor> = group
            .statuses_everywhere()
            .await?
            .into_iter()
            .map(|(name, status)| Cursor {
                partition: name.partition(),
                topic: name.topic,
                next: Offset::new(status.floor),
            })
            .collect();
        cursors.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        Ok(cursors)
    }

    /// Moves a group in one partition. Members go on from there; what is out is void.
    pub async fn set_cursor(&self, group: &GroupName, cursor: &Cursor) -> Result<Move, GroupError> {
        let active = self.group(group).await?;
        let statuses = active.statuses_everywhere().await?;
        let mine =
            |name: &LaneName| name.topic == cursor.topic && name.partition() == cursor.partition;
        let found = statuses.into_iter().find(|(name, _)| mine(name));
        let (name, status) = found.ok_or_else(|| GroupError::NotRead {
            group: group.clone(),
            topic: cursor.topic.clone(),
        })?;
        let bounds = self.inner.store.bounds(name.lane).await?;
        if cursor.next > bounds.next {
            return Err(GroupError::BeyondEnd { wanted: cursor.next, next: bounds.next });
        }
        let to = cursor.next.max(bounds.start);
        active.order(name.lane, Order::Seek { to: to.get() }).await?;
        Ok(Move {
            topic: name.topic,
            partition: cursor.partition,
            from: Offset::new(status.floor),
            to,
        })
    }

    /// Where a seek would move a group. Nothing is changed.
    pub async fn plan_seek(
        &self,
        group: &GroupName,
        topics: &Pattern,
        to: Start,
    ) -> Result<Vec<Move>, GroupError> {
        let active = self.group(group).await?;
        let mut moves = Vec::new();
        for (name, status) in active.statuses_everywhere().await? {
            if topics.matches(&name.topic) {
                moves.push(Move {
                    from: Offset::new(status.floor),
                    to: offset_in(to, &*self.inner.store, name.lane).await?,
                    partition: name.partition(),
                    topic: name.topic,
                });
            }
        }
        moves.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        Ok(moves)
    }

    /// Moves a group in all partitions of the topics that a pattern matches.
    pub async fn seek(
        &self,
        group: &GroupName,
        topics: &Pattern,
        to: Start,
    ) -> Result<Vec<Move>, GroupError> {
        let mut moves = self.plan_seek(group, topics, to).await?;
        for planned in &mut moves {
            let cursor = Cursor {
                topic: planned.topic.clone(),
                partition: planned.partition,
                next: planned.to,
            };
            *planned = self.set_cursor(group, &cursor).await?;
        }
        Ok(moves)
    }

    /// How far a group is behind, in events and in time.
    pub async fn lag(&self, group: &GroupName) -> Result<GroupLag, GroupError> {
        let active = self.group(group).await?;
        let mut partitions = Vec::new();
        for (name, status) in active.statuses_everywhere().await? {
            let end = self.inner.store.bounds(name.lane).await?.next;
            let unfinished = end.get().saturating_sub(status.floor);
            let oldest = self.oldest_from(name.lane, Offset::new(status.floor)).await?;
            let now = self.inner.groups.site().clock.now();
            partitions.push(PartitionLag {
                partition: name.partition(),
                topic: name.topic,
                cursor: Offset::new(status.floor),
                end,
                events: unfinished.saturating_sub(u64::from(status.holes))
                    + u64::from(status.released),
                out: u64::from(status.out),
                holes: u64::from(status.holes),
                parked: u64::from(status.parked),
                oldest_unacked: oldest,
                age_ms: oldest.map_or(0, |at| now.millis_since(at)),
            });
        }
        partitions.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        Ok(GroupLag { group: group.clone(), members: active.member_count(), partitions })
    }

    /// When the first event at or after an offset was taken by the store.
    async fn oldest_from(&self, lane: Lane, from: Offset) -> Result<Option<Timestamp>, GroupError> {
        if from >= self.inner.store.bounds(lane).await?.next {
            return Ok(None);
        }
        let limit = PageLimit { events: 1, bytes: 1 };
        let page = self.inner.store.read(Read::From { lane, from, limit }).await?;
        Ok(page.events.first().map(|stored| stored.appended_at))
    }

    /// Nothing is delivered to the group until it is resumed; leases go on.
    pub async fn pause_group(&self, group: &GroupName) -> Result<(), GroupError> {
        self.set_paused(group, true).await
    }

    /// Delivery goes on.
    pub async fn resume_group(&self, group: &GroupName) -> Result<(), GroupError> {
        self.set_paused(group, false).await
    }

    /// Where several hubs use one store, all of them are told, and remember it.
    async fn set_paused(&self, group: &GroupName, paused: bool) -> Result<(), GroupError> {
        let active = self.group(group).await?;
        active.tell_pause(paused).await?;
        active.step(if paused { Input::Paused } else { Input::Resumed });
        Ok(())
    }

    /// Forgets a group that has no members.
    pub async fn remove_group(&self, group: &GroupName) -> Result<(), GroupError> {
        self.inner.groups.remove(group).await
    }

    /// Waits until a group has finished everything that is there, and its cursor is durable. Dead
    /// letters count as finished.
    pub async fn caught_up(&self, group: &GroupName) -> Result<(), GroupError> {
        let active = self.group(group).await?;
        // A topic that was made a moment ago is there, whether the group has heard of it or not.
        active.follow_topics().await?;
        let mut ends = Vec::new();
        for (name, _) in active.statuses_everywhere().await? {
            let end = self.inner.store.bounds(name.lane).await?.next;
            active.appended(name.lane, end);
            ends.push((name.lane, end));
        }
        active.passed_everywhere(&ends).await
    }
}

/// Waits for the answer to something that was asked of a group.
pub(crate) async fn answered(
    group: &ActiveGroup,
    asked: oneshot::Receiver<Reply>,
) -> Result<Reply, GroupError> {
    match asked.await {
        Ok(reply) => match reply.refused.first() {
            Some(refused) => Err(GroupError::Refused(refused.why)),
            None => Ok(reply),
        },
        Err(_) => Err(match group.failure() {
            Some(failure) => failure.into(),
            None => GroupError::Unknown(group.name.clone()),
        }),
    }
}
