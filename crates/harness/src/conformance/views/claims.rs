//! Which hub keeps a projection, where several could.

use promethean::projection::view_store::{BuildState, DatabaseError, Order, Right};
use promethean::store::HubId;

use super::bench_site::{HUB, Keeper, wanted};
use super::{ViewPlace, view_checks};
use crate::conformance::check::Check;

view_checks!(
    a_projection_has_one_keeper,
    a_keeper_that_is_gone_is_followed,
    whoever_was_followed_is_refused,
    a_claim_that_is_renewed_is_a_new_one,
    what_was_forgotten_has_no_old_claims,
);

const OTHER: HubId = HubId::new(8);

fn name() -> String {
    "keeper".to_owned()
}

async fn a_projection_has_one_keeper(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Offset).await?;
    if !keeper.store.is_shared() {
        return Ok(());
    }
    let store = &keeper.store;
    let absent = store.claim(name(), Some(OTHER), Right::Order).await?;
    ensure_same!(absent, None, "one that is not there gets nothing");
    place.attend(OTHER, true).await?;
    ensure_same!(store.claim(name(), Some(OTHER), Right::Free).await?, None, "not free");
    ensure!(store.holds(name(), keeper.claim).await?, "it is the keeper's still");
    let claim = store.claim(name(), Some(OTHER), Right::Order).await?.ok_or("by order")?;
    ensure!(claim > keeper.claim, "epochs rise");
    ensure!(!store.holds(name(), keeper.claim).await?, "it is another's");
    ensure_same!(store.claim(name(), Some(HUB), Right::Free).await?, None, "and stays theirs");
    store.release(name(), keeper.claim).await?;
    ensure_same!(store.claim(name(), Some(HUB), Right::Free).await?, None, "not to be given back");
    store.release(name(), claim).await?;
    ensure!(store.claim(name(), Some(HUB), Right::Free).await?.is_some(), "free again");
    Ok(())
}

async fn a_keeper_that_is_gone_is_followed(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Offset).await?;
    if !keeper.store.is_shared() {
        return Ok(());
    }
    place.attend(OTHER, true).await?;
    place.attend(HUB, false).await?;
    let claim = keeper.store.claim(name(), Some(OTHER), Right::Free).await?;
    ensure!(claim.is_some_and(|claim| claim > keeper.claim), "taken over: {claim:?}");
    Ok(())
}

/// Every way to write, by a hub that has slept.
async fn whoever_was_followed_is_refused(place: &dyn ViewPlace) -> Check {
    let sleeper = Keeper::begin(place, Order::Offset).await?;
    if !sleeper.store.is_shared() {
        return Ok(());
    }
    let store = &sleeper.store;
    let building = wanted("keeper", sleeper.claim, &sleeper.view, BuildState::Building)?;
    let made = store.obtain(building.clone()).await?;
    sleeper.advance((0, 3), "a", "1").await??;
    place.attend(OTHER, true).await?;
    let claim = store.claim(name(), Some(OTHER), Right::Order).await?.ok_or("by order")?;
    let refused = |what: &str, error: Option<DatabaseError>| -> Check {
        ensure!(matches!(error, Some(DatabaseError::Fenced)), "{what}: {error:?}");
        Ok(())
    };
    refused("a batch", sleeper.advance((3, 4), "a", "2").await?.err())?;
    refused("an empty batch", store.apply(sleeper.batch()?).await.err())?;
    refused("an order", store.keep_plan(sleeper.claimed(), Vec::new()).await.err())?;
    refused("a new build", store.obtain(building.clone()).await.err())?;
    let live = wanted("keeper", sleeper.claim, &sleeper.view, BuildState::Live)?;
    refused("a switch", store.switch(made, live.clone()).await.err())?;
    ensure_same!(sleeper.value("a").await?, Some("1".to_owned()), "nothing was written");
    // The one who followed goes on from there.
    let build =
        store.obtain(promethean::projection::view_store::Requested { claim, ..live }).await?;
    let follower = Keeper { claim, build, ..sleeper.clone() };
    follower.advance((3, 4), "a", "2").await??;
    Ok(())
}

/// So that a commit of which nobody heard is through, or never will be.
async fn a_claim_that_is_renewed_is_a_new_one(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Offset).await?;
    if !keeper.store.is_shared() {
        return Ok(());
    }
    let claim = keeper.store.claim(name(), Some(HUB), Right::Free).await?.ok_or("its own")?;
    ensure!(claim > keeper.claim, "epochs rise");
    let refused = keeper.advance((0, 3), "a", "1").await?;
    ensure!(matches!(refused, Err(DatabaseError::Fenced)), "the claim before: {refused:?}");
    Keeper { claim, ..keeper }.advance((0, 3), "a", "1").await??;
    Ok(())
}

async fn what_was_forgotten_has_no_old_claims(place: &dyn ViewPlace) -> Check {
    let keeper = Keeper::begin(place, Order::Offset).await?;
    if !keeper.store.is_shared() {
        return Ok(());
    }
    let kept = keeper.store.forget(name()).await;
    ensure!(kept.is_err(), "one that a hub keeps is not forgotten");
    keeper.store.release(name(), keeper.claim).await?;
    keeper.store.forget(name()).await?;
    let anew = Keeper::over(keeper.store.clone(), "keeper", Order::Offset).await?;
    ensure!(anew.claim > keeper.claim, "epochs rise for ever");
    let refused = keeper.advance((0, 3), "a", "1").await?;
    ensure!(matches!(refused, Err(DatabaseError::Fenced)), "the one before: {refused:?}");
    Ok(())
}
