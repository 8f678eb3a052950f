//! Whatever a group is told, it neither panics nor forgets its invariants.

use promethean_delivery::{
    Ack, AttemptRecord, DeadLetterRef, Found, Group, GroupOptions, Input, LaneId, LaneStart,
    LaneState, MemberId, MemberOptions, Mode, Output, Page, Park, ParkedKey, ReleasedEvent,
    RequestId, Span, SpanSet, StartFrom, Token, Verdict,
};
use proptest::prelude::*;

/// One input, as numbers that mean something or nothing.
#[derive(Debug, Clone)]
struct Raw {
    kind: u8,
    lane: u64,
    member: u64,
    a: u64,
    b: u64,
    page: Vec<(u64, u64, bool)>,
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0u64..12,
        1 => 0u64..2_000,
        1 => prop::sample::select(vec![u64::MAX, u64::MAX - 1, 1 << 40, 1 << 63]),
    ]
}

fn raw() -> impl Strategy<Value = Raw> {
    let page = prop::collection::vec((0u64..20, 0u64..4, any::<bool>()), 0..12);
    (0u8..32, 0u64..3, 0u64..4, number(), number(), page)
        .prop_map(|(kind, lane, member, a, b, page)| Raw { kind, lane, member, a, b, page })
}

fn state(raw: &Raw) -> LaneState {
    let mut state = LaneState::starting_at(raw.a);
    state.horizon = raw.b;
    state.epoch = raw.b as u32;
    state.generation = raw.a as u32;
    state.version = raw.a.min(1 << 60);
    let mut acked = SpanSet::new();
    for (from, count, keyed) in &raw.page {
        acked.insert(Span {
            from: raw.a.saturating_add(*from + 1),
            to: raw.a.saturating_add(*from + 1 + *count),
        });
        let offset = from * 3;
        let record = AttemptRecord {
            offset,
            count: *count as u16,
            not_before: raw.b,
            ..AttemptRecord::default()
        };
        if state.attempts.iter().all(|have| have.offset < offset) {
            state.attempts.push(record);
        }
        if *keyed && state.parked.iter().all(|have| have.key < *count) {
            state.parked.push(ParkedKey { key: *count, offset });
        }
        if !keyed && state.released.iter().all(|have| have.offset < offset) {
            state.released.push(ReleasedEvent { offset, key: Some(*count), round: *count as u16 });
        }
    }
    state.acked = acked;
    state
}

fn target(raw: &Raw) -> Ack {
    let lane = LaneId::new(raw.lane);
    let span = Span { from: raw.b, to: raw.a };
    match raw.b % 4 {
        0 => Ack::Token(Token { lane, offset: raw.a, epoch: raw.b as u32, attempt: 1, round: 0 }),
        1 => Ack::Offset { lane, offset: raw.a },
        2 => Ack::Range { lane, epoch: 0, span },
        _ => Ack::FirstAttempts { lane, epoch: 0, span },
    }
}

struct Fuzzed {
    group: Group,
    now: u64,
    /// The last fetch of each lane, so that some pages are answers.
    fetches: [(u64, u64); 3],
    saves: u64,
}

impl Fuzzed {
    fn page(&mut self, raw: &Raw) {
        let (fetch, from) = self.fetches[raw.lane as usize];
        let events: Vec<Found> = (from..u64::MAX)
            .zip(&raw.page)
            .map(|(offset, (shift, key, skip))| Found {
                offset: if *shift == 0 { raw.a } else { offset },
                key: (*key > 0).then_some(*key),
                bytes: raw.b as u32,
                skip: *skip,
            })
            .collect();
        let gaps = [Span { from: raw.a, to: raw.b.min(raw.a.saturating_add(5_000)) }];
        let page = Page {
            lane: LaneId::new(raw.lane),
            fetch,
            from,
            to: from.saturating_add(events.len() as u64),
            events: &events,
            gaps: &gaps,
        };
        self.step(Input::Fetched(page));
    }

    fn step(&mut self, input: Input<'_>) {
        let mut outputs = Vec::new();
        self.group.step(self.now, input, &mut outputs);
        for output in outputs {
            match output {
                Output::Fetch(fetch) => {
                    self.fetches[fetch.lane.get() as usize] = (fetch.fetch, fetch.from);
                }
                Output::Save(save) => {
                    assert_eq!(save.number, self.saves + 1);
                    self.saves = save.number;
                }
                Output::Deliver(deliver) => assert!(deliver.count() > 0),
                _ => {}
            }
        }
        for lane in 0..3 {
            if let Some(status) = self.group.status(LaneId::new(lane)) {
                assert!(status.floor <= status.next);
                assert!(u64::from(status.out) <= status.next - status.floor + 20);
            }
        }
    }

    /// Something of a consumer's about a delivery.
    fn say(&mut self, raw: &Raw) {
        let (member, request) = (MemberId::new(raw.member), RequestId::new(0));
        match raw.kind {
            16..=18 => {
                self.step(Input::Ack { member, request, items: &[target(raw), target(raw)] })
            }
            19 | 20 => self.step(Input::Nack {
                member,
                request,
                target: target(raw),
                verdict: match raw.member {
                    0 => Verdict::Skip,
                    1 => Verdict::Park { error: &[255; 2_000], fingerprint: raw.a },
                    _ => {
                        Verdict::Retry { delay_ms: Some(raw.b as u32), error: b"", fingerprint: 0 }
                    }
                },
            }),
            _ => self.step(Input::Extend {
                member,
                request,
                target: target(raw),
                lease_ms: raw.b as u32,
            }),
        }
    }

    /// Something of an operator's.
    fn operate(&mut self, raw: &Raw) {
        let (lane, request) = (LaneId::new(raw.lane), RequestId::new(0));
        let span = Span { from: raw.a, to: raw.b };
        let event = DeadLetterRef { offset: raw.a, key: Some(raw.b % 4), round: raw.b as u16 };
        match raw.kind {
            25 => self.step(Input::Skip { request, lane, span }),
            26 => self.step(Input::Seek { request, lane, to: raw.a }),
            27 => self.step(Input::Release { request, lane, event }),
            _ => self.step(Input::Discard { request, lane, event }),
        }
    }

    fn apply(&mut self, raw: &Raw) {
        let (lane, member) = (LaneId::new(raw.lane), MemberId::new(raw.member));
        let from = match raw.b % 2 {
            0 => StartFrom::Offset(raw.a),
            _ => StartFrom::State(Box::new(state(raw))),
        };
        let tail = raw.b;
        match raw.kind {
            0..=5 => self.page(raw),
            6 => self.step(Input::LaneAdded(LaneStart { lane, tail, from })),
            7 => self.step(Input::LaneRemoved { lane }),
            8 | 9 => self.step(Input::Appended { lane, tail: raw.a }),
            10 => self.step(Input::FetchFailed { lane, fetch: raw.a }),
            11 | 12 => self.step(Input::Joined {
                member,
                options: MemberOptions {
                    credits: raw.a.is_multiple_of(2).then_some(raw.b as u32),
                    max_in_flight: raw.a as u32,
                    max_bytes_in_flight: raw.b,
                    batch_size: raw.a as u32,
                    lanes: raw.b.is_multiple_of(5).then(|| vec![lane]),
                },
            }),
            13 => self.step(Input::Left { member }),
            14 => self.step(Input::Credit { member, events: raw.a as u32 }),
            15 => self.step(Input::LaneReleased { member, lane, generation: raw.a as u32 }),
            16..=21 => self.say(raw),
            22..=24 => self.step(Input::Saved { number: self.saves.max(raw.a % 3) }),
            25..=28 => self.operate(raw),
            29 => self.now = self.now.saturating_add(raw.a),
            30 => self.step(Input::Heartbeat { member }),
            _ => self.step(Input::Tick),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_input_is_too_absurd(
        raws in prop::collection::vec(raw(), 1..80),
        partitioned: bool,
        max_attempts in 1u16..4,
        window in 1u32..40,
    ) {
        let options = GroupOptions {
            mode: if partitioned { Mode::Partitioned } else { Mode::Shared },
            park: if max_attempts == 2 { Park::Key } else { Park::Event },
            max_attempts,
            window_events: window,
            member_ttl_ms: Some(1_000),
            ..GroupOptions::default()
        };
        let mut fuzzed = Fuzzed {
            group: Group::new(options, 1).unwrap(),
            now: 0,
            fetches: [(0, 0); 3],
            saves: 0,
        };
        for raw in &raws {
            fuzzed.apply(raw);
        }
    }
}
