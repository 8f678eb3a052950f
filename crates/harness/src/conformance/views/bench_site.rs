//! One projection over one view, committed by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use promethean::projection::view_store::{
    Batch, Build, BuildClaim, BuildCursor, BuildState, Counts, CursorMove, DatabaseError, Order,
    Requested, Right, Stamp, StoredRow, Table, ViewStore, Write,
};
use promethean::projection::{Field, View};
use promethean::store::{HubId, Lane, TopicId};
use promethean_event::{Offset, Partition, Payload, Topic};

use super::ViewPlace;
use crate::conformance::check::Check;

pub(super) const HUB: HubId = HubId::new(7);

/// Whoever keeps a projection.
#[derive(Debug, Clone)]
pub(super) struct Keeper {
    pub(super) store: Arc<dyn ViewStore>,
    pub(super) projection: String,
    pub(super) claim: u64,
    pub(super) build: Build,
    pub(super) view: View,
    pub(super) order: Order,
    pub(super) grave_ms: u64,
}

pub(super) fn lane(partition: u32) -> Lane {
    Lane { topic: TopicId::new(3), partition: Partition::new(partition) }
}

pub(super) fn topic() -> Check<Topic> {
    Ok(Topic::new("process.state")?)
}

pub(super) fn cursors() -> Check<Vec<BuildCursor>> {
    let cursor = |partition| -> Check<BuildCursor> {
        let (next, begun) = (Offset::ZERO, Offset::new(100));
        Ok(BuildCursor { lane: lane(partition), topic: topic()?, next, begun, missed: 0 })
    };
    (0..2).map(cursor).collect()
}

pub(super) fn processes() -> View {
    View::new("processes")
        .field(Field::text("host"))
        .field(Field::integer("pid"))
        .field(Field::number("cpu").at(["load", "cpu"]))
        .field(Field::bool("up"))
        .index(["host", "pid"])
}

pub(super) fn wanted(
    projection: &str,
    claim: u64,
    view: &View,
    state: BuildState,
) -> Check<Requested> {
    Ok(Requested {
        projection: projection.to_owned(),
        claim,
        definition: "one".to_owned(),
        views: vec![view.clone()],
        state,
        from_keys: false,
        cursors: cursors()?,
    })
}

pub(super) fn stamp(offset: u64, version: Option<i64>) -> Stamp {
    stamp_at(0, offset, 1_000 + offset, version)
}

pub(super) fn stamp_at(partition: u32, offset: u64, at: u64, version: Option<i64>) -> Stamp {
    let (lane, offset) = (lane(partition), Offset::new(offset));
    Stamp { ts: 50 + at, at, lane, offset, version }
}

pub(super) fn put(stamp: Stamp, value: &str) -> Check<Write> {
    Ok(Write::Put(stamp, Payload::parse(value.to_owned())?))
}

impl Keeper {
    pub(super) async fn begin(place: &dyn ViewPlace, order: Order) -> Check<Self> {
        place.attend(HUB, true).await?;
        let store = place.open().await?;
        Self::over(store, "keeper", order).await
    }

    pub(super) async fn over(store: Arc<dyn ViewStore>, name: &str, order: Order) -> Check<Self> {
        let claim = store.claim(name.to_owned(), Some(HUB), Right::Free).await?;
        let claim = claim.ok_or("the projection was not to be had")?;
        let view = processes();
        let build = store.obtain(wanted(name, claim, &view, BuildState::Live)?).await?;
        let (projection, grave_ms) = (name.to_owned(), 1_000_000);
        Ok(Self { store, projection, claim, build, view, order, grave_ms })
    }

    pub(super) fn table(&self) -> String {
        self.build.table(&self.view.name)
    }

    /// A batch of nothing.
    pub(super) fn batch(&self) -> Check<Batch> {
        let table = Table { view: self.view.name.clone(), name: self.table() };
        Ok(Batch {
            of: self.claimed(),
            tables: Arc::new(vec![table]),
            topics: Arc::new(BTreeMap::from([(lane(0).topic, topic()?)])),
            order: self.order,
            grave_ms: self.grave_ms,
            writes: vec![BTreeMap::new()],
            cursors: Vec::new(),
            counts: Counts::default(),
            phase: None,
            graves_until: None,
            synced: false,
        })
    }

    pub(super) fn claimed(&self) -> BuildClaim {
        BuildClaim {
            projection: self.projection.clone(),
            claim: self.claim,
            build: self.build.number,
            state: self.build.state,
        }
    }

    /// Commits writes; gives how many of them were stale.
    pub(super) async fn write(&self, writes: Vec<(&str, Write)>) -> Check<u64> {
        let writes = writes.into_iter().map(|(key, write)| (key.to_owned(), write)).collect();
        Ok(self.store.apply(Batch { writes: vec![writes], ..self.batch()? }).await?)
    }

    /// Commits one document and moves the cursor of partition 0.
    pub(super) async fn advance(
        &self,
        (from, to): (u64, u64),
        key: &str,
        value: &str,
    ) -> Check<Result<u64, DatabaseError>> {
        let moved =
            CursorMove { lane: lane(0), from: Offset::new(from), to: Offset::new(to), missed: 1 };
        let write = put(stamp(from, None), value)?;
        let batch = Batch {
            writes: vec![BTreeMap::from([(key.to_owned(), write)])],
            cursors: vec![moved],
            counts: Counts { events: to - from, ..Counts::default() },
            ..self.batch()?
        };
        Ok(self.store.apply(batch).await)
    }

    pub(super) async fn row(&self, key: &str) -> Check<Option<StoredRow>> {
        Ok(self.store.get(self.table(), key.to_owned()).await?)
    }

    /// The document of a key, as text.
    pub(super) async fn value(&self, key: &str) -> Check<Option<String>> {
        Ok(self.row(key).await?.map(|row| row.value.as_str().to_owned()))
    }

    /// How far the live build is in partition 0, and what it has counted.
    pub(super) async fn standing(&self) -> Check<(u64, u64, Counts)> {
        let live = self.store.find(self.projection.clone(), BuildState::Live).await?;
        let live = live.ok_or("there is no live build")?;
        let cursor = live.cursors.iter().find(|cursor| cursor.lane == lane(0));
        let cursor = cursor.ok_or("there is no cursor")?;
        Ok((cursor.next.get(), cursor.missed, live.counts))
    }
}
