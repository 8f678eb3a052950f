use promethean_delivery::{Ack, GroupOptions, Input, MemberOptions, Ordered, Span};
use proptest::prelude::*;

use crate::driver::{Driver, LANE, member};

/// What happens to both.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Ack { member: u64, from: u64, count: u64 },
    Nack { at: usize },
    Append { key: u64 },
    Wait { millis: u64 },
}

fn deed() -> impl Strategy<Value = Deed> {
    let ack = (0u64..3, 0u64..60, 0u64..30).prop_map(|(member, from, count)| Deed::Ack {
        member,
        from,
        count,
    });
    prop_oneof![
        8 => ack,
        1 => (0usize..30).prop_map(|at| Deed::Nack { at }),
        2 => (0u64..8).prop_map(|key| Deed::Append { key }),
        1 => (0u64..40_000).prop_map(|millis| Deed::Wait { millis }),
    ]
}

/// Acks a span, as one or event by event in the same step.
fn ack(driver: &mut Driver, whole: bool, (from, span): (u64, Span)) -> Option<u64> {
    let request = driver.request();
    let items: Vec<Ack> = match whole {
        true => vec![Ack::Range { lane: LANE, epoch: 0, span }],
        false => (span.from..span.to).map(|offset| Ack::Offset { lane: LANE, offset }).collect(),
    };
    driver.feed(Input::Ack { member: member(from), request, items: &items });
    let answered = driver.replies.iter().position(|reply| reply.request == request)?;
    Some(driver.replies.remove(answered).accepted)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Acks of spans are decided in one go; nothing may come of it that would not come of acks of
    /// the single events.
    #[test]
    fn a_span_is_acked_as_its_events_are(
        keys in prop::collection::vec(prop::option::weighted(0.8, 0u64..12), 0..60),
        deeds in prop::collection::vec(deed(), 1..40),
        by_key: bool,
        window in prop_oneof![Just(7u32), Just(1_000)],
    ) {
        let ordered = if by_key { Ordered::Key } else { Ordered::None };
        let options = GroupOptions { ordered, window_events: window, ..GroupOptions::default() };
        let mut drivers = [true, false].map(|whole| (whole, Driver::with_lane(options.clone())));
        for (_, driver) in &mut drivers {
            driver.append(&keys);
            for number in 1..3 {
                let batch_size = 5 + number as u32;
                let takes = MemberOptions { batch_size, max_in_flight: 16, ..Default::default() };
                driver.join_with(number, takes);
            }
        }
        for deed in deeds {
            let seen = drivers.each_mut().map(|(whole, driver)| {
                let taken = driver.take();
                let mut accepted = None;
                match deed {
                    Deed::Ack { member, from, count } => {
                        let span = Span { from, to: from + count };
                        accepted = ack(driver, *whole, (member, span));
                    }
                    Deed::Nack { at } => {
                        if let Some(&(of, token)) = taken.get(at) {
                            driver.nack(of, token, None);
                        }
                    }
                    Deed::Append { key } => driver.append(&[Some(key)]),
                    Deed::Wait { millis } => driver.wait(millis),
                }
                (taken, accepted, driver.group.status(LANE), driver.states.clone())
            });
            let [whole, single] = seen;
            prop_assert_eq!(whole, single);
        }
    }
}
