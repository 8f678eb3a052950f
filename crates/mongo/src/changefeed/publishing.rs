//! Publishing, by the one who has the feed.

use promethean::PublishError;
use promethean::store::{AppendError, SaveError};
use promethean_event::NewEvent;

use super::hold::{Hold, Pause};
use super::runner::RETRY;
use crate::clock::Stopwatch;
use crate::limits::FEED_CHUNK_BYTES;

impl Hold<'_> {
    /// Publishes, again and again while the store is away, for as long as the feed is ours.
    pub(super) async fn publish(&mut self, events: Vec<NewEvent>) -> Result<(), Pause> {
        let mut chunk = Vec::new();
        let mut bytes = 0;
        for event in events {
            bytes += event.payload.as_bytes().len();
            chunk.push(event);
            if bytes > FEED_CHUNK_BYTES {
                self.publish_chunk(std::mem::take(&mut chunk)).await?;
                bytes = 0;
            }
        }
        self.publish_chunk(chunk).await
    }

    async fn publish_chunk(&mut self, mut events: Vec<NewEvent>) -> Result<(), Pause> {
        while !events.is_empty() {
            self.stay_owner().await?;
            let count = events.len();
            match self.feed.bus.publish_batch(events.clone()).await {
                Ok(_) => {
                    self.status.published += count as u64;
                    break;
                }
                // It was published before: by who had the feed then, or by us before a crash, with the
                // document as it was at that time. What has changed since comes as a change of its own.
                Err(PublishError::Append(AppendError::IdConflict { id, topic })) => {
                    events.retain(|event| event.id != id);
                    if events.len() == count {
                        let why = format!("{topic} has another event with the id {id}");
                        return Err(Pause::Stop(format!("the bus refused: {why}")));
                    }
                    self.status.already_there += 1;
                    tracing::debug!(feed = self.feed.name, %id, "it is there already");
                }
                Err(error) if is_passing(&error) => {
                    tracing::warn!(feed = self.feed.name, %error, "a changefeed waits for its bus");
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => return Err(Pause::Stop(format!("the bus refused: {error}"))),
            }
        }
        Ok(())
    }

    /// Whoever was held up for a while may have lost the feed to another one, who has read what is
    /// newer: no event goes out before the record has said that it is still ours. It is asked well
    /// before a lease is over, because the append has to come to its end within it, too.
    async fn stay_owner(&mut self) -> Result<(), Pause> {
        if self.since_save.elapsed() < self.feed.options.lease / 3 {
            return Ok(());
        }
        // What was read since is not published yet.
        let mut status = self.settled.clone();
        status.beat += 1;
        let begun = Stopwatch::start();
        self.version = self.feed.feeds.save(&self.feed.name, &status, self.version).await?;
        self.since_save = begun;
        self.status.beat = status.beat;
        self.settled = status;
        Ok(())
    }
}

fn is_passing(error: &PublishError) -> bool {
    match error {
        PublishError::Schemas(_) | PublishError::Snapshots(_) => true,
        PublishError::Append(error)
        | PublishError::Define { source: SaveError::Append(error), .. } => matches!(
            error,
            AppendError::Unavailable(_)
                | AppendError::Busy(_)
                | AppendError::NoSpace
                | AppendError::StorageFailed(_)
                | AppendError::Indeterminate(_)
        ),
        _ => false,
    }
}
