use promethean_delivery::{Ack, GroupOptions, Input, Ordered};

use crate::driver::{Driver, member};

const A: Option<u64> = Some(1);
const B: Option<u64> = Some(2);

/// Pitfall 9: one event of a key at a time, the next when it is acked.
#[test]
fn one_event_of_a_key_is_out() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[A, A, B, A, B]);
    driver.join(1);
    driver.join(2);
    let mut order = Vec::new();
    loop {
        let taken = driver.take();
        if taken.is_empty() {
            break;
        }
        for (from, token) in taken {
            order.push(token.offset);
            driver.ack(from, Ack::Token(token));
        }
    }
    assert_eq!(order, [0, 2, 1, 4, 3]);
}

/// A later event of the key waits through backoff, lease expiry, departures and crashes.
#[test]
fn later_events_wait_through_everything() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[A, A]);
    driver.join(1);
    let (_, token) = driver.take()[0];
    driver.nack(1, token, Some(5_000));
    assert!(driver.taken().is_empty());
    driver.wait(5_000);
    assert_eq!(driver.taken(), [(0, 2)]);
    driver.wait(31_000);
    assert!(driver.taken().is_empty());
    driver.wait(31_000);
    assert_eq!(driver.taken(), [(0, 3)]);
    driver.join(2);
    driver.feed(Input::Left { member: member(1) });
    assert_eq!(driver.taken(), [(0, 4)]);
    driver.crash();
    driver.join(3);
    let taken = driver.take();
    assert_eq!((taken.len(), taken[0].1.offset, taken[0].1.attempt), (1, 0, 5));
    driver.ack(3, Ack::Token(taken[0].1));
    assert_eq!(driver.take()[0].1.offset, 1);
}

#[test]
fn unordered_groups_do_not_wait() {
    let mut driver =
        Driver::with_lane(GroupOptions { ordered: Ordered::None, ..GroupOptions::default() });
    driver.append(&[A, A, A]);
    driver.join(1);
    assert_eq!(driver.taken(), [(0, 1), (1, 1), (2, 1)]);
}

/// A long line of one key keeps its order when events of it are taken out of the middle.
#[test]
fn an_event_may_be_skipped_out_of_a_line() {
    for skipped in 1..5 {
        let mut driver = Driver::with_lane(GroupOptions::default());
        driver.append(&[A; 5]);
        driver.join(1);
        let request = driver.request();
        driver.feed(Input::Skip {
            request,
            lane: crate::driver::LANE,
            span: promethean_delivery::Span { from: skipped, to: skipped + 1 },
        });
        let mut order = Vec::new();
        while let Some((_, token)) = driver.take().first().copied() {
            order.push(token.offset);
            driver.ack(1, Ack::Token(token));
        }
        let expected: Vec<u64> = (0..5).filter(|offset| *offset != skipped).collect();
        assert_eq!(order, expected);
        assert_eq!(driver.saved_floor(), 5);
    }
}
