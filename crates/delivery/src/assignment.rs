//! Which member gets which lane: bounded-load rendezvous, sticky.
//!
//! Loads differ by one at most. A member keeps what it has up to its share, preferring the lanes
//! that rank it highest; the members that hold most get the larger shares, so that no assignment
//! moves fewer lanes. What is left goes, lane by lane, to the member with room that ranks highest
//! for it by a well-mixed hash: the same lanes and members give the same assignment, and names
//! that look alike do not pile up (pitfall 79).

use alloc::vec::Vec;

use crate::hash::{mix, mix2};

/// A lane that needs an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LanePlace {
    /// What the lane is known by, any number.
    pub lane: u64,
    /// The index of the member that has it.
    pub holder: Option<usize>,
}

/// For every lane the index of its member; none only if there are no members. `members` are the
/// numbers they are known by.
pub fn assign(lanes: &[LanePlace], members: &[u64]) -> Vec<Option<usize>> {
    if members.is_empty() {
        return alloc::vec![None; lanes.len()];
    }
    let (mut owners, mut room) = keep(lanes, members);
    let mut open: Vec<(usize, u64)> = members
        .iter()
        .enumerate()
        .filter(|(index, _)| room.get(*index).is_some_and(|room| *room > 0))
        .map(|(index, member)| (index, mix(*member)))
        .collect();
    for (owner, place) in owners.iter_mut().zip(lanes) {
        if owner.is_some() {
            continue;
        }
        let lane = mix(place.lane);
        let best = open.iter().enumerate().max_by_key(|(_, (_, member))| mix(lane ^ member));
        let Some((at, &(index, _))) = best else {
            continue;
        };
        *owner = Some(index);
        if let Some(room) = room.get_mut(index) {
            *room -= 1;
            if *room == 0 {
                // The order of what is left must not depend on who was taken out.
                open.remove(at);
            }
        }
    }
    owners
}

/// What everybody keeps, and how much more everybody gets.
fn keep(lanes: &[LanePlace], members: &[u64]) -> (Vec<Option<usize>>, Vec<usize>) {
    let mut held: Vec<Vec<usize>> = alloc::vec![Vec::new(); members.len()];
    for (index, place) in lanes.iter().enumerate() {
        if let Some(list) = place.holder.and_then(|holder| held.get_mut(holder)) {
            list.push(index);
        }
    }
    let shares = shares(&held, lanes.len(), members);
    let mut owners = alloc::vec![None; lanes.len()];
    let mut room = Vec::with_capacity(members.len());
    for (index, ((list, share), member)) in held.iter_mut().zip(shares).zip(members).enumerate() {
        if list.len() > share {
            let rank = |lane: &usize| lanes.get(*lane).map(|p| mix2(mix(p.lane), *member));
            list.sort_by_key(|lane| core::cmp::Reverse(rank(lane)));
            list.truncate(share);
        }
        room.push(share - list.len());
        for lane in list {
            if let Some(owner) = owners.get_mut(*lane) {
                *owner = Some(index);
            }
        }
    }
    (owners, room)
}

/// How many lanes everybody gets: as many as everybody, or one more for those who hold most.
fn shares(held: &[Vec<usize>], lanes: usize, members: &[u64]) -> Vec<usize> {
    let (each, more) = (lanes / members.len(), lanes % members.len());
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|index| {
        let holds = held.get(*index).map_or(0, Vec::len);
        let number = members.get(*index).copied().unwrap_or(0);
        (core::cmp::Reverse(holds), mix(number))
    });
    let mut shares = alloc::vec![each; members.len()];
    for index in order.into_iter().take(more) {
        if let Some(share) = shares.get_mut(index) {
            *share += 1;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places(owners: &[Option<usize>]) -> Vec<LanePlace> {
        let all = owners.iter().enumerate();
        all.map(|(lane, holder)| LanePlace { lane: lane as u64, holder: *holder }).collect()
    }

    fn loads(owners: &[Option<usize>], members: usize) -> Vec<usize> {
        let mut loads = alloc::vec![0; members];
        for owner in owners {
            loads[owner.unwrap()] += 1;
        }
        loads
    }

    fn is_balanced(loads: &[usize]) -> bool {
        loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1
    }

    /// The fewest moves from `held` to loads that differ by one at most.
    fn moves_min(held: &[usize], lanes: usize) -> usize {
        let (each, mut more) = (lanes / held.len(), lanes % held.len());
        let mut held = held.to_vec();
        held.sort_unstable_by_key(|holds| core::cmp::Reverse(*holds));
        let mut kept = 0;
        for holds in held {
            let larger = usize::from(more > 0 && holds > each);
            more -= larger;
            kept += holds.min(each + larger);
        }
        lanes - kept
    }

    /// Renumbers owners from one list of members to another; those that left own nothing.
    fn renumber(owners: &[Option<usize>], from: &[u64], to: &[u64]) -> Vec<Option<usize>> {
        owners
            .iter()
            .map(|owner| to.iter().position(|m| Some(*m) == owner.map(|o| from[o])))
            .collect()
    }

    proptest! {
        /// Pitfalls 79 and 80: balanced within one, whatever the names, and sticky.
        #[test]
        fn joins_and_leaves_move_the_minimum(
            lanes in 1usize..200,
            changes in prop::collection::vec((any::<bool>(), any::<u16>()), 1..30),
        ) {
            let mut members = alloc::vec![0u64];
            let mut owners = assign(&places(&alloc::vec![None; lanes]), &members);
            for (join, pick) in changes {
                let before = members.clone();
                if join || members.len() == 1 {
                    members.push(u64::from(pick) + 1_000_000 * members.len() as u64);
                } else {
                    members.remove(usize::from(pick) % members.len());
                }
                let kept = renumber(&owners, &before, &members);
                let mut held = alloc::vec![0; members.len()];
                for owner in kept.iter().flatten() {
                    held[*owner] += 1;
                }
                let next = assign(&places(&kept), &members);
                let loads = loads(&next, members.len());
                prop_assert!(is_balanced(&loads), "{:?}", loads);
                let moved = next.iter().zip(&kept).filter(|(new, old)| new != old).count();
                prop_assert_eq!(moved, moves_min(&held, lanes));
                // Survivors keep what they had, up to what is now everybody's share.
                for (index, holds) in held.iter().enumerate() {
                    let keeps = next.iter().zip(&kept).filter(|(n, k)| n == k && **k == Some(index)).count();
                    prop_assert!(keeps >= (*holds).min(lanes / members.len()));
                }
                owners = next;
            }
        }

        #[test]
        fn the_same_question_has_the_same_answer(lanes in 0usize..100, members in prop::collection::vec(any::<u64>(), 0..10)) {
            let places = places(&alloc::vec![None; lanes]);
            prop_assert_eq!(assign(&places, &members), assign(&places, &members));
        }
    }

    /// As large as it may become: members come and go, alone and by the hundred, and every time no
    /// more moves than has to. (The first assignment of all is timed by the bench.)
    #[test]
    fn ten_thousand_members_and_a_hundred_thousand_lanes() {
        const LANES: usize = 100_000;
        let mut members: Vec<u64> = (0..10_000).collect();
        let mut owners: Vec<Option<usize>> = (0..LANES).map(|lane| Some(lane % 10_000)).collect();
        let mut next_member = 10_000;
        for (leave, join) in [(0, 1), (1, 0), (1, 1), (300, 0), (0, 300), (17, 5), (1, 0), (0, 9)] {
            // Those who leave stand all over the list.
            let stays = |index: usize| index % 31 != 7 || index / 31 >= leave;
            let mut places_of = alloc::vec![None; members.len()];
            let mut staying = Vec::new();
            for (index, member) in members.iter().enumerate().filter(|(index, _)| stays(*index)) {
                places_of[index] = Some(staying.len());
                staying.push(*member);
            }
            staying.extend(next_member..next_member + join);
            next_member += join;
            let kept: Vec<Option<usize>> =
                owners.iter().map(|owner| owner.and_then(|owner| places_of[owner])).collect();
            let mut held = alloc::vec![0; staying.len()];
            kept.iter().flatten().for_each(|owner| held[*owner] += 1);
            let next = assign(&places(&kept), &staying);
            assert!(is_balanced(&loads(&next, staying.len())));
            let moved = next.iter().zip(&kept).filter(|(new, old)| new != old).count();
            assert_eq!(moved, moves_min(&held, LANES), "{leave} leave, {join} join");
            (members, owners) = (staying, next);
        }
    }

    #[test]
    fn nobody_gets_nothing() {
        assert_eq!(assign(&places(&[None, None]), &[]), [None, None]);
        assert!(assign(&[], &[1, 2]).is_empty());
    }
}
