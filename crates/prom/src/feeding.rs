//! The changefeeds of a server: those that are declared run, for as long as they are.

use std::collections::BTreeMap;
use std::time::Duration;

use promethean::Bus;
use promethean::changefeed::Feeds;
use promethean_mongo::changefeed::{Changefeed, FeedEnd, FeedOptions};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::manifest::Document;

/// How often a server looks for feeds that were added.
const LOOK: Duration = Duration::from_secs(1);

/// Feeds at work.
pub(crate) struct Feeding {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Declares the feeds of a manifest. What it does not name stays: it may come from a command.
pub(crate) async fn declare(bus: &Bus, document: &Document) -> anyhow::Result<()> {
    let feeds = Feeds::new(bus.store());
    for (name, table) in &document.changefeeds {
        feeds.add(name, table.definition()).await?;
    }
    Ok(())
}

impl Feeding {
    /// Runs every feed of a bus; where several hubs share its store, those that no other runs.
    pub(crate) fn start(bus: &Bus) -> Self {
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(look_after(bus.clone(), stopped));
        Self { stop, task }
    }

    /// Ends them; what is under way is done again by the next one, which adds nothing.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        // A task that has panicked has ended, too.
        drop(self.task.await);
    }
}

async fn look_after(bus: Bus, stopped: watch::Receiver<bool>) {
    let feeds = Feeds::new(bus.store());
    let options = FeedOptions { alone: bus.store().claims().is_none(), ..FeedOptions::default() };
    let mut running: BTreeMap<String, JoinHandle<FeedEnd>> = BTreeMap::new();
    let mut raised = stopped.clone();
    loop {
        running.retain(|_, feed| !feed.is_finished());
        // A store that cannot be read now is asked again.
        for feed in feeds.list().await.unwrap_or_default() {
            running.entry(feed.name.clone()).or_insert_with(|| {
                let mut stopped = stopped.clone();
                let stop = async move { drop(stopped.wait_for(|raised| *raised).await) };
                tokio::spawn(Changefeed::new(&feed.name, &bus, options.clone()).run(stop))
            });
        }
        tokio::select! {
            _ = raised.wait_for(|raised| *raised) => break,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
    for (_, feed) in running {
        drop(feed.await);
    }
}
