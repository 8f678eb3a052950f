//! Hears what other hubs do: lanes that grow, topics that come and go. By a change stream of what they
//! tell; by looking, now and then, and while that is not to be had.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use mongodb::bson::doc;

use crate::clock::{Deadline, Stopwatch};
use crate::cluster::Cluster;
use crate::document::unsigned;
use crate::fault::{Fault, describe, too_late};
use crate::groups::lane;
use crate::growth::Growing;
use crate::limits::{LOOK_EVERY, STREAM_AWAIT, STREAM_SILENCE_MAX};
use crate::news::{self, About, News};
use crate::reading::settle;
use crate::table::Table;

#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) cluster: Cluster,
    pub(crate) table: Arc<Table>,
    pub(crate) growing: Arc<Growing>,
    pub(crate) poll: Duration,
}

impl Watch {
    /// Runs until the store is closed or the task is ended.
    pub(crate) async fn run(self) {
        while !self.growing.is_closed() {
            if let Err(fault) = Box::pin(self.follow()).await {
                tracing::warn!(%fault, "the change stream broke; looking by itself meanwhile");
            }
            // Not longer than that behind, whatever becomes of the stream.
            Deadline::after(self.poll).pause(self.poll).await;
        }
    }

    /// Listens first and looks then, so that nothing falls between.
    async fn follow(&self) -> Result<(), Fault> {
        let watch = self.cluster.news.watch();
        let opened = in_time(watch.max_await_time(STREAM_AWAIT)).await;
        // A stream begins behind the last write that the primary has done, and what is looked at is what a
        // majority has. What lies between the two would never be heard of: until there is no such thing
        // any more, looking is too early.
        settle(&self.cluster, None).await?;
        self.look().await?;
        self.growing.note_hubs();
        let mut looked = Stopwatch::start();
        let mut stream = opened?;
        let mut heads = Vec::new();
        while stream.is_alive() {
            // The server answers by and by even if nothing has changed. One that does not is frozen,
            // or the network is: nobody would ever say that this stream has ended.
            let mut coming = pin!(in_time(stream.next_if_any()));
            let next = match coming.as_mut().now_or_never() {
                Some(next) => next?,
                // All that has come was heard.
                None => {
                    self.growing.note_heads(std::mem::take(&mut heads));
                    coming.await?
                }
            };
            match next.as_ref().and_then(news::of_change) {
                // What is told late of a topic that is gone is nobody's business.
                Some(News::Heads(told)) => heads.extend(
                    told.into_iter()
                        .filter(|(lane, ..)| self.table.get().by_id(lane.topic).is_some()),
                ),
                Some(News::Changed(About::Topics)) => self.refresh().await?,
                Some(News::Changed(About::Hubs)) => self.growing.note_hubs(),
                Some(News::Changed(About::Ends)) => self.look().await?,
                None => {}
            }
            if looked.elapsed() > LOOK_EVERY {
                self.look().await?;
                looked = Stopwatch::start();
            }
        }
        Ok(())
    }

    /// Looks at everything once.
    pub(crate) async fn look(&self) -> Result<(), Fault> {
        self.refresh().await?;
        let reading = async {
            let mut cursor =
                self.cluster.lanes.find(doc! {}).projection(doc! { "next": 1 }).await?;
            let mut ends = Vec::new();
            while cursor.advance().await? {
                let document = cursor.deserialize_current()?;
                let number = |name| document.get_i64(name).unwrap_or(0);
                ends.push((lane(number("_id")), unsigned(number("next"))));
            }
            Ok(ends)
        };
        self.growing.note_ends(self.cluster.ask(reading).await?);
        Ok(())
    }

    async fn refresh(&self) -> Result<(), Fault> {
        if self.table.refresh(&self.cluster).await? {
            let table = self.table.get();
            self.growing.note_topics(|lane| table.by_id(lane.topic).is_none());
        }
        Ok(())
    }
}

/// What a call of the driver comes to, before it has to be taken for lost.
async fn in_time<T>(call: impl IntoFuture<Output = mongodb::error::Result<T>>) -> Result<T, Fault> {
    let answer = Deadline::after(STREAM_SILENCE_MAX).hold(call).await.ok_or_else(too_late)?;
    answer.map_err(|error| Fault::Refused(describe(&error)))
}
