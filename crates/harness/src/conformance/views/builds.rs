//! Views are built anew beside the live ones, and switched.

use promethean::projection::View;
use promethean::projection::view_store::{BuildState, DatabaseError, Order, Requested};

use super::bench_site::{Keeper, put, stamp, wanted};
use super::{ViewPlace, view_checks};
use crate::conformance::check::Check;

view_checks!(
    a_build_is_made_beside_and_takes_the_place,
    a_build_of_another_definition_begins_anew,
    a_view_has_one_projection,
    what_is_forgotten_is_gone,
    fields_may_change_without_a_new_build,
    cursors_are_added_and_never_moved,
);

async fn builder(keeper: &Keeper, definition: &str) -> Check<Keeper> {
    let wanted = wanted(&keeper.projection, keeper.claim, &keeper.view, BuildState::Building)?;
    let wanted = Requested { definition: definition.to_owned(), ..wanted };
    let build = keeper.store.obtain(wanted).await?;
    Ok(Keeper { build, ..keeper.clone() })
}

async fn a_build_is_made_beside_and_takes_the_place(place: &dyn ViewPlace) -> Check {
    let mut keeper = Keeper::begin(place, Order::Offset).await?;
    keeper.advance((0, 3), "a", "1").await??;
    keeper.advance((3, 4), "gone", "1").await??;
    let made = builder(&keeper, "two").await?;
    made.advance((0, 9), "a", "2").await??;
    ensure_same!(keeper.value("a").await?, Some("1".to_owned()), "the live one meanwhile");
    // Broken off, it goes on where it was.
    let again = builder(&keeper, "two").await?;
    ensure_same!(again.build.number, made.build.number, "the same build");
    ensure_same!(again.build.cursors.iter().map(|c| c.next.get()).max(), Some(9), "its cursor");
    keeper.advance((4, 5), "b", "1").await??;
    let wanted = wanted("keeper", keeper.claim, &keeper.view, BuildState::Live)?;
    keeper.build = keeper.store.switch(again.build, wanted).await?;
    ensure_same!(keeper.build.state, BuildState::Live, "its state");
    ensure_same!(keeper.value("a").await?, Some("2".to_owned()), "after the switch");
    ensure_same!(keeper.value("gone").await?, None, "what only the old one had");
    ensure_same!(keeper.standing().await?.0, 9, "the cursor is that of the new one");
    ensure_same!(keeper.build.definition, "two".to_owned(), "the definition, too");
    let building = keeper.store.find("keeper".to_owned(), BuildState::Building).await?;
    ensure!(building.is_none(), "nothing is being built any more");
    // Whoever drives the old one is refused; the new one goes on, with its indexes.
    let refused = made.advance((9, 10), "c", "3").await?;
    ensure!(matches!(refused, Err(DatabaseError::Fenced)), "the builder: {refused:?}");
    keeper.advance((9, 10), "c", "3").await??;
    Ok(())
}

async fn a_build_of_another_definition_begins_anew(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Offset).await?;
    let two = builder(&keeper, "two").await?;
    two.advance((0, 9), "a", "2").await??;
    let three = builder(&keeper, "three").await?;
    ensure!(three.build.number != two.build.number, "another build");
    ensure_same!(three.value("a").await?, None, "nothing of the other one");
    ensure_same!(three.build.cursors.iter().map(|c| c.next.get()).max(), Some(0), "its cursor");
    Ok(())
}

async fn a_view_has_one_projection(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Offset).await?;
    let other = Keeper::over(keeper.store, "other", Order::Offset).await;
    let refused = other.err().ok_or("two projections have one view")?;
    ensure!(refused.to_string().contains("keeper"), "it says whose it is: {refused}");
    Ok(())
}

async fn what_is_forgotten_is_gone(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Version).await?;
    keeper.write(vec![("a", put(stamp(1, Some(7)), "7")?)]).await?;
    builder(&keeper, "two").await?.advance((0, 9), "a", "2").await??;
    keeper.store.release(keeper.projection.clone(), keeper.claim).await?;
    keeper.store.forget("keeper".to_owned()).await?;
    keeper.store.forget("keeper".to_owned()).await?;
    let found = keeper.store.find("keeper".to_owned(), BuildState::Live).await?;
    ensure!(found.is_none(), "its build");
    let other = Keeper::over(keeper.store, "other", Order::Offset).await?;
    ensure_same!(other.value("a").await?, None, "its documents");
    other.advance((0, 1), "a", "1").await??;
    Ok(())
}

async fn fields_may_change_without_a_new_build(place: &dyn ViewPlace) -> Check {
    let mut keeper = Keeper::begin(place, Order::Offset).await?;
    keeper.advance((0, 1), "a", r#"{"zone":"z"}"#).await??;
    let zone = promethean::projection::Field::text("zone");
    keeper.view = View::new("processes").field(zone).index(["zone"]);
    let wanted = wanted("keeper", keeper.claim, &keeper.view, BuildState::Live)?;
    let again = keeper.store.obtain(wanted).await?;
    ensure_same!(again.number, keeper.build.number, "the same build");
    ensure_same!(keeper.value("a").await?, Some(r#"{"zone":"z"}"#.to_owned()), "its documents");
    Ok(())
}

async fn cursors_are_added_and_never_moved(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Offset).await?;
    keeper.advance((0, 7), "a", "1").await??;
    let mut wanted = wanted("keeper", keeper.claim, &keeper.view, BuildState::Live)?;
    let mut new = wanted.cursors.first().cloned().ok_or("no cursor")?;
    new.lane = super::bench_site::lane(5);
    wanted.cursors.push(new);
    let build = keeper.store.obtain(wanted).await?;
    let next: Vec<u64> = build.cursors.iter().map(|cursor| cursor.next.get()).collect();
    ensure_same!(next, vec![7, 0, 0], "cursors in the order of their lanes");
    Ok(())
}
