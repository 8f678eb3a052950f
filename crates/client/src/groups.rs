//! What can be asked of groups, and done to them, from outside.

use std::time::Duration;

use promethean_event::{Cursor, GroupName, Offset, Partition, Pattern, Start, Topic};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bus::Bus;
use crate::error::{GroupError, Refusal};
use crate::http::{Ask, segment};
use crate::limits::CAUGHT_UP_POLL_MS;

/// How far a group is behind in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct PartitionLag {
    /// The topic.
    pub topic: Topic,
    /// The partition.
    pub partition: Partition,
    /// The lowest offset that is not finished.
    pub cursor: Offset,
    /// The offset that the next event will get.
    pub end: Offset,
    /// Events that are not finished; dead letters that were given back included.
    pub events: u64,
    /// Events on lease.
    pub out: u64,
    /// Finished events beyond the cursor, which an unfinished one holds back.
    pub holes: u64,
    /// Keys that wait behind a dead letter.
    pub parked: u64,
    /// The age of the oldest event that is not finished, in milliseconds; 0 if there is none.
    pub age_ms: u64,
}

/// How far a group is behind.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct GroupLag {
    /// The group.
    pub group: GroupName,
    /// Its members at the server.
    pub members: usize,
    /// By partition.
    pub partitions: Vec<PartitionLag>,
}

impl GroupLag {
    /// Events that are not finished, in all partitions.
    pub fn events(&self) -> u64 {
        self.partitions.iter().map(|lag| lag.events).sum()
    }

    /// The age of the oldest event that is not finished, in milliseconds.
    pub fn age_ms(&self) -> u64 {
        self.partitions.iter().map(|lag| lag.age_ms).max().unwrap_or(0)
    }
}

/// Where a seek would move, or has moved, a group in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Move {
    /// The topic.
    pub topic: Topic,
    /// The partition.
    pub partition: Partition,
    /// Where the cursor is.
    pub from: Offset,
    /// Where it goes.
    pub to: Offset,
}

impl Move {
    /// Events that come again (negative: that are passed over).
    pub const fn again(&self) -> i64 {
        self.from.get() as i64 - self.to.get() as i64
    }
}

#[derive(Deserialize)]
struct Lags {
    groups: Vec<GroupLag>,
}

#[derive(Deserialize)]
struct Cursors {
    cursors: Vec<Cursor>,
}

#[derive(Deserialize)]
struct Moves {
    moves: Vec<Move>,
}

fn goal(to: Start) -> Value {
    match to {
        Start::Earliest => json!("earliest"),
        Start::Latest => json!("latest"),
        Start::At(time) => json!({ "ts": time }),
        Start::AfterId(id) => json!({ "after_id": id }),
    }
}

impl Bus {
    /// The names of all groups.
    pub async fn groups(&self) -> Result<Vec<GroupName>, GroupError> {
        let lags: Lags = self.inner.http.ask(Ask::get("/lag", &[])).await?;
        Ok(lags.groups.into_iter().map(|lag| lag.group).collect())
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
            let text = format!("group {group} does not read {topic}");
            return Err(Refusal::new("not_found", text, None).into());
        }
        Ok(of_topic)
    }

    /// How far a group has come, everywhere.
    pub async fn cursors(&self, group: &GroupName) -> Result<Vec<Cursor>, GroupError> {
        let ask = Ask::get("/cursors", &[("group", group.as_str())]);
        Ok(self.inner.http.ask::<Cursors>(ask).await?.cursors)
    }

    /// Moves a group in one partition. Members go on from there; what is out is void.
    pub async fn set_cursor(&self, group: &GroupName, cursor: &Cursor) -> Result<Move, GroupError> {
        let body = json!({
            "topics": cursor.topic, "partition": cursor.partition,
            "to": { "offset": cursor.next }, "apply": true,
        });
        let moves = self.moves(group, &body).await?;
        let none = || GroupError::NotUnderstood("it says nothing about the partition".to_owned());
        moves.into_iter().next().ok_or_else(none)
    }

    /// Where a seek would move a group. Nothing is changed.
    pub async fn plan_seek(
        &self,
        group: &GroupName,
        topics: &Pattern,
        to: Start,
    ) -> Result<Vec<Move>, GroupError> {
        self.moves(group, &json!({ "topics": topics, "to": goal(to) })).await
    }

    /// Moves a group in all partitions of the topics that a pattern matches.
    pub async fn seek(
        &self,
        group: &GroupName,
        topics: &Pattern,
        to: Start,
    ) -> Result<Vec<Move>, GroupError> {
        self.moves(group, &json!({ "topics": topics, "to": goal(to), "apply": true })).await
    }

    async fn moves(&self, group: &GroupName, body: &Value) -> Result<Vec<Move>, GroupError> {
        let path = format!("/groups/{}/seek", segment(group.as_str()));
        Ok(self.inner.http.ask::<Moves>(Ask::post(&path, body)).await?.moves)
    }

    /// How far a group is behind, in events and in time.
    pub async fn lag(&self, group: &GroupName) -> Result<GroupLag, GroupError> {
        let ask = Ask::get("/lag", &[("group", group.as_str())]);
        let lags: Lags = self.inner.http.ask(ask).await?;
        let none = || GroupError::NotUnderstood("it says nothing about the group".to_owned());
        lags.groups.into_iter().next().ok_or_else(none)
    }

    /// Forgets a group that has no members.
    pub async fn remove_group(&self, group: &GroupName) -> Result<(), GroupError> {
        let path = format!("/groups/{}", segment(group.as_str()));
        self.inner.http.ask::<Value>(Ask::delete(&path)).await.map(drop)
    }

    /// Waits until a group has finished everything that is there, and its cursor is durable. Dead
    /// letters count as finished.
    pub async fn caught_up(&self, group: &GroupName) -> Result<(), GroupError> {
        let ends: Vec<(Topic, Partition, Offset)> = {
            let lag = self.lag(group).await?;
            lag.partitions.into_iter().map(|lag| (lag.topic, lag.partition, lag.end)).collect()
        };
        loop {
            let cursors = self.cursors(group).await?;
            let passed = |(topic, partition, end): &(Topic, Partition, Offset)| {
                let of = |c: &&Cursor| c.topic == *topic && c.partition == *partition;
                cursors.iter().find(of).is_none_or(|cursor| cursor.next >= *end)
            };
            if ends.iter().all(passed) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(CAUGHT_UP_POLL_MS)).await;
        }
    }
}
