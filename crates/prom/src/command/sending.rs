//! Publishing many events, as fast as a server lets us.

use std::time::Duration;

use promethean_event::limits::FRAME_EVENTS_MAX;
use promethean_event::{EventId, Topic};
use serde::{Deserialize, Serialize};

use super::Status;
use crate::failure::Failure;
use crate::reach::{Ask, Reach};

/// A request has this many bytes at most; the server takes 8 MiB.
pub(super) const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Where an event stands.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Receipt {
    #[serde(default)]
    pub(super) topic: Option<Topic>,
    pub(super) id: EventId,
    pub(super) partition: u32,
    pub(super) offset: u64,
    pub(super) duplicate: bool,
}

#[derive(Debug, Deserialize)]
struct Receipts {
    events: Vec<Receipt>,
}

/// Sends lines of events to one place. How many at once is what the server has taken so far.
pub(super) struct Sender<'a> {
    reach: &'a Reach,
    size: usize,
}

/// Some of a batch was published, and then something went wrong.
#[derive(Debug)]
pub(super) struct Stopped {
    /// So many were published before.
    pub(super) done: usize,
    pub(super) error: anyhow::Error,
}

impl<'a> Sender<'a> {
    pub(super) const fn new(reach: &'a Reach) -> Self {
        Self { reach, size: FRAME_EVENTS_MAX }
    }

    /// Publishes events in their order, in smaller requests if the server says that it is too much
    /// at once. What is durable is shown as soon as it is.
    pub(super) async fn send(
        &mut self,
        topic: &Topic,
        events: &[String],
        shown: &mut dyn FnMut(&[Receipt]) -> anyhow::Result<()>,
    ) -> Result<(), Stopped> {
        let mut done: usize = 0;
        while done < events.len() {
            let end = events.len().min(done + self.size);
            let part = events.get(done..end).unwrap_or_default();
            match self.request(topic, part).await {
                Ok(receipts) => {
                    done = end;
                    self.size = (self.size * 2).min(FRAME_EVENTS_MAX);
                    shown(&receipts).map_err(|error| Stopped { done, error })?;
                }
                Err(error) => {
                    let limited = error.downcast_ref::<Failure>();
                    let limited = limited.filter(|failure| failure.status == Status::Limited);
                    let Some(limited) = limited else {
                        return Err(Stopped { done, error });
                    };
                    let wait = limited.retry_ms.unwrap_or(1_000).clamp(10, 10_000);
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                    self.size = (self.size / 2).max(1);
                }
            }
        }
        Ok(())
    }

    async fn request(&self, topic: &Topic, events: &[String]) -> anyhow::Result<Vec<Receipt>> {
        let ask = Ask::post(format!("/publish/{topic}"));
        let ask = ask.body("application/x-ndjson", events.join("\n"));
        let mut receipts = self.reach.json::<Receipts>(ask).await?.events;
        for receipt in &mut receipts {
            receipt.topic = Some(topic.clone());
        }
        Ok(receipts)
    }
}

impl Stopped {
    /// A server counts the lines of one request; the user counts those of his input.
    pub(super) fn renumbered(self, numbers: &[u64]) -> anyhow::Error {
        let Some(failure) = self.error.downcast_ref::<Failure>() else {
            return self.error;
        };
        let mut failure = failure.clone();
        let line = failure.detail.strip_prefix("line ").and_then(|rest| rest.split_once(": "));
        if let Some((number, why)) = line
            && let Some(index) = number.parse::<usize>().ok().and_then(|n| n.checked_sub(1))
            && let Some(number) = numbers.get(self.done + index)
        {
            failure.detail = format!("line {number}: {why}");
        }
        failure.into()
    }
}
