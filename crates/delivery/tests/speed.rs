//! How fast a group runs, in release builds: `cargo test --release -p promethean-delivery --test
//! speed -- --ignored --nocapture`.
#![expect(
    clippy::disallowed_methods,
    reason = "measures real time; the group itself is given a constant one"
)]

use std::time::Instant;

use promethean_delivery::{
    Ack, Found, Group, GroupOptions, Input, LaneId, LanePlace, LaneStart, MemberId, MemberOptions,
    Ordered, Output, Page, RequestId, Span, StartFrom, assign,
};

const EVENTS: u64 = 1_000_000;

/// How the consumer acks.
#[derive(Clone, Copy, Debug)]
enum Style {
    Ranges,
    Tokens,
}

fn run(ordered: Ordered, keys: u64, style: Style) -> f64 {
    let options = GroupOptions {
        ordered,
        ..GroupOptions::default()
    };
    let mut group = Group::new(options, 1).unwrap();
    let lane = LaneId::new(1);
    let member = MemberId::new(1);
    let mut outputs = Vec::new();
    let start = LaneStart {
        lane,
        tail: EVENTS,
        from: StartFrom::Offset(0),
    };
    let begin = Instant::now();
    group.step(0, Input::LaneAdded(start), &mut outputs);
    let joined = Input::Joined {
        member,
        options: MemberOptions::default(),
    };
    group.step(0, joined, &mut outputs);
    let mut work = std::collections::VecDeque::from(std::mem::take(&mut outputs));
    let (mut page, mut acks) = (Vec::new(), Vec::new());
    let (mut acked, mut saves) = (0u64, 0u64);
    while let Some(output) = work.pop_front() {
        match output {
            Output::Fetch(fetch) => {
                let to = (fetch.from + u64::from(fetch.max)).min(EVENTS);
                page.clear();
                page.extend((fetch.from..to).map(|offset| Found {
                    offset,
                    key: Some((offset % keys).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                    bytes: 250,
                    skip: false,
                }));
                let page = Page {
                    lane,
                    fetch: fetch.fetch,
                    from: fetch.from,
                    to,
                    events: &page,
                    gaps: &[],
                };
                group.step(1, Input::Fetched(page), &mut outputs);
            }
            Output::Deliver(deliver) => {
                acked += deliver.events.len() as u64;
                acks.clear();
                match style {
                    Style::Tokens => acks.extend(
                        deliver
                            .events
                            .iter()
                            .map(|event| Ack::Token(deliver.token(*event))),
                    ),
                    Style::Ranges => {
                        let mut spans: Vec<Span> = Vec::new();
                        for event in &deliver.events {
                            match spans.last_mut() {
                                Some(last) if last.to == event.offset => last.to += 1,
                                _ => spans.push(Span {
                                    from: event.offset,
                                    to: event.offset + 1,
                                }),
                            }
                        }
                        acks.extend(spans.into_iter().map(|span| Ack::Range {
                            lane,
                            epoch: deliver.epoch,
                            span,
                        }));
                    }
                }
                let input = Input::Ack {
                    member,
                    request: RequestId::new(1),
                    items: &acks,
                };
                group.step(1, input, &mut outputs);
            }
            Output::Save(save) => {
                saves += 1;
                let number = save.number;
                group.step(1, Input::Saved { number }, &mut outputs);
            }
            _ => {}
        }
        work.extend(outputs.drain(..));
    }
    let nanos = begin.elapsed().as_nanos() as f64 / EVENTS as f64;
    assert_eq!(acked, EVENTS);
    assert_eq!(group.status(lane).unwrap().floor, EVENTS);
    println!("{ordered:?} keys={keys} {style:?}: {nanos:.0} ns per event, {saves} saves");
    nanos
}

#[test]
#[ignore = "needs a release build"]
fn a_million_events_from_fetch_to_ack() {
    for style in [Style::Ranges, Style::Tokens] {
        for keys in [EVENTS, 1_000, 50] {
            assert!(run(Ordered::Key, keys, style) < 300.0);
        }
        assert!(run(Ordered::None, EVENTS, style) < 200.0);
    }
}

#[test]
#[ignore = "needs a release build"]
fn ten_thousand_members_and_a_hundred_thousand_lanes() {
    let lanes = |owners: &[Option<usize>]| -> Vec<LanePlace> {
        let all = owners.iter().enumerate();
        all.map(|(lane, holder)| LanePlace {
            lane: lane as u64,
            holder: *holder,
        })
        .collect()
    };
    let members: Vec<u64> = (0..10_000).collect();
    let begin = Instant::now();
    let first = assign(&lanes(&vec![None; 100_000]), &members);
    println!("first assignment: {:?}", begin.elapsed());
    let begin = Instant::now();
    let joined: Vec<u64> = (0..10_001).collect();
    let second = assign(&lanes(&first), &joined);
    println!("one joins: {:?}", begin.elapsed());
    let moved = first.iter().zip(&second).filter(|(a, b)| a != b).count();
    assert!(moved <= 10, "{moved}");
    let begin = Instant::now();
    let left: Vec<Option<usize>> = second
        .iter()
        .map(|o| o.filter(|o| *o > 0).map(|o| o - 1))
        .collect();
    let third = assign(&lanes(&left), &joined[1..]);
    println!("one leaves: {:?}", begin.elapsed());
    let moved = left.iter().zip(&third).filter(|(a, b)| a != b).count();
    assert!(moved <= 11, "{moved}");
    assert!(begin.elapsed().as_secs() < 5);
}

#[test]
#[ignore = "needs a release build"]
fn ten_thousand_idle_groups() {
    let resident = || -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = text
            .split(' ')
            .nth(1)
            .and_then(|pages| pages.parse::<u64>().ok());
        pages.unwrap_or(0) * 4_096
    };
    let before = resident();
    let mut groups = Vec::new();
    for number in 0..10_000u64 {
        let mut outputs = Vec::new();
        let mut group = Group::new(GroupOptions::default(), number).unwrap();
        let start = LaneStart {
            lane: LaneId::new(number),
            tail: 0,
            from: StartFrom::Offset(0),
        };
        group.step(0, Input::LaneAdded(start), &mut outputs);
        let joined = Input::Joined {
            member: MemberId::new(number),
            options: MemberOptions::default(),
        };
        group.step(0, joined, &mut outputs);
        group.step(0, Input::Saved { number: 1 }, &mut outputs);
        groups.push(group);
    }
    let each = (resident() - before) / 10_000;
    println!("{each} bytes per idle group");
    assert!(each < 8_192, "{each}");
    drop(groups);
}
