//! A batch is all of it or nothing.

use std::collections::BTreeMap;

use promethean::projection::view_store::{
    Batch, BuildState, Counts, CursorMove, DatabaseError, Order, Phase,
};
use promethean_event::Offset;

use super::bench_site::{Keeper, lane, put, stamp};
use super::{ViewPlace, view_checks};
use crate::conformance::check::Check;

view_checks!(
    documents_and_cursors_change_together,
    a_batch_from_elsewhere_changes_nothing,
    everything_is_there_when_it_is_opened_again,
    an_order_is_kept_until_its_batch_is_done,
    phases_change_with_their_batch,
    values_come_back_as_they_were_spelled,
);

async fn documents_and_cursors_change_together(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Offset).await?;
    ensure_same!(keeper.standing().await?, (0, 0, Counts::default()), "at the beginning");
    keeper.advance((0, 3), "a", r#"{"host":"h"}"#).await??;
    let counts = Counts { events: 3, ..Counts::default() };
    ensure_same!(keeper.standing().await?, (3, 1, counts), "after a batch");
    ensure_same!(keeper.value("a").await?, Some(r#"{"host":"h"}"#.to_owned()), "the document");
    let row = keeper.row("a").await?.ok_or("no row")?;
    ensure_same!((row.lane, row.offset, row.version), (lane(0), Offset::ZERO, None), "its place");
    ensure_same!((row.ts.millis(), row.appended_at.millis()), (1_050, 1_000), "its times");
    Ok(())
}

/// Fencing by position: a batch says from where its cursors go on.
async fn a_batch_from_elsewhere_changes_nothing(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Offset).await?;
    keeper.advance((0, 3), "a", "1").await??;
    for (from, to) in [(0, 3), (2, 5), (4, 5)] {
        let refused = keeper.advance((from, to), "b", "2").await?;
        ensure!(matches!(refused, Err(DatabaseError::Fenced)), "{from}: {refused:?}");
    }
    let mut other = keeper.clone();
    other.build.number += 1;
    let refused = other.advance((3, 4), "b", "2").await?;
    ensure!(matches!(refused, Err(DatabaseError::Fenced)), "another build: {refused:?}");
    ensure_same!(keeper.value("b").await?, None, "written by a batch that was refused");
    ensure_same!(keeper.standing().await?.0, 3, "moved by a batch that was refused");
    keeper.advance((3, 4), "b", "2").await??;
    Ok(())
}

async fn everything_is_there_when_it_is_opened_again(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Offset).await?;
    keeper.advance((0, 3), "a", "1").await??;
    let standing = keeper.standing().await?;
    keeper.store.settle().await?;
    drop(keeper);
    let keeper = Keeper::over(place.open().await?, "keeper", Order::Offset).await?;
    ensure_same!(keeper.standing().await?, standing, "where it was");
    ensure_same!(keeper.value("a").await?, Some("1".to_owned()), "what it had");
    keeper.advance((3, 4), "a", "2").await??;
    Ok(())
}

async fn an_order_is_kept_until_its_batch_is_done(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Sequence).await?;
    let plan = vec![(lane(1), Offset::new(2)), (lane(0), Offset::new(1))];
    keeper.store.keep_plan(keeper.claimed(), plan.clone()).await?;
    let live = keeper.store.find("keeper".to_owned(), BuildState::Live).await?.ok_or("no build")?;
    ensure_same!(live.plan, plan, "the order that was kept");
    keeper.store.apply(Batch { synced: true, ..keeper.batch()? }).await?;
    let live = keeper.store.find("keeper".to_owned(), BuildState::Live).await?.ok_or("no build")?;
    ensure_same!(live.plan, Vec::new(), "the order of a batch that is done");
    Ok(())
}

async fn phases_change_with_their_batch(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Offset).await?;
    for phase in [Phase::Keys(Some("k\"$.".to_owned())), Phase::Keys(None), Phase::Events] {
        keeper.store.apply(Batch { phase: Some(phase.clone()), ..keeper.batch()? }).await?;
        let live = keeper.store.find("keeper".to_owned(), BuildState::Live).await?;
        ensure_same!(live.map(|live| live.phase), Some(phase), "the phase");
    }
    Ok(())
}

/// Nothing of an older document stays (pitfall 132), and no text is printed anew.
async fn values_come_back_as_they_were_spelled(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Sequence).await?;
    let values = [
        r#"{"z":1,"a":{"b":[1,null,true]},"é":"\n"}"#,
        r#"{"cpu":1.50,"big":18446744073709551615,"e":1e3}"#,
        r#"{"_id":1,"_meta":{"x":1},"dotted.name":1,"$set":{"x":1}}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"value":1}"#,
        "{}",
        "[1,2]",
        "\"text\"",
        "17",
        "null",
    ];
    for value in values {
        let writes = BTreeMap::from([("k".to_owned(), put(stamp(1, None), value)?)]);
        keeper.store.apply(Batch { writes: vec![writes], ..keeper.batch()? }).await?;
        ensure_same!(keeper.value("k").await?, Some(value.to_owned()), "the document");
    }
    for key in ["$where", "a.b", "\u{1F600}", "it's \"a\"", "\u{0}x"] {
        let writes = BTreeMap::from([(key.to_owned(), put(stamp(1, None), "{}")?)]);
        keeper.store.apply(Batch { writes: vec![writes], ..keeper.batch()? }).await?;
        ensure_same!(keeper.row(key).await?.map(|row| row.key), Some(key.to_owned()), "the key");
    }
    let moved = CursorMove { lane: lane(9), from: Offset::ZERO, to: Offset::new(1), missed: 0 };
    let refused = keeper.store.apply(Batch { cursors: vec![moved], ..keeper.batch()? }).await;
    ensure!(matches!(refused, Err(DatabaseError::Fenced)), "a lane without a cursor: {refused:?}");
    Ok(())
}
