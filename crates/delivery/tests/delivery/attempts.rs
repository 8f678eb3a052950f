use promethean_delivery::{Ack, GroupOptions, Input, Reason, Refusal, Span};

use crate::driver::{Driver, LANE};

/// Pitfall 4: refused events come back with a delay, and not for ever.
#[test]
fn refusals_back_off_and_end_in_a_dead_letter() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[None]);
    driver.join(1);
    for attempt in 1..=5 {
        let taken = driver.take();
        assert_eq!(taken.len(), 1, "attempt {attempt}");
        assert_eq!(taken[0].1.attempt, attempt);
        driver.nack(1, taken[0].1, None);
        assert!(driver.taken().is_empty(), "at once");
        driver.wait(60_000);
    }
    assert!(driver.taken().is_empty());
    assert_eq!(driver.dead.len(), 1);
    let letter = &driver.dead[0];
    assert_eq!((letter.attempts, letter.times.len()), (5, 5));
    assert_eq!((letter.reason, letter.error.as_slice()), (Reason::Refused, &b"boom"[..]));
    assert_eq!(driver.saved_floor(), 1);
}

/// Pitfall 106 and promise 6: every attempt takes the whole process down.
#[test]
fn a_poison_event_that_kills_the_process_is_given_up() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[None]);
    let mut attempts = Vec::new();
    for _ in 0..10 {
        driver.join(1);
        attempts.extend(driver.taken().into_iter().map(|(_, attempt)| attempt));
        driver.crash();
    }
    assert_eq!(attempts, [1, 2, 3, 4, 5]);
    assert_eq!(driver.dead.len(), 1);
    assert_eq!(driver.dead[0].reason, Reason::ProcessLost);
}

/// With one attempt the first is counted exactly: nobody is given up who was never delivered.
#[test]
fn one_attempt_means_one() {
    let mut driver = Driver::with_lane(GroupOptions { max_attempts: 1, ..GroupOptions::default() });
    driver.append(&[None; 3]);
    driver.crash();
    driver.join(1);
    assert_eq!(driver.taken(), [(0, 1), (1, 1), (2, 1)]);
    driver.append(&[None]);
    driver.crash();
    driver.join(1);
    let dead: Vec<u64> = driver.dead.iter().map(|letter| letter.offset).collect();
    assert_eq!(dead, [0, 1, 2, 3]);
    assert_eq!(driver.floor(), 4);
}

/// A first delivery does not wait for a save: the horizon is durable before it is needed.
#[test]
fn first_deliveries_do_not_wait() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.join(1);
    driver.slow_saves = true;
    driver.append(&[None; 100]);
    assert_eq!(driver.taken().len(), 100);
}

/// Later ones do, or a crash would forget them.
#[test]
fn later_deliveries_are_counted_first() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.join(1);
    driver.append(&[None]);
    let (_, token) = driver.take()[0];
    driver.slow_saves = true;
    driver.nack(1, token, Some(0));
    assert!(driver.taken().is_empty());
    driver.save_all();
    assert_eq!(driver.taken(), [(0, 2)]);
    assert_eq!(driver.states[&0].attempts[0].count, 2);
}

/// An innocent event is counted once too often at most, and new events not at all.
#[test]
fn a_crash_counts_one_attempt_for_what_may_have_been_out() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[None; 2]);
    for _ in 0..10 {
        driver.crash();
    }
    driver.append(&[None]);
    driver.join(1);
    let mut taken = driver.taken();
    taken.sort_unstable();
    assert_eq!(taken, [(0, 2), (1, 2), (2, 1)]);
}

/// Tokens of before a crash are worth nothing after it, and are never given again.
#[test]
fn tokens_do_not_survive_a_crash() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[None]);
    driver.join(1);
    let (_, old) = driver.take()[0];
    driver.crash();
    driver.join(1);
    let (_, new) = driver.take()[0];
    assert_ne!(old, new);
    assert_eq!(driver.ack(1, Ack::Token(old)), Some(Err(Refusal::StaleToken)));
    assert_eq!(driver.ack(1, Ack::Token(new)), Some(Ok(1)));
}

/// Whoever comes to the horizon before it is moved is let further the next time, until it has
/// caught up.
#[test]
fn the_horizon_runs_ahead_of_those_who_are_fast() {
    let options = GroupOptions { horizon_events: 10, window_events: 20, ..GroupOptions::default() };
    let mut driver = Driver::with_lane(options);
    driver.join(1);
    driver.slow_saves = true;
    driver.append(&[None; 200]);
    assert_eq!(driver.taken().len(), 10, "no further than is durable");
    let mut horizons = Vec::new();
    for round in 0..10 {
        driver.save_all();
        horizons.push(driver.states[&0].horizon);
        let span = Span { from: round * 20, to: round * 20 + 20 };
        let acked = Ack::FirstAttempts { lane: LANE, epoch: 0, span };
        assert_eq!(driver.ack(1, acked), None, "not durable yet");
    }
    assert_eq!(horizons[..3], [30, 60, 100]);
    assert!(horizons.iter().zip(1..).all(|(horizon, round)| *horizon <= round * 20 + 40));
    driver.save_all();
    assert_eq!(driver.floor(), 200);
    driver.slow_saves = false;
    driver.append(&[None; 60]);
    driver.feed(Input::Tick);
    assert!(driver.states[&0].horizon <= 260 + 10);
}
