use promethean_delivery::{Ack, GroupOptions};

use crate::driver::Driver;

/// P19: an ack is answered when it is durable, not before.
#[test]
fn an_ack_is_answered_once_it_is_durable() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[None; 2]);
    driver.join(1);
    let held = driver.take();
    driver.slow_saves = true;
    assert_eq!(driver.ack(1, Ack::Token(held[0].1)), None);
    // The same again is not answered sooner: it rests on the first.
    assert_eq!(driver.ack(1, Ack::Token(held[0].1)), None);
    assert_eq!(driver.saved_floor(), 0);
    driver.save_all();
    assert_eq!(driver.replies.len(), 2);
    assert_eq!(driver.saved_floor(), 1);
}

/// While saves are under way, changes gather: a thousand acks are a handful of saves.
#[test]
fn acks_share_saves() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[None; 1_000]);
    driver.join(1);
    let held = driver.take();
    assert_eq!(held.len(), 1_000);
    driver.slow_saves = true;
    for (_, token) in &held {
        driver.ack(1, Ack::Token(*token));
    }
    assert_eq!(driver.saves.len(), 2);
    driver.save_all();
    assert_eq!(driver.replies.len(), 1_000);
    assert_eq!(driver.saved_floor(), 1_000);
    assert!(driver.states[&0].encode().len() < 32);
}

/// Pitfall 13: where a group begins is durable before anything else.
#[test]
fn the_start_is_saved_at_once() {
    let mut driver = Driver::new(GroupOptions::default());
    driver.logs.insert(0, Vec::new());
    driver.append_to(0, &[None; 5]);
    driver.open(0, 5);
    assert_eq!(driver.saved_floor(), 5);
    driver.append(&[None]);
    driver.crash();
    driver.join(1);
    // It was there before the crash, so that it may have been out.
    assert_eq!(driver.taken(), [(5, 2)]);
}

/// What is saved is enough: a group made of it does the same as the one that saved it.
#[test]
fn a_recovered_group_goes_on_where_it_was() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[None; 10]);
    driver.join(1);
    let held = driver.take();
    for (_, token) in held.iter().filter(|(_, token)| token.offset % 3 == 0) {
        driver.ack(1, Ack::Token(*token));
    }
    driver.nack(1, held[4].1, Some(500));
    driver.crash();
    driver.join(1);
    let again: Vec<u64> = driver.taken().into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(again, [1, 2, 5, 7, 8]);
    driver.wait(500);
    assert_eq!(driver.taken(), [(4, 2)]);
}
