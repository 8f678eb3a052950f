//! What can be asked of groups, and done to them, from outside.

use std::time::Duration;

use promethean_event::{
    Cursor, GroupLag, GroupName, Move, Offset, Partition, Pattern, Start, Topic,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bus::Bus;
use crate::error::{GroupError, Refusal};
use crate::http::{Ask, segment};
use crate::limits::CAUGHT_UP_POLL_MS;

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
