//! Which of two writes to a key stands, whatever order they come in.

use promethean::projection::view_store::{Batch, Order, Write};

use super::bench_site::{Keeper, put, stamp, stamp_at};
use super::{ViewPlace, view_checks};
use crate::conformance::check::Check;

view_checks!(
    by_offset_the_later_one_stands,
    by_rank_deletions_are_remembered,
    by_version_an_older_one_is_stale,
    a_deletion_keeps_older_versions_out,
    deletions_are_forgotten_in_time,
    in_sequence_the_last_one_stands,
);

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

/// Pitfalls 130 and 133.
async fn by_offset_the_later_one_stands(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Offset).await?;
    ensure_same!(keeper.write(vec![("a", put(stamp(5, None), "5")?)]).await?, 0, "new");
    ensure_same!(keeper.write(vec![("a", put(stamp(5, None), "0")?)]).await?, 1, "the same again");
    ensure_same!(keeper.write(vec![("a", put(stamp(4, None), "4")?)]).await?, 1, "an older one");
    ensure_same!(keeper.value("a").await?, text("5"), "after stale writes");
    keeper.write(vec![("a", Write::Delete(stamp(3, None)))]).await?;
    ensure_same!(keeper.value("a").await?, text("5"), "after a stale deletion");
    let both = vec![("a", put(stamp(6, None), "6")?), ("b", put(stamp(7, None), "7")?)];
    ensure_same!(keeper.write(both).await?, 0, "newer ones");
    ensure_same!(keeper.value("a").await?, text("6"), "a newer one");
    keeper.write(vec![("a", Write::Delete(stamp(8, None)))]).await?;
    ensure_same!(keeper.value("a").await?, None, "a newer deletion");
    ensure_same!(keeper.standing().await?.2.stale >= 2, true, "stale writes are counted");
    Ok(())
}

async fn by_rank_deletions_are_remembered(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Rank).await?;
    let at = |at, partition| stamp_at(partition, 1, at, None);
    keeper.write(vec![("a", put(at(50, 1), "50")?)]).await?;
    ensure_same!(keeper.write(vec![("a", put(at(40, 0), "40")?)]).await?, 1, "earlier, elsewhere");
    keeper.write(vec![("a", Write::Delete(at(60, 0)))]).await?;
    ensure_same!(keeper.write(vec![("a", put(at(55, 1), "55")?)]).await?, 1, "before the deletion");
    ensure_same!(keeper.value("a").await?, None, "it has not come back");
    ensure_same!(keeper.write(vec![("a", put(at(70, 1), "70")?)]).await?, 0, "after the deletion");
    ensure_same!(keeper.value("a").await?, text("70"), "written anew");
    Ok(())
}

/// Pitfall 130: a stale write is no error.
async fn by_version_an_older_one_is_stale(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Version).await?;
    keeper.write(vec![("a", put(stamp(1, Some(7)), "7")?)]).await?;
    ensure_same!(keeper.write(vec![("a", put(stamp(2, Some(6)), "6")?)]).await?, 1, "older");
    ensure_same!(keeper.write(vec![("a", put(stamp(3, Some(7)), "8")?)]).await?, 1, "the same");
    ensure_same!(keeper.value("a").await?, text("7"), "after stale writes");
    ensure_same!(keeper.write(vec![("a", put(stamp(4, Some(9)), "9")?)]).await?, 0, "newer");
    ensure_same!(keeper.row("a").await?.and_then(|row| row.version), Some(9), "its version");
    Ok(())
}

/// Pitfall 131.
async fn a_deletion_keeps_older_versions_out(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Version).await?;
    keeper.write(vec![("a", put(stamp(1, Some(7)), "7")?)]).await?;
    ensure_same!(keeper.write(vec![("a", Write::Delete(stamp(2, Some(5))))]).await?, 1, "too old");
    ensure_same!(keeper.value("a").await?, text("7"), "after a stale deletion");
    // Without a version it deletes what came before it, and keeps its version.
    keeper.write(vec![("a", Write::Delete(stamp(3, None)))]).await?;
    ensure_same!(keeper.value("a").await?, None, "deleted");
    ensure_same!(keeper.write(vec![("a", put(stamp(4, Some(7)), "7")?)]).await?, 1, "as deleted");
    ensure_same!(keeper.value("a").await?, None, "it has not come back");
    ensure_same!(keeper.write(vec![("a", put(stamp(5, Some(8)), "8")?)]).await?, 0, "newer");
    // A key that never was can be deleted before its upsert comes.
    keeper.write(vec![("b", Write::Delete(stamp(6, Some(3))))]).await?;
    ensure_same!(keeper.write(vec![("b", put(stamp(7, Some(2)), "2")?)]).await?, 1, "too late");
    Ok(())
}

async fn deletions_are_forgotten_in_time(place: &dyn ViewPlace) -> Check {
    let mut keeper = Keeper::begin(place, Order::Version).await?;
    keeper.grave_ms = 100;
    let at = |at, version| stamp_at(0, at, at, Some(version));
    keeper.write(vec![("a", Write::Delete(at(1_000, 9)))]).await?;
    ensure_same!(keeper.write(vec![("a", put(at(1_100, 1), "1")?)]).await?, 1, "within the time");
    ensure_same!(keeper.write(vec![("a", put(at(1_101, 1), "1")?)]).await?, 0, "after it");
    keeper.write(vec![("b", Write::Delete(at(1_000, 9)))]).await?;
    keeper.grave_ms = 1_000_000;
    keeper.store.apply(Batch { graves_until: Some(1_000), ..keeper.batch()? }).await?;
    ensure_same!(keeper.write(vec![("b", put(at(1_001, 1), "1")?)]).await?, 1, "not yet forgotten");
    keeper.store.apply(Batch { graves_until: Some(1_001), ..keeper.batch()? }).await?;
    ensure_same!(keeper.write(vec![("b", put(at(1_002, 1), "1")?)]).await?, 0, "forgotten");
    Ok(())
}

async fn in_sequence_the_last_one_stands(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Sequence).await?;
    keeper.write(vec![("a", put(stamp(9, None), "9")?)]).await?;
    ensure_same!(keeper.write(vec![("a", put(stamp(1, None), "1")?)]).await?, 0, "any");
    ensure_same!(keeper.value("a").await?, text("1"), "the last one");
    keeper.write(vec![("a", Write::Delete(stamp(0, None)))]).await?;
    ensure_same!(keeper.value("a").await?, None, "deleted");
    Ok(())
}
