use promethean_delivery::{Ack, GroupOptions, Input, Mode, Output, Refusal};

use crate::driver::{Driver, member};

fn partitioned(lanes: u64) -> Driver {
    let mut driver = Driver::new(GroupOptions {
        mode: Mode::Partitioned,
        member_ttl_ms: Some(1_000),
        drain_ms: 500,
        ..GroupOptions::default()
    });
    for lane in 0..lanes {
        driver.open(lane, 0);
    }
    driver
}

/// Pitfalls 80 and 81: the server assigns, every lane has its own cursor.
#[test]
fn every_lane_has_one_owner_and_loads_are_even() {
    let mut driver = partitioned(8);
    driver.join(1);
    assert_eq!(driver.assigned.len(), 8);
    for lane in 0..8 {
        driver.append_to(lane, &[None; 2]);
    }
    assert_eq!(driver.take().len(), 16);
}

/// Pitfall 82: revoke, drain, and only then assign, with a higher generation.
#[test]
fn the_old_owner_is_done_before_the_new_one_begins() {
    let mut driver = partitioned(2);
    driver.append_to(0, &[None]);
    driver.append_to(1, &[None]);
    driver.join(1);
    let held = driver.take();
    driver.assigned.clear();
    driver.join(2);
    assert_eq!(driver.revoked.len(), 1);
    assert!(driver.assigned.is_empty(), "before the drain");
    let lane = driver.revoked[0].0.lane;
    let (_, token) = *held.iter().find(|(_, token)| token.lane == lane).unwrap();
    assert_eq!(driver.ack(1, Ack::Token(token)), Some(Ok(1)));
    assert_eq!(driver.assigned.len(), 1);
    let now = driver.assigned[0];
    assert_eq!((now.member, now.lane), (member(2), lane));
    assert!(now.generation > driver.revoked[0].0.generation);
    driver.append_to(lane.get(), &[None]);
    assert!(driver.take().iter().all(|(to, _)| *to == 2));
}

/// Pitfall 82: a zombie's acks count for nothing once its time is over.
#[test]
fn a_drain_ends_at_its_deadline() {
    let mut driver = partitioned(1);
    driver.append_to(0, &[None]);
    driver.join(1);
    let (_, token) = driver.take()[0];
    driver.feed(Input::Heartbeat { member: member(1) });
    // One lane moves only if its owner goes; make the other the only one.
    driver.wait(900);
    driver.join(2);
    driver.wait(200);
    assert!(driver.others.contains(&Output::Expired { member: member(1) }));
    let again = driver.take();
    assert_eq!((again[0].0, again[0].1.attempt), (2, 2));
    assert_eq!(driver.ack(1, Ack::Token(token)), Some(Err(Refusal::StaleToken)));
}

/// Pitfall 83: late by a TTL is out, is told so, and may come back.
#[test]
fn a_late_member_is_told_to_join_again_and_may() {
    let mut driver = partitioned(2);
    driver.join(1);
    driver.wait(999);
    driver.feed(Input::Heartbeat { member: member(1) });
    driver.wait(999);
    assert!(!driver.others.contains(&Output::Expired { member: member(1) }));
    driver.wait(1);
    assert!(driver.others.contains(&Output::Expired { member: member(1) }));
    driver.feed(Input::Heartbeat { member: member(1) });
    assert!(driver.others.contains(&Output::Rejoin { member: member(1) }));
    driver.assigned.clear();
    driver.join(1);
    assert_eq!(driver.assigned.len(), 2);
}

/// Pitfall 84: a new owner goes on at the lane's cursor.
#[test]
fn a_new_owner_begins_at_the_cursor() {
    let mut driver = partitioned(1);
    driver.append_to(0, &[None; 4]);
    driver.join(1);
    let held = driver.take();
    driver.ack(1, Ack::Token(held[0].1));
    driver.ack(1, Ack::Token(held[1].1));
    driver.feed(Input::Left { member: member(1) });
    driver.join(2);
    assert_eq!(driver.taken(), [(2, 2), (3, 2)]);
}

/// Generations rise also over crashes.
#[test]
fn generations_are_durable() {
    let mut driver = partitioned(1);
    let mut last = 0;
    for number in 1..5 {
        driver.join(number);
        let now = driver.assigned.last().unwrap().generation;
        assert!(now > last);
        last = now;
        driver.crash();
    }
}
