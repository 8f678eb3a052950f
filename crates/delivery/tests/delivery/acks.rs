use promethean_delivery::{Ack, GroupOptions, Input, LaneId, MemberOptions, Output, Refusal, Span};

use crate::driver::{Driver, LANE, member};

fn ready(count: usize) -> (Driver, Vec<Ack>) {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&vec![None; count]);
    driver.join(1);
    let acks = driver.take().into_iter().map(|(_, token)| Ack::Token(token)).collect();
    (driver, acks)
}

/// Pitfall 1: event 0 is late, 1 to 4 are done: the cursor waits, and 0 comes again.
#[test]
fn acks_out_of_order_do_not_move_the_cursor() {
    let (mut driver, acks) = ready(5);
    for ack in &acks[1..] {
        assert_eq!(driver.ack(1, *ack), Some(Ok(1)));
    }
    assert_eq!((driver.floor(), driver.saved_floor()), (0, 0));
    assert_eq!(driver.states[&0].acked.spans(), [Span { from: 1, to: 5 }]);
    assert_eq!(driver.group.status(LANE).unwrap().holes, 4);
    driver.wait(31_000);
    driver.wait(1_000);
    assert_eq!(driver.taken(), [(0, 2)]);
}

/// Pitfall 2: acks below the cursor, of what was never delivered, and of strangers.
#[test]
fn acks_without_a_delivery_change_nothing_and_say_so() {
    let (mut driver, acks) = ready(2);
    let of = |offset| Ack::Offset { lane: LANE, offset };
    assert_eq!(driver.ack(1, acks[0]), Some(Ok(1)));
    assert_eq!(driver.ack(1, acks[0]), Some(Err(Refusal::AlreadyDone)));
    assert_eq!(driver.ack(1, of(0)), Some(Err(Refusal::AlreadyDone)));
    assert_eq!(driver.ack(1, of(7)), Some(Err(Refusal::Unknown)));
    assert_eq!(driver.ack(2, acks[1]), Some(Err(Refusal::LeaseLost)));
    assert_eq!(driver.ack(2, of(1)), Some(Err(Refusal::LeaseLost)));
    assert_eq!(driver.floor(), 1);
    assert_eq!(driver.ack(1, of(1)), Some(Ok(1)));
}

/// Pitfall 3: every look at the log delivered everything again.
#[test]
fn an_event_is_out_once() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.join(1);
    driver.append(&[None; 20]);
    for _ in 0..50 {
        driver.wait(50);
        driver.append(&[None]);
    }
    let mut offsets: Vec<u64> = driver.taken().into_iter().map(|(o, _)| o).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, (0..70).collect::<Vec<_>>());
}

/// Pitfall 5: a hung consumer loses its lease, and its late ack is of no use.
#[test]
fn a_lease_ends_and_a_late_ack_is_refused() {
    let (mut driver, acks) = ready(1);
    driver.wait(30_000);
    assert_eq!(driver.ack(1, acks[0]), Some(Err(Refusal::LeaseLost)));
    driver.wait(1_000);
    assert_eq!(driver.taken(), [(0, 2)]);
    assert_eq!(driver.ack(1, acks[0]), Some(Err(Refusal::StaleToken)));
    assert_eq!(driver.group.counters().expired, 1);
}

#[test]
fn extensions_are_bounded() {
    let mut driver = Driver::with_lane(GroupOptions {
        lease_ms: 100,
        lease_ms_max: 250,
        ..GroupOptions::default()
    });
    driver.append(&[None]);
    driver.join(1);
    let (_, token) = driver.take()[0];
    let extend = |driver: &mut Driver| {
        let request = driver.request();
        driver.feed(Input::Extend {
            member: member(1),
            request,
            target: Ack::Token(token),
            lease_ms: 100,
        });
        driver.answer(request).unwrap()
    };
    driver.wait(90);
    assert_eq!(extend(&mut driver), Ok(1));
    driver.wait(90);
    assert_eq!(extend(&mut driver), Ok(1));
    driver.wait(60);
    assert_eq!(extend(&mut driver), Err(Refusal::LeaseAtMaximum));
    driver.wait(10);
    assert_eq!(extend(&mut driver), Err(Refusal::LeaseLost));
}

/// Pitfall 6: an idle group asks for nothing and sets no timer.
#[test]
fn nothing_polls() {
    let (mut driver, acks) = ready(200);
    for ack in acks {
        driver.ack(1, ack);
    }
    driver.others.clear();
    let fetches = driver.fetches;
    for _ in 0..100 {
        driver.wait(1_000);
    }
    assert_eq!(driver.fetches, fetches);
    assert!(driver.others.len() <= 1, "{:?}", driver.others);
}

/// Pitfall 7: 120 events that the filter refuses, then 30 that it wants.
#[test]
fn filtered_events_and_gaps_are_passed() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[None; 150]);
    for event in &mut driver.logs.get_mut(&0).unwrap()[..120] {
        event.skip = true;
    }
    driver.logs.get_mut(&0).unwrap()[119].offset = u64::MAX;
    driver.gaps.insert(0, vec![Span { from: 119, to: 120 }]);
    driver.join(1);
    let taken = driver.take();
    assert_eq!(taken.len(), 30);
    assert_eq!(driver.floor(), 120);
}

/// Promise 11: what a page leaves out without saying so is not passed silently.
#[test]
fn an_unannounced_hole_stops_the_lane_until_an_operator_decides() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.append(&[None; 3]);
    driver.logs.get_mut(&0).unwrap()[1].offset = u64::MAX;
    driver.join(1);
    let broken = Output::Broken { lane: LANE, offset: 1 };
    assert!(driver.others.contains(&broken), "{:?}", driver.others);
    assert_eq!(driver.taken(), [(0, 1)]);
    let request = driver.request();
    driver.feed(Input::Skip { request, lane: LANE, span: Span { from: 1, to: 2 } });
    assert_eq!(driver.taken(), [(2, 1)]);
}

/// Pitfall 8: two members share, they do not both get everything; nothing without credit.
#[test]
fn members_share_and_credit_is_kept() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    let some = MemberOptions { credits: Some(3), batch_size: 2, ..MemberOptions::default() };
    driver.append(&[None; 10]);
    assert_eq!(driver.fetches, 0);
    driver.join_with(1, some.clone());
    driver.join_with(2, some);
    let taken = driver.take();
    let of = |number| taken.iter().filter(|(member, _)| *member == number).count();
    assert_eq!((of(1), of(2)), (3, 3));
    driver.feed(Input::Credit { member: member(2), events: 2 });
    assert_eq!(driver.take().len(), 2);
}

/// Pitfall 24: who leaves gives its leases back at once.
#[test]
fn leases_of_the_departed_are_free_at_once() {
    let (mut driver, _) = ready(3);
    driver.join(2);
    driver.feed(Input::Left { member: member(1) });
    assert_eq!(driver.taken(), [(0, 2), (1, 2), (2, 2)]);
}

/// Pitfall 25: a seek with live members fences what they hold.
#[test]
fn acks_from_before_a_seek_are_fenced() {
    let (mut driver, acks) = ready(5);
    assert_eq!(driver.ack(1, acks[0]), Some(Ok(1)));
    let request = driver.request();
    let to = 0;
    driver.feed(Input::Seek { request, lane: LANE, to });
    assert_eq!(driver.answer(request), Some(Ok(1)));
    assert_eq!(driver.ack(1, acks[1]), Some(Err(Refusal::Fenced)));
    let again = driver.take();
    assert_eq!(again.len(), 5);
    assert!(again.iter().all(|(_, token)| token.epoch == 1 && token.attempt == 1));
    assert_eq!(driver.floor(), 0);
    let request = driver.request();
    driver.feed(Input::Seek { request, lane: LANE, to: 6 });
    assert_eq!(driver.answer(request), Some(Err(Refusal::BeyondTail)));
}

#[test]
fn paused_members_and_groups_get_nothing() {
    let mut driver = Driver::with_lane(GroupOptions::default());
    driver.join(1);
    driver.feed(Input::MemberPaused { member: member(1) });
    driver.append(&[None]);
    assert!(driver.taken().is_empty());
    driver.feed(Input::Paused);
    driver.feed(Input::MemberResumed { member: member(1) });
    assert!(driver.taken().is_empty());
    driver.feed(Input::Resumed);
    assert_eq!(driver.taken(), [(0, 1)]);
}

/// Holes beyond the bound stop the reading, and with it the memory.
#[test]
fn the_window_is_bounded() {
    let mut driver =
        Driver::with_lane(GroupOptions { window_events: 50, ..GroupOptions::default() });
    driver.append(&[None; 500]);
    driver.join(1);
    let mut held = None;
    loop {
        let taken = driver.take();
        if taken.is_empty() {
            break;
        }
        for (_, token) in taken {
            match token.offset {
                0 => held = Some(token),
                _ => {
                    driver.ack(1, Ack::Token(token));
                }
            }
        }
    }
    assert_eq!(driver.group.status(LANE).unwrap().next, 50);
    driver.ack(1, Ack::Token(held.unwrap()));
    assert!(driver.group.status(LANE).unwrap().next >= 100);
}

/// One call may ack events of several lanes: each lane counts its own, the group all of them.
#[test]
fn what_is_done_is_counted_by_lane() {
    let mut driver = Driver::with_lane(GroupOptions { max_attempts: 2, ..Default::default() });
    driver.open(1, 0);
    driver.append_to(0, &[None; 3]);
    driver.append_to(1, &[None; 2]);
    driver.join(1);
    let tokens: Vec<_> = driver.take().into_iter().map(|(_, token)| token).collect();
    let (refused, acked): (Vec<_>, Vec<_>) = tokens.into_iter().partition(|t| t.offset == 1);
    let items: Vec<_> = acked.into_iter().map(Ack::Token).collect();
    let request = driver.request();
    driver.feed(Input::Ack { member: member(1), request, items: &items });
    for token in refused {
        driver.nack(1, token, Some(0));
    }
    driver.wait(120_000);
    let mut sum = promethean_delivery::Counters::default();
    for (lane, acked) in [(0, 2), (1, 1)] {
        let counters = driver.group.status(LaneId::new(lane)).unwrap().counters;
        assert_eq!((counters.acked, counters.nacked), (acked, 1));
        assert_eq!((counters.delivered, counters.redelivered), (acked + 2, 1));
        assert_eq!((counters.expired, counters.dead_lettered), (1, 1));
        sum += counters;
    }
    assert_eq!(sum, driver.group.counters());
}
