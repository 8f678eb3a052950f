//! Several hubs on one store: who holds what, and that nobody else's saves are taken. A store that
//! only one can use has nothing to promise here.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join;
use promethean::store::{
    Attend, Claim, Claims, GroupSave, HEARD_SPACES, HubId, Lane, Put, SaveError, Store, TopicEntry,
};
use promethean_event::{GroupName, Key, Payload};

use super::check::Check;
use super::factory::StoreFactory;
use super::scene::{Scene, advance, beginning, floor, group, numbers};

checks!(
    hubs_come_and_go,
    a_lane_has_one_holder,
    a_hub_that_departs_leaves_its_lanes,
    a_new_claim_ends_the_one_before,
    a_save_by_an_old_claim_is_refused_whole,
    an_old_delta_by_an_old_claim_is_not_passed_over,
    what_is_given_back_is_free,
    a_silent_hub_is_forgotten,
    a_late_hub_forgets_nobody_that_is_as_late,
    a_hub_that_is_always_late_misses_the_dead,
    claims_are_of_groups_that_are_there,
    hubs_hear_of_each_other,
    of_two_who_claim_at_once_one_gets_it,
    nothing_is_saved_by_the_old_after_the_new_has_read,
);

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(400);

/// Two hubs, each with its own way to the store, and a topic of three partitions.
struct Hubs {
    scene: Scene,
    other: Arc<dyn Store>,
    name: GroupName,
    a: HubId,
    b: HubId,
}

impl Hubs {
    /// `None` if only one can use the store.
    async fn new(factory: &dyn StoreFactory) -> Check<Option<Self>> {
        let scene = Scene::with(factory, 3, promethean::store::Cleaning::default()).await?;
        if scene.store.claims().is_none() {
            return Ok(None);
        }
        let other = factory.beside(&scene.store).await?;
        let name = group("g")?;
        scene.store.save(beginning(&name)?).await?;
        let (a, b) = (HubId::generate(), HubId::generate());
        Ok(Some(Self { scene, other, name, a, b }))
    }

    async fn arrive(&self) -> Check {
        attend(self.store(), self.a, true, LONG).await?;
        attend(&*self.other, self.b, true, LONG).await?;
        Ok(())
    }

    fn store(&self) -> &dyn Store {
        &*self.scene.store
    }

    fn lanes(&self) -> Check<Vec<Lane>> {
        let topics = self.scene.store.topics();
        let entry = topics.get(&self.scene.topic).ok_or("no such topic")?;
        Ok(TopicEntry::lanes(entry).collect())
    }

    async fn claim_all(&self, store: &dyn Store, hub: HubId) -> Check<Vec<Claim>> {
        Ok(claims(store)?.claim(hub, self.name.clone(), self.lanes()?).await?)
    }

    async fn floor(&self) -> Check<Option<u64>> {
        floor(self.store(), &self.name, self.scene.lane()).await
    }

    /// A save of the first lane by a claim.
    fn save(&self, claims: &[Claim], version: u64, floor: u64) -> GroupSave {
        let lane = self.scene.lane();
        let of_lane = claims.iter().filter(|claim| claim.lane == lane);
        let claims = of_lane.map(|claim| (claim.lane, claim.epoch)).collect();
        GroupSave { claims, ..advance(&self.name, lane, version, floor) }
    }
}

fn claims(store: &dyn Store) -> Check<&dyn Claims> {
    Ok(store.claims().ok_or("the store is not shared any more")?)
}

/// The hubs that are there; `None` if this one is not.
async fn attend(
    store: &dyn Store,
    hub: HubId,
    arrives: bool,
    lease: Duration,
) -> Check<Option<Vec<HubId>>> {
    let attend = Attend { hub, arrives, groups: Vec::new(), lease };
    let present = claims(store)?.attend(attend).await?;
    Ok(present.map(|present| present.iter().map(|hub| hub.hub).collect()))
}

fn is_fenced(result: &Result<(), SaveError>, lane: Lane) -> bool {
    matches!(result, Err(SaveError::Fenced(lanes)) if *lanes == [lane])
}

async fn hubs_come_and_go(factory: &dyn StoreFactory) -> Check {
    let Some(hubs) = Hubs::new(factory).await? else { return Ok(()) };
    ensure_same!(
        attend(hubs.store(), hubs.a, false, LONG).await?,
        None,
        "one that has not arrived"
    );
    hubs.arrive().await?;
    let groups = vec![hubs.name.clone()];
    let with_group = Attend { hub: hubs.b, arrives: false, groups: groups.clone(), lease: LONG };
    claims(&*hubs.other)?.attend(with_group).await?;
    let nothing = Attend { hub: hubs.a, arrives: false, groups: Vec::new(), lease: LONG };
    let present = claims(hubs.store())?.attend(nothing).await?.ok_or("this hub was forgotten")?;
    let mut expected = vec![(hubs.a, Vec::new()), (hubs.b, groups)];
    expected.sort();
    let found: Vec<_> = present.into_iter().map(|hub| (hub.hub, hub.groups)).collect();
    ensure_same!(found, expected, "the hubs and what they have members of");
    claims(&*hubs.other)?.depart(hubs.b).await?;
    let present = attend(hubs.store(), hubs.a, false, LONG).await?;
    ensure_same!(present, Some(vec![hubs.a]), "the hubs after one has gone");
    let back = attend(&*hubs.other, hubs.b, false, LONG).await?;
    ensure_same!(back, None, "one that has gone");
    Ok(())
}

async fn a_lane_has_one_holder(factory: &dyn StoreFactory) -> Check {
    let Some(hubs) = Hubs::new(factory).await? else { return Ok(()) };
    hubs.arrive().await?;
    let lanes = hubs.lanes()?;
    let [first, second, third] = *lanes.as_slice() else { return Err("not three lanes".into()) };
    let of_a = claims(hubs.store())?.claim(hubs.a, hubs.name.clone(), vec![first, second]).await?;
    let held: Vec<Lane> = of_a.iter().map(|claim| claim.lane).collect();
    ensure_same!(held, [first, second], "what the first has claimed");
    let of_b = hubs.claim_all(&*hubs.other, hubs.b).await?;
    let held: Vec<Lane> = of_b.iter().map(|claim| claim.lane).collect();
    ensure_same!(held, [third], "what was left for the second");
    let mut holders = claims(hubs.store())?.holders(hubs.name.clone()).await?;
    holders.sort_by_key(|claim| claim.lane);
    let expected: Vec<Claim> = of_a.into_iter().chain(of_b).collect();
    ensure_same!(holders, expected, "the holders");
    let record = hubs.store().group(hubs.name.clone()).await?.ok_or("the group is gone")?;
    ensure!(record.lanes.is_empty(), "a claim is taken for a state: {:?}", record.lanes);
    Ok(())
}

async fn a_hub_that_departs_leaves_its_lanes(factory: &dyn StoreFactory) -> Check {
    let Some(hubs) = Hubs::new(factory).await? else { return Ok(()) };
    hubs.arrive().await?;
    hubs.claim_all(hubs.store(), hubs.a).await?;
    claims(hubs.store())?.depart(hubs.a).await?;
    let holders = claims(&*hubs.other)?.holders(hubs.name.clone()).await?;
    ensure!(holders.is_empty(), "lanes are held by one that is gone: {holders:?}");
    ensure_same!(hubs.claim_all(&*hubs.other, hubs.b).await?.len(), 3, "what is free");
    ensure_same!(hubs.claim_all(hubs.store(), hubs.a).await?, [], "claims of one that is gone");
    Ok(())
}

async fn a_new_claim_ends_the_one_before(factory: &dyn StoreFactory) -> Check {
    let Some(hubs) = Hubs::new(factory).await? else { return Ok(()) };
    hubs.arrive().await?;
    let before = hubs.claim_all(hubs.store(), hubs.a).await?;
    hubs.store().save(hubs.save(&before, 1, 5)).await?;
    let after = hubs.claim_all(hubs.store(), hubs.a).await?;
    ensure_same!(after.len(), 3, "one's own lanes, claimed again");
    for (before, after) in before.iter().zip(&after) {
        ensure!(before.epoch < after.epoch, "epochs do not rise: {before:?}, {after:?}");
    }
    let late = hubs.store().save(hubs.save(&before, 2, 6)).await;
    ensure!(is_fenced(&late, hubs.scene.lane()), "a save by one's own old claim: {late:?}");
    hubs.store().save(hubs.save(&after, 2, 7)).await?;
    ensure_same!(hubs.floor().await?, Some(7), "the floor");
    Ok(())
}

async fn a_save_by_an_old_claim_is_refused_whole(factory: &dyn StoreFactory) -> Check {
    let Some(hubs) = Hubs::new(factory).await? else { return Ok(()) };
    hubs.arrive().await?;
    let lanes = hubs.lanes()?;
    let other_lane = *lanes.get(1).ok_or("no second lane")?;
    let of_a = hubs.claim_all(hubs.store(), hubs.a).await?;
    hubs.store().save(hubs.save(&of_a, 1, 5)).await?;
    // Only the first lane goes to the other hub.
    let first = of_a.iter().filter(|claim| claim.lane == hubs.scene.lane()).copied().collect();
    claims(hubs.store())?.release(hubs.name.clone(), first).await?;
    let of_b = hubs.claim_all(&*hubs.other, hubs.b).await?;
    ensure_same!(of_b.len(), 1, "what the second has claimed");
    let mut save = hubs.save(&of_a, 2, 6);
    save.lanes.extend(advance(&hubs.name, other_lane, 1, 9).lanes);
    let epoch = of_a.iter().find(|claim| claim.lane == other_lane).ok_or("no claim")?.epoch;
    save.claims.push((other_lane, epoch));
    save.dead_letters.push(hubs.scene.event(1)?);
    let refused = hubs.store().save(save.clone()).await;
    ensure!(is_fenced(&refused, hubs.scene.lane()), "a save by an old claim: {refused:?}");
    ensure_same!(hubs.floor().await?, Some(5), "the floor of the lane that is another's");
    let beside = floor(hubs.store(), &hubs.name, other_lane).await?;
    ensure_same!(beside, Some(0), "the floor of the lane beside it");
    ensure!(numbers(&hubs.scene.all().await?)?.is_empty(), "a dead letter of a refused save");
    // What is left of it is as good as before, and the new holder goes on.
    save.lanes.retain(|(lane, _)| *lane == other_lane);
    save.claims.retain(|(lane, _)| *lane == other_lane);
    hubs.store().save(save).await?;
    let beside = floor(hubs.store(), &hubs.name, other_lane).await?;
    ensure_same!(beside, Some(9), "the floor of the lane beside it, saved alone");
    hubs.other.save(hubs.save(&of_b, 2, 7)).await?;
    ensure_same!(hubs.floor().await?, Some(7), "the floor by the new holder");
    Ok(())
}

/// Deltas that were applied already are passed over; one of another holder was not.
async fn an_old_delta_by_an_old_claim_is_not_passed_over(factory: &dyn StoreFactory) -> Check {
    let Some(hubs) = Hubs::new(factory).await? else { return Ok(()) };
    hubs.arrive().await?;
    let of_a = hubs.claim_all(hubs.store(), hubs.a).await?;
    hubs.store().save(hubs.save(&of_a, 1, 1)).await?;
    claims(&*hubs.other)?.depart(hubs.a).await?;
    let of_b = hubs.claim_all(&*hubs.other, hubs.b).await?;
    for version in 2..=4 {
        hubs.other.save(hubs.save(&of_b, version, version)).await?;
    }
    for version in 1..=6 {
        let refused = hubs.store().save(hubs.save(&of_a, version, 100)).await;
        let is_refused = is_fenced(&refused, hubs.scene.lane());
        ensure!(is_refused, "delta {version} of a hub that has lost its claim: {refused:?}");
    }
    ensure_same!(hubs.floor().await?, Some(4), "the floor");
    Ok(())
}

async fn what_is_given_back_is_free(factory: &dyn StoreFactory) -> Check {
    let Some(hubs) = Hubs::new(factory).await? else { return Ok(()) };
    hubs.arrive().await?;
    let of_a = hubs.claim_all(hubs.store(), hubs.a).await?;
    hubs.store().save(hubs.save(&of_a, 1, 3)).await?;
    claims(hubs.store())?.release(hubs.name.clone(), of_a.clone()).await?;
    let late = hubs.store().save(hubs.save(&of_a, 2, 4)).await;
    ensure!(is_fenced(&late, hubs.scene.lane()), "a save after giving back: {late:?}");
    let of_b = hubs.claim_all(&*hubs.other, hubs.b).await?;
    ensure_same!(of_b.len(), 3, "what was given back");
    // Again, late: it is another's by now.
    claims(hubs.store())?.release(hubs.name.clone(), of_a).await?;
    hubs.other.save(hubs.save(&of_b, 2, 5)).await?;
    ensure_same!(hubs.floor().await?, Some(5), "the floor");
    Ok(())
}

async fn a_silent_hub_is_forgotten(factory: &dyn StoreFactory) -> Check {
    let Some(hubs) = Hubs::new(factory).await? else { return Ok(()) };
    attend(hubs.store(), hubs.a, true, SHORT).await?;
    attend(&*hubs.other, hubs.b, true, LONG).await?;
    let of_a = hubs.claim_all(hubs.store(), hubs.a).await?;
    ensure_same!(hubs.claim_all(&*hubs.other, hubs.b).await?, [], "lanes of one that is there");
    factory.wait(SHORT + Duration::from_millis(50)).await;
    let present = attend(&*hubs.other, hubs.b, false, LONG).await?;
    ensure_same!(present, Some(vec![hubs.b]), "the hubs after one was silent");
    ensure_same!(hubs.claim_all(&*hubs.other, hubs.b).await?.len(), 3, "its lanes");
    let back = attend(hubs.store(), hubs.a, false, LONG).await?;
    ensure_same!(back, None, "one that was silent");
    let late = hubs.store().save(hubs.save(&of_a, 1, 1)).await;
    ensure!(is_fenced(&late, hubs.scene.lane()), "its save: {late:?}");
    Ok(())
}

/// After an outage of the store everybody is late, and nobody is dead.
async fn a_late_hub_forgets_nobody_that_is_as_late(factory: &dyn StoreFactory) -> Check {
    let Some(hubs) = Hubs::new(factory).await? else { return Ok(()) };
    attend(hubs.store(), hubs.a, true, SHORT).await?;
    attend(&*hubs.other, hubs.b, true, SHORT).await?;
    let of_a = hubs.claim_all(hubs.store(), hubs.a).await?;
    factory.wait(SHORT + Duration::from_millis(50)).await;
    let present = attend(&*hubs.other, hubs.b, false, LONG).await?;
    ensure_same!(present.map(|hubs| hubs.len()), Some(2), "the hubs, told to one that is late");
    let present = attend(hubs.store(), hubs.a, false, LONG).await?;
    ensure_same!(present.map(|hubs| hubs.len()), Some(2), "the hubs, told to the other");
    hubs.store().save(hubs.save(&of_a, 1, 1)).await?;
    ensure_same!(hubs.claim_all(&*hubs.other, hubs.b).await?, [], "lanes of one that was late");
    Ok(())
}

/// Where everything takes longer than a lease, somebody has to notice nevertheless.
async fn a_hub_that_is_always_late_misses_the_dead(factory: &dyn StoreFactory) -> Check {
    let Some(hubs) = Hubs::new(factory).await? else { return Ok(()) };
    attend(hubs.store(), hubs.a, true, SHORT).await?;
    attend(&*hubs.other, hubs.b, true, SHORT).await?;
    let mut present = Some(vec![hubs.a, hubs.b]);
    for _ in 0..4 {
        factory.wait(SHORT + Duration::from_millis(50)).await;
        present = attend(&*hubs.other, hubs.b, false, SHORT).await?;
    }
    ensure_same!(present, Some(vec![hubs.b]), "the hubs, told to one that is always late");
    Ok(())
}

async fn claims_are_of_groups_that_are_there(factory: &dyn StoreFactory) -> Check {
    let Some(hubs) = Hubs::new(factory).await? else { return Ok(()) };
    hubs.arrive().await?;
    let nobody = group("nobody")?;
    let refused = claims(hubs.store())?.claim(hubs.a, nobody, hubs.lanes()?).await;
    ensure!(matches!(refused, Err(SaveError::UnknownGroup(_))), "no such group: {refused:?}");
    let of_a = hubs.claim_all(hubs.store(), hubs.a).await?;
    hubs.store().remove_group(hubs.name.clone()).await?;
    let refused = hubs.store().save(hubs.save(&of_a, 1, 1)).await;
    ensure!(matches!(refused, Err(SaveError::UnknownGroup(_))), "a removed group: {refused:?}");
    // Another one of the same name knows nothing of earlier claims.
    hubs.store().save(beginning(&hubs.name)?).await?;
    let of_b = hubs.claim_all(&*hubs.other, hubs.b).await?;
    ensure_same!(of_b.len(), 3, "lanes of the new group");
    let refused = hubs.store().save(hubs.save(&of_a, 1, 1)).await;
    ensure!(is_fenced(&refused, hubs.scene.lane()), "a claim to the old group: {refused:?}");
    // Lanes of a topic that is gone are nobody's.
    hubs.store().remove(hubs.scene.id).await?;
    hubs.other.save(hubs.save(&of_b, 1, 1)).await?;
    Ok(())
}

/// Waits until the store says that hubs have changed; gives the mark.
async fn heard(store: &dyn Store, mut mark: u64) -> u64 {
    loop {
        let growth = store.grown(mark).await;
        mark = growth.mark;
        if growth.hubs_changed {
            return mark;
        }
    }
}

async fn hubs_hear_of_each_other(factory: &dyn StoreFactory) -> Check {
    let Some(hubs) = Hubs::new(factory).await? else { return Ok(()) };
    hubs.arrive().await?;
    let mut mark = heard(&*hubs.other, 0).await;
    while let Some(growth) = hubs.other.grown(mark).now_or_never() {
        mark = growth.mark;
    }
    let groups = vec![hubs.name.clone()];
    let joins = Attend { hub: hubs.a, arrives: false, groups, lease: LONG };
    claims(hubs.store())?.attend(joins).await?;
    mark = heard(&*hubs.other, mark).await;
    let of_a = hubs.claim_all(hubs.store(), hubs.a).await?;
    claims(hubs.store())?.release(hubs.name.clone(), of_a).await?;
    mark = heard(&*hubs.other, mark).await;
    for space in HEARD_SPACES {
        let key = Key::new("k")?;
        let put = Put { space, key, value: Some(Payload::null()), expect: None };
        hubs.store().put(vec![put]).await?;
        mark = heard(&*hubs.other, mark).await;
    }
    claims(hubs.store())?.depart(hubs.a).await?;
    heard(&*hubs.other, mark).await;
    Ok(())
}

async fn of_two_who_claim_at_once_one_gets_it(factory: &dyn StoreFactory) -> Check {
    let Some(hubs) = Hubs::new(factory).await? else { return Ok(()) };
    hubs.arrive().await?;
    for _ in 0..5 {
        let (of_a, of_b) =
            join(hubs.claim_all(hubs.store(), hubs.a), hubs.claim_all(&*hubs.other, hubs.b)).await;
        let (of_a, of_b) = (of_a?, of_b?);
        let mut all: Vec<Lane> = of_a.iter().chain(&of_b).map(|claim| claim.lane).collect();
        all.sort();
        ensure_same!(all, hubs.lanes()?, "lanes claimed by two at once");
        claims(hubs.store())?.release(hubs.name.clone(), of_a).await?;
        claims(hubs.store())?.release(hubs.name.clone(), of_b).await?;
    }
    Ok(())
}

/// What the new holder reads is what it goes on from, for ever.
async fn nothing_is_saved_by_the_old_after_the_new_has_read(factory: &dyn StoreFactory) -> Check {
    let Some(hubs) = Hubs::new(factory).await? else { return Ok(()) };
    hubs.arrive().await?;
    let of_a = hubs.claim_all(hubs.store(), hubs.a).await?;
    let saving = async {
        let mut taken = 0;
        for version in 1..=200 {
            match hubs.store().save(hubs.save(&of_a, version, version)).await {
                Ok(()) => taken = version,
                refused if is_fenced(&refused, hubs.scene.lane()) => return Ok(Some(taken)),
                other => return Err(format!("save {version} came to {other:?}")),
            }
        }
        Ok(None)
    };
    let taking_over = async {
        while hubs.floor().await?.unwrap_or(0) < 3 {}
        claims(&*hubs.other)?.depart(hubs.a).await?;
        let of_b = hubs.claim_all(&*hubs.other, hubs.b).await?;
        ensure_same!(of_b.len(), 3, "the lanes of the old holder");
        floor(&*hubs.other, &hubs.name, hubs.scene.lane()).await
    };
    let (taken, read) = join(saving, taking_over).await;
    // A store that answers at once lets the old one be done before the new one comes.
    if let Some(taken) = taken? {
        ensure_same!(read?, Some(taken), "what the new holder has read");
        ensure_same!(hubs.floor().await?, Some(taken), "the floor in the end");
    }
    Ok(())
}
