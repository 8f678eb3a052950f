//! Views, causes, snapshots and jobs of a bus, at work: what a server has besides events.
//!
//! What a manifest declares is kept in the store, so that commands on a data directory find the
//! same views as the server had, without the manifest.

mod declaration;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use promethean::Bus;
use promethean::causality::{Causes, FollowingCauses};
use promethean::projection::Views;
use promethean::projection::view_store::ViewStore;
use promethean::snapshot::{Compacting, Compactor};
use promethean::store::Put;
use promethean_event::{Key, Payload, Topic};
use promethean_gateway::Shelf;

pub(crate) use declaration::Declaration;

use crate::demo;
use crate::manifest::Document;

/// Where declarations are kept.
const SPACE: &str = "views";
/// A snapshot follows its topic no more often than this, unless told otherwise.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(5);

/// Views, causes and jobs of a bus.
pub(crate) struct Workshop {
    bus: Bus,
    views: Views,
    shelf: Shelf,
    /// What runs, as it was declared.
    declared: BTreeMap<String, Declaration>,
    compactors: BTreeMap<Topic, Compacting>,
    _following: FollowingCauses,
    /// Where everything is that a bus in memory has on disk.
    _scratch: Option<tempfile::TempDir>,
}

impl Workshop {
    /// Opens what a bus has in its directory; a bus in memory gets one that goes with it. Views may be
    /// elsewhere.
    pub(crate) async fn open(
        bus: &Bus,
        data: Option<&Path>,
        views: Option<Arc<dyn ViewStore>>,
    ) -> anyhow::Result<Self> {
        let scratch = match data {
            Some(_) => None,
            None => Some(tempfile::tempdir().context("cannot make a directory for views")?),
        };
        let place = data.or_else(|| scratch.as_ref().map(|folder| folder.path()));
        let place = place.unwrap_or(Path::new("."));
        let file = place.join("state.db");
        let views = match views {
            // What is compared with the log is folded here.
            Some(store) => Views::over(bus, store, file),
            None => {
                let opened = Views::open(bus, &file).await;
                opened.with_context(|| format!("cannot open {}", file.display()))?
            }
        };
        let causes = Causes::open(bus, place.join("causes.db")).await?;
        let jobs = Shelf::jobs_of(bus);
        let shelf = Shelf {
            views: Some(views.clone()),
            causes: Some(causes.clone()),
            jobs: Some(jobs),
            ..Shelf::default()
        };
        Ok(Self {
            bus: bus.clone(),
            views,
            shelf,
            declared: BTreeMap::new(),
            compactors: BTreeMap::new(),
            _following: causes.follow(),
            _scratch: scratch,
        })
    }

    /// Goes on with jobs that ran when the server stopped.
    pub(crate) async fn resume_jobs(&self) -> anyhow::Result<()> {
        if let Some(jobs) = &self.shelf.jobs {
            jobs.resume_all().await?;
        }
        Ok(())
    }

    /// What the edge serves of it.
    pub(crate) fn shelf(&self) -> Shelf {
        self.shelf.clone()
    }

    /// Starts the views of a manifest and stops those that it does not have any more; others that
    /// have changed are built anew by themselves. Starts snapshots of topics.
    pub(crate) async fn follow(&mut self, document: &Document) -> anyhow::Result<()> {
        let wanted: BTreeMap<String, Declaration> = document
            .views
            .iter()
            .map(|(name, table)| (name.clone(), Declaration::Changelog(Box::new(table.clone()))))
            .collect();
        let gone: Vec<String> = self
            .declared
            .iter()
            .filter(|(name, there)| {
                matches!(there, Declaration::Changelog(_)) && wanted.get(*name) != Some(*there)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.declared.remove(&name);
            if let Ok(projection) = self.views.keeper(&name) {
                projection.stop().await;
            }
        }
        for (name, declaration) in wanted {
            if !self.declared.contains_key(&name) {
                self.start(name, declaration).await?;
            }
        }
        self.snapshots(document)?;
        self.keep().await
    }

    /// Starts the views of the demo that nobody else declares.
    pub(crate) async fn start_demo(&mut self) -> anyhow::Result<()> {
        for name in demo::VIEWS {
            if !self.declared.contains_key(name) {
                self.start(name.to_owned(), Declaration::Demo).await?;
            }
        }
        if self.shelf.default_view.is_none() {
            self.shelf.default_view = demo::VIEWS.first().map(|name| (*name).to_owned());
        }
        self.keep().await
    }

    /// Starts what an earlier server has kept.
    pub(crate) async fn recall(&mut self) -> anyhow::Result<()> {
        for entry in self.bus.store().entries(SPACE).await? {
            let declaration: Declaration = entry.value.decode()?;
            self.start(entry.key.as_str().to_owned(), declaration).await?;
        }
        Ok(())
    }

    async fn start(&mut self, name: String, declaration: Declaration) -> anyhow::Result<()> {
        let started = match &declaration {
            Declaration::Demo => demo::start_view(&self.views, &name).await,
            Declaration::Changelog(table) => match table.changelog(&name) {
                Ok(changelog) => self.views.changelog(changelog).await.map_err(Into::into),
                Err(error) => Err(error.into()),
            },
        };
        started.with_context(|| format!("view {name}"))?;
        if let Declaration::Changelog(table) = &declaration {
            if table.default == Some(true) {
                self.shelf.default_view = Some(name.clone());
            }
            if let Some(Ok(said)) = table.cache_control.as_ref().map(|text| text.parse()) {
                self.shelf.cache_control.insert(name.clone(), said);
            }
        }
        self.declared.insert(name, declaration);
        Ok(())
    }

    fn snapshots(&mut self, document: &Document) -> anyhow::Result<()> {
        let mut wanted = BTreeMap::new();
        for (name, table) in &document.topic {
            if table.snapshot.or(document.defaults.topic.snapshot) == Some(true) {
                let every = table.snapshot_every.or(document.defaults.topic.snapshot_every);
                let every = every.map_or(SNAPSHOT_EVERY, |time| Duration::from_millis(time.0));
                wanted.insert(Topic::new(name)?, every);
            }
        }
        self.compactors.retain(|topic, _| wanted.contains_key(topic));
        for (topic, every) in wanted {
            let compactor = || Compactor::new(self.bus.clone(), topic.clone()).start(every);
            self.compactors.entry(topic.clone()).or_insert_with(compactor);
        }
        Ok(())
    }

    /// Keeps what is declared, and forgets what is not any more.
    async fn keep(&self) -> anyhow::Result<()> {
        let there = self.bus.store().entries(SPACE).await?;
        let mut puts = Vec::new();
        for entry in &there {
            if !self.declared.contains_key(entry.key.as_str()) {
                puts.push(Put { space: SPACE, key: entry.key.clone(), value: None, expect: None });
            }
        }
        for (name, declaration) in &self.declared {
            let value = Payload::of(declaration)?;
            if !there.iter().any(|entry| entry.key.as_str() == name && entry.value == value) {
                let key = Key::new(name.as_str())?;
                puts.push(Put { space: SPACE, key, value: Some(value), expect: None });
            }
        }
        if !puts.is_empty() {
            self.bus.store().put(puts).await?;
        }
        Ok(())
    }

    /// Waits until views show everything that is in the log; for commands that come and go. What
    /// cannot be waited for shows itself in the answers.
    pub(crate) async fn settle(&self, at_most: Duration) {
        let keepers = self.views.keepers();
        let all = async {
            for projection in &keepers {
                if projection.caught_up().await.is_err() {
                    return;
                }
            }
        };
        drop(tokio::time::timeout(at_most, all).await);
    }

    pub(crate) async fn stop(self) {
        self.views.stop().await;
    }
}

impl std::fmt::Debug for Workshop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workshop").field("declared", &self.declared).finish_non_exhaustive()
    }
}

/// A workshop that a server shares with whatever reads its manifest again.
pub(crate) type Shared = Arc<tokio::sync::Mutex<Workshop>>;
