//! Lanes that go to another group of the same name, at another hub.

use promethean_delivery::{Ack, GroupOptions, Input};

use crate::driver::{Driver, LANE};

/// What is out may be finished; nothing new goes out; what came of it is in the last word.
#[test]
fn a_lane_that_closes_gives_nothing_new() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[None; 2]);
    driver.join(1);
    let held = driver.take();
    assert_eq!(held.len(), 2);
    driver.feed(Input::LaneClosing { lane: LANE });
    driver.append(&[None; 5]);
    driver.wait(10);
    assert_eq!(driver.take().len(), 0);
    for (_, token) in held {
        assert!(driver.ack(1, Ack::Token(token)).is_some());
    }
    assert_eq!(driver.take().len(), 0);
    assert_eq!(driver.group.status(LANE).map(|status| status.out), Some(0));
    driver.feed(Input::LaneRemoved { lane: LANE });
    assert_eq!(driver.saved_floor(), 2);
    // Whoever takes it up goes on there.
    driver.open(0, 0);
    assert_eq!(driver.take().len(), 5);
}

/// Another has it: nothing of it is saved any more, not even what was under way to a save.
#[test]
fn a_lane_that_is_lost_has_no_last_word() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[None; 4]);
    driver.join(1);
    let held = driver.take();
    driver.slow_saves = true;
    // The first is in a save, the second waits for the next one.
    driver.ack(1, Ack::Token(held[0].1));
    driver.ack(1, Ack::Token(held[1].1));
    let under_way = driver.saves.len();
    driver.feed(Input::LaneLost { lane: LANE });
    assert!(!driver.group.has_last_word(LANE));
    assert!(driver.group.status(LANE).is_none());
    driver.saves.truncate(under_way);
    driver.save_all();
    let later = driver.saves.iter().flat_map(|save| &save.lanes);
    assert_eq!(later.count(), 0);
    // What is out of it is out no more: its events are for whoever takes it up.
    driver.slow_saves = false;
    driver.open(0, 0);
    assert!(!driver.take().is_empty());
}

/// A last word that waits for a save is taken back, too.
#[test]
fn a_lane_that_is_lost_after_it_was_removed_says_nothing() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[None; 3]);
    driver.join(1);
    let held = driver.take();
    driver.slow_saves = true;
    // Two are under way in saves; the third waits.
    for (_, token) in held {
        driver.ack(1, Ack::Token(token));
    }
    driver.feed(Input::LaneRemoved { lane: LANE });
    assert!(driver.group.has_last_word(LANE));
    driver.feed(Input::LaneLost { lane: LANE });
    assert!(!driver.group.has_last_word(LANE));
}
