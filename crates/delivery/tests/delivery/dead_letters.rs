use promethean_delivery::{Ack, DeadLetterRef, GroupOptions, Input, Park, Refusal, Verdict};

use crate::driver::{Driver, LANE, member};

const A: Option<u64> = Some(1);

/// Parks event 0 of a group with three events of one key.
fn parked(park: Park) -> Driver {
    let mut driver = Driver::with_lane(GroupOptions { park, ..GroupOptions::default() });
    driver.append(&[A, A, A]);
    driver.join(1);
    let (_, token) = driver.take()[0];
    give_up(&mut driver, Ack::Token(token));
    driver
}

fn give_up(driver: &mut Driver, target: Ack) {
    let request = driver.request();
    driver.feed(Input::Nack {
        member: member(1),
        request,
        target,
        verdict: Verdict::Park { error: b"invalid", fingerprint: 1 },
    });
    assert_eq!(driver.answer(request), Some(Ok(1)));
}

fn letter(round: u16) -> DeadLetterRef {
    DeadLetterRef { offset: 0, key: A, round }
}

fn release(driver: &mut Driver, round: u16) -> Result<u64, Refusal> {
    let request = driver.request();
    driver.feed(Input::Release { request, lane: LANE, event: letter(round) });
    driver.answer(request).unwrap()
}

/// Pitfall 110: a permanent error is not tried again.
#[test]
fn permanent_errors_are_parked_at_once() {
    let mut driver = parked(Park::Event);
    assert_eq!(driver.dead[0].attempts, 1);
    assert_eq!(driver.taken(), [(1, 1)]);
}

/// Pitfall 109: later events of the key wait, also over a crash, until somebody decides.
#[test]
fn a_parked_key_waits_until_its_dead_letter_is_resolved() {
    let mut driver = parked(Park::Key);
    assert!(driver.taken().is_empty());
    driver.crash();
    driver.join(1);
    driver.wait(100_000);
    assert!(driver.taken().is_empty());
    let request = driver.request();
    driver.feed(Input::Discard { request, lane: LANE, event: letter(1) });
    assert_eq!(driver.answer(request), Some(Ok(1)));
    assert_eq!(driver.take()[0].1.offset, 1);
}

/// Pitfalls 108 and 112: it comes back to this group, as itself, before what waited for it.
#[test]
fn a_released_dead_letter_goes_first() {
    let mut driver = parked(Park::Key);
    assert_eq!(release(&mut driver, 1), Ok(1));
    assert_eq!(release(&mut driver, 1), Err(Refusal::AlreadyDone));
    let taken = driver.take();
    assert_eq!((taken.len(), taken[0].1.offset, taken[0].1.round), (1, 0, 1));
    driver.crash();
    driver.join(1);
    let taken = driver.take();
    assert_eq!((taken[0].1.offset, taken[0].1.attempt), (0, 2));
    assert_eq!(driver.ack(1, Ack::Token(taken[0].1)), Some(Ok(1)));
    assert_eq!(driver.take()[0].1.offset, 1);
    assert!(driver.states[&0].released.is_empty());
}

/// Pitfall 112: it may fail again, and is a dead letter of the next round; rounds end.
#[test]
fn a_released_dead_letter_may_fail_again_but_not_for_ever() {
    let mut driver = parked(Park::Key);
    for round in 1..=3 {
        assert_eq!(release(&mut driver, round), Ok(1));
        let (_, token) = driver.take()[0];
        assert_eq!((token.round, token.attempt), (round, 1));
        give_up(&mut driver, Ack::Token(token));
        assert_eq!(driver.dead.last().unwrap().round, round);
        assert!(driver.taken().is_empty());
    }
    assert_eq!(release(&mut driver, 101), Err(Refusal::ReleasedTooOften));
}

/// Pitfall 107: the dead letter and the group's advance are in one save.
#[test]
fn a_dead_letter_is_saved_with_the_advance() {
    let mut driver = Driver::with_lane(GroupOptions { max_attempts: 2, ..GroupOptions::default() });
    driver.append(&[None]);
    driver.join(1);
    let (_, token) = driver.take()[0];
    driver.nack(1, token, Some(0));
    let (_, token) = driver.take()[0];
    driver.slow_saves = true;
    driver.nack(1, token, Some(0));
    assert_eq!(driver.saves.len(), 1);
    let save = &driver.saves[0];
    assert_eq!(save.dead_letters.len(), 1);
    let mut state = driver.states[&0].clone();
    state.apply(&save.lanes[0].1).unwrap();
    assert_eq!(state.floor, 1);
}

#[test]
fn what_is_not_a_dead_letter_cannot_be_released() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[A]);
    driver.join(1);
    assert_eq!(release(&mut driver, 1), Err(Refusal::Unknown));
    let request = driver.request();
    driver.feed(Input::Discard { request, lane: LANE, event: letter(1) });
    assert_eq!(driver.answer(request), Some(Err(Refusal::Unknown)));
}

/// A key that waits for two dead letters goes on when both are resolved, and the earlier one,
/// released, does not free the key from the later one.
#[test]
fn a_key_may_wait_for_several_dead_letters() {
    let mut driver = parked(Park::Key);
    let discard = |driver: &mut Driver, offset| {
        let request = driver.request();
        driver.feed(Input::Discard {
            request,
            lane: LANE,
            event: DeadLetterRef { offset, key: A, round: 1 },
        });
        driver.answer(request).unwrap()
    };
    // 0 is given up for good, 1 is parked; then somebody wants 0 after all.
    assert_eq!(discard(&mut driver, 0), Ok(1));
    let (_, token) = driver.take()[0];
    give_up(&mut driver, Ack::Token(token));
    assert_eq!(release(&mut driver, 1), Ok(1));
    let (_, token) = driver.take()[0];
    assert_eq!((token.offset, token.round), (0, 1));
    assert_eq!(driver.ack(1, Ack::Token(token)), Some(Ok(1)));
    assert!(driver.taken().is_empty(), "1 is still parked");
    assert_eq!(discard(&mut driver, 1), Ok(1));
    assert_eq!(driver.taken(), [(2, 1)]);
}
